"""Coefficients that are drawn with the help of auxiliary variables, against independent draws of their exact law.

The exact law needs no engine: draws from the prior are kept with probability likelihood / bound, both written down in NumPy
and SciPy. From such draws the block takes two steps, each with a key of its own, and what comes out must have the same law:
a block whose conditional is wrong leads away from it. Families stand side by side in one story and one block; as they have
nothing to do with each other, their coefficients must not move together.

Limits: some 150 means, products and Kolmogorov-Smirnov distances a test, each at 6 standard errors or a level of 1e-7: a
right program fails with probability 2e-5, if all were independent; fewer, as they are not.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.special import log_expit, log_softmax

from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import documents
from topiczoo.inference.assignments import count
from topiczoo.inference.augmented_block import AugmentedBlock
from topiczoo.inference.reading import read
from topiczoo.models import EpsilonInsensitive, Hinge, MultiClassHinge, OneAgainstAll, slda_glm, sstm
from topiczoo.models.distributions import BernoulliProbit

FAR, LEVEL = 6.0, 1e-7
STARTS, STEPS = 5_000, 2
DOCUMENTS = 7
DESIGN = np.array([[1, 1.2], [1, -0.4], [1, 0.3], [1, -1.5], [1, 0.8], [1, 2.0], [1, 0.1]])
SEEN = np.array([1, 1, 1, 0, 1, 1, 1], bool)  # whom a mask of the story leaves in, where it has one
BARE = Corpus.from_counts(np.ones((DOCUMENTS, 2), int), covariates={"x": DESIGN[:, 1], "seen": SEEN.astype(float)})
NAN = np.nan


def tube(y, x):
    return -2.5 * np.maximum(0, np.abs(y - x) - 0.3)


def hinge(y, x):
    return -1.7 * np.maximum(0, 0.8 - (2 * y - 1) * x)


def crammer_singer(y, x):
    apart = x - x[:, np.arange(len(y)), y][..., None] + 0.9 * (np.arange(x.shape[-1]) != y[:, None])
    return -1.4 * apart.max(-1)


def one_against_all(y, x):
    signs = np.where(np.arange(x.shape[-1]) == y[:, None], 1, -1)
    return -1.1 * np.maximum(0, 0.7 - signs * x).sum(-1)


def softmax(y, x):
    return log_softmax(x, -1)[:, np.arange(len(y)), y]


OF_CLASSES = (softmax, crammer_singer, one_against_all)


def normal_prior(rng, *shape):
    return rng.normal(0, 1.3, shape)


def laplace_prior(rng, *shape):
    return rng.laplace(0.2, 0.6, shape)


def spike_prior(rng, *shape):
    slab = rng.random(shape) < 0.4
    return np.where(slab, rng.normal(-0.3, 1.5, shape), rng.normal(0, 0.2, shape))


def t_prior(rng, *shape):
    return 0.1 + 0.8 * rng.standard_t(4.0, shape)


NORMAL, LAPLACE, STUDENT = dist.Normal(0, 1.3), dist.Laplace(0.2, 0.6), dist.StudentT(4.0, 0.1, 0.8)
SPIKE = dist.MixtureSameFamily(
    dist.Categorical(jnp.array([0.6, 0.4])), dist.Normal(jnp.array([0.0, -0.3]), jnp.array([0.2, 1.5]))
)
REAL = [0.9, 0.4, NAN, -1.4, 1.2, 1.5, 0.3]
# name: prior and its draws, response as a distribution and as log p(y | x), and y
PLAIN = {
    "logit": (NORMAL, normal_prior, lambda x: dist.Bernoulli(logits=x), lambda y, x: log_expit((2 * y - 1) * x),
              [1, 0, 1, 1, 0, NAN, 1]),
    "binomial": (NORMAL, normal_prior, lambda x: dist.Binomial(3, logits=x),
                 lambda y, x: y * log_expit(x) + (3 - y) * log_expit(-x), [3, 0, 1, NAN, 2, 3, 1]),
    "probit": (NORMAL, normal_prior, BernoulliProbit, lambda y, x: stats.norm.logcdf((2 * y - 1) * x),
               [1, 1, 0, 0, NAN, 1, 0]),
    "student": (NORMAL, normal_prior, lambda x: dist.StudentT(3.0, x, 0.6), lambda y, x: stats.t.logpdf(y, 3, x, 0.6), REAL),
    "tube": (NORMAL, normal_prior, lambda x: EpsilonInsensitive(x, 2.5, 0.3), tube, REAL),
    "hinge": (NORMAL, normal_prior, lambda x: Hinge(x, 1.7, 0.8), hinge, [0, NAN, 1, 0, 1, 1, 0]),
    "laplace": (LAPLACE, laplace_prior, lambda x: dist.Normal(x, 1.1), lambda y, x: stats.norm.logpdf(y, x, 1.1), REAL),
    "spike": (SPIKE, spike_prior, lambda x: dist.Normal(x, 1.4), lambda y, x: stats.norm.logpdf(y, x, 1.4), REAL),
    "heavy": (STUDENT, t_prior, lambda x: dist.Normal(x, 1.2), lambda y, x: stats.norm.logpdf(y, x, 1.2), REAL),
}  # fmt: skip
CODES = [0, 2, 1, NAN, 2, 0, 2]
CLASSES = {
    "softmax": (NORMAL, normal_prior, lambda x: dist.Categorical(logits=x), softmax, CODES),
    "crammer_singer": (NORMAL, normal_prior, lambda x: MultiClassHinge(x, 1.4, 0.9), crammer_singer, CODES),
    "one_against_all": (NORMAL, normal_prior, lambda x: OneAgainstAll(x, 1.1, 0.7), one_against_all, CODES),
    "laplace": (LAPLACE, laplace_prior, lambda x: dist.Categorical(logits=x), softmax, CODES),
}  # fmt: skip


def side_by_side(families, *columns):
    """A story of responses that share documents and nothing else; the first one's documents are masked by the story."""

    def families_beside(corpus, y=None):
        x = corpus.covariates["x"]
        design = x[:, None] if columns else jnp.stack([jnp.ones(corpus.num_documents), x], 1)
        shape = [design.shape[1], *columns]
        for place, (name, (prior, _, respond, *_)) in enumerate(families.items()):
            eta = numpyro.sample(f"eta_{name}", prior.expand(shape).to_event(len(shape)))
            counts = corpus.covariates["seen"] > 0 if place == 0 else jnp.ones(corpus.num_documents, bool)
            with numpyro.plate("documents", corpus.num_documents), numpyro.handlers.mask(mask=counts):
                numpyro.sample(f"y_{name}", respond(design @ eta), obs=y[name])

    return families_beside


def exact_draws(draw_prior, shape, predictor, log_likelihood, y):
    """Independent draws from the posterior, [STARTS, *shape]: of the prior, kept with probability likelihood / bound."""
    rng = np.random.default_rng(0)
    labelled = np.flatnonzero(~np.isnan(y).reshape(len(y), -1).any(1))
    y = y[labelled].astype(int) if log_likelihood in OF_CLASSES else y[labelled]
    found, bound = [], None
    while sum(map(len, found)) < STARTS:
        eta = draw_prior(rng, 100_000, *shape)
        logs = log_likelihood(y, predictor(eta)[:, labelled]).sum(1)
        bound = logs.max() + 0.3 if bound is None else bound
        assert logs.max() <= bound
        found.append(eta[np.log(rng.random(len(eta))) < logs - bound])
    return np.concatenate(found)[:STARTS]


def after_two_steps(block, data, y, values, start):
    """Where the block leads from each of many starts."""

    @jax.jit
    def run(keys, start, values, data, y):
        def one(keys, start):
            return jax.lax.scan(lambda now, key: (block.draw(key, {**values, **now}, data, y)[0], None), start, keys)[0]

        return jax.vmap(one)(keys, start)

    start = {site: jnp.asarray(value, jnp.float32) for site, value in start.items()}
    keys = jax.random.split(jax.random.key(1), (STARTS, STEPS))
    return {site: np.asarray(value, float) for site, value in run(keys, start, values, data, y).items()}


def assert_same_law(found, exact):
    """Every coordinate's law, and the means and products of all coordinates of all sites."""
    found, exact = (np.concatenate([draws[s].reshape(STARTS, -1) for s in sorted(draws)], 1) for draws in (found, exact))
    for mine, theirs in zip(found.T, exact.T, strict=True):
        assert stats.ks_2samp(mine, theirs).pvalue > LEVEL
    centre, width = exact.mean(0), exact.std(0)
    mine, theirs = (np.clip((draws - centre) / width, -6, 6) for draws in (found, exact))  # tails may have no variance
    for power in (1, 2):
        of = [draws if power == 1 else np.einsum("ni,nj->nij", draws, draws).reshape(STARTS, -1) for draws in (mine, theirs)]
        error = np.sqrt((of[0].var(0) + of[1].var(0)) / STARTS)
        assert (np.abs(of[0].mean(0) - of[1].mean(0)) / error).max() < FAR
    # and the block moves: the draws are not where they were
    stays = [np.corrcoef(*pair)[0, 1] for pair in zip(mine.T, theirs.T, strict=True)]
    assert max(stays) < 0.9, stays


@pytest.mark.parametrize(("families", "columns"), [(PLAIN, ()), (CLASSES, (3,))], ids=["numbers", "classes"])
def test_every_family_keeps_its_exact_law(families, columns):
    responses = {name: np.array(family[-1], float) for name, family in families.items()}
    reading = read(side_by_side(families, *columns), BARE, responses, {})
    block = AugmentedBlock(None, reading, [f"eta_{name}" for name in families])
    design, exact = DESIGN[:, 1:] if columns else DESIGN, {}
    for place, (name, (_, prior, _, likelihood, y)) in enumerate(families.items()):
        y = np.where(SEEN, y, np.nan) if place == 0 else np.array(y)
        shape = design.shape[1], *columns
        exact[f"eta_{name}"] = exact_draws(prior, shape, lambda eta: np.einsum("dk,nk...->nd...", design, eta), likelihood, y)
    y = jax.tree.map(jnp.asarray, reading.y)
    assert_same_law(after_two_steps(block, documents(BARE), y, {}, exact), exact)


COUNTS = np.array([[2, 1], [0, 3], [1, 1], [4, 0], [1, 2], [0, 2]])
WORDS = Corpus.from_counts(COUNTS)
TOPICS = np.random.default_rng(3).integers(0, 2, COUNTS.sum())
ZBAR = np.array([[np.mean(TOPICS[WORDS.tokens()[0] == d] == k) for k in range(2)] for d in range(len(WORDS))])
SHIFT = np.array([0.5, 0.0, -0.4])


def of_words(name):
    """A story above words, and in NumPy: the prior's draws and shape, the predictor, the likelihood, and y."""
    settings = {"num_topics": 2, "scale": 1.3}
    if name == "logit":  # read through one zbar @ eta, but not as it is
        respond = lambda x: dist.Bernoulli(logits=0.3 - 2 * x)  # noqa: E731
        likelihood, y = PLAIN["logit"][3], [1, 0, 0, NAN, 1, 0]
        return slda_glm, {**settings, "response": respond}, normal_prior, (2,), lambda eta: 0.3 - 2 * eta @ ZBAR.T, likelihood, y
    if name == "softmax":
        respond, y = lambda x: dist.Categorical(logits=1.5 * x + jnp.asarray(SHIFT)), [0, 2, NAN, 1, 2, 0]  # noqa: E731
        settings |= {"response": respond, "outputs": 3}
        return slda_glm, settings, normal_prior, (2, 3), lambda eta: 1.5 * ZBAR @ eta + SHIFT, softmax, y
    settings = {"num_topics": 2, "response": "probit", "outputs": 2, "prior": stories_prior, "sigma": 0.8}
    y = np.array([[1, 0], [0, 0], [1, 1], [0, NAN], [1, 0], [0, 1]])

    def log_likelihood(y, x):
        return stats.norm.logcdf((2 * y - 1) * x).sum(-1)

    return sstm, settings, laplace_prior, (2, 2), lambda eta: ZBAR @ eta / 0.8, log_likelihood, y


def stories_prior(shape, nu):
    return numpyro.sample("eta", LAPLACE.expand(shape).to_event(2))


@pytest.mark.parametrize("name", ["logit", "softmax", "several probit"])
def test_coefficients_above_words_keep_their_exact_law(name):
    story, settings, prior, shape, predictor, likelihood, y = of_words(name)
    reading = read(story, WORDS, np.array(y, float), settings)
    block = AugmentedBlock(None, reading, ["eta"])
    assert block.direct == (name != "several probit")
    exact = {"eta": exact_draws(prior, shape, predictor, likelihood, np.array(y, float))}
    data = documents(WORDS, blocks=True)
    topics = jnp.zeros(data.blocks.terms.shape, jnp.int32).at[data.blocks.places()].set(TOPICS)
    values = {"z": count(topics, data.blocks, 2, 2), "beta": jnp.full((2, 2), 0.5), "theta": jnp.full((6, 2), 0.5)}
    assert_same_law(after_two_steps(block, data, jnp.asarray(reading.y), values, exact), exact)


def test_no_key_is_used_twice():
    """Auxiliary variables of every family, of every class, and the coefficients: each has a key of its own."""
    families = {name: CLASSES[name] for name in ("softmax", "laplace")}
    responses = {name: np.array(family[-1], float) for name, family in families.items()}
    reading = read(side_by_side(families, 3), BARE, responses, {})
    block = AugmentedBlock(None, reading, [f"eta_{name}" for name in families])
    values = {site: jnp.zeros((1, 3)) for site in block.sites}
    with jax.debug_key_reuse(True):
        found = jax.jit(block.draw)(jax.random.key(0), values, documents(BARE), jax.tree.map(jnp.asarray, reading.y))[0]
    assert all((value != 0).all() for value in found.values())
