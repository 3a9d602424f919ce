"""Variational EM: its bound, its equations against loops and enumeration, and its peers."""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import digamma, gammaln, logsumexp
from scipy.stats import norm

from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import documents
from topiczoo.inference import expectations_words
from topiczoo.inference.expectations import Settings, fit_alpha, log_normaliser
from topiczoo.inference.expectations_enumerated import Enumerated
from topiczoo.inference.expectations_normal import NormalWords, Tilt, expected_response, settle_tokens
from topiczoo.inference.expectations_words import Words
from topiczoo.inference.reading import read
from topiczoo.inference.vem_engine import fold_in, vem
from topiczoo.models import lda, mixture, slda

K = 3
ROUNDING = 1e-6  # of the bound: float32 sums


def simulate(num_documents=60, num_terms=20, alpha=0.3, seed=0):
    """Counts, proportions and a response on unit scale from supervised LDA."""
    rng = np.random.default_rng(seed)
    beta = rng.dirichlet(np.full(num_terms, 0.1), K)
    theta = rng.dirichlet(np.full(K, alpha), num_documents)
    lengths = rng.integers(20, 60, num_documents)
    counts = np.array([rng.multinomial(n, share @ beta) for n, share in zip(lengths, theta, strict=True)])
    y = theta @ np.linspace(-2, 2, K) + 0.1 * rng.normal(size=num_documents)
    return counts, theta, (y - y.mean()) / y.std()


COUNTS, _, Y = simulate()
CORPUS = Corpus.from_counts(COUNTS)
SOME_Y = np.where(np.arange(len(Y)) % 5 == 0, np.nan, Y)


def form_of(story, y=None, corpus=CORPUS, cls=NormalWords, *, settings=Settings(), **arguments):
    """The engine's form, for looking at single steps."""
    return cls(read(story, corpus, y, arguments), settings)


def phi_of(form, state, d):
    """phi [N, K] of document d, taken out of the blocks."""
    block, column = divmod(int(form.blocks.lane[d]), form.blocks.rows.shape[-1])
    first = int(form.blocks.start[0, block])
    return np.asarray(state.phi, np.float64)[first : first + int(form.lengths[d]), :, column]


def document_bound(phi, gamma, log_beta_w, alpha, y, eta, sigma):
    """Equation 2 for one document, term by term, with equation 5 by loops."""
    n = len(phi)
    e_log_theta = digamma(gamma) - digamma(gamma.sum())
    value = gammaln(alpha.sum()) - gammaln(alpha).sum() + ((alpha - 1) * e_log_theta).sum()
    value -= gammaln(gamma.sum()) - gammaln(gamma).sum() + ((gamma - 1) * e_log_theta).sum()
    value += (phi * (e_log_theta + log_beta_w - np.log(phi))).sum()
    second = sum(np.outer(phi[i], phi[j]) for i in range(n) for j in range(n) if i != j) + np.diag(phi.sum(0))
    square = y**2 - 2 * y * eta @ phi.mean(0) + eta @ second @ eta / n**2
    return value - 0.5 * np.log(2 * np.pi * sigma**2) - square / (2 * sigma**2)


# the bound


@pytest.mark.parametrize(
    ("story", "y", "options"),
    [
        (lda, None, {"topics": "dirichlet"}),
        (lda, None, {"topics": "mle"}),
        (lda, None, {"estimate_alpha": True}),
        (slda, SOME_Y, {"point": "map"}),
        (slda, SOME_Y, {"point": "mle"}),
        (slda, SOME_Y, {"point": "mle", "topics": "mle"}),
        (slda, SOME_Y, {"estimate_alpha": True}),
        (mixture, None, {"topics": "dirichlet"}),
        (mixture, None, {"topics": "mle"}),
    ],
)
def test_the_bound_never_falls(story, y, options):
    fit = vem(story, CORPUS, y, num_topics=K, tolerance=1e-6, progress_bar=False, num_draws=2, **options)
    bound = np.array(fit.info["bound"])
    assert fit.info["converged"] and "warning" not in fit.info
    assert len(bound) > 5 and np.isfinite(bound).all()
    assert (np.diff(bound) > -ROUNDING * np.abs(bound[1:])).all()


def test_the_bound_lies_below_the_exact_evidence():
    """Two documents, six tokens, two topics: z enumerated, theta and beta integrated out."""
    counts, alpha, gamma = np.array([[2, 1, 0], [0, 1, 2]]), 0.5, 0.7
    corpus = Corpus.from_counts(counts)
    document, term = corpus.tokens()

    def dirichlet_multinomial(counts, prior):
        n, k = counts.sum(-1), counts.shape[-1]
        ratio = gammaln(counts + prior).sum(-1) - k * gammaln(prior)
        return (ratio + gammaln(k * prior) - gammaln(n + k * prior)).sum()

    def log_joint(z):
        in_document, in_topic = np.zeros((2, 2)), np.zeros((2, 3))
        np.add.at(in_document, (document, z), 1)
        np.add.at(in_topic, (z, term), 1)
        return dirichlet_multinomial(in_document, alpha) + dirichlet_multinomial(in_topic, gamma)

    evidence = logsumexp([log_joint(np.array(z)) for z in itertools.product(range(2), repeat=6)])
    fit = vem(lda, corpus, num_topics=2, alpha=alpha, gamma=gamma, tolerance=1e-7, progress_bar=False, num_draws=1)
    assert evidence - 3 < fit.info["bound"][-1] < evidence


def test_a_document_bound_lies_below_its_exact_evidence_under_given_topics():
    corpus, y = Corpus.from_counts(np.array([[2, 1, 0, 1], [0, 1, 2, 0]])), np.array([0.4, -1.0])
    form = form_of(slda, y, corpus, settings=Settings("mle", "mle", e_tolerance=0.0), num_topics=2, alpha=0.5)
    start = form.start(np.random.default_rng(0))
    topics = np.array([[0.5, 0.2, 0.1, 0.2], [0.1, 0.3, 0.4, 0.2]])
    state = form.expect(start._replace(topics=topics, spread=0.6), True)
    for d in range(2):
        terms = np.repeat(np.arange(4), corpus.counts.toarray()[d])
        values = []
        for z in itertools.product(range(2), repeat=len(terms)):
            counts = np.bincount(z, minlength=2)
            shares = (gammaln(counts + 0.5) - gammaln(0.5)).sum() + gammaln(1.0) - gammaln(len(terms) + 1.0)
            words = np.log(topics[list(z), terms]).sum()
            values.append(shares + words + norm.logpdf(y[d], start.eta @ counts / len(terms), 0.6))
        assert logsumexp(values) - 1 < state.bound[d] < logsumexp(values)


def test_the_bound_is_scikit_learns():
    """The same definition at the same parameters, then as good a maximum from the same priors."""
    decomposition = pytest.importorskip("sklearn.decomposition")
    counts, _, _ = simulate(num_documents=200, num_terms=40, alpha=0.1, seed=3)
    peer = decomposition.LatentDirichletAllocation(
        K, doc_topic_prior=0.1, topic_word_prior=0.05, max_iter=100, evaluate_every=5, perp_tol=1e-4,
        mean_change_tol=1e-4, random_state=0,
    ).fit(counts.astype(float))  # fmt: skip
    gamma, _ = peer._e_step(counts.astype(float), cal_sstats=False, random_init=False)
    best = peer._approx_bound(counts.astype(float), gamma, sub_sampling=False)

    corpus = Corpus.from_counts(counts)
    fit = vem(lda, corpus, num_topics=K, alpha=0.1, gamma=0.05, tolerance=1e-6, progress_bar=False, num_draws=1)
    assert fit.info["bound"][-1] > best - 0.01 * abs(best)

    form = form_of(lda, None, corpus, Words, num_topics=K, alpha=0.1, gamma=0.05)
    state = form.expect(form.start(np.random.default_rng(0)), True)
    state = form.expect(form.maximise(state, True), True)
    peer.components_ = state.topics
    peer.exp_dirichlet_component_ = np.exp(digamma(state.topics) - digamma(state.topics.sum(1, keepdims=True)))
    same = peer._approx_bound(counts.astype(float), np.asarray(state.gamma, float), sub_sampling=False)
    np.testing.assert_allclose(form.bound(state), same, rtol=1e-6)


# the equations


def tiny_document(seed=0, length=4):
    """One document's E-step inputs, with phi at random."""
    rng = np.random.default_rng(seed)
    corpus = Corpus.from_counts(rng.multinomial(length, np.full(5, 0.2))[None])
    blocks = documents(corpus, blocks=True).blocks
    log_beta = np.log(rng.dirichlet(np.ones(5), K))
    phi = rng.dirichlet(np.ones(K), length)
    alpha, eta, y, sigma = np.array([0.3, 0.5, 0.8]), np.array([-1.0, 0.5, 2.0]), 0.7, 0.4
    log_beta_w = log_beta.T[np.asarray(blocks.terms)[0, :, 0]]

    def settle(sweeps):
        tilt = Tilt(*(jnp.asarray(part, jnp.float32) for part in (eta, [y], [sigma**-2])))
        inputs = blocks, log_beta.T, alpha[None], phi.sum(0)[None]
        arrays = (part if part is blocks else jnp.asarray(part, jnp.float32) for part in inputs)
        new, total, part = settle_tokens(jnp.asarray(phi, jnp.float32)[..., None], *arrays, tilt, 0.0, sweeps)
        total = np.asarray(total, np.float64)[0]
        bound = float(part[0]) + log_normaliser(alpha + total) - log_normaliser(alpha)
        return np.asarray(new, np.float64)[..., 0], total, bound

    def bound_at(phi, gamma):
        return document_bound(phi, gamma, log_beta_w, alpha, y, eta, sigma)

    return phi, alpha, settle, bound_at


@pytest.mark.parametrize("sweeps", [1, 300])
def test_equation_7_is_the_maximum_over_one_phi(sweeps):
    """L(phi_j) - L(p) = KL(p | phi_j) for any other p: so phi_j is the maximiser, and no p does better.

    After one sweep that holds for the last token, at the gamma the sweep started from; in the end for all.
    """
    start, alpha, settle, bound_at = tiny_document()
    phi, total, _ = settle(sweeps)
    gamma = alpha + (start.sum(0) if sweeps == 1 else total)
    rng = np.random.default_rng(1)
    for j in [len(phi) - 1] if sweeps == 1 else range(len(phi)):
        for p in rng.dirichlet(np.ones(K), 5):
            other = phi.copy()
            other[j] = p
            divergence = (p * np.log(p / phi[j])).sum()
            gain = bound_at(phi, gamma) - bound_at(other, gamma)
            np.testing.assert_allclose(gain, divergence, rtol=1e-3, atol=1e-5)


def test_a_documents_bound_is_equation_2():
    _, alpha, settle, bound_at = tiny_document()
    phi, total, bound = settle(2)
    np.testing.assert_allclose(total, phi.sum(0), rtol=1e-5)
    np.testing.assert_allclose(bound, bound_at(phi, alpha + total), rtol=1e-5)


def test_equation_4_is_the_expectation_over_all_topics():
    rng = np.random.default_rng(2)
    phi, eta, y, sigma = rng.dirichlet(np.ones(K), 4), rng.normal(size=K), 0.3, 0.5
    exact = 0.0
    for z in itertools.product(range(K), repeat=4):
        probability = np.prod(phi[np.arange(4), list(z)])
        exact += probability * norm.logpdf(y, eta[list(z)].mean(), sigma)
    one = (jnp.asarray([part], jnp.float32) for part in (y, sigma**-2, 4.0))
    squares = jnp.asarray([((phi @ eta) ** 2).sum()], jnp.float32)
    response = expected_response(jnp.asarray(eta, jnp.float32), *one, jnp.asarray(phi.sum(0))[:, None], squares)
    np.testing.assert_allclose(response[0], exact, rtol=1e-5)


def test_equations_8_10_and_11_against_loops():
    form = form_of(slda, SOME_Y, settings=Settings("mle", "mle"), num_topics=K)
    before = form.expect(form.start(np.random.default_rng(0)), True)
    after = form.maximise(before, True)
    gram, moment, labelled = np.zeros((K, K)), np.zeros(K), np.flatnonzero(~np.isnan(SOME_Y))
    counts = np.zeros((K, CORPUS.num_terms))
    for d in range(len(CORPUS)):
        phi, n = phi_of(form, before, d), int(form.lengths[d])
        np.testing.assert_allclose(phi.sum(0), before.tokens[d], rtol=1e-4)
        for token, w in enumerate(np.repeat(np.arange(CORPUS.num_terms), COUNTS[d])):
            counts[:, w] += phi[token]
        if d in labelled:
            for i, j in itertools.product(range(n), repeat=2):
                gram += (np.diag(phi[i]) if i == j else np.outer(phi[i], phi[j])) / n**2
            moment += SOME_Y[d] * phi.mean(0)
    eta = np.linalg.solve(gram, moment)
    variance = (SOME_Y[labelled] @ SOME_Y[labelled] - moment @ eta) / len(labelled)
    np.testing.assert_allclose(after.topics, counts, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(after.eta, eta, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(after.spread**2, variance, rtol=1e-3)


def test_the_map_estimates_beat_their_neighbours():
    """At the M-step's eta and sigma the bound, priors included, is at a maximum in both."""
    form = form_of(slda, SOME_Y, num_topics=K)
    state = form.maximise(form.expect(form.start(np.random.default_rng(0)), True), True)

    def objective(eta, sigma):
        total = form.response.log_prior(eta, sigma)
        for d in np.flatnonzero(~np.isnan(SOME_Y)):
            phi = phi_of(form, state, d)
            mean, products = phi.mean(0) @ eta, phi @ eta
            variance = (phi @ eta**2 - products**2).sum() / len(phi) ** 2
            total += norm.logpdf(SOME_Y[d], mean, sigma) - variance / (2 * sigma**2)
        return total

    best = objective(state.eta, state.spread)
    for factor in (0.97, 1.03):
        assert objective(state.eta, state.spread * factor) < best
    # eta was the best for the sigma before: for that one no step along an axis helps
    before = form.response.first_spread()
    best = objective(state.eta, before)
    for step in 0.05 * np.vstack([np.eye(K), -np.eye(K)]):
        assert objective(state.eta + step, before) < best


def test_responsibilities_and_counts_of_a_mixture_against_loops():
    form = form_of(mixture, None, CORPUS, Enumerated, settings=Settings(topics="mle"), num_topics=K)
    start = form.start(np.random.default_rng(0))
    state = form.expect(start, True)
    share, beta = (start.sites[name] / start.sites[name].sum(-1, keepdims=True) for name in ("theta", "beta"))
    joint = np.log(share)[:, None] + np.log(beta) @ COUNTS.T
    np.testing.assert_allclose(state.bound, logsumexp(joint, axis=0), rtol=1e-5)
    np.testing.assert_allclose(state.responsibilities, np.exp(joint - state.bound), atol=1e-4)
    sites = form.maximise(state, True).sites
    np.testing.assert_allclose(sites["theta"], state.responsibilities.sum(1), rtol=1e-4)
    np.testing.assert_allclose(sites["beta"], state.responsibilities @ COUNTS, rtol=1e-4, atol=1e-4)


def test_newtons_alpha():
    """Standard errors of alpha from 4000 exact thetas are about 2%; four of them are allowed."""
    truth = np.array([0.1, 0.3, 1.0])
    logs = np.log(np.maximum(np.random.default_rng(0).dirichlet(truth, 4000), 1e-300))
    np.testing.assert_allclose(fit_alpha(np.ones(K), logs), truth, rtol=0.08)


def test_alpha_is_recovered_from_words():
    counts, _, _ = simulate(num_documents=200, num_terms=40, alpha=0.1, seed=3)
    options = {"num_topics": K, "alpha": 0.5, "tolerance": 1e-6, "progress_bar": False, "num_draws": 1}
    fixed = vem(lda, Corpus.from_counts(counts), **options)
    fitted = vem(lda, Corpus.from_counts(counts), estimate_alpha=True, **options)
    assert fitted.info["bound"][-1] > fixed.info["bound"][-1]
    assert (fitted.info["alpha"] > 0.1 / 3).all() and (fitted.info["alpha"] < 0.1 * 3).all()


def test_fold_in_settles_at_the_fixed_point():
    rng = np.random.default_rng(0)
    beta, alpha = rng.dirichlet(np.full(20, 0.3), K), np.array([0.2, 0.4, 0.6])
    counts = np.vstack([COUNTS[:5], np.zeros(20, int)])
    few = documents(Corpus.from_counts(counts, empty="keep"), pairs=True)
    gamma, phibar = (np.asarray(x, float) for x in fold_in(beta, alpha, few, e_tolerance=0.0, e_iterations=500))
    phi = np.exp(digamma(gamma))[:, :, None] * beta  # [D, K, V]
    expected = (phi / phi.sum(1, keepdims=True) * counts[:, None]).sum(2)
    # a bound flat to float32 leaves gamma the square root of that precision
    np.testing.assert_allclose(gamma, alpha + expected, rtol=1e-2, atol=1e-3)
    np.testing.assert_allclose(phibar[:5].sum(1), 1, rtol=1e-4)
    np.testing.assert_allclose(gamma[5], alpha, rtol=1e-6)
    np.testing.assert_array_equal(phibar[5], 0)


# the fit


def test_a_supervised_fit_predicts_its_response_and_repeats_itself():
    options = {"num_topics": K, "progress_bar": False, "num_draws": 50}
    fit = vem(slda, CORPUS, SOME_Y, seed=1, **options)
    lengths = CORPUS.lengths[:, None]
    gamma = fit.means["theta"][0] * (lengths + K * 0.1)
    predicted = (gamma - 0.1) / lengths @ fit.means["eta"][0]
    assert np.corrcoef(predicted, Y)[0, 1] > 0.8
    assert np.corrcoef(predicted[np.isnan(SOME_Y)], Y[np.isnan(SOME_Y)])[0, 1] > 0.6

    assert {name: value.shape for name, value in fit.draws.items()} == {
        "theta": (1, 50, len(CORPUS), K), "beta": (1, 50, K, 20), "eta": (1, 50, K), "sigma": (1, 50),
    }  # fmt: skip
    assert np.ptp(fit.draws["eta"], axis=1).max() == 0
    np.testing.assert_allclose(fit.draws["beta"].mean(1), fit.means["beta"], atol=0.05)

    once, again, other = (vem(slda, CORPUS, SOME_Y, seed=seed, num_iterations=3, **options) for seed in (1, 1, 2))
    assert once.info["bound"] == again.info["bound"] == fit.info["bound"][:4]
    np.testing.assert_array_equal(once.draws["theta"], again.draws["theta"])
    assert other.info["bound"] != once.info["bound"]


def test_an_interrupted_fit_is_a_fit(monkeypatch):
    calls, maximise = [], Words.maximise

    def interrupted(self, state, fresh):
        calls.append(state)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return maximise(self, state, fresh)

    monkeypatch.setattr(expectations_words.Words, "maximise", interrupted)
    fit = vem(lda, CORPUS, num_topics=K, progress_bar=False, num_draws=2)
    assert fit.info["interrupted"] and not fit.info["converged"] and len(fit.info["bound"]) == 3
    assert fit.draws["beta"].shape == (1, 2, K, 20)
