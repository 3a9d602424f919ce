"""What variational EM is made of: Dirichlet algebra, alpha, draws from what was found, the turns of EM, where it starts."""

from __future__ import annotations

from dataclasses import asdict
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import special as scipy_special
from scipy import stats
from scipy.integrate import quad
from scipy.sparse import csr_array

from topiczoo.corpora import Corpus
from topiczoo.inference.em import engine as vem_engine
from topiczoo.inference.em import loop
from topiczoo.inference.em.classes import impossible
from topiczoo.inference.em.components import Settings
from topiczoo.inference.em.loop import FRESH, ascend, draw, finite_bound, together
from topiczoo.inference.em.sites import DirichletSite
from topiczoo.inference.em.starts import coefficients_by_response, counts_of, dealt_counts, topics_by_response
from topiczoo.inference.kernels import special
from topiczoo.inference.steps.dirichlet import (
    SMALLEST_ALPHA,
    dirichlet_bound,
    expected_log,
    fit_alpha,
    log_normaliser,
)
from topiczoo.inference.steps.words import first_gamma

NOBODY = SimpleNamespace(story=SimpleNamespace(name="nobody"), response_sites=())


# special functions and Dirichlet algebra


def test_log_gamma_and_digamma_are_scipys():
    x = np.concatenate([np.geomspace(1e-4, 1e6, 400), np.linspace(7.9, 8.1, 21), np.linspace(0.9, 2.1, 50)])
    at = jnp.asarray(x, jnp.float32)
    x = np.asarray(at, float)
    np.testing.assert_allclose(jax.jit(special.digamma)(at), scipy_special.digamma(x), rtol=3e-6, atol=3e-6)
    np.testing.assert_allclose(jax.jit(special.gammaln)(at), scipy_special.gammaln(x), rtol=3e-6, atol=1e-5)


def test_dirichlet_algebra_against_integrals_of_a_beta():
    p, q = np.array([0.7, 2.0]), np.array([1.6, 0.9])
    under_p, under_q = stats.beta(*p), stats.beta(*q)

    def integral(function):
        return quad(function, 0, 0.5)[0] + quad(function, 0.5, 1)[0]

    logs = [integral(lambda x: under_q.pdf(x) * np.log(x)), integral(lambda x: under_q.pdf(x) * np.log(1 - x))]
    np.testing.assert_allclose(expected_log(q), logs, rtol=1e-5)
    np.testing.assert_allclose(np.exp(log_normaliser(q)), integral(lambda x: x**0.6 * (1 - x) ** -0.1), rtol=1e-5)
    divergence = integral(lambda x: under_q.pdf(x) * (under_q.logpdf(x) - under_p.logpdf(x)))
    np.testing.assert_allclose(dirichlet_bound(p, q), -divergence, rtol=1e-5)
    # several at once, each along the last axis
    rng = np.random.default_rng(0)
    many, prior = rng.gamma(2.0, 1.0, (2, 3, 4)), rng.gamma(2.0, 1.0, 4)
    np.testing.assert_allclose(dirichlet_bound(prior, many)[1, 2], dirichlet_bound(prior, many[1, 2]))
    assert dirichlet_bound(prior, prior) == pytest.approx(0, abs=1e-12)


def test_a_dirichlet_site_of_each_kind():
    prior, counts = np.full((2, 3), 0.4), np.array([[5.0, 0.0, 2.0], [1.0, 1.0, 0.0]])
    site, estimate = DirichletSite("beta", prior, False), DirichletSite("beta", prior, True)
    state, shares = site.m_step(counts), counts / counts.sum(1, keepdims=True)
    np.testing.assert_allclose(state, counts + 0.4)
    np.testing.assert_allclose(site.log_mean(state), expected_log(counts + 0.4))
    np.testing.assert_allclose(site.bound(state), dirichlet_bound(prior, counts + 0.4).sum())
    np.testing.assert_allclose(site.point(state), np.exp(expected_log(counts + 0.4)), rtol=1e-5)
    found = estimate.m_step(counts)
    np.testing.assert_allclose(np.exp(estimate.log_mean(found)), shares, atol=1e-12)
    assert estimate.bound(found) == 0 and np.isfinite(estimate.log_mean(found)).all()
    assert (estimate.point(found) > 0).all()
    assert set(site.q(state)) == set(estimate.q(found)) == {"beta"}
    np.testing.assert_allclose(site.q(state)["beta"].concentration, state, atol=1e-12)
    np.testing.assert_allclose(estimate.q(found)["beta"].v, shares, atol=1e-12)
    # noise of 10% on counts of one: 20,000 of them have means within 5 standard errors (once in a million)
    noise = DirichletSite("beta", np.ones((2, 10_000)), False).start(np.random.default_rng(0), 3.0) - 3
    assert abs(noise.mean() - 1) < 5 * 0.1 / np.sqrt(20_000) and abs(noise.std() - 0.1) < 0.005


def test_alpha_is_where_the_slope_is_zero_and_unused_topics_stop_at_the_smallest():
    """E[log theta] of documents under an alpha gives that alpha back: the slope of its objective is 0 there."""
    truth = np.array([0.1, 0.3, 1.0])
    logs = expected_log(truth) + np.array([[0.3, -0.2, 0.1], [-0.3, 0.2, -0.1]])  # two documents around the mean
    for start in (np.ones(3), np.array([5.0, 0.01, 0.2])):
        np.testing.assert_allclose(fit_alpha(start, logs), truth, rtol=2e-2)
    np.testing.assert_allclose(fit_alpha(truth, logs), truth, rtol=1e-9)  # no step where nothing is gained
    unused = fit_alpha(np.ones(3), np.array([[-1.0, -0.6, -1e5]]))
    assert unused[2] == SMALLEST_ALPHA
    slope = scipy_special.digamma(unused.sum()) - scipy_special.digamma(unused) + np.array([-1.0, -0.6, -1e5])
    np.testing.assert_allclose(slope[:2], 0, atol=1e-2)
    np.testing.assert_array_equal(fit_alpha(np.array([0.7]), np.zeros((4, 1))), [0.7])


def test_what_is_known_of_a_class_rules_the_others_out():
    found = impossible(np.array([0, 1, 2]), np.array([1.0, np.nan, 0.0]))
    np.testing.assert_array_equal(found, [[-np.inf, 0, 0], [0, 0, -np.inf], [-np.inf, 0, -np.inf]])
    assert impossible(np.array([0, 1]), None) == 0


# draws from the approximate posterior


def test_draws_have_the_laws_that_were_found():
    """20,000 draws; 5 standard errors are exceeded once in two million numbers, and there are about 100."""
    rng, number = np.random.default_rng(0), 20_000
    concentration = np.array([[0.3, 2.0, 5.0], [4.0, 1.0, 1.0]])
    shares = np.array([[0.2, 0.5, 0.3], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    mean, variance = np.array([[1.0, -2.0], [0.5, 3.0]]), np.array([[4.0, 0.25], [0.01, 9.0]])
    covariance = np.array([[2.0, -0.9], [-0.9, 0.5]])
    q = {
        "theta": dist.Dirichlet(concentration), "z": dist.Categorical(shares), "sigma": dist.Delta(np.array(0.7)),
        "eta": dist.Normal(mean, np.sqrt(variance)),
        "zeta": dist.MultivariateNormal(np.array([1.0, 2.0]), scale_tril=np.linalg.cholesky(covariance)),
    }  # fmt: skip
    found = draw(q, rng, number)
    assert {name: value.shape for name, value in found.items()} == {
        "theta": (1, number, 2, 3), "z": (1, number, 3), "eta": (1, number, 2, 2), "zeta": (1, number, 2),
        "sigma": (1, number),
    }  # fmt: skip
    error = 5 / np.sqrt(number)
    theta, eta, zeta = found["theta"][0].astype(float), found["eta"][0].astype(float), found["zeta"][0].astype(float)
    for row, expected in zip(theta.swapaxes(0, 1), concentration, strict=True):
        law = stats.beta(expected, expected.sum() - expected)
        assert (abs(row.mean(0) - law.mean()) < error * law.std()).all()
        spread = np.sqrt(law.stats("k") + 2)  # of a variance, in units of it
        assert (abs(row.var(0) / law.var() - 1) < error * spread).all()
    np.testing.assert_allclose(theta.sum(-1), 1, rtol=1e-5)
    counted = np.stack([(found["z"][0] == k).mean(0) for k in range(3)], 1)
    assert (abs(counted - shares) <= error * np.sqrt(shares * (1 - shares)) + 1e-12).all()
    assert (abs(eta.mean(0) - mean) < error * np.sqrt(variance)).all()
    assert (abs(eta.var(0) / variance - 1) < error * np.sqrt(2)).all()
    assert (abs(zeta.mean(0) - [1, 2]) < error * np.sqrt(np.diag(covariance))).all()
    np.testing.assert_allclose(np.cov(zeta.T), covariance, atol=5 * 2 * np.sqrt(2 / number))
    np.testing.assert_array_equal(found["sigma"], np.float32(0.7))
    # sites, and numbers of a site, are drawn apart
    columns = np.column_stack([theta[:, :, 0], eta.reshape(number, 4), zeta, found["z"][0, :, 0]])
    apart = np.corrcoef(columns.T)
    apart[6, 7] = apart[7, 6] = 0
    assert np.abs(apart - np.eye(len(apart))).max() < error


def test_how_many_draws_there_are(monkeypatch):
    rng = np.random.default_rng(0)
    point = {"beta": dist.Delta(np.eye(3))}
    assert draw(point, rng, 50)["beta"].shape == (1, 1, 3, 3)  # one says all
    monkeypatch.setattr(loop, "LARGEST_SITE", 7 * 4 * 12)
    both = {"theta": dist.Dirichlet(np.ones((4, 3))), "sigma": dist.Delta(np.array(1.0))}
    assert {value.shape[:2] for value in draw(both, rng, 50).values()} == {(1, 7)}
    assert {value.shape[:2] for value in draw(both, rng, 5).values()} == {(1, 5)}
    tiny = draw({"theta": dist.Dirichlet(np.full((1, 3), 1e-6))}, rng, 20)["theta"]
    assert (tiny > 0).all() and np.isfinite(np.log(tiny)).all()


# the turns of EM


class Scripted:
    """A model whose states count its steps; bounds are given for each E-step in turn."""

    monotone = afresh = True

    def __init__(self, bounds, **settings):
        self.bounds, self.asked, self.moved = list(bounds), [], []
        for name, value in settings.items():
            setattr(self, name, value)

    def e_step(self, state, fresh):
        self.asked.append(fresh)
        return (*state[:1], self.bounds[len(self.asked) - 1])

    def m_step(self, state, fresh):
        self.moved.append(fresh)
        return state[0] + 1, None

    def bound(self, state):
        return state[1]

    def q(self, state):
        return {"good": dist.Delta(np.zeros(2)), "eta": dist.Delta(np.array([0.0, np.nan]))}


def turns(model, most=50, tolerance=1e-3):
    return ascend(model, (0, None), NOBODY, most, tolerance, False)


def test_em_starts_afresh_until_the_bound_rests_and_ends_when_it_rests_again():
    """At least ten E-steps start afresh, however little the bound rises; then two that start where the last one ended."""
    model = Scripted([-100.0] * (FRESH + 1) + [-90.0, -89.95])
    state, info = turns(model)
    assert model.asked == [True] * (FRESH + 1) + [False] * 2 and model.moved == model.asked[1:]
    assert info["bound"] == model.bounds and state == (FRESH + 2, -89.95)
    assert info["converged"] and not info["interrupted"] and "warning" not in info


def test_a_fresh_e_step_that_lets_the_bound_fall_is_taken_back():
    """The same M-step, and an E-step that starts where the last one ended in the place of the fresh one."""
    model = Scripted([-100.0, -80.0, -85.0, -79.0, -79.0])
    state, info = turns(model)
    assert info["bound"] == [-100.0, -80.0, -79.0, -79.0] and model.asked == [True, True, True, False, False]
    assert state[0] == 3 and info["converged"] and "warning" not in info


def test_a_bound_that_falls_stops_em_where_it_should_rise():
    bounds = [-100.0, -90.0, -95.0, -95.0, -60.0, -50.0]
    with pytest.warns(RuntimeWarning, match="the bound fell from -90 to -95 in iteration 2"):
        state, info = turns(Scripted(bounds))
    assert info["bound"] == [-100.0, -90.0] and state == (1, -90.0) and not info["converged"]
    assert "the bound fell" in info["warning"]
    _, info = turns(Scripted([-100.0, -90.0, -95.0, -95.0, -60.0, -60.0], monotone=False))
    assert info["bound"] == [-100.0, -90.0, -95.0, -60.0, -60.0] and info["converged"] and "warning" not in info


def test_em_ends_after_its_iterations_or_with_an_interrupt():
    model = Scripted(-100.0 / np.arange(1, 60), afresh=False)
    state, info = turns(model, most=4, tolerance=1e-9)
    assert len(info["bound"]) == 5 and state[0] == 4 and not info["converged"]
    assert model.asked == [True] + [False] * 4  # what has nothing to start afresh starts so only once

    class Interrupted(Scripted):
        def m_step(self, state, fresh):
            if len(self.moved) == 2:
                raise KeyboardInterrupt
            return super().m_step(state, fresh)

    state, info = turns(Interrupted([-5.0, -4.0, -3.0]))
    assert info["interrupted"] and not info["converged"] and info["bound"] == [-5.0, -4.0, -3.0] and state[0] == 2


def test_what_several_starts_say_is_the_course_of_the_one_that_ends_highest():
    """Not of the one that began so, nor of the first or last; that one has ended is not that all have."""
    each = [
        {"bound": [-10.0, -9.0], "converged": True, "interrupted": False, "seconds": 1.0},
        {"bound": [-30.0, -7.0], "converged": True, "interrupted": False, "seconds": 2.0},
        {"bound": [-40.0, -8.0], "converged": False, "interrupted": True, "seconds": 4.0, "warning": "the bound fell"},
    ]
    found = together(each)
    assert found["best"] == 1 and found["bound"] == [-30.0, -7.0] and found["starts"] == [-9.0, -7.0, -8.0]
    assert found["seconds"] == 7.0 and found["interrupted"] and not found["converged"]
    assert (
        found["warning"] == "the bound fell" and "warning" not in together(each[:2]) and together(each[:2])["converged"]
    )


def test_settings_reach_the_model_by_their_names(monkeypatch):
    """What vem is given, in other values than the defaults, is what its components read."""
    given = {
        "topics": "mle", "point": "mle", "estimate_alpha": True, "e_tolerance": 1e-3, "e_iterations": 7,
        "start": "uniform", "order": "sequential", "expectation": "delta", "slack": "one", "guarded": False,
        "start_variance": 0.7,
    }  # fmt: skip
    asked = []

    def stop(graph, settings):
        asked.append(settings)
        raise RuntimeError

    monkeypatch.setattr(vem_engine, "read", lambda *parts, **named: None)
    monkeypatch.setattr(vem_engine, "EMModel", stop)
    with pytest.raises(RuntimeError):
        vem_engine.vem("lda", None, **given)
    assert asdict(asked[0]) == given
    with pytest.raises(RuntimeError):
        vem_engine.vem("lda", None)
    assert asked[1] == Settings()  # so that what differs from them was set by the user
    for name in ("topics", "point", "start", "order", "expectation", "slack"):
        with pytest.raises(ValueError, match=f"{name} is 'best'; choose from"):
            vem_engine.vem("lda", None, **{name: "best"})


def test_a_bound_that_is_no_number_names_the_site_that_is_none():
    assert finite_bound(Scripted([]), (0, -2.0), NOBODY) == -2.0
    for wrong in (np.nan, -np.inf):
        with pytest.raises(FloatingPointError, match=r"'nobody' became (nan|-inf) at the site 'eta'"):
            finite_bound(Scripted([]), (0, wrong), NOBODY)
    good, response = Scripted([]), SimpleNamespace(story=NOBODY.story, response_sites=("y",))
    good.q = lambda state: {"eta": dist.Delta(np.zeros(2))}
    with pytest.raises(FloatingPointError, match="at the site 'y'"):  # all sites are numbers: it is the response
        finite_bound(good, (0, np.nan), response)


# where it starts


def test_topics_start_at_documents_in_the_order_of_the_response():
    """Documents are placed at normal scores of their ranks, topics evenly between -2 and 2; only the order of y counts."""
    y = np.array([10.0, -3.0, np.nan, 0.0, 2.0])
    counts = csr_array(np.random.default_rng(0).poisson(2.0, (5, 6)))
    found, shares = topics_by_response(counts, y, 4)
    scores = stats.norm.ppf((np.array([4, 1, 2, 3]) - 0.5) / 4)
    places, width = np.array([-2, -2 / 3, 2 / 3, 2]), 0.5
    expected = np.exp(-0.5 * ((scores[:, None] - places) / width) ** 2)
    expected = np.insert(expected / expected.sum(1, keepdims=True), 2, 0.25, axis=0)
    np.testing.assert_allclose(shares, expected, rtol=1e-6)
    np.testing.assert_allclose(found, expected.T @ counts.toarray(), rtol=1e-6)
    np.testing.assert_allclose(topics_by_response(counts, np.exp(y / 5), 4)[1], shares)
    np.testing.assert_allclose(topics_by_response(counts, y, 1)[1], 1)
    narrow = topics_by_response(counts, y, 40)[1]  # with many topics each is 0.3 wide
    places = np.linspace(-2, 2, 40)
    expected = np.exp(-0.5 * ((scores[1] - places) / 0.3) ** 2)
    np.testing.assert_allclose(narrow[1], expected / expected.sum(), rtol=1e-6)


def test_coefficients_start_at_what_a_topics_documents_have_more_of():
    shares = np.array([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5], [0.3, 0.7]])
    y = np.array([0.0, 1.0, np.nan, 2.0])
    found = coefficients_by_response(y, shares, 3)
    known = shares[[0, 1, 3]]
    away = known.T @ np.eye(3) / known.sum(0)[:, None] - 1 / 3
    np.testing.assert_allclose(found, away / np.abs(away).max(), rtol=1e-6)
    two = np.stack([y, y**2], 1)  # two numbers a document, as many as there are outputs
    away = known.T @ two[[0, 1, 3]] / known.sum(0)[:, None] - two[[0, 1, 3]].mean(0)
    np.testing.assert_allclose(coefficients_by_response(two, shares, 2), away / np.abs(away).max(), rtol=1e-6)


def test_gamma_starts_with_words_shared_as_the_prior_has_topics():
    alpha, lengths = np.array([[0.2, 0.6], [1.0, 1.0]]), np.array([8.0, 0.0])
    np.testing.assert_allclose(first_gamma(alpha, lengths), [[0.2 + 2, 0.6 + 6], [1, 1]], rtol=1e-6)
    np.testing.assert_allclose(first_gamma(alpha[0], lengths), [[0.2 + 2, 0.6 + 6], [0.2, 0.6]], rtol=1e-6)


def test_counts_of_documents_dealt_to_topics():
    counts = np.random.default_rng(0).poisson(2.0, (50, 4)) + 1
    corpus, shares = Corpus.from_counts(counts), np.random.default_rng(1).random((3, 50))
    np.testing.assert_allclose(counts_of(shares, corpus), shares @ counts)
    dealt = dealt_counts(np.random.default_rng(0), corpus, 5)
    np.testing.assert_allclose(dealt.sum(0), counts.sum(0))  # each document goes to one topic
    assert (dealt.sum(1) > 0).all()
    of_labels = dealt_counts(np.random.default_rng(0), corpus, 5, shares)
    np.testing.assert_allclose(of_labels.sum(1), shares @ counts, rtol=1e-5)
