"""The sweep in C++ against the plain one: the same topics, and what is said where it cannot be had.

No limits of chance: the same random numbers give the same topics. With a response a rounding may decide a token otherwise,
one of millions; of 60,000 two are allowed.
"""

from __future__ import annotations

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from topiczoo import inference, models
from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import documents
from topiczoo.inference.kernels.assignments import Assignments, Labels
from topiczoo.inference.kernels.sweep import FLOOR, Given, Weights, sweep_shards
from topiczoo.inference.native import build
from topiczoo.inference.story.reading import read
from topiczoo.inference.story.sweeping import StorySupervision

compiler = pytest.mark.skipif(not any(map(shutil.which, build.COMPILERS)), reason="there is no C++ compiler")
TERMS, DOCUMENTS = 30, 200


@pytest.fixture(scope="module")
def native(folder_of_the_library):
    """The sweep built in a folder of its own; plain sweeps are those with TOPICZOO_NATIVE=off."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOPICZOO_CACHE", folder_of_the_library)
        patch.delenv(build.VARIABLE, raising=False)
        yield inference.compile_sweep()


@pytest.fixture(scope="module")
def corpus():
    """Documents of 1 to 600 words."""
    rng = np.random.default_rng(0)
    lengths = np.r_[1, 1, 2, rng.integers(3, 600, DOCUMENTS - 3)]
    return Corpus.from_counts(np.stack([rng.multinomial(n, np.full(TERMS, 1 / TERMS)) for n in lengths]))


def swept(corpus, weights, *, collapsed=True, supervision=None, context=None):
    """What the compiled sweep and the plain one leave of the same topics, one after the other."""
    data, rng = documents(corpus, batches=True), np.random.default_rng(1)
    batches, num_topics = data.laid_out, weights.term_topic.shape[1]
    topics = jnp.asarray(rng.integers(0, num_topics, batches.terms.shape), jnp.int32)
    own = batches.of_tokens(topics)
    document, _ = corpus.tokens()
    counts = np.zeros((len(corpus), num_topics), np.float32)
    np.add.at(counts, (document, own), 1)
    given = Given(tuple(jax.random.split(jax.random.key(3))), weights, context)
    z, found = Assignments(topics, jnp.asarray(counts)), []
    for told in ("", "off"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(build.VARIABLE, told)
            assert build.registered() == (told == "")
            part = jax.jit(lambda given, z: sweep_shards(supervision, collapsed, given, z, batches))(given, z)
        left = np.asarray(part.counts).reshape(-1, num_topics)[np.asarray(batches.lane)]
        found.append((batches.of_tokens(part.topics), left, np.asarray(part.proposed)))
    assert (found[0][0] != own).mean() > 0.3
    return found


def weights_of(num_topics, *, proportions=None, labels=1):
    rng = np.random.default_rng(2)
    beta = rng.dirichlet(np.full(TERMS, 0.3), (labels, num_topics)).astype(np.float32)
    flat = np.moveaxis(beta, 1, 2).reshape(-1, num_topics)
    term_topic = jnp.maximum(jnp.pad(jnp.asarray(flat), ((0, 1), (0, 0))), FLOOR)
    alpha = jnp.asarray(rng.gamma(1.0, 0.5, (1, num_topics)) if proportions is None else proportions, jnp.float32)
    return Weights(term_topic, alpha, ())


CASES = {
    "two topics": {"num_topics": 2}, "seven": {"num_topics": 7}, "fifty": {"num_topics": 50},
    "seventy": {"num_topics": 70},
    "alpha of documents": {"num_topics": 7, "own": True}, "theta given": {"num_topics": 7, "own": True, "collapsed": False},
    "topics of labels": {"num_topics": 5, "labels": 3},
}  # fmt: skip


@compiler
@pytest.mark.parametrize("case", CASES)
def test_topics_are_those_of_the_plain_sweep_to_the_last_bit(native, corpus, case):
    told = {"collapsed": True, "labels": 1, "own": False} | CASES[case]
    rng = np.random.default_rng(4)
    own = rng.dirichlet(np.full(told["num_topics"], 0.5), len(corpus)) if told["own"] else None
    weights = weights_of(told["num_topics"], proportions=own, labels=told["labels"])
    if told["labels"] > 1:
        label = jnp.asarray(rng.integers(0, told["labels"], len(corpus)))
        weights = weights._replace(labels=Labels.of(label, (told["labels"], told["num_topics"], TERMS)))
    for fast, plain in zip(*swept(corpus, weights, collapsed=told["collapsed"]), strict=True):
        np.testing.assert_array_equal(fast, plain)


@compiler
def test_topics_of_no_weight_are_never_drawn_however_sums_are_rounded(native, corpus):
    """One topic has all, the others less than the last digit of it: sums of groups pass by what single sums do not reach."""
    groups = 64
    theta = np.full((1, groups**2), 2.0**-25)
    theta[0, 0], theta[0, groups - 1 :: groups] = 1.0, 0.0
    weights = Weights(jnp.ones((TERMS + 1, groups**2)), jnp.asarray(theta, jnp.float32), ())
    (fast, _, _), (plain, _, _) = swept(corpus, weights, collapsed=False)
    np.testing.assert_array_equal(fast, plain)
    assert (fast > 0).any() and (theta[0, fast] > 0).all()


def supervised(corpus, weight=1.0):
    """What the sweep needs of a normal response."""
    rng = np.random.default_rng(5)
    y = rng.normal(0, 1, len(corpus))
    y[7] = np.nan  # unlabelled
    graph = read(models.slda, corpus, y, {"num_topics": 6})
    values = {"eta": jnp.asarray(rng.normal(0, 2, 6), jnp.float32), "sigma": jnp.float32(0.3)}
    values |= {"beta": jnp.full((6, TERMS), 1 / TERMS), "theta": jnp.full((len(corpus), 6), 1 / 6)}
    context = documents(corpus).take(jnp.arange(len(corpus))), graph.response.on_device(), values
    return StorySupervision(graph), context, y


@compiler
def test_topics_above_a_normal_response_are_those_of_the_plain_sweep(native, corpus):
    supervision, context, _ = supervised(corpus)
    weights = weights_of(6)._replace(coefficients=(context[2]["eta"],))
    fast, plain = swept(corpus, weights, supervision=supervision, context=context)
    assert (fast[0] != plain[0]).sum() <= 2, (fast[0] != plain[0]).sum()
    alone, _ = swept(corpus, weights_of(6))
    assert (fast[0] != alone[0]).mean() > 0.05  # the response has had its say


def test_slope_and_curvature_of_a_normal_response(corpus):
    supervision, context, y = supervised(corpus)
    slope, curvature = supervision.quadratic(context)
    known = np.isfinite(y)
    np.testing.assert_allclose(slope, np.where(known, np.nan_to_num(y) / 0.09, 0), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(curvature, np.where(known, -1 / 0.09, 0), rtol=1e-5)


def two_predictors(corpus, y=None):
    beta = numpyro.sample("beta", dist.Dirichlet(jnp.ones((3, corpus.num_terms))).to_event(1))
    eta = numpyro.sample("eta", dist.Normal(0, 1).expand([3, 2]).to_event(2))
    with numpyro.plate("documents", corpus.num_documents):
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.ones(3)))
    zbar = models.draw_words(corpus, theta, beta)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.Normal((zbar @ eta).sum(-1), 1.0), obs=y)


@pytest.mark.parametrize(
    ("story", "arguments"),
    [
        (models.slda_glm, {"response": "logit"}), (models.slda_glm, {"response": "student_t"}),
        (models.slda_glm, {"response": "poisson"}), (two_predictors, {}), (models.medlda, {"margin": "partial"}),
        (models.medlda, {"margin": "regression"}),
    ],
)  # fmt: skip
def test_other_responses_are_left_to_the_plain_sweep(corpus, story, arguments):
    small = corpus[3:13]
    graph = read(story, small, np.arange(10) % 2, arguments | ({} if story is two_predictors else {"num_topics": 3}))
    context = graph.few_documents.take(jnp.arange(len(graph.few_corpus))), graph.few_y, graph.few_values
    assert StorySupervision(graph).quadratic(context) is None


def test_what_is_missing_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("TOPICZOO_CACHE", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(
        RuntimeError, match=r"There is no C\+\+ compiler: none of c\+\+, g\+\+, clang\+\+ is on the path.*install"
    ):
        inference.compile_sweep()


def test_a_library_that_is_damaged_is_as_good_as_none(monkeypatch, tmp_path):
    monkeypatch.setenv("TOPICZOO_CACHE", str(tmp_path))
    monkeypatch.delenv(build.VARIABLE, raising=False)
    path = build.library()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"no library")
    assert not build.registered()
    monkeypatch.setenv("TOPICZOO_CACHE", "off")
    assert build.library() is None and not build.registered()
