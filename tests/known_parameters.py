"""Stories all of whose parameters are known, so that the posterior of a document is a sum over its own topics.

A document of n words has K^n assignments of topics. With theta integrated out

    p(z | w, y)  is proportional to  prod_k Gamma(n_k + alpha_k)  prod_n beta_{z_n, w_n}  p(y | zbar)

which is written down here in NumPy, without a line of an engine. Copies of one document are independent draws of the same
law: their spread is the standard error of their mean, however slowly a chain moves, and they must not move together.
"""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy import stats
from scipy.special import gammaln

from topiczoo.corpora import Corpus
from topiczoo.models import draw_words

K = 6
ALPHA = np.array([0.3, 0.5, 0.2, 0.8, 0.4, 0.6], np.float32)
ETA = np.array([-2.0, 1.0, 3.0, -1.0, 0.0, 2.0], np.float32)
SIGMA = 0.15  # of shares that are multiples of a sixth: a response that refuses most moves
WIDER = 0.6  # where squares of shares are read: sharper, and a token alone could not leave the likeliest assignments
BETA = np.random.default_rng(5).dirichlet(np.full(5, 0.8), K).astype(np.float32)


def words(corpus, alpha=ALPHA, beta=BETA):
    with numpyro.plate("documents", corpus.num_documents):
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.asarray(alpha)))
    return draw_words(corpus, theta, jnp.asarray(beta))


def unsupervised(corpus, y=None):
    words(corpus)


def supervised(corpus, y=None):
    predictor = words(corpus) @ jnp.asarray(ETA)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.Normal(predictor, SIGMA), obs=y)


def not_linear(corpus, y=None):
    """The response reads zbar itself."""
    predictor = (words(corpus) ** 2) @ jnp.asarray(ETA)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.Normal(predictor, WIDER), obs=y)


def given_proportions(corpus, y=None):
    """Proportions are known and not integrated out."""
    theta = jnp.broadcast_to(ALPHA / ALPHA.sum(), (corpus.num_documents, K))
    predictor = draw_words(corpus, theta, jnp.asarray(BETA)) @ jnp.asarray(ETA)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.Normal(predictor, SIGMA), obs=y)


def nearly_known_topics(corpus, y=None):
    """beta is a site, known to a thousandth: for the sampler that integrates it out."""
    with numpyro.plate("topics", K):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.asarray(BETA) * 1e6))
    predictor = words(corpus, beta=beta) @ jnp.asarray(ETA)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.Normal(predictor, SIGMA), obs=y)


class Document:
    """One document, and the exact law of its topics."""

    def __init__(self, terms, y=0.6, story=supervised):
        self.terms, self.y = np.asarray(terms, int), y
        every = list(itertools.product(range(K), repeat=len(self.terms)))
        z = np.array(every, int).reshape(len(every), -1)
        self.counts = np.eye(K)[z].sum(1)  # [assignment, topic]
        self.zbar = self.counts / max(len(self.terms), 1)
        log_prob = np.log(BETA.astype(float))[z, self.terms].sum(1)
        if story is given_proportions:
            log_prob += self.counts @ np.log(ALPHA / ALPHA.sum())
        else:
            log_prob += gammaln(self.counts + ALPHA).sum(1) - gammaln(ALPHA).sum()
            log_prob += gammaln(ALPHA.sum()) - gammaln(ALPHA.sum() + len(self.terms))
        if story is not_linear:
            log_prob += stats.norm.logpdf(y, self.zbar**2 @ ETA, WIDER)
        elif story is not unsupervised:
            log_prob += stats.norm.logpdf(y, self.zbar @ ETA, SIGMA)
        self.log_joint = log_prob  # log p(z, w, y), theta integrated out
        self.p = np.exp(log_prob - log_prob.max())
        self.p /= self.p.sum()
        total = ALPHA.sum() + len(self.terms)
        self.mean_given_z = (self.counts + ALPHA) / total  # E[theta | z]
        self.mean = self.p @ self.mean_given_z
        both = self.mean_given_z[:, :, None] * self.mean_given_z[:, None]
        second = (both * total + np.eye(K) * self.mean_given_z[:, None]) / (total + 1)  # E[theta theta' | z]
        self.second = np.einsum("z,zkl->kl", self.p, second)

    def expect(self, of_assignments):
        """E[f(z)] for the values of f at all assignments."""
        return self.p @ of_assignments


SIX, THREE = [0, 1, 2, 3, 4, 0], [2, 2, 4]


def copies(story, number=110):
    """A corpus of copies of two documents in mixed order, their responses, and which is which."""
    kinds = [Document(SIX, 0.6, story), Document(THREE, 1.3, story)]
    which = np.random.default_rng(2).permutation(np.repeat([0, 1], number))
    counts = np.array([np.bincount(kind.terms, minlength=5) for kind in kinds])
    y = None if story is unsupervised else np.array([kind.y for kind in kinds])[which]
    return Corpus.from_counts(counts[which]), y, which, kinds


def standard_errors(found, exact, num_draws=np.inf):
    """How far means of independent copies [copy, ...] are from what they should be, in standard errors.

    What is rare shows its spread too seldom: the error is no less than that of as many events as are expected in
    ``num_draws`` of each copy.
    """
    error = found.std(0, ddof=1) / np.sqrt(len(found))
    least = np.maximum(np.sqrt(np.maximum(exact, 0) / len(found) / num_draws), 1e-4)
    return np.abs(found.mean(0) - exact) / np.maximum(error, least)
