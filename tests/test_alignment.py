"""Topics matched across draws and chains, on draws with planted permutations and planted modes."""

from __future__ import annotations

import time

import numpy as np
import pytest

from topiczoo import models
from topiczoo.corpora import Corpus
from topiczoo.diagnostics import align
from topiczoo.inference import Fit
from topiczoo.inference.story.graph import StoryGraph
from topiczoo.inference.story.response import Response
from topiczoo.inference.story.tracing import Story


def made_fit(beta, *, snapshots=None, **draws):
    """A fit with given draws [chain, draw, topic, ...]; no engine involved."""
    num_topics, num_terms = beta.shape[-2:]
    story = Story(models.slda, {"num_topics": num_topics})
    dims = {"beta": ("topic", "term"), "eta": ("topic",), "sigma": (), "theta": ("document", "topic")}
    corpus = Corpus.from_counts(np.ones((4, num_terms), int))
    known = story, StoryGraph.from_dims(dims), corpus, Response({})
    usage = draws.pop("usage", None)
    statistics = {} if usage is None else {"usage": usage}
    if snapshots is not None:
        return Fit(
            *known, draws, engine="gibbs", statistics=statistics, snapshots={"beta": beta}, snapshot_index=snapshots,
            means={"beta": beta.mean(1)},
        )  # fmt: skip
    return Fit(*known, {"beta": beta, **draws}, engine="gibbs", statistics=statistics, means={"beta": beta.mean(1)})


def posterior(num_chains=3, num_draws=40, num_topics=6, num_terms=30, seed=0):
    """Draws around one set of topics, with coefficients and usage that belong to them."""
    rng = np.random.default_rng(seed)
    base = rng.dirichlet(np.full(num_terms, 0.1), num_topics)
    beta = np.array(
        [[[rng.dirichlet(200 * t + 0.01) for t in base] for _ in range(num_draws)] for _ in range(num_chains)]
    )
    eta = np.linspace(-2, 2, num_topics) + 0.1 * rng.normal(size=(num_chains, num_draws, num_topics))
    share = np.sort(rng.dirichlet(np.ones(num_topics)))[::-1]  # topics in the order alignment will give them
    usage = np.broadcast_to(share, eta.shape).copy()
    return beta.astype(np.float32), eta.astype(np.float32), usage


def shuffled(order, *arrays):
    return [np.stack([[a[c, d][order[c, d]] for d in range(a.shape[1])] for c in range(len(a))]) for a in arrays]


@pytest.mark.parametrize("switching", ["between chains", "within chains"])
def test_planted_permutations_are_undone_exactly(switching):
    beta, eta, usage = posterior()
    rng = np.random.default_rng(1)
    order = np.array([[rng.permutation(6)] * 40 for _ in range(3)])
    if switching == "within chains":
        order[:, 15:30] = [[rng.permutation(6)] * 15 for _ in range(3)]
    beta_, eta_, usage_ = shuffled(order, beta, eta, usage)
    fit = made_fit(beta_, eta=eta_, usage=usage_, sigma=np.ones((3, 40)))
    # running means are numbered as most draws of their chain
    fit.means = {"eta": np.stack([eta[chain].mean(0)[order[chain, 0]] for chain in range(3)])}
    aligned = align(fit)
    np.testing.assert_allclose(aligned.means["eta"], eta.mean(1), rtol=1e-6)
    np.testing.assert_array_equal(aligned.draws["beta"], beta)
    np.testing.assert_array_equal(aligned.draws["eta"], eta)
    np.testing.assert_array_equal(aligned.statistics["usage"], usage)
    found = aligned.alignment
    assert found.agreement == 1.0 and found.topics["matched"].all() and found.unmatched == []
    assert (found.switching > 0.3) == (switching == "within chains")
    assert "All chains found the same topics" in found.verdict
    assert ("Labels switched" in found.verdict) == (switching == "within chains")


def test_the_fit_given_is_left_alone():
    beta, eta, usage = posterior()
    fit = made_fit(beta[:, :, ::-1], eta=eta[:, :, ::-1], usage=usage[:, :, ::-1])
    before = fit.draws["eta"].copy()
    tree = fit.posterior
    aligned = align(fit)
    np.testing.assert_array_equal(fit.draws["eta"], before)
    np.testing.assert_array_equal(aligned.posterior["posterior"]["eta"], eta)
    assert fit.posterior is tree


def test_coefficients_tell_topics_of_the_same_words_apart():
    beta, eta, usage = posterior()
    beta[:, :, 1] = beta[:, :, 0]
    eta[:, :, 0], eta[:, :, 1] = eta[:, :, 0] - 1, eta[:, :, 1] + 2
    order = np.tile(np.arange(6), (3, 40, 1))
    order[:, ::2, :2] = [1, 0]
    beta_, eta_, usage_ = shuffled(order, beta, eta, usage)
    aligned = align(made_fit(beta_, eta=eta_, usage=usage_))
    np.testing.assert_array_equal(aligned.draws["eta"], eta)


def test_a_merged_topic_is_another_mode():
    """The second chain has topics 0 and 1 in one, and topic 2 in two halves."""
    beta, eta, usage = posterior(num_chains=2)
    half = np.arange(beta.shape[-1]) % 2 == 0
    merged = (beta[1, :, 0] + beta[1, :, 1]) / 2
    parts = [np.where(half, beta[1, :, 2], 1e-6), np.where(half, 1e-6, beta[1, :, 2])]
    beta[1, :, 0] = merged
    beta[1, :, 1], beta[1, :, 2] = (part / part.sum(-1, keepdims=True) for part in parts)
    found = align(made_fit(beta, eta=eta, usage=usage)).alignment
    assert set(found.unmatched) == {0, 1, 2}, found.topics
    assert found.topics["matched"][3:].all() and found.switching == 0.0
    assert found.agreement == pytest.approx(usage[0, 0, 3:].sum(), abs=1e-6)
    assert "Topics differ from chain to chain: all chains share 3 of 6" in found.verdict
    assert found.agreement < found.likeness < 0.9
    assert found.chains.query("topic == 0")["matched"].sum() == 0


def test_one_chain_of_many_with_another_topic_is_enough():
    """The other four agree, and the mean over pairs of chains would pass; what counts is the least."""
    beta, eta, usage = posterior(num_chains=5)
    beta[4, :, 0] = 0.6 * beta[4, :, 0] + 0.4 / beta.shape[-1]
    found = align(made_fit(beta, eta=eta, usage=usage)).alignment
    root = np.sqrt(beta.astype(float))
    like = np.einsum("adv,bev->abde", root[:, :, 0], root[:, :, 0]).mean((2, 3))
    pairs = like[np.triu_indices(5, 1)]
    assert pairs.mean() > 0.9 > pairs.min()
    assert found.topics.loc[0, "overlap"] == pytest.approx(pairs.min(), abs=0.01) and found.unmatched == [0]


def test_draws_between_snapshots_follow_the_nearest():
    beta, eta, usage = posterior(num_chains=2)
    order = np.tile(np.arange(6), (2, 40, 1))
    order[1] = [5, 4, 3, 2, 1, 0]
    beta_, eta_, usage_ = shuffled(order, beta, eta, usage)
    places = np.arange(3, 40, 4)
    aligned = align(made_fit(beta_[:, places], snapshots=places, eta=eta_, usage=usage_))
    np.testing.assert_array_equal(aligned.draws["eta"], eta)
    np.testing.assert_array_equal(aligned.snapshots["beta"], beta[:, places])
    np.testing.assert_allclose(aligned.means["beta"], beta[:, places].mean(1), rtol=1e-5)


def test_one_chain_says_what_cannot_be_known():
    beta, eta, usage = posterior(num_chains=1)
    found = align(made_fit(beta, eta=eta, usage=usage)).alignment
    assert found.agreement is None and "cannot be known" in found.verdict


def test_stories_without_topics_over_terms_are_refused():
    beta, eta, _ = posterior(num_chains=1)
    fit = made_fit(beta, eta=eta)
    fit.graph = StoryGraph.from_dims({"eta": ("topic",)})
    with pytest.raises(ValueError, match="'slda' has no site with axes of topics and terms"):
        align(fit)


@pytest.mark.slow
def test_two_hundred_topics_in_time():
    """K=200, 4 chains of 500 draws, 1000 terms: under 40 seconds of processors, whoever else runs on them."""
    rng = np.random.default_rng(0)
    base = rng.dirichlet(np.full(1000, 0.05), 200).astype(np.float32)
    orders = [rng.permutation(200) for _ in range(4)]
    noise = rng.gamma(20, 1 / 20, (8, 200, 1000)).astype(np.float32)
    beta = np.empty((4, 500, 200, 1000), np.float32)
    for c in range(4):
        for d in range(500):
            draw = (base * noise[(c + d) % 8])[orders[c]]
            beta[c, d] = draw / draw.sum(-1, keepdims=True)
    began = time.process_time()
    aligned = align(made_fit(beta))
    seconds = time.process_time() - began
    print(f"aligned in {seconds:.1f} s")
    assert aligned.alignment.agreement == pytest.approx(1.0)
    assert seconds < 40


def test_an_estimated_alpha_goes_with_its_topics():
    beta, eta, usage = posterior(num_chains=1)
    fit = made_fit(beta[:, :, ::-1], eta=eta[:, :, ::-1], usage=usage[:, :, ::-1])
    fit.info["alpha"] = np.arange(6.0)[::-1]
    aligned = align(fit)
    np.testing.assert_array_equal(aligned.info["alpha"], np.arange(6.0))
    np.testing.assert_array_equal(fit.info["alpha"], np.arange(6.0)[::-1])
