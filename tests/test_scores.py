"""Scores of predictions: closed forms, standard errors, and the awkward cases."""

from __future__ import annotations

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import stories
from scipy.special import logsumexp
from scipy.stats import norm
from test_held_out import fit_of
from test_pointwise import simulated  # noqa: F401

from topiczoo import inference
from topiczoo.diagnostics.predictive_scores import class_scores, crps, r_squared, real_scores, scores
from topiczoo.inference.folding import Folding
from topiczoo.models import draw_words, medlda

RNG = np.random.default_rng(0)


def test_crps_of_normal_draws_is_gneitings_closed_form():
    y = np.array([0.0, 1.0, -2.5])
    expected = y * (2 * norm.cdf(y) - 1) + 2 * norm.pdf(y) - 1 / np.sqrt(np.pi)
    np.testing.assert_allclose(crps(y, RNG.normal(size=(40_000, 3))), expected, atol=0.02)


def test_crps_is_unbiased_with_few_draws():
    draws = RNG.normal(size=(5, 20_000))
    mean = crps(np.full(20_000, 0.7), draws)
    y = 0.7
    expected = y * (2 * norm.cdf(y) - 1) + 2 * norm.pdf(y) - 1 / np.sqrt(np.pi)
    assert abs(mean.mean() - expected) < 4 * mean.std() / np.sqrt(20_000)


def test_r_squared_and_its_error():
    y, noise = RNG.normal(size=(2, 200))
    value, error = r_squared(y, y + 0.5 * noise)
    left = [
        1 - np.sum(0.25 * np.delete(noise, i) ** 2) / np.sum((np.delete(y, i) - np.delete(y, i).mean()) ** 2)
        for i in range(200)
    ]
    np.testing.assert_allclose(value, 1 - np.sum(0.25 * noise**2) / np.sum((y - y.mean()) ** 2))
    np.testing.assert_allclose(error, np.sqrt(199 * np.var(left)), rtol=1e-6)


def test_a_calibrated_prediction_scores_as_it_should():
    mean = RNG.normal(size=500)
    y = mean + 0.5 * RNG.normal(size=500)
    draws = mean + 0.5 * RNG.normal(size=(400, 500))
    frame = real_scores(y, mean, draws, norm.logpdf(y, mean, 0.5))
    expected = {"r2": 0.8, "rmse": 0.5, "mae": 0.5 * np.sqrt(2 / np.pi), "crps": 0.5 / np.sqrt(np.pi),
                "log_score": -0.5 * np.log(2 * np.pi * np.e * 0.25), "coverage_50": 0.5, "coverage_90": 0.9}  # fmt: skip
    for name, value in expected.items():
        assert abs(frame.loc[name, "value"] - value) < 4 * frame.loc[name, "error"], name
    narrow = real_scores(y, mean, mean + 0.25 * (draws - mean), norm.logpdf(y, mean, 0.125))
    assert narrow.loc["coverage_90", "value"] < 0.5 and narrow.loc["crps", "value"] > frame.loc["crps", "value"]
    assert narrow.loc["log_score", "value"] < frame.loc["log_score", "value"] - 1


def test_constant_single_and_missing_responses():
    draws = RNG.normal(size=(50, 4))
    constant = real_scores(np.ones(4), draws.mean(0), draws, np.zeros(4))
    assert np.isnan(constant.loc["r2", "value"]) and "not vary" in constant.loc["r2", "meaning"]
    assert constant.loc["rmse", "value"] > 0
    single = real_scores(np.array([np.nan, 0.3, np.nan, np.nan]), draws.mean(0), draws, np.zeros(4))
    assert np.isnan(single.loc["mae", "error"]) and np.isfinite(single.loc["mae", "value"])
    sure = real_scores(np.zeros(4), draws.mean(0), 9 * draws, np.zeros(4))
    assert sure.loc["coverage_90", "value"] == 1 and sure.loc["coverage_90", "error"] > 0
    with pytest.raises(ValueError, match="NaN for every document"):
        real_scores(np.full(4, np.nan), draws.mean(0), draws, np.zeros(4))


def test_classes():
    probabilities = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.5, 0.3, 0.2], [0.2, 0.2, 0.6]])
    truth, decided = np.array([0, 1, 2, np.nan]), probabilities.argmax(1)
    frame = class_scores(truth, decided, probabilities)
    assert frame.loc["accuracy", "value"] == pytest.approx(2 / 3)
    assert frame.loc["brier", "value"] == pytest.approx((0.14 + 0.06 + 0.98) / 3)
    assert frame.loc["log_score", "value"] == pytest.approx(np.log([0.7, 0.8, 0.2]).mean())


def test_scores_of_a_fit(simulated):  # noqa: F811
    fit = simulated[0]
    frame = scores(fit, fit.corpus, fit.y, most_draws=50, num_burn=5)
    assert list(frame.index) == ["r2", "rmse", "mae", "log_score", "crps", "coverage_50", "coverage_90"]
    assert list(frame.columns) == ["value", "error", "meaning"] and frame["error"].gt(0).all()
    assert frame.loc["r2", "value"] > 0.5
    assert abs(frame.loc["coverage_90", "value"] - 0.9) < 4 * frame.loc["coverage_90", "error"]
    with pytest.raises(ValueError, match="has 3 values"):
        scores(fit, fit.corpus, [1.0, 2.0, 3.0])


def test_the_log_score_of_one_pass_is_that_of_many_sweeps(simulated):  # noqa: F811
    """Its Monte Carlo error is small against the error over documents, and topics are folded in once."""
    fit, folded = simulated[0], []
    run = Folding.run
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Folding, "run", lambda self, *given, **named: folded.append(1) or run(self, *given, **named))
        found = [scores(fit, fit.corpus, fit.y, seed=seed).loc["log_score"] for seed in (0, 1)]
    assert len(folded) == 2
    logs = inference.log_likelihood(fit, fit.corpus, fit.y, inner=30, seed=2)
    exact = np.nanmean(logsumexp(logs, axis=(0, 1)) - np.log(logs[..., 0].size))
    for row in found:
        assert abs(row["value"] - exact) < 0.25 * row["error"]


def test_several_responses_and_parts():
    """Two sites, one of them of two numbers a document."""

    def story(corpus, y=None, *, num_topics=2):
        beta, eta = stories.topics(corpus, num_topics), stories.coefficients(num_topics)
        zbar = draw_words(corpus, stories.proportions(corpus, num_topics), beta)
        y = {} if y is None else y
        with numpyro.plate("documents", corpus.num_documents):
            numpyro.sample("stars", dist.Normal(zbar @ eta, 0.5), obs=y.get("stars"))
            numpyro.sample(
                "votes",
                dist.Normal((zbar @ eta)[:, None], 1.0).expand([corpus.num_documents, 2]).to_event(1),
                obs=y.get("votes"),
            )

    corpus, first = stories.tiny()
    y = {"stars": first, "votes": RNG.normal(size=(3, 2))}
    draws = {"beta": np.full((1, 4, 2, 3), 1 / 3, np.float32), "eta": RNG.normal(size=(1, 4, 2)).astype(np.float32)}
    fit = fit_of(story, draws, corpus, y, num_topics=2)
    frame = scores(fit, corpus, y)
    assert list(frame.index.get_level_values("response").unique()) == ["stars", "votes[0]", "votes[1]"]
    assert np.isfinite(frame.loc[("stars", "log_score"), "value"])
    expected = np.sqrt(np.mean((y["votes"][:, 1] - 0) ** 2))
    assert abs(frame.loc[("votes[1]", "rmse"), "value"] - expected) < 2  # means of four draws of eta stay near 0
    chosen = fit.select("largest", keep=1, intercept=False)
    assert chosen.predict(corpus)["votes"].mean.shape == (3, 2)
    errors = chosen.errors(corpus, y)
    assert list(errors.columns) == ["kept", "sparsity", "stars", "votes"] and np.isfinite(errors.to_numpy()).all()
    without_topics = np.mean(np.square(first))  # all means are 0
    np.testing.assert_allclose(errors["stars"][0], without_topics, rtol=1e-5)
    for wrong, words in ((first, "y is one response"), ({"star": first}, r"y names \['star'\]")):
        with pytest.raises(ValueError, match=words + ", and the story has 'stars', 'votes'; give a dict of those"):
            chosen.errors(corpus, wrong)


def test_a_margin_beside_the_response_is_no_response_of_its_own():
    corpus, y = stories.tiny()
    draws = {"beta": np.full((1, 2, 2, 3), 1 / 3, np.float32), "eta": RNG.normal(size=(1, 2, 2)).astype(np.float32)}
    fit = fit_of(medlda, {**draws, "sigma": np.ones((1, 2), np.float32)}, corpus, y, margin="regression", num_topics=2)
    assert fit.predict(corpus).site == "y"
    assert list(scores(fit, corpus, y).index[:2]) == ["r2", "rmse"]
