"""Whole fits by Gibbs against their exact posterior on ten tokens, where all assignments of topics are summed: a response
whose coefficients NUTS draws, and one drawn by auxiliary variables. (PaddedBatches have their own exact tests, one by one.)

theta and beta are integrated out in closed form. What is left, the coefficients and the response's own parameters, is
drawn from the prior and weighted by the sum over z of p(z, w) p(y | zbar): no Markov chain, and small errors.

Limit: 6 standard errors of the difference, some 20 comparisons: right samplers fail with probability 4e-8, if errors of
autocorrelated draws were known exactly; 4 standard errors were kept at the seeds tried.
"""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact import label_free, standard_errors_apart, summaries
from lengths import longest_but
from scipy.special import gammaln, logsumexp

from topiczoo import inference
from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import documents
from topiczoo.inference.story.reading import read
from topiczoo.inference.story.tracing import ZbarHandler, log_prob, run
from topiczoo.models import slda_glm

APART = 6.0
ALPHA, GAMMA = 0.5, 0.5
CORPUS = Corpus.from_counts(np.array([[2, 0], [1, 1], [0, 2], [2, 0], [0, 1], [1, 0]]))
CASES = {
    "negative_binomial": ([4, 1, 0, 2, 0, 1], {}),
    "softmax": ([0, 1, 2, 0, 2, 1], {"outputs": 3}),
}


def arguments(name):
    return {"response": name, "num_topics": 2, "alpha": ALPHA, "gamma": GAMMA, **CASES[name][1]}


class Dirichlets:
    """Rows of Dirichlet distributions for each assignment, [z, rows, parts]."""

    def __init__(self, concentration):
        total = concentration.sum(-1, keepdims=True)
        self.mean = concentration / total
        self.squared = (self.mean * (concentration + 1) / (total + 1)).sum((1, 2))  # the sum of E[part^2]
        self.log_normaliser = (gammaln(concentration).sum(-1) - gammaln(total[..., 0])).sum(1)


class Assignments:
    """All assignments of two topics to the tokens: log p(z, w), the documents' zbar, theta and beta given z."""

    def __init__(self):
        document, term = CORPUS.tokens()
        topic = np.eye(2)[np.array(list(itertools.product(range(2), repeat=len(term))))]  # [z, token, topic]
        in_document = np.einsum("znk,nd->zdk", topic, np.eye(len(CORPUS))[document])
        in_topic = np.einsum("znk,nv->zkv", topic, np.eye(CORPUS.num_terms)[term])
        # assignments with the same counts are one, with a weight
        counts = np.concatenate([part.reshape(len(topic), -1) for part in (in_document, in_topic)], 1)
        _, first, number = np.unique(counts, axis=0, return_index=True, return_counts=True)
        self.theta, self.beta = Dirichlets(in_document[first] + ALPHA), Dirichlets(in_topic[first] + GAMMA)
        self.log_prob = self.theta.log_normaliser + self.beta.log_normaliser + np.log(number)
        # of two tokens none, one or both are of the first topic
        halves = np.rint(2 * in_document[first, :, 0] / in_document[first].sum(-1)).astype(int)
        self.zbar = np.eye(3)[halves].reshape(len(first), -1)


def exact(name, num_draws=100_000, chunk=5_000, seed=1):
    """Mean and squared standard error of every label-free quantity."""
    graph = read(slda_glm, CORPUS, np.array(CASES[name][0], float), arguments(name))
    corpus, y, every = documents(CORPUS, pairs=True), jnp.asarray(graph.y), Assignments()

    @jax.jit
    @jax.vmap
    def draw(key):
        """The sites from their prior, and log p(y_d | sites) for each zbar that a document can have."""
        sites, logs = {}, []
        for share in (0.0, 0.5, 1.0):
            answer = ZbarHandler(jnp.tile(jnp.array([share, 1 - share]), (len(CORPUS), 1)))
            trace = run(graph.story, corpus, y, sites, answer, key=key, prior=True)
            sites = {site: trace[site]["value"] for site in graph.latent if site not in ("theta", "beta")}
            logs.append(log_prob(trace["y"]))
        return sites, jnp.stack(logs, -1)

    found, log_weights = [], []
    for key in jax.random.split(jax.random.key(seed), num_draws // chunk):
        sites, logs = jax.tree.map(np.asarray, draw(jax.random.split(key, chunk)))
        joint = every.log_prob[:, None] + every.zbar @ np.maximum(logs, -1e3).reshape(chunk, -1).T.astype(
            float
        )  # [z, draw]
        log_weights.append(logsumexp(joint, axis=0))
        z = np.exp(joint - log_weights[-1]).T  # p(z | sites, w, y)
        expected = {"beta": z @ every.beta.mean[:, :, 0], "theta": z @ every.theta.mean[:, 0]}
        found.append({
            **{quantity: value[0] for quantity, value in label_free({s: v[None] for s, v in sites.items()}).items()},
            "theta squared": z @ every.theta.squared, "beta squared": z @ every.beta.squared,
            **{f"eta and {site}": (first_column(sites["eta"]) * mean).sum(-1) for site, mean in expected.items()},
        })  # fmt: skip
    weights = np.exp(np.concatenate(log_weights) - np.max(log_weights))
    weights /= weights.sum()
    assert 1 / (weights**2).sum() > 1000  # enough of them count
    out = {}
    for quantity in found[0]:
        value = np.concatenate([part[quantity] for part in found])
        mean = weights @ value
        out[quantity] = mean, np.sum((weights * (value - mean)) ** 2)
    return out


def gibbs(name):
    """The same quantities of draws."""
    fit = inference.gibbs(
        slda_glm, CORPUS, np.array(CASES[name][0], float), num_warmup=300, num_samples=6_000, num_chains=2,
        seed=3, progress_bar=False, **arguments(name),
    )  # fmt: skip
    draws = {site: value for site, value in fit.draws.items() if site != "z"}
    beta, theta = draws["beta"][..., 0], draws["theta"][:, :, 0]
    eta = first_column(draws["eta"].reshape(-1, *draws["eta"].shape[2:])).reshape(beta.shape)
    return summaries({**draws, "eta and beta": (eta * beta).sum(-1), "eta and theta": (eta * theta).sum(-1)})


def first_column(eta):
    """[draw, topic], of the first output where there are several."""
    return eta.reshape(len(eta), 2, -1)[..., 0]


@pytest.mark.slow
@pytest.mark.parametrize("name", longest_but(CASES, "softmax"))
def test_gibbs_agrees_with_the_sum_over_all_topics(name):
    apart = standard_errors_apart(gibbs(name), exact(name))
    assert max(apart.values()) < APART, apart
