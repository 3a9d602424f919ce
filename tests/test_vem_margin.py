"""Variational EM with a margin: tilts, guarded steps, machines, sums of products and objectives, each by loops."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from by_loops import (
    ALPHA,
    CORPUS,
    COUNTS,
    GAMMA,
    UNLABELLED,
    K,
    Y,
    expected_log,
    phi_of,
    second_moment,
    terms_of,
    words_bound,
)
from lengths import longest_but
from scipy.optimize import minimize_scalar
from test_margins import EVERY, NUMBERS, planted
from test_vem_stories import words

from topiczoo import inference
from topiczoo.corpora import Corpus
from topiczoo.diagnostics import diagnose
from topiczoo.inference.em import engine
from topiczoo.inference.em.components import Settings
from topiczoo.inference.em.loop import together
from topiczoo.inference.em.margins import NARROWER, WIDER
from topiczoo.inference.em.model import EMModel
from topiczoo.inference.steps.dirichlet import dirichlet_bound
from topiczoo.inference.steps.support_vectors import LOOSE_GAP
from topiczoo.inference.story.reading import read
from topiczoo.models import OneAgainstAll, medlda

STORY = {"num_topics": K, "alpha": ALPHA, "gamma": GAMMA, "cost": 4.0, "weight": 1.5}
ARGUMENTS = {"num_topics": 4, "cost": 4.0, "gamma": 0.1}
CLASSES = np.where(UNLABELLED, np.nan, np.digitize(Y, np.quantile(Y, [1 / 3, 2 / 3])))
LABELLED = np.flatnonzero(~UNLABELLED)
NU = 1.5  # deviation of the prior of coefficients


def with_own(state, **parts):
    """The state with parts of the response's own."""
    return state._replace(response=state.response._replace(**parts))


def hinge_of(scores, y, cost=4.0, weight=1.5):
    """The loss of Crammer & Singer, of scores [3]."""
    return weight * max(cost * (c != y) + scores[c] - scores[y] for c in range(3))


def mean_topics_of(model, state):
    """E[zbar], [D, K]."""
    return model.words.mean_topics(state.local.gamma, state.alpha)


class Case:
    """A model for three classes, at coefficients and duals of one's own, after an E-step."""

    def __init__(self, **settings):
        given = {"margin": "classes", "outputs": 3, "nu": NU, **STORY}
        self.model = EMModel(read(medlda, CORPUS, CLASSES, given), Settings(**settings))
        rng = np.random.default_rng(0)
        self.start = self.model.start(rng)
        self.duals = np.zeros((len(Y), 3), np.float32)
        for d in LABELLED:
            multipliers = rng.dirichlet(np.ones(3)) * 1.5
            multipliers[int(CLASSES[d])] = 0
            self.duals[d] = multipliers
            self.duals[d, int(CLASSES[d])] = -multipliers.sum()
        topics = self.start.topics * rng.gamma(0.5, 1.0, self.start.topics.shape) + 0.3
        self.eta, self.log_beta = rng.normal(0, 3, (K, 3)), expected_log(topics)
        own = self.start.response._replace(coefficients=self.eta, duals=self.duals)
        self.begun = self.start._replace(topics=topics, response=own)

    def pull(self, d):
        """Equation 21: what a word of the document gains in each topic."""
        y, n = CLASSES[d], COUNTS[d].sum()
        if np.isnan(y):
            return np.zeros(K)
        own = int(y)
        return sum(self.duals[d, c] * (self.eta[:, own] - self.eta[:, c]) for c in range(3) if c != own) / n


@pytest.fixture(scope="module")
def free():
    """The paper's whole step."""
    case = Case(guarded=False, e_tolerance=0.0, e_iterations=300)
    return case, case.model.e_step(case.begun, fresh=True)


def test_the_tilt_is_equation_21_and_the_e_step_that_of_loops(free):
    case, state = free
    for d in range(0, len(Y), 3):
        gamma = ALPHA * (1 + COUNTS[d].sum() / ALPHA.sum())
        for _ in range(300):
            gamma = ALPHA + phi_of(d, gamma, case.log_beta, case.pull(d)).sum(0)
        np.testing.assert_allclose(state.local.gamma[d], gamma, rtol=2e-2, atol=2e-2)
        np.testing.assert_allclose(state.response.tilt[d], case.pull(d), rtol=1e-4, atol=1e-5)
    assert np.abs(state.response.tilt).max() > 0.5 and (state.response.tilt[UNLABELLED] == 0).all()


def test_the_objective_of_a_margin_is_that_of_loops(free):
    """Words, topics, half the coefficients' squares over the prior's variances, and the losses of labelled documents."""
    case, state = free
    total = dirichlet_bound(np.full(COUNTS.shape[1], GAMMA), state.topics).sum() - (case.eta**2).sum() / (2 * NU**2)
    losses = case.model.response.losses(state)
    for d in range(len(Y)):
        gamma = np.asarray(state.local.gamma[d], float)
        phi = phi_of(d, gamma, case.log_beta, state.response.tilt[d])
        bound = words_bound(phi, gamma, case.log_beta[:, terms_of(d)].T, ALPHA)
        np.testing.assert_allclose(state.local.bound[d], bound, rtol=2e-4, atol=5e-3)
        zbar = (gamma - ALPHA) / COUNTS[d].sum()
        loss = 0.0 if UNLABELLED[d] else hinge_of(zbar @ case.eta, int(CLASSES[d]))
        np.testing.assert_allclose(losses[d], loss, rtol=1e-3, atol=1e-3)
        total += state.local.bound[d] - losses[d]
    np.testing.assert_allclose(case.model.bound(state), total, rtol=1e-6)
    np.testing.assert_allclose(mean_topics_of(case.model, state).sum(1), 1, rtol=1e-3)


def test_the_m_step_of_a_margin_is_a_machine_on_the_labelled_documents(free):
    """Its objective is below that of other coefficients, and coefficients are what the duals pull: -V X'A."""
    case, state = free
    moved = case.model.m_step(state, fresh=True)
    x, targets = mean_topics_of(case.model, state)[LABELLED], CLASSES[LABELLED].astype(int)

    def primal(eta):
        return (eta**2).sum() / (2 * NU**2) + sum(hinge_of(row @ eta, y) for row, y in zip(x, targets, strict=True))

    best, rng = primal(moved.response.coefficients), np.random.default_rng(1)
    for size in (0.3, 0.05):
        assert min(primal(moved.response.coefficients + size * rng.normal(size=(K, 3))) for _ in range(20)) > best * (
            1 - 1e-3
        )
    np.testing.assert_allclose(-(NU**2) * x.T @ moved.response.duals[LABELLED], moved.response.coefficients, atol=2e-3)
    assert (moved.response.duals[UNLABELLED] == 0).all() and (moved.response.variance == NU**2).all()
    np.testing.assert_allclose(moved.topics, state.counts + GAMMA)
    q = case.model.q(moved)
    np.testing.assert_array_equal(q["eta"].loc, moved.response.coefficients)
    np.testing.assert_allclose(q["eta"].scale, NU)
    np.testing.assert_array_equal(q["theta"].concentration, state.local.gamma)
    told = case.model.report(moved)
    held = np.abs(moved.response.duals[LABELLED]) > 1e-6
    held[np.arange(len(LABELLED)), targets] = False
    assert told["support_vectors"] == held.sum() > 0
    assert told["tilt"] == np.abs(case.model.response.tilt(moved)).max()
    loose = EMModel(case.model.graph, Settings(slack="one")).m_step(state, fresh=True)
    assert (
        best <= primal(loose.response.coefficients) + 1e-3 * best
        and primal(loose.response.coefficients) < (1 + 1.1 * LOOSE_GAP) * best
    )


def test_guarded_documents_stay_where_a_step_does_not_serve_them(free):
    """A document's share is its part of the words' bound less its loss. From a settled state, with duals that pull much too
    far: who would lose stays, with a smaller step next time; who gains moves that part of the way that its step says."""
    case, _ = free
    model = Case(guarded=True, e_tolerance=1e-6, e_iterations=50).model
    duals = 8 * case.duals
    settled = model.e_step(with_own(case.begun, duals=0 * duals), fresh=True)
    step = np.where(np.arange(len(Y)) % 2, 0.5, 1.0)
    before = with_own(settled, duals=duals, step=step)
    after = model.e_step(before, fresh=False)
    target, old = model.response.tilt(before), settled.response.tilt
    log_mean, tilt = model.topics.log_mean(before.topics), old + step[:, None] * (target - old)
    tried = before._replace(local=model.words.e_step(log_mean, before.alpha, settled.local.gamma, tilt))
    gain = (tried.local.bound - model.response.losses(tried)) - (settled.local.bound - model.response.losses(settled))
    moved = after.response.step > step * NARROWER * 1.01
    sure = np.abs(gain) > 0.01
    np.testing.assert_array_equal(moved[sure], gain[sure] > 0)
    assert 3 < (moved & ~UNLABELLED).sum() < len(LABELLED) - 3
    np.testing.assert_allclose(after.response.step, np.where(moved, np.minimum(1, WIDER * step), NARROWER * step))
    np.testing.assert_allclose(
        after.response.tilt, np.where(moved[:, None], step[:, None] * target, 0), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(
        after.local.gamma, np.where(moved[:, None], tried.local.gamma, settled.local.gamma), rtol=1e-3, atol=1e-3
    )
    np.testing.assert_allclose(
        after.local.bound, np.where(moved, tried.local.bound, settled.local.bound), rtol=1e-3, atol=1e-2
    )
    np.testing.assert_allclose(after.counts.sum(0), COUNTS.sum(0), rtol=1e-3)


def test_variances_of_a_laplace_prior_follow_the_coefficients():
    """V = nu sqrt(lambda^2 + V), from the prior's own 2 nu^2; at rest V solves that equation, and 0 never comes."""
    given = {"margin": "binary", "prior": "laplace", "nu": 0.3, **STORY}
    y = np.where(UNLABELLED, np.nan, Y > 0)
    model = EMModel(read(medlda, CORPUS, y, given), Settings())
    state = model.e_step(model.start(np.random.default_rng(0)), fresh=True)
    np.testing.assert_allclose(state.response.variance, 2 * 0.3**2)
    coefficients = np.array([[0.0], [0.5], [-2.0]])
    state = with_own(state, coefficients=coefficients)
    moved = model.m_step(state, fresh=True)
    np.testing.assert_allclose(moved.response.variance, 0.3 * np.sqrt(coefficients**2 + 0.18), rtol=1e-6)
    x = mean_topics_of(model, state)[LABELLED]
    np.testing.assert_allclose(
        moved.response.coefficients, -moved.response.variance * (x.T @ moved.response.duals[LABELLED]), atol=1e-3
    )
    for _ in range(80):
        moved = model.m_step(moved, fresh=True)
    fixed = minimize_scalar(
        lambda v: (v - 0.3 * np.sqrt(moved.response.coefficients[2, 0] ** 2 + v)) ** 2, bounds=(0, 9)
    ).x
    np.testing.assert_allclose(moved.response.variance[2, 0], fixed, rtol=1e-3)
    assert (
        model.m_step(with_own(state, coefficients=0 * coefficients, variance=0 * coefficients), True).response.variance
        > 0
    ).all()


# a normal response beside the margin


@pytest.fixture(scope="module")
def both():
    """The model, its state after an E-step, and after an M-step."""
    given = {**STORY, "margin": "regression", "epsilon": 0.1, "nu": NU}
    model = EMModel(read(medlda, CORPUS, np.where(UNLABELLED, np.nan, Y), given), Settings())
    start = model.start(np.random.default_rng(0))
    start = start._replace(topics=start.topics * np.random.default_rng(1).gamma(0.5, 1.0, start.topics.shape) + 0.3)
    state = model.e_step(start, fresh=True)
    return model, state, model.m_step(state, fresh=True)


def test_the_second_moments_beside_a_margin_are_those_of_loops(both):
    """E[A'A], the sum over labelled documents of E[zbar zbar'], pair of words by pair of words: equation 5.

    phi is what the last of the E-step's rounds had: it ends with gamma, whose tokens are its sums."""
    model, state, _ = both
    log_beta, tilt = expected_log(state.topics), None
    gamma = model.words.first_gamma(state.alpha)
    mean_topics = (np.asarray(gamma, float) - ALPHA) / COUNTS.sum(1)[:, None]
    for _ in range(4):
        tilt = model.response.tilt_at(state, mean_topics, model.response.noise(state))
        gamma = model.words.e_step(model.topics.log_mean(state.topics), state.alpha, gamma, tilt, steps=5).gamma
        mean_topics = (mean_topics + (np.asarray(gamma, float) - ALPHA) / COUNTS.sum(1)[:, None]) / 2
    np.testing.assert_allclose(state.local.gamma, gamma, rtol=1e-5)
    expected = np.zeros((K, K))
    for d in LABELLED:
        phi = phi_of(d, gamma[d], log_beta, tilt[d])
        expected += second_moment(phi)
    np.testing.assert_allclose(state.statistics, expected, rtol=5e-3, atol=1e-2)
    np.testing.assert_allclose(state.statistics.sum(), len(LABELLED), rtol=1e-3)  # zbar adds up to 1


def test_the_tilt_of_a_normal_response_is_the_slope_of_its_expectation(both):
    """Equation 14, where all words of a document have the same phi, s: E[zz'] = (N - 1) / N ss' + diag(s) / N."""
    model, _, state = both
    noise, second = (
        model.response.noise(state),
        state.response.covariance + np.outer(state.response.coefficients, state.response.coefficients),
    )
    assert noise == pytest.approx(float(state.response.values["sigma"]) ** 2, rel=1e-5)
    mean_topics = np.random.default_rng(1).dirichlet(np.ones(K), len(Y))
    tilt = model.response.tilt_at(state, mean_topics, noise)
    for d in (1, 2, 9, 67):
        length = COUNTS[d].sum()

        def expected(s, d=d, length=length):
            outer = (length - 1) / length * jnp.outer(s, s) + jnp.diag(s) / length
            squares = Y[d] ** 2 - 2 * Y[d] * state.response.coefficients @ s + (second * outer).sum()
            return -squares / (2 * noise) - state.response.duals[d, 0] * state.response.coefficients @ s

        slope = jax.grad(expected)(jnp.asarray(mean_topics[d])) / length
        np.testing.assert_allclose(tilt[d], slope, rtol=2e-3, atol=1e-4)
    assert (tilt[UNLABELLED] == 0).all()


def test_the_objective_beside_a_normal_response_is_that_of_loops_and_its_m_step_the_best(both):
    model, before, after = both
    sigma_before, sigma_after = (float(state.response.values["sigma"]) for state in (before, after))
    x, y = np.asarray(mean_topics_of(model, before), float)[LABELLED], Y[LABELLED]
    found_mean, found_covariance = (
        np.asarray(part, float) for part in (after.response.coefficients, after.response.covariance)
    )
    squares_of_topics = np.asarray(before.statistics, float)

    def objective(mean, covariance, sigma):
        """-KL(q(eta) | N(0, nu^2)) + E[log N(y; eta . zbar, sigma^2)] - losses."""
        second = covariance + np.outer(mean, mean)
        squares = y @ y - 2 * y @ (x @ mean) + (squares_of_topics * second).sum()
        value = -0.5 * (np.trace(second) / NU**2 - K - np.linalg.slogdet(covariance / NU**2)[1])
        value -= 0.5 * len(y) * np.log(2 * np.pi * sigma**2) + squares / (2 * sigma**2)
        return value - 1.5 * np.maximum(0, np.abs(x @ mean - y) - 0.1).sum()

    found = model.bound(after) - after.local.bound.sum() - dirichlet_bound(model.topics.prior, after.topics).sum()
    half_normal = np.log(2) - 0.5 * np.log(2 * np.pi) - sigma_after**2 / 2
    expected = objective(found_mean, found_covariance, sigma_after) + half_normal
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-2)
    # coefficients and their covariance are the best for the sigma of before, sigma for them
    best, rng = (
        objective(found_mean, found_covariance, sigma_before),
        np.random.default_rng(2),
    )
    for size in (0.3, 0.05):
        for _ in range(10):
            other = found_mean + size * rng.normal(size=K)
            assert objective(other, found_covariance, sigma_before) < best + 2e-3
    np.testing.assert_allclose(
        after.response.covariance, np.linalg.inv(np.eye(K) / NU**2 + squares_of_topics / sigma_before**2), rtol=1e-3
    )

    def of_sigma(sigma):
        return objective(found_mean, found_covariance, sigma) - sigma**2 / 2

    assert of_sigma(sigma_after) > max(of_sigma(1.01 * sigma_after), of_sigma(0.99 * sigma_after))
    q = model.q(after)
    np.testing.assert_allclose(q["eta"].covariance_matrix, after.response.covariance, rtol=1e-4, atol=1e-7)
    assert set(q) == {"theta", "beta", "eta", "sigma"} and q["sigma"].v == np.float32(sigma_after)
    np.testing.assert_allclose(after.topics, before.counts + GAMMA)
    assert (after.response.duals[UNLABELLED] == 0).all()
    held = model.report(after)["support_vectors"]
    assert held == (np.abs(after.response.duals[LABELLED]) > 1.5e-6).sum()


# where it starts, and whole fits


def test_topics_start_at_their_class_where_classes_differ_by_little():
    rng, y = np.random.default_rng(0), np.arange(400) % 2.0
    common, tilt = np.log(rng.dirichlet(np.full(50, 5.0))), 0.3 * rng.normal(size=50)
    shares = np.exp(common + np.outer(y - 0.5, tilt))
    corpus = Corpus.from_counts(np.stack([rng.multinomial(100, share / share.sum()) for share in shares]))
    story = {"margin": "binary", **ARGUMENTS, "num_topics": 6}
    start = EMModel(read(medlda, corpus, y, story), Settings()).start(rng)
    logs = np.log(start.topics / start.topics.sum(1, keepdims=True))
    for k in (1, 3, 5):
        assert np.corrcoef(logs[k] - logs[k - 1], tilt)[0, 1] > 0.8
    assert np.abs(logs[1] - logs[3]).max() > 0.01  # and topics of one class differ
    assert not start.response.coefficients.any() and not start.response.duals.any() and (start.response.step == 1).all()


@pytest.mark.slow
@pytest.mark.parametrize("margin", longest_but(EVERY, "binary", "partial"))
def test_documents_are_learned_and_the_objective_settles(margin):
    """Unlabelled documents by E[theta] @ eta: 30 of them, who guesses is right in 26 once in 30,000 times, or never here."""
    corpus, y = planted(margin, 90)
    some = np.where(np.arange(90) % 3 == 0, np.nan, y)
    fit = inference.vem(
        medlda, corpus, some, margin=margin, num_iterations=40, progress_bar=False, num_draws=200, **ARGUMENTS,
        **{"weight": 2.0, **EVERY[margin]},
    )  # fmt: skip
    bound = np.array(fit.info["bound"])
    slack = 2e-3 if margin == "regression" else 1e-5  # the normal response beside it is tilted by a whole step
    assert (np.diff(bound) > -slack * np.abs(bound[1:])).all() and bound[-1] > bound[0]
    assert 0 < fit.info["support_vectors"] <= 60 * 3
    scores = (fit.means["theta"][0] @ fit.means["eta"][0])[::3]
    if margin in NUMBERS:
        assert np.corrcoef(scores, y[::3])[0, 1] > 0.85
    else:
        assert np.mean((scores.argmax(1) if scores.ndim > 1 else scores > 0) == y[::3]) > 0.85
    if margin != "regression":  # q(eta) has the prior's variance around the machine's coefficients
        np.testing.assert_allclose(fit.draws["eta"][0].std(0), 1, atol=0.25)


def test_a_margin_has_four_starts_that_predict_together():
    """Each start is a chain, the first what one start gives alone; chains that differ are said to."""
    corpus, y = planted("binary", 60)
    given = {"margin": "binary", "num_iterations": 3, "progress_bar": False, "num_draws": 20, **ARGUMENTS}
    fit, one = inference.vem(medlda, corpus, y, **given), inference.vem(medlda, corpus, y, num_starts=1, **given)
    assert fit.draws["eta"].shape[0] == fit.means["beta"].shape[0] == len(fit.info["starts"]) == 4
    np.testing.assert_array_equal(fit.means["beta"][0], one.means["beta"][0])
    assert fit.info["starts"][0] == one.info["bound"][-1] and one.info["starts"] == one.info["bound"][-1:]
    assert fit.info["bound"][-1] == max(fit.info["starts"]) == fit.info["starts"][fit.info["best"]]
    assert len({float(mean[0, 0]) for mean in fit.means["beta"]}) == 4
    shares = [(mean @ eta) for mean, eta in zip(fit.means["theta"], fit.means["eta"], strict=True)]
    assert max(np.abs(share - shares[0]).max() for share in shares[1:]) > 1e-3
    new = corpus[:10]
    together = fit.predict(new, rule="plug-in").mean
    assert np.abs(together - one.predict(new, rule="plug-in").mean).max() > 0 and together.shape == (10,)
    checks = diagnose(fit).checks
    assert "chains predict alike" in checks.index and "other starts predict alike" not in checks.index
    assert checks.loc["chains predict alike", "value"] > 0
    assert "other starts predict alike" in diagnose(one).checks.index


def test_starts_are_counted_and_share_no_alpha():
    corpus, y = planted("binary", 30)
    with pytest.raises(ValueError, match="num_starts is 0"):
        inference.vem(medlda, corpus, y, margin="binary", num_starts=0, **ARGUMENTS)
    with pytest.raises(ValueError, match="num_starts is 2, and estimate_alpha fits one alpha"):
        inference.vem(medlda, corpus, y, margin="binary", num_starts=2, estimate_alpha=True, **ARGUMENTS)


def test_of_several_starts_the_best_is_told_and_the_worst_is_not_hidden():
    rested = {"bound": [-9.0, -5.0], "converged": True, "interrupted": False, "seconds": 1.0}
    fell = {"bound": [-8.0, -3.0], "converged": False, "interrupted": False, "seconds": 2.0, "warning": "it fell"}
    cut = {"bound": [-7.0], "converged": False, "interrupted": True, "seconds": 0.5}
    told = together([rested, fell])
    assert told["bound"] == [-8.0, -3.0] and told["best"] == 1 and told["starts"] == [-5.0, -3.0]
    assert told["converged"] is False and told["warning"] == "it fell" and told["seconds"] == 3.0
    assert together([rested, cut])["interrupted"] and "warning" not in together([rested])
    assert together([rested, rested])["converged"] is True


@pytest.mark.longest
def test_settings_are_found_by_cross_validation():
    """One topic tells no classes apart, whatever the loss weighs; with four a light loss is enough to decide by."""
    corpus, y = planted("binary")
    names = np.where(y == 1, "yes", "no")
    given = {name: value for name, value in ARGUMENTS.items() if name != "num_topics"}
    search = {
        "folds": 2,
        "margin": "binary",
        "num_iterations": 8,
        "predict": {"rule": "plug-in"},
        "progress_bar": False,
    }
    grid = {"num_topics": [1, 4], "weight": [1e-5, 2.0]}
    table = inference.grid_search(inference.vem, medlda, corpus, names, grid, **given, **search)
    assert table["num_topics"].tolist() == [4, 4, 1, 1] and table["error"][1] < 0.2 < table["error"][2]
    assert table.attrs["error"] == "share of wrong classes"


def test_a_grid_that_is_none_is_refused():
    corpus, y = planted("binary")
    search = {"folds": 2, "margin": "binary", "progress_bar": False, "cost": 4.0}
    for grid, sentence in (
        ({}, "give lists of values"),
        ({"weight": "1"}, "give lists of values"),
        ({"cost": [1.0]}, "cost is in the grid"),
    ):
        with pytest.raises(ValueError, match=sentence):
            inference.grid_search(inference.vem, medlda, corpus, y, grid, **search)


def test_what_is_not_served_is_named():
    """By the engine itself: who would serve it is not its to say."""
    corpus, y = planted("binary", 12)
    with pytest.raises(ValueError, match="beside a normal response it needs a normal prior"):
        engine.vem(medlda, corpus, np.linspace(-1, 1, 12), margin="regression", prior="laplace", nu=1.0, num_topics=2)
    with pytest.raises(ValueError, match="cannot serve the site 'nu'"):
        engine.vem(medlda, corpus, y, margin="binary", prior="laplace", nu=None, num_topics=2)
    with pytest.raises(ValueError, match="slack is 'two'; choose from 'n', 'one'"):
        engine.vem(medlda, corpus, y, margin="binary", slack="two")

    def shifted(corpus, y=None, *, num_topics=3):
        """A margin in a story of one's own, its scores shifted: named, not misread."""
        eta = numpyro.sample("eta", dist.Normal(0, 1).expand([num_topics, 3]).to_event(2))
        scores = words(corpus, num_topics) @ eta + 1.0
        with numpyro.plate("documents", corpus.num_documents):
            numpyro.sample("y", OneAgainstAll(scores, 1.0, 4.0), obs=y)

    with pytest.raises(ValueError, match="its scores are not zbar @ eta alone"):
        engine.vem(shifted, corpus, np.arange(12) % 3.0)
