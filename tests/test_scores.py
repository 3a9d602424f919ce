"""Scores of predictions: closed forms, standard errors, and the awkward cases."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import stories
from fits import fit_of
from scipy.stats import norm

from topiczoo.diagnostics.scoring import predictive_scores
from topiczoo.diagnostics.scoring.predictive_scores import class_scores, crps, r_squared, real_scores, scores
from topiczoo.inference.predictive.fold_in import FoldIn
from topiczoo.models import draw_words, medlda

RNG = np.random.default_rng(0)


def test_crps_of_normal_draws_is_gneitings_closed_form():
    y = np.array([0.0, 1.0, -2.5])
    expected = y * (2 * norm.cdf(y) - 1) + 2 * norm.pdf(y) - 1 / np.sqrt(np.pi)
    np.testing.assert_allclose(crps(y, RNG.normal(size=(40_000, 3))), expected, atol=0.02)  # known to 0.003
    draws = np.array([[0.0], [1.0], [5.0]])  # |x - 2| is 2, 1, 3 and the pairs are 1, 5 and 4 apart
    np.testing.assert_allclose(crps(np.array([2.0]), draws), 6 / 3 - (1 + 5 + 4) / 3 / 2)


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


def test_scores_by_hand():
    """Three documents, of which one has no response; eleven draws from 0 to 10 times a scale."""
    y, mean = np.array([2.0, np.nan, 4.0]), np.array([3.0, 0.0, 8.0])
    draws = np.arange(11.0)[:, None] * [1.0, 100.0, 0.5]
    frame = real_scores(y, mean, draws, np.array([-1.0, 50.0, -4.0]))
    value, error = frame["value"], frame["error"]
    assert value["r2"] == 1 - (1 + 16) / 2 and value["rmse"] == pytest.approx(np.sqrt(8.5))
    assert error["rmse"] == pytest.approx(np.std([1, 16], ddof=1) / np.sqrt(2) / 2 / np.sqrt(8.5))
    assert value["mae"] == (abs(2 - 5) + abs(4 - 2.5)) / 2  # of medians
    assert value["log_score"] == -2.5 and error["log_score"] == pytest.approx(1.5)
    assert value["coverage_50"] == 0.0  # 2.5 to 7.5, and half of that
    assert value["coverage_90"] == 1.0  # 0.5 to 9.5, and 0.25 to 4.75
    assert error["coverage_90"] == pytest.approx(np.sqrt(4 / 6 * 2 / 6 / 6))
    at_the_end = real_scores(np.array([0.5, 4.75]), mean[:2], draws[:, [0, 2]], None)
    assert at_the_end.loc["coverage_90", "value"] == 1.0 and "log_score" not in at_the_end.index


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


def test_the_class_that_is_decided_on_counts_and_not_the_most_probable_one():
    """Under a margin they may differ."""
    probabilities = np.array([[0.7, 0.3], [0.4, 0.6], [0.2, 0.8], [0.9, 0.1]])
    frame = class_scores(np.array([0.0, 0.0, 1.0, 1.0]), np.array([0, 0, 1, 0]), probabilities)
    assert frame.loc["accuracy", "value"] == 0.75
    assert frame.loc["accuracy", "error"] == pytest.approx(np.sqrt(5 / 8 * 3 / 8 / 8))


def test_densities_are_averaged_over_all_draws_and_those_of_several_parts_belong_to_none(monkeypatch):
    """Two responses of made-up densities and draws: one number a document, and two."""
    rng = np.random.default_rng(7)
    y = {"one": np.array([0.5, -0.4, 1.2]), "two": np.array([[0.1, 0.2], [0.3, np.nan], [0.7, -0.6]])}
    logs = {name: rng.normal(0, 3, (2, 4, 3)) for name in y}
    made = {
        name: SimpleNamespace(
            probabilities=None, mean=value + 0.1, draws=rng.normal(size=(20, *value.shape)), evidence=None
        )
        for name, value in y.items()
    }
    for own in made.values():
        own.mean = np.nan_to_num(own.mean)
    monkeypatch.setattr(predictive_scores, "pointwise", lambda *_, **__: SimpleNamespace(
        log_likelihood=logs, observed=y, predictions=made))  # fmt: skip
    frame = scores(None, None, y)
    expected = np.log(np.exp(logs["one"]).reshape(8, 3).mean(0))
    assert frame.loc[("one", "log_score"), "value"] == pytest.approx(expected.mean())
    for i in (0, 1):
        part = frame.loc[f"two[{i}]"]
        assert "log_score" not in part.index
        own = real_scores(y["two"][:, i], made["two"].mean[:, i], made["two"].draws[:, :, i], None)
        np.testing.assert_allclose(part["value"], own["value"])


@pytest.mark.slow
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
    level = np.array([0.1, 0.5, -0.2, 0.8])  # the same for both topics: what is expected does not depend on words
    eta = np.repeat(level[None, :, None], 2, -1).astype(np.float32)
    fit = fit_of(story, {"beta": np.full((1, 4, 2, 3), 1 / 3, np.float32), "eta": eta}, corpus, y, num_topics=2)
    frame = scores(fit, corpus, y)
    assert list(frame.index.get_level_values("response").unique()) == ["stars", "votes[0]", "votes[1]"]
    density = norm.pdf(first[:, None], level, 0.5).mean(1)
    np.testing.assert_allclose(frame.loc[("stars", "log_score"), "value"], np.log(density).mean(), rtol=1e-4)
    np.testing.assert_allclose(frame.loc[("stars", "rmse"), "value"], np.sqrt(np.mean((first - 0.3) ** 2)), rtol=1e-4)
    for part in (0, 1):
        expected = np.sqrt(np.mean((y["votes"][:, part] - 0.3) ** 2))
        np.testing.assert_allclose(frame.loc[(f"votes[{part}]", "rmse"), "value"], expected, rtol=1e-4)
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
    fit = fit_of(medlda, {"beta": np.full((1, 2, 2, 3), 1 / 3)}, corpus, y, margin="regression", num_topics=2)
    assert FoldIn(fit, corpus).responses == ["y"]
