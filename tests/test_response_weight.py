"""The response's likelihood to a power: exact conditionals given scales, and scales that do not fall to zero."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from exact import Exact
from lengths import longest_but
from numpyro import handlers

from topiczoo import inference
from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import documents
from topiczoo.inference.blocks.augmented import AugmentedBlock
from topiczoo.inference.blocks.block import few
from topiczoo.inference.blocks.conjugate import ScaleBlock
from topiczoo.inference.mcmc.plan import choose_blocks
from topiczoo.inference.mcmc.weighing import hold_out, with_weight
from topiczoo.inference.story.reading import read
from topiczoo.inference.story.tracing import Data, ZbarHandler
from topiczoo.models import draw_words, lda, medlda, slda, slda_glm, sstm

CORPUS = Corpus.from_counts(np.random.default_rng(0).poisson(1.5, (60, 8)) + (np.arange(8) == 0))
REAL = np.random.default_rng(1).normal(size=60)
BINARY, CLASSES = (REAL > 0).astype(float), np.arange(60) % 3.0


def weighed_inside(corpus, y=None, *, power):
    """The power written into the story."""
    with numpyro.plate("topics", 2):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, 0.7)))
    eta = numpyro.sample("eta", dist.Normal(0, 1).expand([2]).to_event(1))
    documents = numpyro.plate("documents", corpus.num_documents)
    with documents:
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(2, 0.8)))
    zbar = draw_words(corpus, theta, beta)
    with documents, handlers.scale(scale=power):
        numpyro.sample("y", dist.Normal(zbar @ eta, 0.7), obs=y)


@pytest.mark.parametrize(
    ("story", "y", "arguments", "block"),
    [
        (slda, REAL, {}, "normal draw"),
        (slda_glm, BINARY, {"response": "logit"}, "normal draw given auxiliary variables"),
        pytest.param(
            slda_glm, CLASSES, {"response": "softmax", "outputs": 3}, "normal draw given auxiliary variables",
            marks=pytest.mark.longest,
        ),
        pytest.param(
            medlda, BINARY, {"margin": "binary"}, "normal draw given auxiliary variables", marks=pytest.mark.slow
        ),
        pytest.param(slda_glm, CLASSES, {"response": "poisson"}, "NUTS given the rest", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_every_conditional_is_that_of_the_powered_story(story, y, arguments, block):
    found = inference.check(
        story, CORPUS, y, response_weight=3, num_documents=3, num_tokens=4, num_topics=3, **arguments
    )
    assert found["passes"].all(), found.to_string()
    assert block in set(found["block"])


@pytest.mark.slow
def test_a_power_that_is_no_whole_number_asks_for_no_auxiliary_variables():
    graph = with_weight(read(slda_glm, CORPUS, BINARY, {"num_topics": 3, "response": "logit"}), 2.5)
    assert choose_blocks(graph).by_nuts == ["eta"]
    sparse = with_weight(read(sstm, CORPUS, REAL, {"num_topics": 3}), 2.5)  # a Laplace prior, and a normal response
    assert "eta" not in choose_blocks(sparse).by_nuts


@pytest.mark.slow
@pytest.mark.parametrize("by_engine", longest_but([True, False], True))
def test_gibbs_agrees_with_the_powered_posterior_summed_over_all_topics(by_engine):
    """Given by the engine or written into the story: the law is the same. Limits are five standard errors."""
    corpus, y = Corpus.from_counts(np.array([[2, 1, 0], [0, 1, 1], [1, 0, 1]])), np.array([1.2, -0.8, 0.3])
    draws, weights = Exact(weighed_inside, corpus, y, power=4.0).by_weights(80_000)
    inside, outside = ({"power": 1.0}, {"response_weight": 4}) if by_engine else ({"power": 4.0}, {})
    fit = inference.gibbs(
        weighed_inside, corpus, y, num_warmup=250, num_samples=4000, seed=3, progress_bar=False, **inside, **outside
    )
    size = 1 / (weights**2).sum()
    for name in ("eta", "theta"):
        found, expected = fit.draws[name].prod(-1), draws[name][0].prod(-1)  # topics may change their names
        mean = np.tensordot(weights, expected, 1)
        spread = np.sqrt(np.tensordot(weights, (expected - mean) ** 2, 1))
        error = spread * np.sqrt(1 / size + 1 / (found[..., 0].size / 10 if found.ndim > 2 else found.size / 10))
        assert (np.abs(found.mean((0, 1)) - mean) < 5 * error).all()


def test_scales_are_drawn_given_held_out_documents_that_count_for_nothing_else():
    graph = with_weight(read(slda, CORPUS, REAL, {"num_topics": 3}), 5)
    data = Data(documents(CORPUS, batches=True), graph.response.on_device())
    plan = choose_blocks(graph)
    plan, dealt = hold_out(plan, data)
    rows = graph.held_out
    (block,) = [block for block in plan.blocks if isinstance(block, ScaleBlock)]
    held_out = np.asarray(dealt.documents.counted) == 0
    assert list(rows) == list(np.flatnonzero(held_out)) and len(rows) == 20
    assert set(np.asarray(dealt.documents.counted)) == {0.0, 1.0}
    z = few(graph).values["z"]  # of three documents; here of all
    zbar = np.random.default_rng(2).dirichlet(np.ones(3), 60)
    counts = jnp.asarray(np.round(zbar * CORPUS.lengths[:, None]), jnp.float32)
    eta = jnp.array([-1.0, 0.2, 1.5])
    values = {
        "z": z._replace(document_topic=counts), "eta": eta, "sigma": jnp.float32(0.6),
        "beta": jnp.full((3, 8), 1 / 8), "theta": jnp.full((60, 3), 1 / 3),
    }  # fmt: skip
    law = jax.jit(block.conditional)(values, block.given(dealt))
    predictor = np.asarray(counts) / CORPUS.lengths[:, None] @ np.asarray(eta)
    square = ((REAL - predictor) ** 2)[held_out].sum()
    # sigma^-20 exp(-square / 2 sigma^2) times the half-normal prior, as a law of sigma^2
    expected = type(law)((1 - 20) / 2, 1.0, square)
    places = jnp.array([0.3, 0.8, 2.0])
    np.testing.assert_allclose(np.diff(law.log_prob(places)), np.diff(expected.log_prob(places)), rtol=1e-3)
    normal = choose_blocks(graph).blocks[1]
    precision = jax.jit(lambda v, d: normal.conditional(v, d)[0].precision_matrix)(values, dealt)
    kept = (np.asarray(counts) / CORPUS.lengths[:, None])[~held_out]
    np.testing.assert_allclose(precision, 5 * kept.T @ kept / 0.36 + np.eye(3) / 4, rtol=1e-3)


@pytest.mark.parametrize(
    ("y", "arguments"),
    [
        (BINARY, {"response": "logit"}),
        pytest.param(CLASSES, {"response": "softmax", "outputs": 3}, marks=pytest.mark.slow),
    ],
)
def test_coefficients_given_auxiliary_variables_do_not_know_responses_held_out(y, arguments):
    """Flipped, they change nothing; others do."""
    graph = with_weight(read(slda_glm, CORPUS, y, {"num_topics": 3, **arguments}), 2)
    whole = Data(documents(CORPUS, batches=True), graph.response.on_device())
    plan, data = hold_out(choose_blocks(graph), whole)
    (block,) = [block for block in plan.blocks if isinstance(block, AugmentedBlock)]
    zbar, tried = np.random.default_rng(2).dirichlet(np.ones(3), 60), few(graph).values
    counts = jnp.asarray(np.round(zbar * CORPUS.lengths[:, None]), jnp.float32)
    values = {
        "z": tried["z"]._replace(document_topic=counts), "beta": jnp.full((3, 8), 1 / 8),
        "theta": jnp.full((60, 3), 1 / 3), "eta": jnp.full(tried["eta"].shape, 0.3),
    }  # fmt: skip

    @jax.jit
    def mean(data):
        auxiliary = block.auxiliary(jax.random.key(1), jnp.asarray(0) if block.classes else None, values, data)
        return block.conditional(auxiliary, values, data)[0].mean

    rows, found = list(graph.held_out), {}
    for name, flipped in (("as they are", []), ("held out", rows), ("others", [r for r in range(60) if r not in rows])):
        new = np.where(np.isin(np.arange(60), flipped), (y + 1) % (y.max() + 1), y)
        own = with_weight(read(slda_glm, CORPUS, new, {"num_topics": 3, **arguments}), 2)
        assert list(own.held_out) == rows
        found[name] = np.asarray(mean(data._replace(y=own.response.on_device())))
    np.testing.assert_allclose(found["held out"], found["as they are"], rtol=1e-5)
    assert np.abs(found["others"] - found["as they are"]).max() > 0.1


@pytest.mark.slow
def test_the_scale_does_not_fall_and_the_posterior_says_the_weight():
    """Responses that have nothing to do with words: topics that follow them fit them, and sigma stays at their deviation.
    20 of 150 held-out documents give it to 20%, and the 90% interval holds of new ones what it says within chance."""
    rng = np.random.default_rng(3)
    corpus, y = Corpus.from_counts(rng.poisson(1.0, (150, 10)) + (np.arange(10) == 0)), rng.normal(size=150)
    fit = inference.gibbs(
        slda, corpus, y, num_topics=3, response_weight=20, num_warmup=60, num_samples=60, num_chains=1,
        progress_bar=False,
    )  # fmt: skip
    assert fit.info["response_weight"] == 20 and fit.info["start"] == "random"
    assert 0.4 < fit.draws["sigma"].mean() < 2.5
    assert len(fit.info["held_out"]) == 20
    new = Corpus.from_counts(rng.poisson(1.0, (300, 10)) + (np.arange(10) == 0))
    low, high = fit.predict(new, most_draws=6).interval(0.9).T
    inside = np.mean((low < (seen := rng.normal(size=300))) & (seen < high))
    assert inside > 0.65  # by 20 documents: Beta(19, 2), below 0.65 once in 10,000 times
    again = inference.log_likelihood(fit, corpus[:3], y[:3], most_draws=2, inner=2)  # of the story, at power 1
    assert np.isfinite(again).all() and not fit.story.weighed


@pytest.mark.parametrize("weight", [0, -1, np.inf, np.nan, "2", True])
def test_a_weight_that_is_none_is_refused(weight):
    with pytest.raises(ValueError, match=r"^response_weight is .*; give a number above 0, 1 for the posterior.$"):
        inference.gibbs(slda, CORPUS, REAL, num_topics=2, response_weight=weight)


def test_a_weight_without_a_response_is_refused():
    with pytest.raises(ValueError, match="response_weight is 2, and the story 'lda' has no response of topics"):
        inference.gibbs(lda, CORPUS, num_topics=2, response_weight=2)


def test_weights_of_documents_follow_the_axis_of_documents():
    """Where a response has outputs behind the axis of documents."""

    def outputs(corpus, y=None):
        with numpyro.plate("topics", 2):
            beta = numpyro.sample("beta", dist.Dirichlet(jnp.ones(corpus.num_terms)))
        eta = numpyro.sample("eta", dist.Normal(0, 1).expand([2, 4]).to_event(2))
        with numpyro.plate("documents", corpus.num_documents):
            theta = numpyro.sample("theta", dist.Dirichlet(jnp.ones(2)))
        zbar = draw_words(corpus, theta, beta)
        with numpyro.plate("documents", corpus.num_documents, dim=-2), numpyro.plate("outputs", 4, dim=-1):
            numpyro.sample("y", dist.Normal(zbar @ eta, 1.0), obs=y)

    y = np.random.default_rng(4).normal(size=(60, 4))
    plain = read(outputs, CORPUS, y, {})
    graph = with_weight(plain, 3.0)
    half = replace(graph.few_documents, counted=jnp.array([1.0, 0.0, 0.5]))

    def terms(graph, documents):
        handler = ZbarHandler(lambda theta: theta)
        return np.asarray(graph.document_terms(("y",), documents, graph.few_y, graph.few_values, handler))

    expected = terms(plain, plain.few_documents) * np.array([3.0, 0.0, 1.5])
    np.testing.assert_allclose(terms(graph, half), expected, rtol=1e-5)
