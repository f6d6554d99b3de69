"""A classification pipeline, a random forest and a k-means model."""

import numpy as np
from sklearn.cluster import KMeans
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

SEED = 0
ROWS = np.random.default_rng(SEED).normal(size=(80, 4)).astype(np.float32)
LABELS = np.array(["low", "middle", "high"])[(ROWS[:, 0] > 0).astype(int) + (ROWS[:, 1] > 0.5)]


def classifier():
    """Return a classifier with string labels, whose probabilities are a matrix with one column per label."""
    return make_pipeline(StandardScaler(), LogisticRegression()).fit(ROWS, LABELS), ROWS[:3]


def forest():
    """Return a forest with explicit input and output names."""
    model = RandomForestRegressor(n_estimators=8, max_depth=5, random_state=SEED).fit(ROWS, ROWS[:, 0] * ROWS[:, 1])
    return {"model": model, "args": ROWS[:3], "input_names": ["rows"], "output_names": ["price"]}


def clusters():
    """Return a model with two outputs: the nearest center and the distances to all centers."""
    return KMeans(3, n_init=1, random_state=SEED).fit(ROWS), ROWS[:3]
