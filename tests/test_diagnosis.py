"""Verdicts: on draws whose faults are planted, and on real fits of every engine."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from arviz_stats.base import array_stats
from scipy.signal import lfilter
from test_alignment import made_fit, posterior

from topiczoo import inference, models
from topiczoo.corpora import Corpus
from topiczoo.diagnostics import diagnose
from topiczoo.diagnostics.convergence.chain_checks import r_hat_limit
from topiczoo.diagnostics.convergence.diagnosis import THRESHOLDS
from topiczoo.diagnostics.convergence.followed import Followed, prediction_checks
from topiczoo.diagnostics.convergence.reliance import CARE, NOT, _mixing, _starts
from topiczoo.diagnostics.convergence.wording import first_sentence
from topiczoo.inference import Fit
from topiczoo.inference.predictive.expected_responses import Expected
from topiczoo.inference.story.reader import bind
from topiczoo.inference.story.response import Response
from topiczoo.inference.story.tracing import Story


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
    assert found.verdict.startswith(
        "Rely on this posterior: nothing speaks against it.\nHolds: topics (all chains found"
    )
    assert "What to do" not in found.verdict
    assert set(found.numbers["kind"]) == {"label-invariant", "parameter", "coefficient", "term"}
    assert (found.numbers["r_hat"] < 1.03).all()
    assert found.as_dict()["passes"] is True
    assert found.as_dict()["reliance"][0] == {
        "what": "topics",
        "grade": "rely",
        "why": "all chains found the same topics",
    }


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
    assert "sigma" in found.checks.loc["R-hat of parameters", "meaning"]
    assert found.reliance["grade"].to_dict() == {"topics": "rely", "coefficients": "do not rely"}
    assert found.verdict.startswith("Rely on topics; do not rely on coefficients.")


def test_too_few_effective_draws_say_how_many_would_do():
    """Draws with an autocorrelation of 0.9 are worth a nineteenth: 400 of them 21 a chain."""
    fit, rng = good(), np.random.default_rng(0)
    noise = rng.normal(size=(2, 400))
    for i in range(1, 400):
        noise[:, i] = 0.9 * noise[:, i - 1] + 0.19**0.5 * noise[:, i]
    fit.draws["sigma"] = 1 + 0.1 * noise
    found = diagnose(fit, predictions=0)
    assert found.checks.loc["effective draws of parameters", "passes"] is False
    assert found.reliance.loc["coefficients", "grade"] in ("with care", "do not rely")
    wanted = int(re.search(r"num_samples=(\d+)", found.verdict)[1])
    assert 1200 < wanted < 6000  # 100 a chain take about 1900


def test_what_is_not_reported_needs_fewer_effective_draws_but_must_mix():
    fit, rng = good(), np.random.default_rng(1)
    fit.statistics["lp"] = rng.normal(size=(2, 400)).cumsum(1)
    found = diagnose(fit, predictions=0)
    assert found.checks.loc["effective draws of label-invariant quantities", "passes"] is False
    assert set(found.reliance["grade"]) == {"with care"}
    few = np.repeat(rng.normal(size=(2, 80)), 5, axis=1)
    fit.statistics["lp"] = few
    assert diagnose(fit, predictions=0).passes
    fit.draws["sigma"] = 1 + 0.1 * few
    assert diagnose(fit, predictions=0).checks.loc["effective draws of parameters", "passes"] is False


@pytest.mark.parametrize(
    ("num_series", "num_chains", "num_fits"), [(1, 4, 200), pytest.param(30, 2, 30, marks=pytest.mark.slow)]
)
def test_the_limit_of_r_hat_is_what_chance_gives_the_largest(num_series, num_chains, num_fits):
    """Converged chains of 100 effective draws each: often above 1.01, above the limit once in twenty; others above it."""
    noise = np.random.default_rng(0).normal(size=(num_chains, 550, num_series, num_fits))
    draws = lfilter([1.0], [1.0, -2 / 3], noise, axis=1)[:, 50:] * (5 / 9) ** 0.5  # 500 draws, each worth a fifth
    limit = r_hat_limit(num_series, num_chains, 100, 1.01)
    largest = array_stats.rhat(draws, chain_axis=0, draw_axis=1).max(0)
    assert (largest > 1.01).mean() > (0.2 if num_series == 1 else 0.99)
    assert (largest > limit).mean() < 0.1  # 0.05 and two standard errors
    apart = draws[:, :, 0, :20] + np.arange(num_chains)[:, None, None]
    assert (array_stats.rhat(apart, chain_axis=0, draw_axis=1) > limit).all()
    assert r_hat_limit(1, 4, 10_000, 1.01) == 1.01


@pytest.mark.parametrize(
    ("lost", "grade", "sentence"),
    [([3], "with care", "most topics are shared by all chains (3 of 4"),
     ([0, 1], "do not rely", "topics differ from chain to chain: all chains share 2 of 4")],
)  # fmt: skip
def test_agreement_on_topics_is_graded(lost, grade, sentence):
    fit = good()
    fit.draws["beta"][1][:, lost] = np.roll(fit.draws["beta"][1][:, lost], 5, axis=-1)
    found = diagnose(fit, predictions=0)
    assert found.checks.loc["chains found the same topics", "passes"] is False
    assert found.reliance.loc["topics", "grade"] == grade and sentence in found.reliance.loc["topics", "why"]
    assert found.reliance.loc["coefficients", "grade"] == grade
    assert "More draws will not bring topics together" in found.verdict and "num_samples" not in found.verdict
    # what belongs to a topic is compared where all chains have it
    assert found.checks.loc["R-hat of leading terms of topics", "passes"] is True


def test_a_topic_of_few_words_does_not_decide():
    fit = good()
    fit.statistics["usage"][..., 3] = 0.01
    fit.draws["beta"][1, :, 3] = np.roll(fit.draws["beta"][1, :, 3], 5, axis=-1)
    found = diagnose(fit, predictions=0)
    assert found.passes and "chains differ in 3" in found.verdict


def test_divergences_are_counted():
    fit = good()
    fit.statistics["diverging"] = np.zeros((2, 400), bool)
    fit.statistics["diverging"][0, :4] = True
    found = diagnose(fit, predictions=0)
    assert found.checks.loc["no divergences", "value"] == 0.005
    assert found.checks.loc["no divergences", "passes"] is False
    assert set(found.reliance["grade"]) == {"with care"} and "give a longer num_warmup" in found.verdict
    fit.statistics["diverging"][:, ::4] = True
    assert set(diagnose(fit, predictions=0).reliance["grade"]) == {"do not rely"}


@pytest.mark.parametrize(
    ("moved", "proposed", "passes"),
    [(0.2, 0.25, True), (0.00035, 0.00036, True), (0.0, 0.0, True), (0.0005, 0.2, False), (0.2, None, True),
     (0.0, None, False)],
)  # fmt: skip
def test_topics_that_stand_still_are_told_from_those_that_are_settled(moved, proposed, passes):
    fit = good()
    fit.statistics["moved"] = np.full((2, 400), moved)
    if proposed is not None:
        fit.statistics["proposed"] = np.full((2, 400), proposed)
        fit.statistics["moved"][0] = proposed  # the slower chain decides
    found = diagnose(fit, predictions=0)
    assert found.checks.loc["topics move", "passes"] is passes
    assert set(found.reliance["grade"]) == {"rely" if passes else "do not rely"}
    assert ("The response holds topics fast" in found.verdict) is not passes


def test_ten_draws_of_one_chain_say_what_cannot_be_known():
    found = diagnose(good(1, 10), predictions=0)
    assert not found.passes
    assert found.verdict.startswith("Of topics and coefficients nothing can be known yet.")
    assert "whether another would find the same topics cannot be known" in found.verdict
    assert "Give num_chains=2 or more" in found.verdict and "Give num_samples=50 at the least" in found.verdict
    assert "nan" not in found.verdict.lower()
    assert all(value is None for value in found.checks["passes"]), found.checks.to_string()


def test_thresholds_can_be_replaced_by_name_only():
    assert not diagnose(good(), predictions=0, thresholds={"ess_per_chain": 1e6}).passes
    with pytest.raises(ValueError, match="thresholds names 'rhat'; choose from r_hat"):
        diagnose(good(), thresholds={"rhat": 1.1})


def test_every_threshold_is_in_the_table_of_the_documentation():
    table = (Path(__file__).resolve().parents[1] / "docs" / "verdict.md").read_text()
    for name, value in THRESHOLDS.items():
        assert f"| `{name}` | {value:g} |" in table, name


@pytest.mark.parametrize(
    ("grades", "sentence"),
    [({"topics": "rely", "predictions": "rely"}, "Rely on this posterior: nothing speaks against it."),
     ({"topics": "do not rely", "coefficients": "do not rely", "predictions": "rely"},
      "Rely on predictions only, not on topics and coefficients."),
     ({"topics": "do not rely"}, "Do not rely on this posterior."),
     ({"topics": "with care", "coefficients": "do not rely", "predictions": "rely"},
      "Rely on predictions; take care with topics; do not rely on coefficients.")],
)  # fmt: skip
def test_the_first_sentence_says_what_to_rely_on(grades, sentence):
    reliance = pd.DataFrame({"grade": grades, "why": dict.fromkeys(grades, "so it is")})
    assert first_sentence(reliance) == sentence


def followed(offsets, noise=1.0, of_chains=0.0, seed=0):
    """Documents followed in chains whose predictions are off by so much, [chain]; responses of unit variance."""
    rng, documents = np.random.default_rng(seed), 100
    truth = rng.normal(size=documents)
    means = truth + np.asarray(offsets)[:, None] * rng.choice([-1, 1], documents)
    means = means + of_chains * rng.normal(size=means.shape)
    values = means[:, None, :, None] + 0.1 * rng.normal(size=(len(offsets), 50, documents, 1))
    told = truth + noise * rng.normal(size=documents)
    return Followed(np.arange(documents), Expected(values, np.full((documents, 1), noise**2), False), told[:, None])


def test_predictions_are_judged_by_how_far_another_run_would_move_them():
    part = followed([0, 0, 0, 0], of_chains=0.4)
    assert part.error == pytest.approx(0.2, rel=0.15)  # 0.4 / sqrt(4 chains)
    alike, score = prediction_checks({"y": followed([0, 0, 0, 0], of_chains=0.3)}, THRESHOLDS)
    assert alike["passes"] and score["passes"]
    assert not prediction_checks({"y": followed([0, 0], of_chains=0.6)}, THRESHOLDS)[0]["passes"]


def test_a_chain_that_predicts_worse_is_named():
    _, score = prediction_checks({"y": followed([0, 0, 0.9, 0])}, THRESHOLDS)
    assert not score["passes"] and "chain 2" in score["meaning"]


def other_topics(num_draws=100, apart=0.0):
    """Two chains that split the words of good and of bad in different ways, and predict the same from them."""
    rng = np.random.default_rng(0)
    share = rng.dirichlet([1.0, 1.0], 40)
    counts = np.stack([rng.multinomial(60, np.repeat(row, 8) / 8) for row in share])
    y = (share @ [-1.0, 1.0] + 0.2 * rng.normal(size=40)).astype(np.float32)
    corpus, story = Corpus.from_counts(counts), Story(models.slda, {"num_topics": 4})
    halves = np.kron(np.eye(4), np.ones(4)), np.kron(np.eye(2), np.tile(np.eye(2), 4))
    beta = np.stack([rng.dirichlet(100 * row + 0.5, num_draws) for half in halves for row in half])
    beta = beta.reshape(2, 4, num_draws, 16).swapaxes(1, 2)
    eta = np.array([-1.0, -1.0, 1.0, 1.0]) + 0.02 * rng.normal(size=(2, num_draws, 4))
    eta[1] += apart
    sigma = 0.2 * np.exp(0.05 * rng.normal(size=(2, num_draws)))
    draws = {"beta": beta, "eta": eta, "sigma": sigma}
    return Fit.of(bind(story, corpus, Response({"y": y})), draws, engine="gibbs")


def test_chains_with_other_topics_may_predict_alike():
    found = diagnose(other_topics())
    assert found.verdict.startswith("Rely on predictions only, not on topics and coefficients.")
    assert found.reliance["grade"].tolist() == ["do not rely", "do not rely", "rely"], found.verdict
    apart = diagnose(other_topics(apart=1.0))
    assert apart.verdict.startswith("Do not rely on this posterior.")
    assert (apart.numbers["kind"] == "prediction").sum() == 40
    fit = other_topics()
    fit.draws = {name: value[:1] for name, value in fit.draws.items()}
    alone = diagnose(fit)
    assert alone.checks.loc["chains predict alike", "passes"] is None
    assert set(alone.reliance["grade"]) == {"cannot be known"}


def test_how_far_a_number_lies_from_its_limit_decides_between_care_and_no_reliance():
    """R-hat up to 1.1, and a quarter of the effective draws asked for, leave the first digits."""

    def grades(**found):
        names = {
            "r_hat": ("R-hat of eta", 1.02),
            "eta": ("effective draws of eta", 400.0),
            "nu": ("effective draws of nu", 400.0),
        }
        rows = [{"check": names[key][0], "threshold": names[key][1], "value": value} for key, value in found.items()]
        frame = pd.DataFrame(rows).set_index("check").assign(about="coefficients", passes=False)
        return [grade for grade, _ in _mixing(frame.astype({"passes": object}), "coefficients")]

    assert grades(r_hat=1.09) == [CARE] and grades(r_hat=1.2) == [NOT]
    assert grades(eta=101.0, nu=99.0) == [CARE, NOT]
    assert grades(r_hat=1.09, eta=5.0, nu=300.0) == [CARE, CARE]  # that eta does not mix is said once


@pytest.mark.parametrize(("agreement", "grades"), [(None, []), (0.96, []), (0.6, [CARE]), (0.4, [NOT])])
def test_starts_of_an_approximation_that_find_other_topics_are_graded_as_chains_are(agreement, grades):
    fit = SimpleNamespace(alignment=SimpleNamespace(agreement=agreement, shared="Most topics are shared."))
    found = _starts(fit, THRESHOLDS)
    assert [grade for grade, _ in found] == grades and all(why == "most topics are shared" for _, why in found)


@pytest.mark.slow
def test_a_fit_that_is_right_can_be_relied_on():
    """Two topics without a word in common: nothing is left to find out, and the verdict must say so."""
    rng = np.random.default_rng(0)
    share = rng.dirichlet([0.3, 0.3], 60)
    counts = np.stack([rng.multinomial(40, np.repeat(row, 6) / 6) for row in share])
    y = share @ [-1.0, 1.0] + 0.3 * rng.normal(size=60)
    settings = {"num_topics": 2, "gamma": 0.1, "num_warmup": 100, "num_samples": 600, "progress_bar": False}
    fit = inference.gibbs(models.slda, Corpus.from_counts(counts), y, **settings)
    found = diagnose(fit)
    assert found.passes, f"{found.verdict}\n{found.checks.to_string()}"
    assert found.verdict.startswith("Rely on this posterior: nothing speaks against it.")
    assert (found.numbers["kind"] == "prediction").sum() == 60
    assert found.numbers.query("kind == 'prediction'")["r_hat"].notna().all()
    assert found.checks["about"].value_counts()["predictions"] == 2
