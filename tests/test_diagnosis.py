"""Verdicts: on draws whose faults are planted, and on real fits of every engine."""

from __future__ import annotations

import numpy as np
import pytest
from test_alignment import made_fit, posterior

from topiczoo import corpora, inference, models
from topiczoo.diagnostics import diagnose
from topiczoo.diagnostics.variational import loss_slope


def good(num_chains=2, num_draws=400):
    beta, eta, usage = posterior(num_chains=num_chains, num_draws=num_draws, num_topics=4, num_terms=12)
    rng = np.random.default_rng(3)
    usage = usage + 0.001 * rng.normal(size=usage.shape)
    fit = made_fit(beta, eta=eta, usage=usage, sigma=rng.gamma(50, 0.02, (num_chains, num_draws)))
    fit.statistics["lp"] = rng.normal(size=(num_chains, num_draws))
    return fit


def test_independent_draws_pass_every_check():
    found = diagnose(good(), predictions=0)
    assert found.passes, found.checks.to_string()
    assert found.verdict.startswith("Nothing speaks against this posterior: every check passed.")
    assert set(found.numbers["kind"]) == {"label-invariant", "parameter", "coefficient", "term"}
    assert (found.numbers["r_hat"] < 1.01).all()
    assert found.as_dict()["passes"] is True


def test_label_switching_alone_passes():
    fit = good()
    for values in (fit.draws, fit.statistics):
        for name in set(values) & {"beta", "eta", "usage"}:
            values[name] = np.concatenate([values[name][:1], values[name][1:, :, ::-1]])
    assert diagnose(fit, predictions=0).passes


def test_a_chain_elsewhere_fails_by_name():
    fit = good()
    fit.draws["sigma"][1] += 1.0
    found = diagnose(fit, predictions=0)
    assert not found.passes
    assert found.checks.loc["R-hat of parameters", "passes"] is False
    assert "R-hat is above 1.01" in found.verdict and "sigma" in found.checks.loc["R-hat of parameters", "meaning"]


def test_sticky_draws_have_too_few_effective_ones():
    fit = good()
    fit.statistics["lp"] = np.random.default_rng(0).normal(size=(2, 400)).cumsum(1)
    found = diagnose(fit, predictions=0)
    assert found.checks.loc["effective draws of label-invariant quantities", "passes"] is False
    assert "effective draws" in found.verdict


def test_different_topics_are_named():
    fit = good()
    fit.draws["beta"][1, :, 2] = np.roll(fit.draws["beta"][1, :, 2], 5, axis=-1)
    found = diagnose(fit, predictions=0)
    assert found.checks.loc["chains found the same topics", "passes"] is False
    assert "Chains found different topic 2" in found.verdict


def test_divergences_are_counted():
    fit = good()
    fit.statistics["diverging"] = np.zeros((2, 400), bool)
    fit.statistics["diverging"][0, :4] = True
    checks = diagnose(fit, predictions=0).checks
    assert checks.loc["no divergences", "value"] == 0.005 and checks.loc["no divergences", "passes"] is False


def test_topics_that_stand_still_are_noticed():
    fit = good()
    fit.statistics["moved"] = np.full((2, 400), 0.2)
    assert diagnose(fit, predictions=0).checks.loc["topics move", "passes"] is True
    fit.statistics["moved"][1] = 0.0
    found = diagnose(fit, predictions=0)
    assert found.checks.loc["topics move", "passes"] is False and "Not so: topics move (share of words" in found.verdict


def test_ten_draws_of_one_chain_say_what_cannot_be_known():
    found = diagnose(good(1, 10), predictions=0)
    assert not found.passes
    assert "cannot be known from 10 draws a chain" in found.verdict
    assert "whether another would find the same topics cannot be known" in found.verdict
    assert "nan" not in found.verdict.lower()
    assert all(value is None for value in found.checks["passes"]), found.checks.to_string()


def test_thresholds_can_be_replaced_by_name_only():
    assert not diagnose(good(), predictions=0, thresholds={"ess_per_chain": 1e6}).passes
    with pytest.raises(ValueError, match="thresholds names 'rhat'; choose from r_hat"):
        diagnose(good(), thresholds={"rhat": 1.1})


def test_a_loss_that_still_falls():
    steps, rng = np.arange(2000), np.random.default_rng(0)
    noise = rng.normal(scale=3.0, size=2000)
    assert loss_slope(1000 - 0.2 * steps + noise, 2.0)["passes"] is False
    assert loss_slope(1000 * np.exp(-steps / 50) + noise, 2.0)["passes"] is True
    assert loss_slope(noise[:30], 2.0)["passes"] is None


@pytest.fixture(scope="module")
def reviews():
    corpus, stars = corpora.load_reviews(seed=0, num_documents=80)
    return corpus, (stars - stars.mean()) / stars.std()


def test_gibbs_predictions_are_followed(reviews):
    fit = inference.gibbs(
        models.slda, *reviews, num_topics=4, gamma=0.1, num_warmup=20, num_samples=60, progress_bar=False
    )
    found = diagnose(fit, predictions=3)
    assert (found.numbers["kind"] == "prediction").sum() == 3
    assert "chains predict alike" in found.checks.index
    assert "Predictions" in found.verdict
    assert np.isfinite(found.numbers["mean"]).all()


def test_svi_is_judged_by_loss_and_importance_ratios(reviews, tmp_path):
    fit = inference.svi(models.lda, reviews[0], num_topics=4, gamma=0.1, num_steps=300, progress_bar=False)
    found = diagnose(fit)
    assert list(found.checks.index) == [
        "the loss rests", "importance ratios of the global sites", "importance ratios of documents",
    ]  # fmt: skip
    assert found.checks["value"].astype(float).notna().all()
    loaded = diagnose(inference.load(fit.save(tmp_path / "fit.nc")))
    assert "cannot be known from a saved fit" in loaded.verdict


def test_vem_is_judged_by_its_bound(reviews):
    fit = inference.vem(models.lda, reviews[0], num_topics=4, gamma=0.1, num_iterations=3, progress_bar=False)
    found = diagnose(fit)
    assert found.checks.loc["the bound rests", "passes"] is False
    assert "give more num_iterations" in found.verdict
