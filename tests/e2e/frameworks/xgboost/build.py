"""Boosted trees: classifiers of three and two classes, and a regressor."""

import numpy as np
from xgboost import XGBClassifier, XGBRegressor

SEED = 0
ROWS = np.random.default_rng(SEED).normal(size=(80, 4)).astype(np.float32)
LABELS = (ROWS[:, 0] > 0).astype(int) + (ROWS[:, 1] > 0.5)


def classifier():
    """Return a classifier of three classes."""
    return XGBClassifier(n_estimators=6, max_depth=3).fit(ROWS, LABELS), ROWS[:3]


def binary():
    """Return a classifier of two classes."""
    return XGBClassifier(n_estimators=6, max_depth=3).fit(ROWS, LABELS > 0), ROWS[:3]


def regressor():
    """Return a regressor."""
    return XGBRegressor(n_estimators=6, max_depth=3).fit(ROWS, ROWS[:, 0] * ROWS[:, 1]), ROWS[:3]
