"""The numbers behind a verdict, by hand: followed predictions, series, R-hat limits, losses, bounds and ratios."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from arviz_stats.base import array_stats
from fits import fit_of
from scipy.stats import chi2
from stories import naive_bayes
from test_alignment import made_fit, posterior

from topiczoo.corpora import Corpus
from topiczoo.diagnostics import align, diagnose
from topiczoo.diagnostics.convergence import chain_checks
from topiczoo.diagnostics.convergence.chain_checks import _mixing, numbers_of, r_hat_limit
from topiczoo.diagnostics.convergence.diagnosis import THRESHOLDS
from topiczoo.diagnostics.convergence.followed import CERTAIN, CLOSE, Followed, _gap, follow, prediction_checks
from topiczoo.diagnostics.convergence.quantities import Series, _invariants, series
from topiczoo.diagnostics.convergence.variational import check_bound, check_svi, loss_slope
from topiczoo.diagnostics.convergence.wording import advice
from topiczoo.inference.predictive.expected_responses import Expected
from topiczoo.inference.story.response import Response

RNG = np.random.default_rng(0)
CHAINS, DRAWS, DOCUMENTS, PARTS = 3, 4, 5, 2  # no two alike: an axis in the place of another shows
VALUES = RNG.normal(size=(CHAINS, DRAWS, DOCUMENTS, PARTS))
NOISE = RNG.uniform(1, 2, (DOCUMENTS, PARTS))
TOLD = RNG.normal(size=(DOCUMENTS, PARTS))


def of_chain(values, chain):
    return sum(values[chain]) / DRAWS


def test_the_error_of_predictions_is_that_of_the_mean_over_chains():
    """Variance over chains of their means, over the number of chains, in units of the response's own variance."""
    found = Followed(np.arange(DOCUMENTS), Expected(VALUES, NOISE, False), TOLD)
    of_parts = []
    for part in range(PARTS):
        means = np.array([of_chain(VALUES, chain)[:, part] for chain in range(CHAINS)])  # [chain, document]
        moved = [np.sum((column - column.mean()) ** 2) / 2 / 3 for column in means.T]
        given_words = NOISE[:, part].mean()
        whole = given_words + np.var(means.mean(0))
        of_parts.append(np.sqrt(np.mean(moved) / max(given_words, CERTAIN * whole)))
    assert found.error == pytest.approx(max(of_parts))
    assert abs(of_parts[0] - of_parts[1]) > 0.01
    losses = [
        [
            sum((of_chain(VALUES, c)[d, p] - TOLD[d, p]) ** 2 / NOISE[:, p].mean() for p in range(PARTS))
            for d in range(5)
        ]
        for c in range(CHAINS)
    ]
    np.testing.assert_allclose(found.losses, losses)
    sure = Followed(np.arange(DOCUMENTS), Expected(VALUES, 0 * NOISE, False), None)
    whole = VALUES.mean((0, 1)).var(0)  # predictions need not agree closer than a hundredth of it
    moved = VALUES.mean(1).var(0, ddof=1).mean(0) / CHAINS
    assert sure.error == pytest.approx(np.sqrt((moved / (CERTAIN * whole)).max())) and sure.losses is None
    assert Followed(np.arange(DOCUMENTS), found.expected, np.full((5, 2), np.nan)).losses is None


def test_probabilities_of_a_class_are_judged_as_one():
    shares = RNG.dirichlet(np.ones(3), (CHAINS, DRAWS, DOCUMENTS))
    mean = shares.mean((0, 1))
    given_words = mean * (1 - mean)
    found = Followed(np.arange(DOCUMENTS), Expected(shares, given_words, True), np.eye(3)[[0, 1, 2, 0, 1]])
    variance = given_words.mean()
    assert variance > CERTAIN * (given_words.mean(0) + mean.var(0)).mean()
    moved = shares.mean(1).var(0, ddof=1).mean(0) / CHAINS
    assert found.error == pytest.approx(np.sqrt(moved.max() / variance))
    brier = ((shares.mean(1) - np.eye(3)[[0, 1, 2, 0, 1]]) ** 2).sum(-1)
    np.testing.assert_allclose(found.losses, brier / variance)


def test_the_gap_is_between_the_worst_and_the_best_chain():
    losses = np.array([[1.0, 2.0, 3.0, np.nan], [4.0, 3.0, 5.0, np.nan], [2.0, 2.0, 3.0, np.nan]])
    excess, noise, chain = _gap(losses)
    difference = np.array([3.0, 1.0, 2.0])
    assert chain == 1 and excess == pytest.approx(2 / 2)  # the best chain's mean is 2
    assert noise == pytest.approx(2 * difference.std() / np.sqrt(3) / 2)
    small = losses / 1000  # all predict well: in units of what a fit expects
    assert _gap(small)[0] == pytest.approx(0.002 / CLOSE)


def chains_off_by(*offsets):
    """Followed documents whose squared errors differ from chain to chain by the square of an offset."""
    values = np.array(offsets)[:, None, None, None] * np.ones((len(offsets), 2, 50, 1)) + np.ones((50, 1))
    values = values + 1e-3 * RNG.normal(size=values.shape)
    return Followed(np.arange(50), Expected(values, np.ones((50, 1)), False), np.zeros((50, 1)))


def test_chains_are_judged_by_the_worst_of_several_responses():
    alike, score = prediction_checks({"a": chains_off_by(0, 0), "b": chains_off_by(0, 0.2)}, THRESHOLDS)
    assert (
        alike["value"] == pytest.approx(0.1, rel=0.01)
        and alike["passes"]
        and "the predicted b of 50" in alike["meaning"]
    )
    assert score["value"] == pytest.approx(0.44, rel=0.02) and not score["passes"]  # 1.2 squared
    assert "chain 1 is 1.44 times" in score["meaning"]
    alike, score = prediction_checks({"a": chains_off_by(0, 0.4), "b": chains_off_by(0.02, 0)}, THRESHOLDS)
    assert alike["value"] == pytest.approx(0.2, rel=0.01) and "predicted a" in alike["meaning"]
    (alone,) = prediction_checks({"a": chains_off_by(0)}, THRESHOLDS)
    assert alone["value"] is None and alone["passes"] is None and prediction_checks({}, THRESHOLDS) == []
    for offsets, passes in (((0, 0.39), True), ((0, 0.41), False)):  # the limit is 0.2
        found = prediction_checks({"y": chains_off_by(*offsets)}, {**THRESHOLDS, "prediction_error": 0.2})
        assert found[0]["passes"] is passes


def test_classes_above_the_words_are_followed_by_bayes_rule():
    """Rows of the corpus, their classes, and P(c | words) at every draw; a class that is missing is no loss."""
    beta = RNG.dirichlet(np.ones(4), (2, 3, 2)).astype(np.float32)
    pi = RNG.dirichlet(np.ones(2), (2, 3)).astype(np.float32)
    corpus = Corpus.from_counts(RNG.poisson(1.0, (9, 4)) + 1)
    y = np.arange(9) % 2.0
    y[4] = np.nan
    fit = fit_of(naive_bayes, {"beta": beta, "pi": pi}, corpus, np.nan_to_num(y), num_topics=2)
    fit.response = Response({"y": y.astype(np.float32)})
    found = follow(fit, 6, seed=3)["y"]
    rows = found.documents
    assert len(rows) == 6 and (np.diff(rows) > 0).all()
    np.testing.assert_array_equal(follow(fit, 50)["y"].documents, np.arange(9))
    logs = np.log(pi)[:, :, None] + np.einsum("dv,csjv->csdj", corpus.counts.toarray()[rows], np.log(beta))
    shares = np.exp(logs) / np.exp(logs).sum(-1, keepdims=True)
    np.testing.assert_allclose(found.expected.values, shares, rtol=1e-4)
    np.testing.assert_array_equal(found.told[:, 1], y[rows])
    np.testing.assert_array_equal(found.told[:, 0], 1 - y[rows])
    assert follow(fit, 0) == {}
    labelled = ~np.isnan(y[rows])
    gap = (shares.mean(1) - found.told) ** 2
    np.testing.assert_allclose(
        (found.losses / gap.sum(-1))[:, labelled], found.losses[0, labelled][0] / gap.sum(-1)[0, labelled][0], rtol=1e-4
    )


def test_series_are_the_draws_they_are_named_after():
    beta, eta, usage = posterior(num_chains=2, num_draws=6, num_topics=3, num_terms=8)
    sigma = RNG.gamma(50, 0.02, (2, 6))
    fit = align(made_fit(beta, eta=eta, usage=usage + 1e-4 * RNG.random(usage.shape), sigma=sigma))
    fit.statistics["lp"] = RNG.normal(size=(2, 6))
    values = RNG.normal(size=(2, 6, 2, 1))
    followed = {"y": Followed(np.array([1, 3]), Expected(values, np.ones((2, 1)), False), None)}
    found = {s.quantity: s for s in series(fit, followed)}
    np.testing.assert_array_equal(found["sigma"].values, sigma)
    assert found["sigma"].kind == "parameter" and found["sigma"].topic is None
    np.testing.assert_array_equal(found["eta[2]"].values, fit.draws["eta"][:, :, 2])
    assert found["eta[2]"].kind == "coefficient" and found["eta[2]"].topic == 2
    np.testing.assert_allclose(found["sum of eta^2"].values, (fit.draws["eta"] ** 2).sum(-1))
    names = fit.document_names
    np.testing.assert_array_equal(found[f"expected y of document {names[3]}"].values, values[:, :, 1, 0])
    assert found[f"expected y of document {names[1]}"].kind == "prediction"
    largest = np.sort(fit.statistics["usage"], -1)[..., ::-1]
    np.testing.assert_array_equal(found["usage of the largest topic"].values, largest[..., 0])
    np.testing.assert_array_equal(found["usage of the topic of rank 3"].values, largest[..., 2])
    lp = next(
        s for s in found.values() if s.kind == "label-invariant" and np.array_equal(s.values, fit.statistics["lp"])
    )
    assert "log" in lp.quantity
    for topic in range(3):
        mean = fit.draws["beta"][:, :, topic].mean((0, 1))
        for term in np.argsort(-mean)[:3]:
            own = found[f"beta[{topic}, {fit.vocabulary[term]}]"]
            np.testing.assert_array_equal(own.values, fit.draws["beta"][:, :, topic, term])
            assert own.kind == "term" and own.topic == topic
    assert sum(s.kind == "term" for s in found.values()) == 9
    shares = RNG.dirichlet([1, 1, 5], (2, 6, 2))
    of_class = {"y": Followed(np.array([1, 3]), Expected(shares, np.ones((2, 3)), True), None)}
    told = {s.quantity: s.values for s in series(fit, of_class) if s.kind == "prediction"}
    np.testing.assert_array_equal(told[f"probability of y = 2 of document {names[3]}"], shares[:, :, 1, 2])


def test_numbers_are_arvizs_and_fail_below_their_limits():
    good, slow = RNG.normal(size=(2, 2, 400))
    slow = np.repeat(slow[:, :40], 10, axis=1)
    found = [Series("good", "parameter", None, good), Series("slow", "parameter", 2, slow + 1)]
    found.append(Series("invariant", "label-invariant", None, np.repeat(RNG.normal(size=(2, 100)), 4, axis=1)))
    numbers = numbers_of(found, THRESHOLDS)
    for name, values in (("good", good), ("slow", slow + 1)):
        row = numbers.loc[name]
        assert row["mean"] == pytest.approx(values.mean()) and row["sd"] == pytest.approx(values.std(ddof=1))
        assert row["r_hat"] == pytest.approx(float(array_stats.rhat(values)))
        assert row["mcse"] == pytest.approx(float(array_stats.mcse(values)))
        assert row["ess_bulk"] == pytest.approx(float(array_stats.ess(values, method="bulk")))
        tail = float(array_stats.ess(values, method="tail", prob=(0.05, 0.95)))
        assert row["ess_tail"] == pytest.approx(tail)
    assert numbers["passes"].tolist() == [True, False, True] and numbers.loc["slow", "topic"] == 2
    few = numbers_of([Series("few", "parameter", None, good[:, :49])], THRESHOLDS).iloc[0]
    assert np.isnan(few["r_hat"]) and few["passes"] is None and few["mean"] == pytest.approx(good[:, :49].mean())
    assert numbers_of(found, THRESHOLDS, independent=True)["r_hat"].isna().all()
    limit = r_hat_limit(10, 4, 100, 1.01)  # seven degrees of freedom, 50 draws a half, two R-hats of ten series
    assert limit == pytest.approx(np.sqrt(1 + chi2.isf(0.05 / 20, 7) / 7 / 50))


def test_effective_draws_of_the_tails_count_as_those_of_the_middle():
    """Draws that are independent but for their spread, which is wide for long: their tails are seen together."""
    rng = np.random.default_rng(7)
    spread = np.where(np.arange(400) % 200 < 20, 8.0, 1.0)
    numbers = numbers_of([Series("wide for long", "parameter", None, spread * rng.normal(size=(2, 400)))], THRESHOLDS)
    row = numbers.iloc[0]
    assert row["ess_bulk"] > 250 > 200 > row["ess_tail"] and row["r_hat"] < 1.05
    loose = {**THRESHOLDS, "r_hat": 1.5}
    found = [Series("wide for long", "parameter", None, spread * rng.normal(size=(2, 400)))]
    assert not numbers_of(found, loose)["passes"].iloc[0]
    assert numbers_of(found, {**loose, "ess_per_chain": 5})["passes"].iloc[0]


def test_chance_is_allowed_to_as_many_quantities_as_there_are_of_the_kind(monkeypatch):
    rng = np.random.default_rng(7)
    asked = []
    monkeypatch.setattr(chain_checks, "r_hat_limit", lambda number, *rest: asked.append((number, *rest)) or 9.0)
    kinds = ["coefficient", "coefficient", "term", "coefficient", "label-invariant"]
    found = [Series(f"q{i}", kind, None, rng.normal(size=(3, 60))) for i, kind in enumerate(kinds)]
    numbers_of(found, THRESHOLDS)
    least, mixing = THRESHOLDS["ess_per_chain"], THRESHOLDS["ess_to_mix"]
    expected = [(3, least), (3, least), (1, least), (3, least), (1, mixing)]
    assert asked == [(number, 3, draws, THRESHOLDS["r_hat"]) for number, draws in expected]


def test_squares_of_coefficients_are_added_up_over_topics_and_outputs():
    eta = np.random.default_rng(7).normal(size=(2, 5, 3, 4))
    usage = np.random.default_rng(8).dirichlet(np.ones(3), (2, 5))
    made = SimpleNamespace(statistics={"usage": usage}, coefficients=["eta"], draws={"eta": eta})
    found = {s.quantity: s.values for s in _invariants(made)}
    np.testing.assert_allclose(found["sum of eta^2"], np.einsum("cdko,cdko->cd", eta, eta))
    np.testing.assert_array_equal(found["usage of the largest topic"], usage.max(-1))


def test_all_coefficients_of_topics_are_judged_and_of_large_sites_without_topics_none():
    rng = np.random.default_rng(7)
    beta, eta, usage = posterior(num_chains=2, num_draws=6, num_topics=60, num_terms=70)
    fit = align(made_fit(beta, eta=eta, usage=usage, sigma=rng.normal(size=(2, 6, 60))))
    found = [s.quantity for s in series(fit) if s.kind in ("coefficient", "parameter")]
    assert found == [f"eta[{k}]" for k in range(60)]


def test_some_quantities_may_have_fewer_effective_draws():
    """A twentieth of them: of 40 the two worst do not count; R-hat is the largest of all."""
    part = pd.DataFrame(
        {"r_hat": 1 + np.arange(40) / 1e5, "ess_bulk": 150.0 + np.arange(40), "ess_tail": 900.0},
        index=[f"q{i}" for i in range(40)],
    )
    part.loc["q7", "ess_tail"] = 10.0
    r_hat, ess = _mixing("parameter", "coefficients", part, "", 500, 2, THRESHOLDS)
    assert r_hat["value"] == pytest.approx(1.00039) and "of q39" in r_hat["meaning"] and r_hat["passes"]
    # sorted: q7 with 10, q0 with 150, q1 with 151
    assert ess["value"] == 151 and "of q1" in ess["meaning"] and ess["threshold"] == 200 and ess["passes"] is False
    assert "but for 2 of 40" in ess["meaning"]
    _, enough = _mixing("label-invariant", "sampler", part, "", 500, 2, THRESHOLDS)
    assert enough["threshold"] == 50 and enough["passes"]


def approximated(engine, **info):
    beta, eta, _ = posterior(num_chains=1, num_draws=30, num_topics=3, num_terms=8)
    fit = made_fit(beta, eta=eta)
    fit.engine, fit.info = engine, info
    return fit


STEPS = np.arange(2000)


def test_a_loss_that_still_falls():
    noise = RNG.normal(scale=3.0, size=2000)
    assert loss_slope(1000 - 0.2 * STEPS + noise, 2.0)["passes"] is False
    assert loss_slope(1000 * np.exp(-STEPS / 50) + noise, 2.0)["passes"] is True
    assert loss_slope(noise[:79], 2.0)["passes"] is None and loss_slope(noise[:80], 2.0)["passes"] is not None
    last = (1000 - 0.2 * STEPS + noise)[1500:]
    batches = last.reshape(10, 50).mean(1)
    slope, cut = np.polyfit(np.arange(10), batches, 1)
    left = batches - cut - slope * np.arange(10)
    error = np.sqrt(np.sum(left**2) / 8 / np.sum((np.arange(10) - 4.5) ** 2))
    assert loss_slope(1000 - 0.2 * STEPS + noise, 2.0)["value"] == pytest.approx(-slope / error)


def pareto(k, *shape):
    """Logarithms of ratios whose tail has the shape k."""
    return np.log((RNG.random(shape) ** -k - 1) / k + 1)


def test_svi_is_judged_by_loss_and_importance_ratios():
    """Pareto k of 2000 ratios is known to 0.1; every tenth document has a tail that is too heavy."""
    fit = approximated("svi", losses=1000 * np.exp(-STEPS / 50) + RNG.normal(size=2000))
    documents = np.stack([pareto(1.2 if d % 10 == 0 else 0.3, 2000) for d in range(40)], 1)
    fit.importance_ratios = lambda: (pareto(0.4, 2000), documents)
    rests, of_globals, of_documents = check_svi(fit, THRESHOLDS)
    assert rests["passes"] is True and of_globals["passes"] and 0.1 < of_globals["value"] < 0.65
    assert (
        of_documents["value"] == 0.1
        and of_documents["passes"] is False
        and "of 40 documents" in of_documents["meaning"]
    )
    assert check_svi(fit, {**THRESHOLDS, "documents_k": 0.1})[2]["passes"]
    found = diagnose(fit)
    names = ["the loss rests", "importance ratios of the global sites", "importance ratios of documents"]
    assert list(found.checks.index) == names
    assert found.reliance.loc["topics", "grade"] == "with care" and "rough" in found.reliance.loc["topics", "why"]
    fit.importance_ratios = lambda: (pareto(1.5, 2000), None)
    assert [check["passes"] for check in check_svi(fit, THRESHOLDS)] == [True, False]
    assert "compare with gibbs" in diagnose(fit).verdict
    fit.importance_ratios = None  # as of a file
    saved = diagnose(fit)
    assert (
        "cannot be known from a saved fit" in saved.checks["meaning"].iloc[-1]
        and saved.checks["passes"].iloc[-1] is None
    )
    assert "Diagnose the fit before it is saved." in saved.verdict
    fit.info["losses"] = 1000 - 0.2 * STEPS + RNG.normal(size=2000)
    falling = diagnose(fit)
    assert falling.verdict.startswith("Do not rely on this posterior.") and "Give more num_steps." in falling.verdict


def test_vem_is_judged_by_its_bound():
    bound = [-200.0, -100.0, -90.0, -89.0]
    rests, never_fell, distance = check_bound(approximated("vem", bound=bound, converged=True))
    assert rests["value"] == pytest.approx(1 / 90) and rests["passes"] and "of 3 iterations" in rests["meaning"]
    assert never_fell["value"] == pytest.approx(1 / 90) and never_fell["passes"] and distance["passes"] is None
    falls = check_bound(approximated("vem", bound=[-100.0, -90.0, -99.0, -80.0], converged=True, warning="it fell"))
    assert falls[1]["value"] == pytest.approx(-0.1) and falls[1]["passes"] is False
    found = diagnose(approximated("vem", bound=bound, converged=False))
    assert found.checks.loc["the bound rests", "passes"] is False
    assert found.verdict.startswith("Do not rely on this posterior.") and "Give more num_iterations." in found.verdict
    rested = diagnose(approximated("vem", bound=bound, converged=True))
    assert rested.verdict.startswith("Take care with topics")
    assert "a point or an approximation: means can be read" in rested.verdict
    assert "one optimum" not in rested.verdict
    margin = diagnose(approximated("vem", bound=bound, converged=True, support_vectors=7))
    assert margin.checks.loc["other starts predict alike", "passes"] is None
    assert "below those of gibbs, however well the bound rests: give num_starts=4" in margin.verdict
    cut = diagnose(approximated("vem", bound=bound, converged=True, interrupted=True))
    assert cut.checks.loc["ran to its end", "passes"] is False and "Run it to its end." in cut.verdict


def test_advice_counts_chains_warm_up_and_draws():
    beta, eta, usage = posterior(num_chains=2, num_draws=60, num_topics=3, num_terms=8)
    fit = align(made_fit(beta, eta=eta, usage=usage))
    fit.info |= {"num_warmup": 200, "thinning": 2}

    def told(lp=None, **checks):
        other = copy.copy(fit)
        other.statistics = {**fit.statistics, **({} if lp is None else {"lp": lp})}
        frame = pd.DataFrame({name: {**row, "meaning": ""} for name, row in checks.items()}, dtype=object).T
        return " ".join(advice(other, frame, THRESHOLDS))

    alike = {"about": "predictions", "value": 0.5, "threshold": 0.2, "passes": False}
    assert "give num_chains=13" in told(**{"chains predict alike": alike})  # 2 chains times (0.5 / 0.2)^2
    ess = {"about": "coefficients", "value": 50.0, "threshold": 200.0, "passes": False}
    # four times as many would do; half as many again; of 60 draws kept of 120
    assert told(**{"effective draws of coefficients": ess}) == "Give num_samples=720: effective draws grow with them."
    r_hat = {"about": "coefficients", "value": 1.2, "threshold": 1.05, "passes": False}
    both = told(**{"effective draws of coefficients": ess, "R-hat of coefficients": r_hat})
    assert both.startswith("Give num_warmup=400 and num_samples=720")
    few = {**ess, "value": 5.0}
    assert "Effective draws are 40 times too few" in told(**{"effective draws of coefficients": few})
    rising = np.arange(60.0) + RNG.normal(size=(2, 60))
    assert "give num_warmup=600" in told(rising, **{"R-hat of coefficients": r_hat})
    assert "num_warmup=600" not in told(rising * [[1.0], [-1.0]], **{"R-hat of coefficients": r_hat})
    assert told(**{"R-hat of coefficients": {**r_hat, "passes": True}}) == ""
