"""scikit-learn's estimators for stories: ``from topiczoo import LDA, SLDARegressor, ...``; docs/estimators.md shows them."""

from .classifiers import MedLDAClassifier, SAGEClassifier, SLDAClassifier, SSTMClassifier, StoryClassifier
from .regressors import MedLDARegressor, SLDARegressor, SSTMRegressor, StoryRegressor
from .unsupervised import LDA, MixtureOfCategoricals

__all__ = [
    "LDA", "MixtureOfCategoricals", "SLDARegressor", "SLDAClassifier", "SSTMRegressor", "SSTMClassifier",
    "MedLDARegressor", "MedLDAClassifier", "SAGEClassifier", "StoryRegressor", "StoryClassifier",
]  # fmt: skip
