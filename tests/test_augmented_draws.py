"""Coefficients that are drawn with the help of auxiliary variables, against independent draws of their exact law.

The exact law needs no engine: draws from the prior are kept with probability likelihood / bound, both written down in NumPy
and SciPy. From each such draw the block takes a step, and what comes out must have the same law: a block whose
conditional is wrong leads away from it. Families stand side by side in one story and one block; as they have nothing to do
with each other, their coefficients must not move together.

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
from topiczoo.inference.blocks.augmentation import AUGMENTED
from topiczoo.inference.blocks.augmented import AugmentedBlock
from topiczoo.inference.story.reading import read
from topiczoo.inference.story.tracing import Data
from topiczoo.models import EpsilonInsensitive, Hinge, MultiClassHinge, OneAgainstAll
from topiczoo.models.vocabulary.distributions import BernoulliProbit

FAR, LEVEL = 6.0, 1e-7
STARTS = 8_000
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
    slab = rng.random(shape) < 0.15
    return np.where(slab, rng.normal(-0.3, 1.5, shape), rng.normal(0, 0.2, shape))


def t_prior(rng, *shape):
    return 0.1 + 0.8 * rng.standard_t(4.0, shape)


NORMAL, LAPLACE, STUDENT = dist.Normal(0, 1.3), dist.Laplace(0.2, 0.6), dist.StudentT(4.0, 0.1, 0.8)
SPIKE = dist.MixtureSameFamily(
    dist.Categorical(jnp.array([0.85, 0.15])), dist.Normal(jnp.array([0.0, -0.3]), jnp.array([0.2, 1.5]))
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
        bound = logs.max() + 0.2 if bound is None else bound
        assert logs.max() <= bound
        found.append(eta[np.log(rng.random(len(eta))) < logs - bound])
    return np.concatenate(found)[:STARTS]


def after_a_step(block, data, y, values, start):
    """Where the block leads from each of many starts."""

    @jax.jit
    def run(keys, start, values, data, y):
        return jax.vmap(lambda key, start: block.draw(key, {**values, **start}, Data(data, y))[0])(keys, start)

    start = {site: jnp.asarray(value, jnp.float32) for site, value in start.items()}
    found = run(jax.random.split(jax.random.key(1), STARTS), start, values, data, y)
    return {site: np.asarray(value, float) for site, value in found.items()}


def assert_same_law(found, start):
    """Every coordinate's law; means, distances from 0 and products of all coordinates of all sites, before and after."""
    after, before = (
        np.concatenate([draws[s].reshape(STARTS, -1) for s in sorted(draws)], 1) for draws in (found, start)
    )
    for mine, theirs in zip(after.T, before.T, strict=True):
        assert stats.ks_2samp(mine, theirs).pvalue > LEVEL
    centre, width = before.mean(0), before.std(0)
    new, old = (np.clip((draws - centre) / width, -6, 6) for draws in (after, before))  # a tail may have no variance
    for of in (
        lambda draws: draws,
        lambda draws: np.minimum(np.abs(draws + centre / width), 0.5),  # how many are near 0
        lambda draws: np.einsum("ni,nj->nij", draws, draws).reshape(STARTS, -1),
    ):
        gap = of(new) - of(old)  # a draw and where it leads
        assert (np.abs(gap.mean(0)) / gap.std(0)).max() < FAR / np.sqrt(STARTS)
    # and the block moves: the draws are not where they were
    stays = [np.corrcoef(*pair)[0, 1] for pair in zip(new.T, old.T, strict=True)]
    assert max(stays) < 0.9, stays


@pytest.mark.parametrize(("families", "columns"), [(PLAIN, ()), (CLASSES, (3,))], ids=["numbers", "classes"])
def test_every_family_keeps_its_exact_law(families, columns):
    responses = {name: np.array(family[-1], float) for name, family in families.items()}
    graph = read(side_by_side(families, *columns), BARE, responses, {})
    block = AugmentedBlock(graph, [f"eta_{name}" for name in families])
    design, exact = DESIGN[:, 1:] if columns else DESIGN, {}
    for place, (name, (_, prior, _, likelihood, y)) in enumerate(families.items()):
        y = np.where(SEEN, y, np.nan) if place == 0 else np.array(y)
        shape = design.shape[1], *columns
        exact[f"eta_{name}"] = exact_draws(
            prior, shape, lambda eta: np.einsum("dk,nk...->nd...", design, eta), likelihood, y
        )
    y = jax.tree.map(jnp.asarray, graph.y)
    assert_same_law(after_a_step(block, documents(BARE), y, {}, exact), exact)


def test_the_normal_and_the_auxiliary_variables_law_make_the_density():
    """p(y | x) p(aside | x, y) is proportional to exp(linear x - precision x^2 / 2) for every family and every class.

    Exact up to rounding: where x moves, both sides move alike, whatever the auxiliary variable.
    """
    rng = np.random.default_rng(4)

    @jax.jit
    def gaps():
        found, expected = {}, {}
        for name, (prior, _, respond, likelihood, y) in {
            **PLAIN,
            **{f"{n} of classes": f for n, f in CLASSES.items()},
        }.items():
            classes, of_prior = likelihood in OF_CLASSES, prior is not NORMAL
            shape = (DOCUMENTS, 3) if classes and not of_prior else (DOCUMENTS,)
            here, there = rng.normal(0, 1.5, (2, *shape))
            y = np.nan_to_num(y).astype(int if classes else float)
            for column in range(3 if classes and not of_prior else 1):
                moved = np.where(np.arange(3) == column, there, here) if classes and not of_prior else there
                augmentation = AUGMENTED[type(prior if of_prior else respond(here))]

                def read(method, x, *first, a=augmentation, c=column, y=y, own=of_prior, p=prior, r=respond):
                    fn, value = (p, x) if own else (r(jnp.asarray(x)), y)
                    return getattr(a, method)(*first, fn, value, *(() if method == "location" else (c,)))

                like = jax.eval_shape(lambda: read("draw", here, jax.random.key(0)))
                aside = rng.integers(0, 2, like.shape) if like.dtype == jnp.int32 else rng.uniform(0.2, 2, like.shape)
                linear, precision = read("quadratic", here, aside)
                x = [read("location", place) for place in (here, moved)]
                before, after = (part[..., column] if augmentation.columns else part for part in x)
                normal = linear * (after - before) - precision * (after**2 - before**2) / 2
                aside_law = read("log_auxiliary", moved, aside) - read("log_auxiliary", here, aside)
                found[name, column] = normal - aside_law
                if of_prior:
                    expected[name, column] = prior.log_prob(moved) - prior.log_prob(here)
                else:
                    expected[name, column] = (likelihood(y, moved[None]) - likelihood(y, here[None]))[0]
        return found, expected

    found, expected = gaps()
    for name, gap in found.items():
        np.testing.assert_allclose(gap, expected[name], rtol=1e-3, atol=1e-3, err_msg=str(name))


def test_no_key_is_used_twice():
    """Auxiliary variables of every family, of every class, and the coefficients: each has a key of its own."""
    families = {name: CLASSES[name] for name in ("softmax", "laplace")}
    responses = {name: np.array(family[-1], float) for name, family in families.items()}
    graph = read(side_by_side(families, 3), BARE, responses, {})
    block = AugmentedBlock(graph, [f"eta_{name}" for name in families])
    values = {site: jnp.zeros((1, 3)) for site in block.sites}
    with jax.debug_key_reuse(True):
        found = jax.jit(block.draw)(jax.random.key(0), values, Data(documents(BARE), graph.response.on_device()))[0]
    assert all((value != 0).all() for value in found.values())
