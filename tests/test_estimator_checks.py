"""scikit-learn's own checks of an estimator, on counts that it makes up; every estimator with settings for tiny corpora."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from topiczoo import estimators

BY_VEM = {"engine": "vem", "engine_options": {"num_iterations": 3, "num_draws": 5}}
BY_GIBBS = {"engine": "gibbs", "engine_options": {"num_warmup": 2, "num_samples": 4, "num_chains": 1}}
ALL = [
    estimators.SAGEClassifier(**BY_VEM),
    estimators.LDA(2, **BY_VEM),
    estimators.SLDARegressor(2, **BY_GIBBS),
    estimators.MixtureOfCategoricals(2, **BY_GIBBS),
    estimators.SLDAClassifier(2, **BY_VEM),
    estimators.SSTMRegressor(2, **BY_GIBBS),
    estimators.SSTMClassifier(2, **BY_GIBBS),
    estimators.MedLDARegressor(2, **BY_VEM),
    estimators.MedLDAClassifier(2, **BY_VEM),
    estimators.StoryRegressor("slda", 2, **BY_VEM),
    estimators.StoryClassifier("disclda", story_options={"num_topics": 8, "shared": 2}, **BY_VEM),
]

WORDLESS = "the documents of one of the check's classes are rows of zeros: without words they are left out of the fit"


def expected_failures(estimator):
    """Where a response is learned, what is left of the check's data has but one."""
    if not estimator.__sklearn_tags__().target_tags.required:
        return {}
    return dict.fromkeys(["check_pipeline_consistency", "check_estimators_pickle"], WORDLESS)


@pytest.mark.longest
@parametrize_with_checks(ALL, expected_failed_checks=expected_failures)
def test_estimators_pass_scikit_learns_checks(estimator, check):
    """Every check compiles for its own documents: most of an hour in all. test_estimators.py has what is ours."""
    check(estimator)
