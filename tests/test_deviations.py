"""Deviations as variational EM moves them, and a latent label above the words: slopes that are 0, and loops."""

from __future__ import annotations

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from by_loops import expected_log, words_bound
from scipy.special import logsumexp, softmax
from scipy.stats import norm
from test_facets import CORPUS, Y

from topiczoo.inference.em.additive import AdditiveSite, Facet
from topiczoo.inference.em.components import Settings, State
from topiczoo.inference.em.model import EMModel
from topiczoo.inference.em.sites import DirichletSite
from topiczoo.inference.steps.additive import LaplacePenalty
from topiczoo.inference.steps.dirichlet import dirichlet_bound
from topiczoo.inference.story.reading import read
from topiczoo.models import draw_words

# deviations of two topics and two labels as variational EM moves them, from counts of their sums

SUMS = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])  # label and topic of each sum


def site_of(*, joint=False, scale=0.25):
    owners = {"label": (2, SUMS[:, 0]), "topic": (2, SUMS[:, 1])} | ({"joint": (4, None)} if joint else {})
    facets = tuple(
        Facet(name, (number, 9), None if owner is None else jnp.asarray(owner), LaplacePenalty(jnp.float32(scale)))
        for name, (number, owner) in owners.items()
    )
    rest = np.log(np.random.default_rng(0).dirichlet(np.full(9, 3.0)))
    return AdditiveSite(jnp.asarray(np.tile(rest, (2, 2, 1)), jnp.float32), facets, CORPUS, 0.8), rest


def slopes(site, state, counts):
    """What the words' likelihood gains with each deviation, by facets; counts are [sums, terms]."""
    parts = {f.name: np.asarray(state[f.name], float) for f in site.facets}
    rows = {"label": SUMS[:, 0], "topic": SUMS[:, 1], "joint": np.arange(4)}
    beta = softmax(np.asarray(site.rest, float).reshape(4, 9) + sum(parts[name][rows[name]] for name in parts), -1)
    left, out = counts - counts.sum(1, keepdims=True) * beta, {}
    for name, value in parts.items():
        out[name] = np.zeros_like(value)
        np.add.at(out[name], rows[name], left)
    return out, np.log(beta)


def test_deviations_rest_where_the_slope_is_that_of_their_prior():
    """Laplace: 1 / scale with the deviation's sign, no more than that at 0. Normal: deviation / variance."""
    rng = np.random.default_rng(1)
    counts = rng.poisson(40 * rng.gamma(1.0, 1.0, (4, 9))).astype(float)
    (site, rest), scale = site_of(), 0.25
    state = {facet.name: np.zeros(facet.shape, np.float32) for facet in site.facets}
    for _ in range(15):
        state = site.converge(counts.reshape(2, 2, 9), state)
    found, log_beta = slopes(site, state, counts)
    zeros = 0
    for name, slope in found.items():
        away = np.abs(state[name]) > 1e-3
        np.testing.assert_allclose(slope[away], np.sign(state[name][away]) / scale, atol=0.5)
        assert (np.abs(slope[~away]) < 1 / scale + 0.5).all()
        zeros += (~away).sum()
    assert 2 < zeros < 34
    np.testing.assert_allclose(site.log_mean(state).reshape(4, 9), log_beta, atol=1e-5)
    total = sum(np.abs(value).sum() / scale + value.size * np.log(2 * scale) for value in state.values())
    np.testing.assert_allclose(site.bound(state), -total, rtol=1e-3)
    q = site.q({**state, "topic": np.array([[5e-4, -2.0]])})
    np.testing.assert_array_equal(q["topic"].v, [[0, -2]])
    np.testing.assert_allclose(
        np.exp(site.log_mean({name: 0 * value for name, value in state.items()}))[1, 0], np.exp(rest), rtol=1e-5
    )
    for _ in range(200):
        state = site.warm(counts, state)
    found = slopes(site, state, counts)[0]
    np.testing.assert_allclose(found["topic"], state["topic"] / 0.8, atol=0.05)  # which moved last
    np.testing.assert_allclose(found["label"], state["label"] / 0.8, atol=0.3)


def test_interactions_stay_at_zero_until_the_others_have_said_what_they_can():
    counts = np.random.default_rng(2).poisson(30.0, (4, 9)).astype(float)
    site, _ = site_of(joint=True)
    state = site.start(np.random.default_rng(0), counts.reshape(2, 2, 9))
    assert not state["joint"].any() and state["topic"].any() and state["label"].any()
    state = site.warm(counts, state)
    assert not state["joint"].any()
    complete = site.complete(counts, state)
    np.testing.assert_array_equal(complete["topic"], state["topic"])
    np.testing.assert_allclose(slopes(site, complete, counts)[0]["joint"], complete["joint"] / 0.8, atol=0.05)
    assert site.names == {"label", "topic", "joint"} and site.prior.shape == (2, 2, 9)


def test_deviations_warm_up_under_the_normal_prior_before_the_interactions():
    """Ten turns, each an E-step that starts afresh and the optimum under the normal prior; Dirichlet topics need none."""
    counts, turns = np.random.default_rng(2).poisson(30.0, (4, 9)).astype(float), []
    site, _ = site_of(joint=True)
    start = site.start(np.random.default_rng(0), counts.reshape(2, 2, 9))

    def e_step(state, fresh):
        assert fresh and not state.topics["joint"].any()
        turns.append(state)
        return state

    graph = SimpleNamespace(response_sites=())
    model, state = SimpleNamespace(topics=site, e_step=e_step, graph=graph), State(start, None, counts=counts)
    found = EMModel.warmed_up(model, state)
    assert len(turns) == 10 and found.topics["joint"].any()
    dirichlet_topics = SimpleNamespace(topics=DirichletSite("beta", counts, False), e_step=e_step, graph=graph)
    assert EMModel.warmed_up(dirichlet_topics, state) is state


# a latent label above the words


def of_places(corpus, y=None, *, num_topics=2):
    """Dirichlet topics of each of two regions, which also say where a document was written."""
    with numpyro.plate("labels", 2, dim=-2), numpyro.plate("topics", num_topics, dim=-1):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, 0.4)))
    share = numpyro.sample("share", dist.Dirichlet(jnp.array([2.0, 3.0])))
    with numpyro.plate("regions", 2):
        centre = numpyro.sample("centre", dist.Normal(0, 2))
    with numpyro.plate("documents", corpus.num_documents):
        region = numpyro.sample("region", dist.Categorical(share))
        numpyro.sample("y", dist.Normal(centre[region], 0.8), obs=y)
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(num_topics, 0.5)))
    draw_words(corpus, theta, beta, label=region)


def test_the_e_and_m_steps_of_a_latent_label_are_those_of_loops():
    """q(label) by Bayes' rule with the bound of the words for p(w | label), counts weighted by it, a bound that is the sum
    over labels; shares by their expected counts, centres where the slope of their log density is 0."""
    corpus, rng = CORPUS[:20], np.random.default_rng(0)
    y = np.where(Y[:20] == 0, -1.0, 1.0) + 0.5 * rng.normal(size=20)
    model = EMModel(read(of_places, corpus, y, {}), Settings(e_tolerance=0.0, e_iterations=300))
    start = model.start(np.random.default_rng(0))
    np.testing.assert_allclose(start.classes["centre"], 0, atol=1e-6)  # at the prior's mean
    points = {"share": np.array([5.0, 9.0]), "centre": np.array([-0.5, 0.9], np.float32)}
    topics = start.topics + rng.gamma(0.5, 2.0, start.topics.shape)
    state = model.e_step(start._replace(topics=topics, classes=points), True)
    joint, counts = np.zeros((2, 20)), np.zeros((2, 2, 60))
    for j in range(2):
        log_beta = model.topics.log_mean(topics)[j]
        for d, row in enumerate(corpus.counts.toarray()):
            gamma, terms = np.asarray(state.local.gamma[j, d], float), np.repeat(np.arange(60), row)
            phi = softmax(expected_log(gamma) + log_beta[:, terms].T, axis=1)
            np.testing.assert_allclose(gamma, 0.5 + phi.sum(0), rtol=0.02, atol=0.02)
            joint[j, d] = words_bound(phi, gamma, log_beta[:, terms].T, np.full(2, 0.5))
            joint[j, d] += expected_log(points["share"])[j] + norm.logpdf(y[d], points["centre"][j], 0.8)
            np.add.at(counts[j].T, terms, state.local.shares[j, d] * phi)
    np.testing.assert_allclose(state.local.shares, softmax(joint, axis=0), atol=2e-3)
    np.testing.assert_allclose(state.local.bound, logsumexp(joint, axis=0), rtol=1e-5, atol=1e-3)
    np.testing.assert_allclose(state.counts, counts, rtol=0.01, atol=0.01)
    prior = dirichlet_bound(np.array([2.0, 3.0]), points["share"]) + norm.logpdf(points["centre"], 0, 2).sum()
    whole = state.local.bound.sum() + prior + dirichlet_bound(np.full(60, 0.4), topics).sum()
    np.testing.assert_allclose(model.bound(state), whole, rtol=1e-5)
    moved = model.m_step(state, True)
    number = state.local.shares.sum(1)
    np.testing.assert_allclose(moved.classes["share"], number + [2, 3], rtol=1e-4)
    np.testing.assert_allclose(
        moved.classes["centre"], state.local.shares @ y / 0.64 / (number / 0.64 + 0.25), rtol=5e-3, atol=2e-3
    )
    np.testing.assert_allclose(moved.topics, state.counts + 0.4)
    q = model.q(state)
    mixed = (state.local.shares[..., None] * np.asarray(state.local.gamma)).sum(0)
    np.testing.assert_allclose(q["theta"].concentration, mixed, rtol=1e-5)
    np.testing.assert_array_equal(q["region"].probs, state.local.shares.T)
    np.testing.assert_array_equal(q["centre"].v, state.classes["centre"])
