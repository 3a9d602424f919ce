"""The worked example of docs/em_component.md is run as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import stories
from by_loops import CORPUS, SOME_Y

from topiczoo.inference.em import components
from topiczoo.inference.em.components import Settings
from topiczoo.inference.em.responses import SmoothResponse
from topiczoo.inference.story.reading import read
from topiczoo.models import draw_words

TEXT = (Path(__file__).resolve().parents[1] / "docs" / "em_component.md").read_text()


@pytest.fixture(scope="module")
def example():
    """What the page's Python defines."""
    found: dict = {"__name__": "example"}
    for block in re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL):
        exec(compile(block, "docs/em_component.md", "exec"), found)
    return found


def known_scale(corpus, y=None, *, num_topics=3):
    beta, eta = stories.topics(corpus, num_topics), stories.coefficients(num_topics, dist.Normal(0, 2))
    zbar = draw_words(corpus, stories.proportions(corpus, num_topics), beta)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.Normal(zbar @ eta, 1.0), obs=y)


@pytest.mark.slow
def test_the_ridge_regression_is_the_m_step_of_any_response(example):
    """Newton's step is exact for a normal response: it goes where the ridge regression does, and the bound rises."""
    bounds, model, state = example["turns"](known_scale, CORPUS[:20], SOME_Y[:20], example["RidgeResponse"])
    assert (np.diff(bounds) > 0).all()
    given = model.words, model.topics.log_mean(state.topics), state
    newton = SmoothResponse.m_step(model.response, *given)
    np.testing.assert_allclose(model.response.m_step(*given)["eta"], newton["eta"], atol=2e-3)


def test_what_the_ridge_regression_does_not_serve_is_refused(example):
    graph = read(stories.asymmetric_alpha, CORPUS[:12], SOME_Y[:12], {})
    with pytest.raises(ValueError, match=r"cannot serve the site 'eta'.*a ridge regression wants a known scale"):
        example["RidgeResponse"](graph, Settings())


def test_the_page_names_what_the_contract_asks():
    for name in ("reads", "bound", "q"):
        assert hasattr(components.NoResponse, name) and f"`{name}" in TEXT
    for name in ("start", "e_step", "m_step"):
        assert hasattr(components.Response, name) and f"`{name}(" in TEXT
