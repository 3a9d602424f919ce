"""Axes and roles of sites are found from what a story computes, whatever its arguments are called."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import stories
from jax.scipy.linalg import solve_triangular

from topiczoo import inference, models
from topiczoo.corpora import Corpus
from topiczoo.inference.story.axes import joined_axes
from topiczoo.inference.story.graph import StoryGraph
from topiczoo.inference.story.reader import bind
from topiczoo.inference.story.reading import read
from topiczoo.inference.story.response import Response
from topiczoo.inference.story.tracing import Story
from topiczoo.models import draw_words

SQUARE = Corpus.from_counts(np.array([[2, 1, 1], [1, 1, 3], [1, 2, 1]]))  # as many documents as terms
Y = np.array([1.0, -1.0, 0.5])


def graph_of(story, corpus=SQUARE, y=None, **arguments):
    response = Response({} if y is None else {"y": np.asarray(y, np.float32)})
    return bind(Story(story, arguments), corpus, response)


@pytest.mark.parametrize(
    ("function", "shapes", "same"),
    [
        (lambda a, b: a + b, [(3, 4), (3, 4)], [((0, 0), (1, 0)), ((0, 1), (1, 1))]),
        (lambda a, b: a + b, [(3, 4), (4,)], [((0, 1), (1, 0))]),
        (lambda a, b: a[:, None] * b, [(3,), (3, 3)], [((0, 0), (1, 0))]),
        (lambda a, b: a @ b, [(3, 3), (3, 3)], [((0, 1), (1, 0))]),
        (lambda a, b: a.T + b, [(3, 3), (3, 3)], [((0, 0), (1, 1)), ((0, 1), (1, 0))]),
        (lambda a, b: a.sum(0) + b, [(3, 3), (3,)], [((0, 1), (1, 0))]),
        (lambda a, b: jnp.concatenate([a, b], 1), [(3, 2), (3, 2)], [((0, 0), (1, 0))]),
        (lambda a, b: jnp.einsum("ij,kj->ik", a, b), [(3, 3), (3, 3)], [((0, 1), (1, 1))]),
        (lambda a, b: a.reshape(3, 2, 2).sum((1, 2)) + b, [(3, 4), (3,)], [((0, 0), (1, 0))]),
        (lambda a, b: jax.nn.softmax(a, -1) * b, [(3, 3), (3, 3)], [((0, 0), (1, 0)), ((0, 1), (1, 1))]),
        (lambda a, b: solve_triangular(a, b), [(3, 3), (3,)], [((0, 0), (0, 1)), ((0, 0), (1, 0)), ((0, 1), (1, 0))]),
        (lambda a, b: jax.lax.map(lambda row: row * b, a), [(3, 3), (3,)], [((0, 1), (1, 0))]),
        (lambda a, b: a[b.astype(int)], [(3, 3), (3,)], []),
        (lambda a, b: jax.jit(lambda x: x * 2)(a) + b, [(3,), (3,)], [((0, 0), (1, 0))]),
        (lambda a, b: jax.lax.fori_loop(0, 2, lambda _, x: x + b, a), [(3,), (3,)], [((0, 0), (1, 0))]),
        (lambda a, b: jnp.cumsum(a, 0) + b, [(3, 3), (3, 3)], [((0, 0), (1, 0)), ((0, 1), (1, 1))]),
    ],
    ids=range(16),
)  # fmt: skip
def test_axes_are_joined_where_index_meets_index(function, shapes, same):
    """All other pairs of axes stay apart, though all may be of one size."""
    arguments = {name: jnp.zeros(shape) for name, shape in zip("ab", shapes, strict=True)}
    axes, given, _, _ = joined_axes(lambda named: function(named["a"], named["b"]), arguments, {})
    nodes = {(i, j): axes.find(node) for i, name in enumerate("ab") for j, node in enumerate(given[name])}
    found = {(one, other) for one in nodes for other in nodes if one < other and nodes[one] == nodes[other]}
    assert found == set(same)


def unusual(corpus, y=None, *, how_many, hints):
    """Seeds [topics, terms], a factor of topics, a scale of terms, coefficients made of two sites, a level of documents."""
    sway = numpyro.sample("sway", dist.Normal(0, 1).expand([how_many]).to_event(1))
    width = numpyro.sample("width", dist.HalfNormal(1).expand([how_many]).to_event(1))
    middle = numpyro.sample("middle", dist.Normal(0, 1).expand([how_many]).to_event(1))
    factor = numpyro.sample("factor", dist.LKJCholesky(how_many, 2.0))
    plain = numpyro.sample("plain", dist.Normal(0, 1).expand([corpus.num_terms]).to_event(1))
    own = numpyro.sample("own", dist.Normal(jnp.asarray(hints), 1).to_event(2))
    with numpyro.plate("papers", corpus.num_documents):
        place = numpyro.sample("place", dist.MultivariateNormal(middle, scale_tril=factor))
        level = numpyro.sample("level", dist.Normal(0, 1))
    zbar = draw_words(corpus, jax.nn.softmax(place, -1), jax.nn.softmax(plain + own, -1))
    with numpyro.plate("papers", corpus.num_documents):
        numpyro.sample("mark", dist.Normal(zbar @ (sway * width) + level, 1), obs=y)


def test_a_story_of_three_of_everything_is_read_right():
    """Three documents, terms and topics: no size tells them apart."""
    graph = graph_of(unusual, y=Y, how_many=3, hints=np.zeros((3, 3)))
    assert graph.dims == {
        "sway": ("topic",), "width": ("topic",), "middle": ("topic",), "factor": ("topic", "topic"), "plain": ("term",),
        "own": ("topic", "term"), "place": ("document", "topic"), "level": ("document",),
    }  # fmt: skip
    assert graph.with_role("coefficients") == ("sway", "width")
    assert graph.with_role("document") == ("place", "level") and graph.with_role("response") == ("mark",)
    assert graph.with_role("global") == ("middle", "factor", "plain", "own")
    assert (graph.theta, graph.beta, graph.num_topics) == ("", "", 3)


def test_roles_of_the_zoo():
    graph = graph_of("slda", y=Y, num_topics=2)
    assert {name: site.role for name, site in graph.sites.items()} == {
        "beta": "topics", "eta": "coefficients", "sigma": "global", "theta": "proportions", "y": "response",
    }  # fmt: skip
    mixture = graph_of("mixture", num_topics=2)
    assert mixture.dims == {"theta": ("topic",), "beta": ("topic", "term"), "z": ("document",)}
    assert mixture.sites["z"].role == "class" and mixture.sites["w"].role == "words"
    classes = graph_of(stories.naive_bayes, y=np.array([0.0, 1.0, 2.0]))
    assert classes.dims == {"beta": ("label", "term"), "pi": ("label",)} and classes.of_labels == ("beta",)


def test_a_response_that_reads_theta_has_coefficients_too():
    graph = graph_of(stories.response_reads_theta, y=Y)
    assert graph.with_role("coefficients") == ("eta",)


def test_covariates_that_a_story_reads_are_known():
    corpus = Corpus.from_counts(SQUARE.counts, covariates={"age": Y, "unread": Y})
    graph = graph_of("slda_glm", corpus, Y, covariates=["age"], num_topics=2)
    assert graph.covariates == {"age"}


def test_a_graph_is_frozen_and_survives_json():
    graph = graph_of("slda", y=Y, num_topics=2)
    with pytest.raises(FrozenInstanceError):
        graph.theta = "phi"
    with pytest.raises(FrozenInstanceError):
        graph.story.masked = True
    with pytest.raises(FrozenInstanceError):
        graph.response.several = True
    again = StoryGraph.from_json(json.loads(json.dumps(graph.as_json())))
    assert again.dims == graph.dims and again.parents == graph.parents and again.response_sites == ("y",)
    assert [site.role for site in again.sites.values()] == [site.role for site in graph.sites.values()]


def test_what_is_told_of_axes_alone():
    """Fits saved before graphs were."""
    dims = {
        "beta": ("topic", "term"),
        "eta": ("topic",),
        "theta": ("document", "topic"),
        "pi": ("topic",),
        "d": (None, "term"),
    }
    graph = StoryGraph.from_dims(dims, shares=["pi"])
    assert (graph.theta, graph.beta, graph.has_words) == ("theta", "beta", True)
    assert graph.with_role("coefficients") == ("eta",) and graph.of_labels == ("d",)


def test_a_fit_of_the_version_before_still_loads_and_predicts():
    """A file of supervised LDA on simulated words, written before sites had roles."""
    fit = inference.load(Path(__file__).parent / "files" / "slda_version_3.nc")
    assert fit.coefficients == ["eta"] and fit.story.function is models.slda and fit.graph.theta == "theta"
    assert fit.draws["beta"].shape == (2, 20, 3, 12) and np.isnan(fit.y).sum() == 2
    assert fit.topics(2)["term"].notna().all() and fit.predict(fit.corpus[:3], most_draws=2).mean.shape == (3,)


def test_numbers_of_things_are_asked_for_in_one_sentence():
    with pytest.raises(ValueError, match="num_topics is 0; give a whole number of at least 1, such as 20"):
        read("lda", SQUARE, None, {"num_topics": 0})
