"""Which topics count, on a fit whose topics share no word: the shares of a document are known."""

from __future__ import annotations

import numpy as np
import pytest
from fits import fit_of

from topiczoo import models
from topiczoo.corpora import Corpus
from topiczoo.inference.predictive.selection import _Column

RNG = np.random.default_rng(0)
COUNTS = RNG.poisson(3.0, (12, 4)) + np.eye(12, 4, dtype=int)
ZBAR = COUNTS / COUNTS.sum(1, keepdims=True)
CORPUS = Corpus.from_counts(COUNTS, ["ant", "bee", "cat", "dog"])
MEAN = np.array([[-2.0, 3.0, 0.0, -1.0], [2.0, -3.0, 0.05, 1.0]])  # the second chain is right
SPREAD = np.array([0.5, 0.5, 1.0, 2.0])
ETA = (MEAN[:, None] + np.linspace(-1, 1, 21)[:, None] * SPREAD).astype(np.float32)
Y = np.append(np.nan, (ZBAR @ [2.0, -3.0, 0.0, 1.0])[1:])


@pytest.fixture(scope="module")
def fit():
    beta = np.full((4, 4), 1e-7) + (1 - 4e-7) * np.eye(4)
    draws = {"beta": np.broadcast_to(beta, (2, 21, 4, 4)), "eta": ETA, "sigma": np.ones((2, 21))}
    draws = {name: value.astype(np.float32) for name, value in draws.items()}
    return fit_of(models.slda, draws, CORPUS, Y, num_topics=4)


def nearest(columns, target):
    return columns @ np.linalg.lstsq(columns, target, rcond=None)[0]


@pytest.mark.parametrize(
    ("rule", "options", "kept"),
    [
        ("largest", {"keep": 1}, [1]), ("largest", {"keep": 2}, [0, 1]), ("largest", {"keep": 0.8}, [0, 1, 3]),
        ("largest", {"keep": 0}, []), ("interval", {}, [0, 1]), ("interval", {"probability": 0.3}, [0, 1, 3]),
        ("interval", {"keep": 1}, [1]), ("projection", {"keep": 4}, [0, 1, 2, 3]),
    ],
)  # fmt: skip
def test_topics_are_kept_by_the_rule_that_was_named(fit, rule, options, kept):
    """Intervals of 90% reach 0.9 of the spread on either side, of 30% a third of that."""
    found = fit.select(rule, chain=1, **options)
    assert np.flatnonzero(found.kept).tolist() == kept and found.chain == 1
    left = np.setdiff1d(np.arange(4), kept)
    assert len(np.unique(np.round(found.coefficients[left], 6))) <= 1  # one number in common
    columns = np.c_[ZBAR[:, kept], np.ones((12, 1))]
    np.testing.assert_allclose(ZBAR @ found.coefficients, nearest(columns, ZBAR @ MEAN[1]), atol=2e-3)


def test_projection_keeps_as_few_topics_as_explain_enough(fit):
    """19 of 20 parts of the variance of what all topics predict: with one topic less it would not be."""
    target = ZBAR @ MEAN[1]

    def left(kept):
        return np.mean((target - nearest(np.c_[ZBAR[:, kept], np.ones(12)], target)) ** 2) / target.var()

    found = fit.select("projection", chain=1)
    kept = np.flatnonzero(found.kept)
    assert 0 < len(kept) < 4 and left(kept) < 0.05
    assert min(left(np.setdiff1d(kept, k)) for k in kept) > 0.05


def test_without_an_intercept_what_is_not_kept_counts_for_nothing(fit):
    found = fit.select("largest", keep=2, intercept=False, chain=1)
    assert found.coefficients[2] == found.coefficients[3] == 0
    np.testing.assert_allclose(ZBAR @ found.coefficients, nearest(ZBAR[:, :2], ZBAR @ MEAN[1]), atol=2e-3)


def test_intervals_order_topics_by_mean_over_deviation_those_that_pass_first():
    """A large coefficient that is hardly known comes after a small one that is."""
    rng, zbar = np.random.default_rng(0), np.random.default_rng(1).dirichlet(np.ones(4), 30)
    draws = np.array([3.0, 1.0, -0.1, 5.0]) + np.array([1.2, 0.1, 0.02, 6.0]) * rng.normal(size=(400, 4))
    column = _Column(zbar, draws, None, "interval", 0.9, True)
    assert column.order.tolist() == [1, 2, 0, 3] and column.size == 3
    assert _Column(zbar, draws, None, "largest", 0.9, True).order.tolist() == [3, 0, 1, 2]


def test_the_chain_that_predicts_best_is_summarised(fit):
    found = fit.select("largest", keep=2)
    assert found.chain == 1
    np.testing.assert_array_equal(found.draws, ETA[1])
    frame = found.frame(1)
    assert list(frame.columns) == ["topic", "mean", "low", "high", "kept", "coefficient", "terms"]
    assert frame["kept"].tolist() == [True, True, False, False]
    assert frame["topic"].tolist()[:2] == [1, 0] and (np.diff(frame["coefficient"][:2]) > 0).all()
    for _, row in frame.iterrows():
        mean, spread = MEAN[1, row["topic"]], SPREAD[row["topic"]]
        np.testing.assert_allclose(
            [row["mean"], row["low"], row["high"]], mean + spread * np.array([0, -0.9, 0.9]), atol=1e-5
        )
        assert row["terms"] == CORPUS.vocabulary[row["topic"]]
    half = found.frame(1, 0.5).set_index("topic")
    np.testing.assert_allclose(half.loc[3, "high"] - half.loc[3, "low"], 2 * 0.5 * SPREAD[3], atol=1e-5)


def test_errors_are_those_of_the_documents_with_a_response(fit):
    """The price of sparsity; and predictions with the kept coefficients have the noise of the fit."""
    found = fit.select("largest", keep=2, chain=1)
    table = found.errors(CORPUS, Y)
    assert table["kept"].tolist() == [0, 1, 2, 3, 4] and table["sparsity"].tolist() == [0, 0.25, 0.5, 0.75, 1]
    expected = [np.mean((ZBAR @ path - Y)[1:] ** 2) for path in found.path]
    np.testing.assert_allclose(table["error"], expected, rtol=1e-3, atol=1e-5)
    assert table.attrs["error"] == "mean squared error" and table["error"].iloc[-1] < 0.01 < table["error"].iloc[0]
    told = found.predict(CORPUS)
    np.testing.assert_allclose(told.mean, ZBAR @ found.coefficients, atol=1e-3)
    assert abs(told.draws.std(0).mean() - 1) < 0.1  # 2400 numbers: known to 0.015


def test_what_cannot_be_selected_is_said(fit):
    for options, words in (
        ({"rule": "lasso"}, "rule is 'lasso'; choose from 'largest', 'interval', 'projection'"),
        ({"rule": "largest"}, "keep is missing for the rule 'largest'"),
        ({"keep": 5}, "keep is 5; give a whole number from 0 to 4, or a share below 1"),
        ({"keep": 1.5}, "keep is 1.5"),
        ({"chain": 2}, "chain is 2; the fit has chains 0 to 1"),
        ({"site": "beta"}, "site is 'beta'; the story 'slda' has the coefficients 'eta': name one"),
        ({"probability": 1.0}, "probability is 1.0"),
    ):
        with pytest.raises(ValueError, match=words):
            fit.select(**options)
