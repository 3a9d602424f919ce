"""Auxiliary variables above words: coefficients against their exact law, and augmentations that are wrong or extreme.

Limits are those of the families' own test, from which the exact draws and the comparison are taken.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats
from test_augmented_draws import (
    LAPLACE,
    NAN,
    PLAIN,
    after_a_step,
    assert_same_law,
    exact_draws,
    laplace_prior,
    normal_prior,
    softmax,
)

from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import documents
from topiczoo.inference.blocks.augmentation import AUGMENTED, DoubleExponential, Logistic, Quadratic
from topiczoo.inference.blocks.augmented import AugmentedBlock
from topiczoo.inference.blocks.block import few
from topiczoo.inference.kernels.assignments import count
from topiczoo.inference.story.reading import read
from topiczoo.models import Hinge, slda_glm, sstm

COUNTS = np.array([[2, 1], [0, 3], [1, 1], [4, 0], [1, 2], [0, 2]])
WORDS = Corpus.from_counts(COUNTS)
TOPICS = np.random.default_rng(3).integers(0, 2, COUNTS.sum())
ZBAR = np.array([[np.mean(TOPICS[WORDS.tokens()[0] == d] == k) for k in range(2)] for d in range(len(WORDS))])
SHIFT = np.array([0.5, 0.0, -0.4])


def of_words(name):
    """A story above words, and in NumPy: the prior's draws and shape, the predictor, the likelihood, and y."""
    settings = {"num_topics": 2, "scale": 1.3}
    if name == "logit":  # read through one zbar @ eta, but not as it is
        settings["response"] = lambda x: dist.Bernoulli(logits=0.3 - 2 * x)
        likelihood, y = PLAIN["logit"][3], [1, 0, 0, NAN, 1, 0]
        return slda_glm, settings, normal_prior, (2,), lambda eta: 0.3 - 2 * eta @ ZBAR.T, likelihood, y
    if name == "softmax":
        settings |= {"response": lambda x: dist.Categorical(logits=1.5 * x + jnp.asarray(SHIFT)), "outputs": 3}
        y = [0, 2, NAN, 1, NAN, 0]
        return slda_glm, settings, normal_prior, (2, 3), lambda eta: 1.5 * ZBAR @ eta + SHIFT, softmax, y
    settings = {"num_topics": 2, "response": "probit", "outputs": 2, "prior": off_centre, "sigma": 0.8}
    y = np.array([[1, 0], [0, 0], [1, 1], [0, NAN], [1, 0], [0, 1]])

    def log_likelihood(y, x):
        return stats.norm.logcdf((2 * y - 1) * x).sum(-1)

    return sstm, settings, laplace_prior, (2, 2), lambda eta: ZBAR @ eta / 0.8, log_likelihood, y


def off_centre(shape, nu):
    return numpyro.sample("eta", LAPLACE.expand(shape).to_event(2))


@pytest.mark.parametrize("name", ["logit", "softmax", "several probit"])
def test_coefficients_above_words_keep_their_exact_law(name):
    story, settings, prior, shape, predictor, likelihood, y = of_words(name)
    graph = read(story, WORDS, np.array(y, float), settings)
    block = AugmentedBlock(graph, ["eta"])
    assert block.direct == (name != "several probit")
    exact = {"eta": exact_draws(prior, shape, predictor, likelihood, np.array(y, float))}
    data = documents(WORDS, batches=True)
    topics = jnp.zeros(data.batches.terms.shape, jnp.int32).at[data.batches.positions()].set(TOPICS)
    values = {"z": count(topics, data.batches, 2, 2), "beta": jnp.full((2, 2), 0.5), "theta": jnp.full((6, 2), 0.5)}
    assert_same_law(after_a_step(block, data, jnp.asarray(graph.y), values, exact), exact)


def test_a_wrong_augmentation_is_not_used(monkeypatch):
    class TwiceThePrecision(Logistic):
        def quadratic(self, auxiliary, fn, value, column):
            return Quadratic(value - 0.5, 2 * auxiliary)

    monkeypatch.setitem(AUGMENTED, dist.BernoulliLogits, TwiceThePrecision())
    y = np.array([1, 0, 0, 1, 1, 0.0])
    graph = read(slda_glm, WORDS, y, {"response": "logit", "num_topics": 2})
    assert not AugmentedBlock.recognise(graph, ["eta"], few(graph))


@pytest.mark.parametrize("value", [0.0, 1e-30, 1e30])
def test_coefficients_of_any_size_can_be_left(value):
    """Of a Laplace prior and of a hinge: precisions are positive and leave room for their squares in single precision."""
    precision = np.asarray(DoubleExponential().draw(jax.random.key(0), dist.Laplace(0, 0.5), jnp.full(1000, value), 0))
    assert np.isfinite(precision).all() and (precision > 0).all()
    margin, at_the_hinge = AUGMENTED[Hinge], Hinge(jnp.full(1000, 1.0 + value), 3.0, 1.0)
    aside = margin.draw(jax.random.key(0), at_the_hinge, jnp.ones(1000), 0)
    linear, precision = margin.quadratic(aside, at_the_hinge, jnp.ones(1000), 0)
    assert np.isfinite(linear).all() and np.isfinite(precision).all() and (precision >= 0).all()


def test_the_scale_of_a_coefficient_has_the_law_of_its_paper():
    """Its reciprocal is drawn; the scale itself is GIG(1/2, 1 / nu^2, eta^2) (Wang, Li & Lin, equation 8)."""
    eta, nu = np.array([0.4, -0.4, 2.0]), np.array([0.05, 1.0, 0.7])
    law = dist.Laplace(0.0, jnp.asarray(nu, jnp.float32))
    draws = DoubleExponential().draw(jax.random.key(0), law, jnp.broadcast_to(jnp.asarray(eta), (10_000, 3)), 0)
    for column, e, scale in zip(np.asarray(draws, float).T, np.abs(eta), nu, strict=True):
        known = stats.geninvgauss(0.5, e / scale, scale=e * scale)
        assert stats.kstest(1 / column, known.cdf).pvalue > 1e-7


def test_forms_without_an_augmentation_are_refused():
    """Sites of documents, a number that all classes or documents share, mixtures that are no normal prior, weights."""
    parts = dist.Categorical(jnp.array([0.4, 0.6]))

    def odd(corpus, y=None):
        normal, ends = dist.Normal(0, 1), jnp.array([-1.0, 1.0])
        wide = numpyro.sample("wide", normal.expand([3]).to_event(1))
        mixed, level, weighed, bare = (numpyro.sample(name, normal) for name in ("mixed", "level", "weighed", "bare"))
        heavy = numpyro.sample("heavy", dist.MixtureSameFamily(parts, dist.StudentT(3.0, ends, 1.0)))
        good = numpyro.sample("good", dist.MixtureSameFamily(parts, dist.Normal(ends, 1.0)))
        with numpyro.plate("documents", corpus.num_documents):
            effect = numpyro.sample("effect", normal)
            numpyro.sample("y", dist.StudentT(3.0, effect, 1.0), obs=y)
            numpyro.sample("one", dist.Categorical(logits=y[:, None] * wide + level), obs=jnp.asarray(y > 0, int))
            numpyro.sample("five", dist.Bernoulli(logits=bare), obs=jnp.asarray(y > 0, int))
            numpyro.sample("two", dist.MixtureSameFamily(parts, dist.Normal(mixed + ends, 1.0)), obs=y)
            numpyro.sample("three", dist.Normal(level + heavy + good, 1.0), obs=y)
            with numpyro.handlers.scale(scale=2.0):
                numpyro.sample("four", dist.StudentT(3.0, weighed, 1.0), obs=y)

    graph = read(odd, WORDS, np.array([0.3, -0.2, 1.0, 0.5, -1.0, 0.1]), {})
    small = few(graph)
    for refused in (["effect"], ["wide", "level"], ["mixed"], ["heavy"], ["level"], ["weighed"], ["bare"]):
        assert not AugmentedBlock.recognise(graph, refused, small), refused
    assert AugmentedBlock.recognise(graph, ["wide"], small) and AugmentedBlock.recognise(graph, ["good"], small)
