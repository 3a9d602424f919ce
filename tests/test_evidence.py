"""Estimates of p(w_d) against the sum over every assignment of topics."""

from __future__ import annotations

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import gammaln, logsumexp

from topiczoo.corpora import Corpus
from topiczoo.diagnostics.scoring import evidence
from topiczoo.diagnostics.scoring.evidence import chib, completion, left_to_right, split
from topiczoo.diagnostics.scoring.evidence_walks import _parents

RNG = np.random.default_rng(3)
BETA = 0.7 * RNG.dirichlet(np.full(5, 0.4), 3) + 0.3 / 5  # no topic so rare that no repeat would visit it
ALPHA = np.array([0.1, 0.7, 1.6])  # asymmetric
COUNTS = np.vstack([RNG.multinomial(n, BETA.mean(0)) for n in (1, 2, 3, 5, 6, 7, 8, 8)])
CORPUS = Corpus.from_counts(COUNTS)
KEY = jax.random.key(0)
MANY = {"repeats": 64, "seed": 1}
PARTICLES = {"particles": 6, **MANY}
STATES = {"num_sweeps": 6, "num_burn": 3, "num_greedy": 2, **MANY}


def exact(beta, alpha, corpus):
    """log sum over z of p(z | alpha) prod_n beta_{z_n, w_n} of each document, all K^N terms written down."""
    alpha = np.broadcast_to(alpha, (len(corpus), len(beta)))
    out = np.zeros(len(corpus))
    document, term = corpus.tokens()
    for d, a in enumerate(alpha):
        words = term[document == d]
        z = np.array(list(itertools.product(range(len(beta)), repeat=len(words))), int)
        z = z.reshape(len(beta) ** len(words), len(words))
        counts = (z[..., None] == np.arange(len(beta))).sum(1)
        log_prior = gammaln(a.sum()) - gammaln(a.sum() + len(words)) + (gammaln(a + counts) - gammaln(a)).sum(1)
        out[d] = logsumexp(log_prior + np.log(beta[z, words]).sum(1))
    return out


TRUTH = exact(BETA, ALPHA, CORPUS)


def errors_apart(found, truth=TRUTH):
    """How far the estimates are from the truth, in stated standard errors (and a little float32)."""
    return np.abs(found.log_likelihood - truth) / (found.error + 2e-6 * np.abs(truth))


def assert_unbiased(found, truth=TRUTH):
    """The mean of the estimates themselves, not of their logarithms, is p(w): ratios average to 1."""
    ratio = np.exp(found.repeats - truth)
    error = ratio.std(0, ddof=1) / np.sqrt(len(ratio)) + 1e-5
    assert (np.abs(ratio.mean(0) - 1) / error < 4).all()
    assert abs(((ratio.mean(0) - 1) / error).mean()) < 4 / np.sqrt(len(truth))  # nor together


@pytest.mark.parametrize("moves", [0, pytest.param(2, marks=pytest.mark.slow), 10])
def test_left_to_right_is_unbiased_with_any_number_of_moves(moves):
    found = left_to_right(BETA, ALPHA, CORPUS, resample_tokens=moves, **PARTICLES)
    assert errors_apart(found).max() < 4
    assert_unbiased(found)


def test_chib_agrees_with_the_sum():
    found = chib(BETA, ALPHA, CORPUS, **STATES)
    assert errors_apart(found).max() < 4
    assert_unbiased(found)


def test_chib_with_one_state_is_unbiased_too():
    """S = 1 has the largest error; z* need not be good either."""
    found = chib(BETA, ALPHA, CORPUS, num_sweeps=1, num_burn=0, num_greedy=0, repeats=64, seed=2)
    assert_unbiased(found)


def test_particles_are_drawn_anew_by_their_weights_with_all_that_they_have():
    """Topics that hardly mix, so that particles are drawn anew at most words: the mean of 24 documents' estimates."""
    beta = np.array([[0.9, 0.05, 0.02, 0.02, 0.01], [0.02, 0.9, 0.05, 0.02, 0.01], [0.02, 0.03, 0.05, 0.8, 0.1]])
    alpha, corpus = np.array([0.05, 0.1, 0.3]), Corpus.from_counts([[3, 2, 0, 2, 1]] * 24)
    truth = exact(beta, alpha, corpus[:1])[0]
    for moves in (0, 10):
        ratio = np.exp(left_to_right(beta, alpha, corpus, resample_tokens=moves, **PARTICLES).repeats - truth).ravel()
        assert abs(ratio.mean() - 1) < 5 * ratio.std(ddof=1) / np.sqrt(ratio.size), moves


def test_a_particle_has_as_many_heirs_as_its_weight_says():
    """On average over random numbers, and never further from it than 1; clouds that are not chosen stay as they are."""
    weights = np.array([[[0.5, 0.3, 0.15, 0.05], [0.25] * 4], [[0.01, 0.01, 0.08, 0.9], [0.4, 0.1, 0.3, 0.2]]])
    chosen = jnp.asarray([[True, False], [True, True]])
    parents = jax.jit(jax.vmap(partial(_parents, log_weights=jnp.log(weights), chosen=chosen)))(
        jax.random.split(KEY, 4000)
    )
    own = np.asarray(parents).reshape(4000, 4, 4) - 4 * np.arange(4)[:, None]
    np.testing.assert_array_equal(own[:, 1], np.tile(np.arange(4), (4000, 1)))
    heirs = (own[..., None] == np.arange(4)).sum(2)  # [key, cloud, particle]
    expected = 4 * weights.reshape(4, 4)
    for cloud in (0, 2, 3):
        assert (heirs[:, cloud].sum(1) == 4).all() and np.abs(heirs[:, cloud] - expected[cloud]).max() < 1
        np.testing.assert_allclose(heirs[:, cloud].mean(0), expected[cloud], atol=0.05)  # six standard errors


def test_the_state_of_chib_stands_at_any_place_of_its_chain():
    """Topics that stay for some sweeps: put at the first place alone, z* would have too few neighbours like itself."""
    beta = np.array([[0.3, 0.2, 0.2, 0.2, 0.1], [0.2, 0.3, 0.2, 0.2, 0.1], [0.2, 0.2, 0.3, 0.2, 0.1]])
    alpha, corpus = np.array([0.05, 0.08, 0.1]), Corpus.from_counts([[1, 1, 1, 0, 0]] * 120)
    found = chib(beta, alpha, corpus, num_sweeps=12, num_burn=0, num_greedy=0, repeats=64, seed=2)
    ratio = np.exp(found.repeats - exact(beta, alpha, corpus[:1])[0]).ravel()
    assert abs(ratio.mean() - 1) < 5 * ratio.std(ddof=1) / np.sqrt(ratio.size)


def test_completion_agrees_with_the_sum():
    first, second = split(CORPUS, seed=4)
    np.testing.assert_array_equal((first.counts + second.counts).toarray(), COUNTS)
    np.testing.assert_array_equal(first.lengths, COUNTS.sum(1) // 2)
    found = completion(BETA, ALPHA, first, second, particles=6, num_burn=10, **MANY)
    truth = TRUTH - exact(BETA, ALPHA, first)
    assert errors_apart(found, truth).max() < 4
    assert_unbiased(found, truth)


def test_alpha_of_each_document():
    alpha = ALPHA * np.linspace(0.2, 3, len(CORPUS))[:, None]
    truth = exact(BETA, alpha, CORPUS)
    assert np.abs(truth - TRUTH).max() > 0.1
    for found in (
        left_to_right(BETA, alpha, CORPUS, **PARTICLES),
        chib(BETA, alpha, CORPUS, **STATES),
    ):
        assert errors_apart(found, truth).max() < 4


@pytest.mark.slow
def test_long_documents_agree_between_estimators():
    """The two share no step but the draw of a topic; several documents side by side."""
    rng = np.random.default_rng(0)
    beta, theta = rng.dirichlet(np.full(30, 0.2), 4), rng.dirichlet(np.full(4, 0.5), 6)
    lengths = (70, 80, 100, 120, 200, 250)
    corpus = Corpus.from_counts([rng.multinomial(n, t @ beta) for n, t in zip(lengths, theta, strict=True)])
    one = left_to_right(beta, 0.5, corpus, particles=16, repeats=32)
    two = chib(beta, 0.5, corpus, repeats=32)
    gap = np.abs(one.log_likelihood - two.log_likelihood)
    assert (gap < 4 * np.hypot(one.error, two.error)).all()
    assert one.error.max() < 0.3 and two.error.max() < 0.4


def test_documents_without_words_and_impossible_words():
    beta = np.array([[0.5, 0.5, 0, 0, 0], [1.0, 0, 0, 0, 0], [0.3, 0.3, 0.4, 0, 0]])
    corpus = Corpus.from_counts([[1, 1, 0, 0, 0], [0, 0, 0, 0, 0], [0, 1, 0, 1, 0]], empty="keep")
    for found in (left_to_right(beta, 1.0, corpus, particles=6, repeats=64), chib(beta, 1.0, corpus, repeats=64)):
        truth = exact(np.maximum(beta, 1e-30), 1.0, corpus)[0]
        assert abs(found.log_likelihood[0] - truth) < 4 * found.error[0] + 1e-5
        assert found.log_likelihood[1] == 0 and found.error[1] == 0
        assert found.log_likelihood[2] == -np.inf
    # of a completion it is the second half that must be possible
    first, second = (Corpus.from_counts([[1, 0, 0, 1, 0], [1, 0, 0, 0, 0]][::turn]) for turn in (1, -1))
    found = completion(beta, 1.0, first, second, particles=6, num_burn=2, repeats=64)
    np.testing.assert_array_equal(np.isneginf(found.log_likelihood), [False, True])


def test_the_error_is_the_jackknifes():
    value, error = evidence.log_mean_exp(np.log([[2.0], [4.0], [6.0]]))
    left_out = np.log([5.0, 4.0, 3.0])
    np.testing.assert_allclose(value, np.log(4.0))
    bias = 2 * (left_out.mean() - np.log(4.0))
    np.testing.assert_allclose(error, np.sqrt(2 * left_out.var() + bias**2))
    assert np.isnan(evidence.log_mean_exp(np.zeros((1, 2)))[1]).all()  # one value says nothing of its error
    assert evidence.log_mean_exp(np.full((3, 2), -np.inf))[1].max() == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"beta": BETA[:, :4]}, "beta has shape"),
        ({"beta": 2 * BETA}, "no distributions"),
        ({"alpha": [1.0, 2.0]}, "alpha has shape"),
        ({"alpha": [1.0, 0.0, 1.0]}, "above 0"),
        ({"corpus": COUNTS}, "make a Corpus"),
        ({"particles": 0}, "particles is 0"),
        ({"resample_tokens": -1}, "resample_tokens is -1"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(change, words):
    with pytest.raises((TypeError, ValueError), match=words):
        left_to_right(**{"beta": BETA, "alpha": ALPHA, "corpus": CORPUS, **change})
    with pytest.raises(ValueError, match="halves of the same"):
        completion(BETA, ALPHA, CORPUS, CORPUS[:2])
