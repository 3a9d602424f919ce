"""Stories of additive components: what each site's law is at given values of the sites above it."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from fits import fit_of
from scipy import stats
from scipy.special import softmax

from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import documents
from topiczoo.inference.posterior.tables import topic_terms
from topiczoo.inference.story.tracing import Story, ZbarHandler, base_distribution, log_prob, run
from topiczoo.models import NormalJeffreys, sage_facets, sage_geo, sage_nb, sage_topics

CORPUS = Corpus.from_counts(np.array([[2, 1, 0, 0], [0, 1, 3, 1], [1, 0, 1, 0]]))
COMMON = np.log(np.array([0.4, 0.3, 0.2, 0.1]))
RNG = np.random.default_rng(0)
TOPIC, LABEL, JOINT = (RNG.normal(size=shape).astype(np.float32) for shape in ((3, 4), (2, 1, 4), (2, 3, 4)))


def look(story, y, values, **arguments):
    """The trace of a story at given values, and what it gives to draw_words."""
    answer = ZbarHandler(lambda theta: theta)
    data = documents(CORPUS, tokens=True, pairs=True)
    values = {name: jnp.asarray(value) for name, value in values.items()}
    trace = run(
        Story(story, {"background": COMMON, **arguments}), data, None if y is None else jnp.asarray(y), values, answer
    )
    return trace, answer


def test_naive_bayes():
    y = np.array([0.0, 1.0, 1.0])
    values = {"deviation": TOPIC[:2], "share": np.array([0.3, 0.7])}
    trace, _ = look(sage_nb, y, values, outputs=2, prior="laplace", scale=0.7)
    log_beta = np.log(softmax(COMMON + TOPIC[:2], -1))
    words = (CORPUS.counts.toarray() * log_beta[y.astype(int)]).sum(1)
    np.testing.assert_allclose(log_prob(trace["w"]), words, rtol=1e-5)
    np.testing.assert_allclose(log_prob(trace["y"]), np.log([0.3, 0.7, 0.7]), rtol=1e-5)
    law = base_distribution(trace["share"]["fn"])
    assert isinstance(law, dist.Dirichlet)
    np.testing.assert_array_equal(law.concentration, [1, 1])
    expected = stats.laplace(0, 0.7).logpdf(TOPIC[:2]).sum(1)
    np.testing.assert_allclose(log_prob(trace["deviation"]), expected, rtol=1e-5)
    trace, _ = look(sage_nb, y, values, outputs=2)
    law = base_distribution(trace["deviation"]["fn"])
    assert isinstance(law, dist.Laplace) and np.all(law.scale == 3)
    trace, _ = look(sage_nb, y, values, outputs=2, prior="jeffreys")
    assert isinstance(base_distribution(trace["deviation"]["fn"]), NormalJeffreys)
    np.testing.assert_allclose(log_prob(trace["deviation"]), -np.log(np.abs(TOPIC[:2])).sum(1), rtol=1e-5)


@pytest.mark.parametrize("alpha", [0.4, np.array([0.2, 0.5, 0.9])])
def test_topics(alpha):
    given = {"num_topics": 3, "alpha": alpha, "prior": "laplace"}
    trace, answer = look(sage_topics, None, {"deviation": TOPIC, "theta": np.full((3, 3), 1 / 3)}, **given)
    np.testing.assert_allclose(answer.beta, softmax(COMMON + TOPIC, -1), rtol=1e-5)
    law = base_distribution(trace["theta"]["fn"])
    assert isinstance(law, dist.Dirichlet)
    np.testing.assert_allclose(np.broadcast_to(law.concentration, (3, 3))[0], np.broadcast_to(alpha, 3), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("interactions", [True, False])
def test_facets(interactions):
    y, values = np.array([0.0, 1.0, 1.0]), {"topic_deviation": TOPIC, "label_deviation": LABEL}
    values |= {"joint_deviation": JOINT} if interactions else {}
    given = {"outputs": 2, "num_topics": 3, "prior": "laplace", "scale": 0.5, "interactions": interactions}
    trace, answer = look(sage_facets, y, values, **given)
    for j in range(2):
        for k in range(3):
            added = TOPIC[k] + LABEL[j, 0] + (JOINT[j, k] if interactions else 0)
            np.testing.assert_allclose(answer.beta[j, k], softmax(COMMON + added), rtol=1e-5)
    np.testing.assert_array_equal(answer.label, [0, 1, 1])
    np.testing.assert_allclose(log_prob(trace["y"]), np.log(1 / 2), rtol=1e-5)
    assert ("joint_deviation" in trace) == interactions
    for name, value in values.items():
        expected = stats.laplace(0, 0.5).logpdf(value).sum()
        np.testing.assert_allclose(log_prob(trace[name]).sum(), expected, rtol=1e-5)


def test_regions():
    centres, y = np.array([[0.0, 5.0], [3.0, -2.0]]), np.array([[0.1, 4.0], [2.0, -1.0], [5.0, 0.0]])
    centre, spread = np.array([[0.5, 4.0], [2.5, -1.0]]), np.array([[0.8, 1.5], [2.0, 0.6]])
    region = np.array([1, 0, 1])
    values = {
        "topic_deviation": TOPIC[:2], "label_deviation": LABEL, "joint_deviation": JOINT[:, :2], "centre": centre,
        "spread": spread, "share": np.array([0.3, 0.7]), "region": region,
    }  # fmt: skip
    trace, answer = look(sage_geo, y, values, centres=centres, num_topics=2, wide=1.7)
    np.testing.assert_allclose(answer.beta, softmax(COMMON + TOPIC[:2] + LABEL + JOINT[:, :2], -1), rtol=1e-5)
    np.testing.assert_array_equal(answer.label, region)
    np.testing.assert_allclose(log_prob(trace["region"]), np.log([0.7, 0.3, 0.7]), rtol=1e-5)
    expected = stats.norm.logpdf(y, centre[region], spread[region]).sum(1)
    np.testing.assert_allclose(log_prob(trace["y"]), expected, rtol=1e-4)
    np.testing.assert_allclose(log_prob(trace["centre"]), stats.norm.logpdf(centre, centres, 1.7).sum(1), rtol=1e-4)
    np.testing.assert_allclose(log_prob(trace["spread"]), stats.lognorm.logpdf(spread, 1, scale=1.7).sum(1), rtol=1e-4)
    np.testing.assert_allclose(log_prob(trace["share"]), 0, atol=1e-5)


def test_topics_of_a_chain_are_made_of_its_own_deviations():
    """Where topics are no site: the story at the means of one chain."""
    draws = np.stack([TOPIC, -TOPIC])[:, None] + np.array([-0.5, 0.0, 0.5], np.float32)[:, None, None]
    fit = fit_of(sage_topics, {"deviation": draws}, CORPUS, num_topics=3, background=COMMON)
    for chain, own in enumerate((TOPIC, -TOPIC)):
        np.testing.assert_allclose(topic_terms(fit, chain), softmax(COMMON + own, -1), rtol=1e-4)
