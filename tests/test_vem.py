"""Variational EM of words, with one normal response token by token, and of whole documents: by loops and enumeration."""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from by_loops import (
    ALPHA,
    CORPUS,
    COUNTS,
    FEW,
    GAMMA,
    SOME_Y,
    K,
    Y,
    expected_log,
    log_polya,
    phi_of,
    second_moment,
    terms_of,
    words_bound,
)
from scipy.special import digamma, logsumexp
from scipy.stats import norm

from topiczoo.corpora import Corpus, layouts
from topiczoo.corpora.layouts import documents
from topiczoo.inference.em.components import Settings
from topiczoo.inference.em.engine import fold_in, vem
from topiczoo.inference.em.model import EMModel
from topiczoo.inference.steps.dirichlet import dirichlet_bound, fit_alpha
from topiczoo.inference.steps.tokens import Tilt, coordinate_ascent, expected_response
from topiczoo.inference.steps.words import e_step, pair_batches
from topiczoo.inference.story.reading import read
from topiczoo.models import draw_bags, lda, mixture, slda

STORY = {"num_topics": K, "alpha": ALPHA, "gamma": GAMMA}
QUIET = {"progress_bar": False}


def model_of(story, y=None, corpus=CORPUS, *, settings=Settings(), **arguments):
    """The engine's model, for looking at single steps."""
    return EMModel(read(story, corpus, y, arguments), settings)


# words alone


@pytest.fixture(scope="module")
def words():
    """The model, its start, and its state after an E-step of seven steps."""
    model = model_of(lda, settings=Settings(e_tolerance=0.0, e_iterations=7, estimate_alpha=True), **STORY)
    start = model.start(np.random.default_rng(0))
    start = start._replace(topics=start.topics * np.random.default_rng(1).gamma(0.5, 1.0, start.topics.shape) + 0.3)
    return model, start, model.e_step(start, True)


def test_an_e_step_of_words_is_that_of_loops(words):
    """gamma after seven steps from the prior's shares, expected counts of terms, and each document's bound."""
    model, start, state = words
    log_beta, counts = expected_log(start.topics), np.zeros((K, COUNTS.shape[1]))
    for d in range(len(COUNTS)):
        gamma = ALPHA * (1 + COUNTS[d].sum() / ALPHA.sum())
        for _ in range(7):
            gamma = ALPHA + phi_of(d, gamma, log_beta).sum(0)
        np.testing.assert_allclose(state.local.gamma[d], gamma, rtol=1e-4, atol=1e-4)
        phi = phi_of(d, gamma, log_beta)
        for topics, term in zip(phi, terms_of(d), strict=True):
            counts[:, term] += topics
        bound = words_bound(phi, gamma, log_beta[:, terms_of(d)].T, ALPHA)
        np.testing.assert_allclose(state.local.bound[d], bound, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(state.counts, counts, rtol=1e-4, atol=1e-3)
    whole = state.local.bound.sum() + dirichlet_bound(np.full(COUNTS.shape[1], GAMMA), start.topics).sum()
    np.testing.assert_allclose(model.bound(state), whole, rtol=1e-9)


def test_an_m_step_of_words_gives_counts_to_topics_and_fits_alpha_once_they_have_settled(words):
    model, _, state = words
    fresh, settled = model.m_step(state, True), model.m_step(state, False)
    np.testing.assert_allclose(fresh.topics, state.counts + GAMMA)
    np.testing.assert_allclose(fresh.alpha, ALPHA, rtol=1e-6)
    np.testing.assert_allclose(settled.alpha, fit_alpha(ALPHA, expected_log(np.asarray(state.local.gamma, float))))
    q = model.q(state)
    np.testing.assert_array_equal(q["theta"].concentration, state.local.gamma)
    np.testing.assert_array_equal(q["beta"].concentration, state.topics)


def test_an_e_step_starts_afresh_or_where_the_last_one_ended(words):
    """Seven steps twice are fourteen; and documents rest as soon as they rise by less than the tolerance."""
    model, start, state = words
    log_beta = jnp.asarray(expected_log(start.topics).T, jnp.float32)
    begin = jnp.asarray(ALPHA * (1 + COUNTS.sum(1)[:, None] / ALPHA.sum()), jnp.float32)
    whole = e_step(model.words.pairs, log_beta, ALPHA, begin, (0.0, 14))
    np.testing.assert_allclose(model.e_step(state, False).local.gamma, whole.gamma, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(model.e_step(state, True).local.gamma, state.local.gamma, rtol=1e-6)
    one, lazy = (
        e_step(model.words.pairs, log_beta, ALPHA, begin, (0.0, 1)),
        e_step(model.words.pairs, log_beta, ALPHA, begin, (9.0, 5)),
    )
    np.testing.assert_array_equal(lazy.gamma, one.gamma)


def test_documents_shared_out_to_threads_have_the_same_e_step(words, monkeypatch):
    _, start, state = words
    monkeypatch.setattr(layouts, "LEAST_SHARED", 100)
    shared = pair_batches(layouts.distinct_pairs(CORPUS.counts), *CORPUS.counts.shape)
    assert len(shared.batches.terms) == 8
    log_beta = jnp.asarray(expected_log(start.topics).T, jnp.float32)
    begin = jnp.asarray(ALPHA * (1 + COUNTS.sum(1)[:, None] / ALPHA.sum()), jnp.float32)
    found = e_step(shared, log_beta, ALPHA, begin, (0.0, 7))
    np.testing.assert_allclose(found.gamma, state.local.gamma, rtol=1e-5)
    np.testing.assert_allclose(found.bound, state.local.bound, rtol=1e-5)
    np.testing.assert_allclose(found.counts.T, state.counts, rtol=1e-4, atol=1e-4)


def test_a_tilt_moves_phi_and_is_no_part_of_the_bound(words):
    model, start, _ = words
    rng, log_beta = np.random.default_rng(3), expected_log(start.topics)
    tilt = rng.normal(0, 2.0, (len(COUNTS), K))
    begin = jnp.asarray(ALPHA * (1 + COUNTS.sum(1)[:, None] / ALPHA.sum()), jnp.float32)
    found = e_step(model.words.pairs, jnp.asarray(log_beta.T, jnp.float32), ALPHA, begin, (0.0, 300), tilt)
    counts = np.zeros_like(log_beta)
    for d in range(len(COUNTS)):
        gamma, terms = np.asarray(found.gamma[d], float), terms_of(d)
        phi = phi_of(d, gamma, log_beta, tilt[d])
        np.add.at(counts.T, terms, phi)
        np.testing.assert_allclose(gamma, ALPHA + phi.sum(0), rtol=1e-2, atol=2e-2)
        np.testing.assert_allclose(found.bound[d], words_bound(phi, gamma, log_beta[:, terms].T, ALPHA), rtol=1e-3)
    np.testing.assert_allclose(found.counts.T, counts, rtol=1e-3, atol=1e-2)


def test_of_one_topic_the_bound_is_the_exact_evidence():
    model = model_of(lda, num_topics=1, alpha=0.4, gamma=GAMMA)
    state = model.e_step(model.m_step(model.e_step(model.start(np.random.default_rng(0)), True), True), True)
    np.testing.assert_allclose(model.bound(state), log_polya(COUNTS.sum(0), GAMMA), rtol=1e-5)


TINY, TINY_Y = Corpus.from_counts(np.array([[2, 1, 0], [0, 1, 2]])), np.array([0.4, -1.0])


def tiny_evidence(alpha, gamma=None, beta=None, response=lambda d, zbar: 0.0):
    """Of two documents, six words, two topics: z enumerated; of each document alone where topics are given."""
    document, term = TINY.tokens()
    paths = [[], []] if gamma is None else [[]]
    for z in itertools.product(range(2), repeat=6 if gamma is not None else 3):
        if gamma is not None:
            of_documents, of_topics = np.zeros((2, 2)), np.zeros((2, 3))
            np.add.at(of_documents, (document, z), 1)
            np.add.at(of_topics, (z, term), 1)
            paths[0].append(log_polya(of_documents, alpha).sum() + log_polya(of_topics, gamma).sum())
            continue
        for d in range(2):
            n = np.bincount(z, minlength=2)
            own = np.log(beta[list(z), term[document == d]]).sum() + log_polya(n, alpha)
            paths[d].append(own + response(d, n / 3))
    return logsumexp(paths, axis=1)


def test_the_bound_lies_below_the_exact_evidence():
    fit = vem(lda, TINY, num_topics=2, alpha=0.5, gamma=0.7, tolerance=1e-7, num_draws=1, seed=1, **QUIET)
    (evidence,) = tiny_evidence(0.5, 0.7)
    assert evidence - 3 < fit.info["bound"][-1] < evidence


def test_the_bound_is_scikit_learns(words):
    decomposition = pytest.importorskip("sklearn.decomposition")
    model = model_of(lda, num_topics=K, alpha=0.1, gamma=0.05)
    state = model.e_step(model.start(np.random.default_rng(0)), True)
    peer = decomposition.LatentDirichletAllocation(K, doc_topic_prior=0.1, topic_word_prior=0.05, max_iter=1)
    peer.fit(COUNTS.astype(float))
    peer.components_ = state.topics
    peer.exp_dirichlet_component_ = np.exp(expected_log(state.topics))
    same = peer._approx_bound(COUNTS.astype(float), np.asarray(state.local.gamma, float), sub_sampling=False)
    np.testing.assert_allclose(model.bound(state), same, rtol=1e-6)


def test_fold_in_settles_at_the_fixed_point():
    rng = np.random.default_rng(0)
    beta = rng.dirichlet(np.full(COUNTS.shape[1], 0.3), K)
    counts = np.vstack([COUNTS[:5], np.zeros(COUNTS.shape[1], int)])
    few = documents(Corpus.from_counts(counts, empty="keep"), pairs=True)
    gamma, phibar = (np.asarray(x, float) for x in fold_in(beta, ALPHA, few, e_tolerance=0.0, e_iterations=500))
    phi = np.exp(digamma(gamma))[:, :, None] * beta  # [D, K, V]
    expected = (phi / phi.sum(1, keepdims=True) * counts[:, None]).sum(2)
    # a bound flat to float32 leaves gamma the square root of that precision
    np.testing.assert_allclose(gamma, ALPHA + expected, rtol=1e-2, atol=1e-3)
    np.testing.assert_allclose(phibar[:5], (gamma[:5] - ALPHA) / counts[:5].sum(1, keepdims=True), rtol=1e-4)
    np.testing.assert_allclose(gamma[5], ALPHA, rtol=1e-6)
    np.testing.assert_array_equal(phibar[5], 0)


# one normal response, token by token: equation numbers are those of Blei & McAuliffe (2007)


@pytest.fixture(scope="module")
def normal():
    """The model under the story's priors after an E-step, and the phi of every document."""
    model = model_of(slda, SOME_Y, settings=Settings(e_iterations=5, order="sequential"), **STORY)
    start = model.start(np.random.default_rng(0))
    state = model.e_step(start._replace(response={**start.response, "sigma": jnp.float32(0.6)}), True)
    width = model.words.batches.rows.shape[-1]
    phi = []
    for d in range(len(COUNTS)):
        block, column = divmod(int(model.words.batches.lane[d]), width)
        first = int(model.words.batches.start[0, block])
        phi.append(np.asarray(state.local.phi, float)[first : first + int(COUNTS[d].sum()), :, column])
    return model, state, phi


def expected_normal(phi, eta, y, sigma):
    """Equation 4: E[log N(y; eta . zbar, sigma^2)] by loops over pairs of words."""
    square = y**2 - 2 * y * eta @ phi.mean(0) + eta @ second_moment(phi) @ eta
    return -0.5 * np.log(2 * np.pi * sigma**2) - square / (2 * sigma**2)


def test_a_documents_bound_with_a_normal_response_is_equation_2(normal):
    model, state, phi = normal
    log_beta = model.topics.log_mean(state.topics)
    for d in FEW:
        np.testing.assert_allclose(state.local.tokens[d], phi[d].sum(0), rtol=1e-4)
        bound = words_bound(phi[d], ALPHA + phi[d].sum(0), log_beta[:, terms_of(d)].T, ALPHA)
        if not np.isnan(SOME_Y[d]):
            bound += expected_normal(phi[d], np.asarray(state.response["eta"], float), SOME_Y[d], 0.6)
        np.testing.assert_allclose(state.local.bound[d], bound, rtol=1e-4, atol=1e-4)
    prior = norm.logpdf(np.asarray(state.response["eta"], float), 0, 2).sum() + np.log(2) + norm.logpdf(0.6)
    whole = state.local.bound.sum() + prior + dirichlet_bound(model.topics.prior, state.topics).sum()
    np.testing.assert_allclose(model.bound(state), whole, rtol=1e-7)


def test_the_m_step_of_a_normal_response_solves_equations_8_10_and_11(normal):
    model, state, phi = normal
    after, labelled = model.m_step(state, True), np.flatnonzero(~np.isnan(SOME_Y))
    gram, moment, counts = np.eye(K) / 4, np.zeros(K), np.full((K, COUNTS.shape[1]), GAMMA)
    moments = {d: second_moment(phi[d]) for d in labelled}
    for d in range(len(COUNTS)):
        np.add.at(counts.T, terms_of(d), phi[d])
    for d in labelled:
        gram += moments[d] / 0.6**2
        moment += SOME_Y[d] * phi[d].mean(0) / 0.6**2
    eta = np.linalg.solve(gram, moment)
    np.testing.assert_allclose(after.topics, counts, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(after.response["eta"], eta, rtol=1e-3, atol=1e-3)
    squares = sum(SOME_Y[d] ** 2 - 2 * SOME_Y[d] * eta @ phi[d].mean(0) + eta @ moments[d] @ eta for d in labelled)

    def slope(sigma):
        """Of -n log sigma - squares / (2 sigma^2) - sigma^2 / 2, the last by the prior of sigma."""
        return -len(labelled) / sigma + squares / sigma**3 - sigma

    assert slope(float(after.response["sigma"]) * 0.999) > 0 > slope(float(after.response["sigma"]) * 1.001)
    flat = model_of(slda, SOME_Y, settings=Settings("mle", "mle", order="sequential"), **STORY)
    bare = flat.m_step(state, True)
    np.testing.assert_allclose(bare.topics, counts - GAMMA, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(
        bare.response["eta"], np.linalg.solve(gram - np.eye(K) / 4, moment), rtol=1e-3, atol=1e-3
    )
    assert flat.bound(state) == pytest.approx(state.local.bound.sum())
    q = model.q(after)
    np.testing.assert_allclose(q["theta"].concentration, ALPHA + np.asarray(state.local.tokens), rtol=1e-5)
    assert q["sigma"].v == float(after.response["sigma"]) and (q["eta"].v == after.response["eta"]).all()


def test_equation_4_is_the_expectation_over_all_topics():
    rng = np.random.default_rng(2)
    phi, eta, y, sigma = rng.dirichlet(np.ones(K), 4), rng.normal(size=K), 0.3, 0.5
    exact = 0.0
    for z in itertools.product(range(K), repeat=4):
        exact += np.prod(phi[np.arange(4), list(z)]) * norm.logpdf(y, eta[list(z)].mean(), sigma)
    np.testing.assert_allclose(expected_normal(phi, eta, y, sigma), exact, rtol=1e-9)
    one = (jnp.asarray([part], jnp.float32) for part in (y, sigma**-2, 4.0))
    squares = jnp.asarray([((phi @ eta) ** 2).sum()], jnp.float32)
    response = expected_response(jnp.asarray(eta, jnp.float32), *one, jnp.asarray(phi.sum(0))[:, None], squares)
    np.testing.assert_allclose(response[0], exact, rtol=1e-5)


@pytest.mark.parametrize("sweeps", [1, 300])
def test_equation_7_is_the_maximum_over_one_phi(sweeps):
    """L(phi_j) - L(p) = KL(p | phi_j) for any other p: so phi_j is the maximiser, and no p does better.

    After one sweep that holds for the last token, at the gamma the sweep started from; in the end for all.
    """
    rng = np.random.default_rng(0)
    batches = documents(Corpus.from_counts(rng.multinomial(4, np.full(5, 0.2))[None]), batches=True).batches
    log_beta, start = np.log(rng.dirichlet(np.ones(5), K)), rng.dirichlet(np.ones(K), 4)
    eta, y, sigma = np.array([-1.0, 0.5, 2.0]), 0.7, 0.4
    tilt = Tilt(*(jnp.asarray(part, jnp.float32) for part in (eta, [y], [sigma**-2])))
    arrays = (jnp.asarray(part, jnp.float32) for part in (log_beta.T, ALPHA[None], start.sum(0)[None]))
    new, total, _ = coordinate_ascent(jnp.asarray(start, jnp.float32)[..., None], batches, *arrays, tilt, 0.0, sweeps)
    phi = np.asarray(new, float)[..., 0]
    terms = np.asarray(batches.terms)[0, : len(phi), 0]  # positions are more than tokens
    gamma = ALPHA + (start.sum(0) if sweeps == 1 else np.asarray(total, float)[0])

    def bound_at(phi):
        return words_bound(phi, gamma, log_beta[:, terms].T, ALPHA) + expected_normal(phi, eta, y, sigma)

    for j in [3] if sweeps == 1 else range(4):
        for p in rng.dirichlet(np.ones(K), 5):
            other = phi.copy()
            other[j] = p
            divergence = (p * np.log(p / phi[j])).sum()
            np.testing.assert_allclose(bound_at(phi) - bound_at(other), divergence, rtol=1e-3, atol=1e-5)


def test_a_document_bound_lies_below_its_exact_evidence_under_given_topics():
    """And is equal to it where q is exact: of documents of one word whose proportions are known."""
    beta, eta = np.array([[0.5, 0.2, 0.3], [0.1, 0.3, 0.6]]), np.array([-1.0, 1.0])
    flat = Settings("mle", "mle", e_tolerance=0.0, order="sequential", e_iterations=100)
    at = {"eta": jnp.asarray(eta, jnp.float32), "sigma": jnp.float32(0.6)}
    model = model_of(slda, TINY_Y, TINY, settings=flat, num_topics=2, alpha=0.5)
    state = model.e_step(model.start(np.random.default_rng(0))._replace(topics=beta, response=at), True)
    exact = tiny_evidence(0.5, beta=beta, response=lambda d, zbar: norm.logpdf(TINY_Y[d], eta @ zbar, 0.6))
    assert (exact - 1 < state.local.bound).all() and (state.local.bound < exact).all()
    single = Corpus.from_counts(np.eye(3, dtype=int)[[0, 2]])
    model = model_of(slda, TINY_Y, single, settings=flat, num_topics=2, alpha=np.array([2e4, 6e4]))
    state = model.e_step(model.start(np.random.default_rng(0))._replace(topics=beta, response=at), True)
    terms = np.log([[0.25], [0.75]]) + np.log(beta[:, [0, 2]]) + norm.logpdf(TINY_Y, eta[:, None], 0.6)
    np.testing.assert_allclose(state.local.bound, logsumexp(terms, axis=0), atol=2e-3)


# one topic a document


def test_responsibilities_counts_and_the_bound_of_a_mixture_against_loops():
    model = model_of(mixture, num_topics=K, alpha=ALPHA, gamma=GAMMA)
    start = model.start(np.random.default_rng(0))
    start = start._replace(classes={name: value * np.linspace(1, 3, value.size).reshape(value.shape)
                                  for name, value in start.classes.items()})  # fmt: skip
    state = model.e_step(start, True)
    joint = expected_log(start.classes["theta"])[:, None] + expected_log(start.classes["beta"]) @ COUNTS.T
    np.testing.assert_allclose(state.local.bound, logsumexp(joint, axis=0), rtol=1e-5)
    np.testing.assert_allclose(state.local.shares, np.exp(joint - state.local.bound), atol=1e-4)
    sites = model.m_step(state, True).classes
    np.testing.assert_allclose(sites["theta"], ALPHA + state.local.shares.sum(1), rtol=1e-4)
    np.testing.assert_allclose(sites["beta"], GAMMA + state.local.shares @ COUNTS, rtol=1e-4, atol=1e-4)
    divergence = dirichlet_bound(ALPHA, start.classes["theta"])
    divergence += dirichlet_bound(np.full(COUNTS.shape[1], GAMMA), start.classes["beta"]).sum()
    np.testing.assert_allclose(model.bound(state), state.local.bound.sum() + divergence, rtol=1e-6)
    q = model.q(state)
    np.testing.assert_array_equal(q["z"].probs, state.local.shares.T)
    assert q["beta"].concentration is state.classes["beta"]


def naive_bayes(corpus, y=None):
    with numpyro.plate("topics", K):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, GAMMA)))
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.asarray(ALPHA)))
    with numpyro.plate("documents", corpus.num_documents):
        y = numpyro.sample("y", dist.Categorical(pi), obs=y)
        draw_bags(corpus, jnp.asarray(y, int), beta)


def test_where_all_classes_but_one_are_known_the_bound_lies_between_two_numbers():
    """The evidence with the likeliest class of the missing one, for which q would be exact, and the sum over its classes."""
    codes = np.arange(len(COUNTS)) % 3.0
    some = np.where(np.arange(len(COUNTS)) == 5, np.nan, codes)
    fit = vem(naive_bayes, CORPUS, some, tolerance=1e-6, num_draws=2, **QUIET)

    def evidence(codes):
        shares = np.eye(3)[codes.astype(int)]
        return log_polya(shares.sum(0), ALPHA) + log_polya(shares.T @ COUNTS, GAMMA).sum()

    each = [evidence(np.where(np.isnan(some), k, some)) for k in range(3)]
    assert max(each) - 1e-2 < fit.info["bound"][-1] < logsumexp(each) + 1e-2
    assert "y" not in fit.sites and fit.info["converged"] and "alpha" not in fit.info
    np.testing.assert_array_equal(fit.y, some)
    shares = np.eye(3)[np.nan_to_num(some).astype(int)] * ~np.isnan(some)[:, None]
    assert np.abs(fit.means["pi"][0] * (len(COUNTS) + ALPHA.sum()) - ALPHA - shares.sum(0)).max() < 1.01


# whole fits


@pytest.fixture(scope="module")
def fit():
    options = {"estimate_alpha": True, "tolerance": 1e-5, "num_draws": 50, "seed": 1}
    return vem(lda, CORPUS, **STORY, **options, **QUIET)


def test_a_fit_holds_what_was_found(fit):
    bound = np.array(fit.info["bound"])
    assert fit.info["converged"] and "warning" not in fit.info and fit.info["seed"] == 1 and fit.engine == "vem"
    assert (np.diff(bound) > -1e-6 * np.abs(bound[1:])).all() and len(bound) > 10
    assert {name: value.shape for name, value in fit.draws.items()} == {
        "theta": (1, 50, len(CORPUS), K), "beta": (1, 50, K, COUNTS.shape[1])
    }  # fmt: skip
    alpha, lengths = fit.info["alpha"], COUNTS.sum(1)[:, None]
    assert alpha.shape == (K,) and not np.allclose(alpha, ALPHA)
    gamma = fit.means["theta"][0] * (lengths + alpha.sum())
    np.testing.assert_allclose(gamma.sum(1), lengths[:, 0] + alpha.sum(), rtol=1e-3)
    # draws of Dirichlets have the means of their concentrations, within 6 standard errors (once in a billion each)
    mean = fit.means["theta"][0]
    error = np.sqrt(mean * (1 - mean) / (lengths + alpha.sum() + 1) / 50)
    assert (abs(fit.draws["theta"][0].mean(0) - mean) < 6 * error + 1e-3).all()


def test_a_fit_repeats_itself_and_other_seeds_differ():
    some = [vem(lda, CORPUS, **STORY, seed=seed, num_iterations=3, num_draws=2, **QUIET) for seed in (1, 1, 2)]
    assert some[0].info["bound"] == some[1].info["bound"] != some[2].info["bound"] and len(some[0].info["bound"]) == 4
    np.testing.assert_array_equal(some[0].draws["theta"], some[1].draws["theta"])
    assert not np.array_equal(some[0].draws["theta"][0, 0], some[0].draws["theta"][0, 1])


def test_an_interrupted_fit_is_a_fit(monkeypatch):
    calls, m_step = [], EMModel.m_step

    def interrupted(self, state, fresh):
        calls.append(state)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return m_step(self, state, fresh)

    monkeypatch.setattr(EMModel, "m_step", interrupted)
    fit = vem(lda, CORPUS, **STORY, num_draws=2, **QUIET)
    assert fit.info["interrupted"] and not fit.info["converged"] and len(fit.info["bound"]) == 3
    assert fit.draws["beta"].shape == (1, 2, K, COUNTS.shape[1])


@pytest.mark.slow
def test_a_supervised_fit_predicts_its_response():
    """Of 35 unlabelled documents: a correlation of 0.7 comes by chance once in a million times."""
    counts, some = 2 * COUNTS, np.where(np.arange(len(Y)) % 2 == 0, np.nan, Y)
    fit = vem(slda, Corpus.from_counts(counts), some, order="sequential", num_draws=1, **STORY, **QUIET)
    lengths = counts.sum(1)[:, None]
    gamma = fit.means["theta"][0] * (lengths + ALPHA.sum())
    predicted = (gamma - ALPHA) / lengths @ fit.means["eta"][0]
    assert np.corrcoef(predicted[::2], Y[::2])[0, 1] > 0.7
    bound = np.array(fit.info["bound"])
    assert (np.diff(bound) > -1e-6 * np.abs(bound[1:])).all() and fit.info["converged"]
