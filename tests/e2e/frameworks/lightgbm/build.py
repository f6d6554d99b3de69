"""Boosted trees: a regressor, a classifier and a pipeline of a scaler and a classifier."""

import numpy as np
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

SEED = 0
ROWS = np.random.default_rng(SEED).normal(size=(80, 4)).astype(np.float32)
LABELS = np.array(["low", "middle", "high"])[(ROWS[:, 0] > 0).astype(int) + (ROWS[:, 1] > 0.5)]
TREES = {"n_estimators": 6, "min_child_samples": 3, "verbose": -1}


def regressor():
    """Return a regressor."""
    return LGBMRegressor(**TREES).fit(ROWS, ROWS[:, 0] * ROWS[:, 1]), ROWS[:3]


def classifier():
    """Return a classifier with string labels."""
    return LGBMClassifier(**TREES).fit(ROWS, LABELS), ROWS[:3]


def pipeline():
    """Return a classifier after a scaler."""
    return make_pipeline(MinMaxScaler(), LGBMClassifier(**TREES)).fit(ROWS, LABELS), ROWS[:3]
