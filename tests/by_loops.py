"""Variational inference of supervised LDA written down in NumPy, word by word, and a corpus to try it on.

The corpus has two blocks of documents (more than 64), documents of more terms than are looked up together (32), and terms
said several times.
"""

from __future__ import annotations

import numpy as np
from scipy.special import digamma, gammaln, softmax

from topiczoo.corpora import Corpus

K, TERMS = 3, 40
ALPHA, GAMMA = np.array([0.3, 0.5, 0.8]), 0.2


def simulate(num_documents=70, num_terms=TERMS, seed=0):
    """Counts, and a response on unit scale, from supervised LDA."""
    rng = np.random.default_rng(seed)
    beta, theta = rng.dirichlet(np.full(num_terms, 0.3), K), rng.dirichlet(np.full(K, 0.3), num_documents)
    lengths = np.append(rng.integers(3, 40, num_documents - 4), [60, 1, 100, 120])
    counts = np.array([rng.multinomial(n, share @ beta) for n, share in zip(lengths, theta, strict=True)])
    counts[-1] += 1  # a document of all terms
    y = theta @ np.linspace(-2, 2, K) + 0.1 * rng.normal(size=num_documents)
    return counts, (y - y.mean()) / y.std()


COUNTS, Y = simulate()
CORPUS = Corpus.from_counts(COUNTS)
UNLABELLED = np.arange(len(Y)) % 5 == 0
SOME_Y = np.where(UNLABELLED, np.nan, Y)
FEW = (0, 7, 10, 31, 66, 67, 68, 69)  # documents of both blocks, labelled or not, of one word and of 120


def terms_of(d):
    """The term of each word of a document."""
    return np.repeat(np.arange(COUNTS.shape[1]), COUNTS[d])


def expected_log(gamma):
    return digamma(gamma) - digamma(gamma.sum(-1, keepdims=True))


def phi_of(d, gamma, log_beta, tilt=0.0):
    """phi of each word of a document, [words, K], all occurrences of a term alike; ``log_beta`` is [K, V]."""
    gamma = np.asarray(gamma, float)
    return softmax(expected_log(gamma) + np.asarray(tilt, float) + log_beta[:, terms_of(d)].T, axis=1)


def words_bound(phi, gamma, log_beta_w, alpha):
    """Equation 2 of Blei & McAuliffe (2007) for one document, term by term, without the response."""
    gamma, logs = np.asarray(gamma, float), expected_log(np.asarray(gamma, float))
    value = gammaln(alpha.sum()) - gammaln(alpha).sum() + ((alpha - 1) * logs).sum()
    value -= gammaln(gamma.sum()) - gammaln(gamma).sum() + ((gamma - 1) * logs).sum()
    return value + (phi * (logs + log_beta_w - np.log(np.maximum(phi, 1e-300)))).sum()


def second_moment(phi):
    """E[zbar zbar'] of a document, equation 5, by loops over pairs of words."""
    n = len(phi)
    parts = (np.diag(phi[i]) if i == j else np.outer(phi[i], phi[j]) for i in range(n) for j in range(n))
    return sum(parts) / n**2


def log_polya(counts, prior):
    """log of the Dirichlet-multinomial density of the words counted in each row."""
    counts, prior = np.asarray(counts, float), np.broadcast_to(prior, np.shape(counts))
    ratio = gammaln(prior.sum(-1)) - gammaln((prior + counts).sum(-1))
    return ratio + (gammaln(prior + counts) - gammaln(prior)).sum(-1)


def slope_of(function, x, step=1e-5):
    """The derivative of a function of numbers [n], by central differences."""
    x = np.asarray(x, float)
    return np.array([(function(x + part) - function(x - part)) / (2 * step) for part in step * np.eye(x.size)])
