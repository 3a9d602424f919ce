"""The plate diagram: drawn from the story's graph, for every story of the zoo and for edited ones."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ElementTree

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import stories

from topiczoo import models
from topiczoo.diagnostics.drawing.plates import (
    GLOBAL,
    OF_DOCUMENTS,
    OF_LABELS,
    OF_TOPICS,
    OF_WORDS,
    WIDE,
    diagram,
    nodes,
    places,
)
from topiczoo.inference.story.reading import read

CORPUS, Y = stories.small()
CLASSES = np.arange(len(CORPUS)) % 2
BACKGROUND = {"background": np.full(CORPUS.num_terms, -np.log(CORPUS.num_terms))}
ZOO = {
    "lda": (None, {"alpha": "learned", "gamma": "learned"}),
    "slda": (Y, {}),
    "slda_glm": (CLASSES, {"response": "logit"}),
    "sstm": (Y, {}),
    "medlda": (CLASSES, {"margin": "binary"}),
    "disclda": (CLASSES, {"outputs": 2}),
    "mixture": (None, {}),
    "sage_topics": (None, BACKGROUND),
    "sage_nb": (CLASSES, {"outputs": 2, **BACKGROUND}),
    "sage_facets": (CLASSES, {"outputs": 2, **BACKGROUND}),
}


def graph_of(name):
    y, arguments = ZOO[name]
    return read(name, CORPUS, y, arguments)


def test_supervised_lda_is_drawn_as_in_the_paper():
    drawn = nodes(graph_of("slda"))
    assert {name: node.plate for name, node in drawn.items()} == {
        "beta": OF_TOPICS, "eta": OF_TOPICS, "sigma": GLOBAL, "theta": OF_DOCUMENTS, "y": OF_DOCUMENTS,
        "z": OF_WORDS, "w": OF_WORDS,
    }  # fmt: skip
    assert {name for name, node in drawn.items() if node.observed} == {"y", "w"}
    arrows = {(other, name) for name, node in drawn.items() for other in node.above}
    assert arrows == {("theta", "z"), ("z", "w"), ("beta", "w"), ("z", "y"), ("eta", "y"), ("sigma", "y")}


def test_learned_priors_stand_above_what_they_are_priors_of_and_labels_have_a_plate():
    drawn = nodes(graph_of("lda"))
    assert drawn["theta"].above == {"alpha"} and drawn["beta"].above == {"gamma"}
    assert nodes(graph_of("sage_nb"))["deviation"].plate == OF_LABELS


@pytest.mark.parametrize("name", ZOO)
def test_no_two_circles_touch_and_arrows_point_down(name):
    drawn = nodes(graph_of(name))
    where = places(drawn)
    for (x, y), (other_x, other_y) in itertools.combinations(where.values(), 2):
        assert abs(x - other_x) > 2 * WIDE or abs(y - other_y) > 2 * WIDE
    for below, node in drawn.items():
        for above in node.above:
            assert where[above][1] < where[below][1]
    page = ElementTree.fromstring(diagram(graph_of(name)))
    assert len(page.findall(".//ellipse")) == len(drawn)
    assert len(page.findall(".//line")) == sum(len(node.above) for node in drawn.values())
    width, height = map(float, page.attrib["viewBox"].split()[2:])
    for frame in page.findall(".//rect"):
        x, y, right, bottom = (float(frame.attrib[part]) for part in ("x", "y", "width", "height"))
        assert x >= 0 and y >= 0 and x + right <= width and y + bottom <= height


def test_names_of_any_kind_are_text():
    def hostile(corpus, y=None):
        theta, eta = stories.proportions(corpus, 2), stories.coefficients(2)
        numpyro.sample("<script>alert(1)</script>", dist.Normal(0, 1))
        zbar = models.draw_words(corpus, theta, stories.topics(corpus, 2))
        with numpyro.plate("documents", corpus.num_documents):
            numpyro.sample("y", dist.Normal(zbar @ eta, 1), obs=y)

    graph = read(hostile, CORPUS, Y, {})
    assert "<script" not in diagram(graph) and "&lt;script&gt;alert(1)&lt;/script&gt;" in diagram(graph)
