"""Topics matched across draws and chains, on draws with planted permutations and planted modes."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest

from topiczoo import models
from topiczoo.corpora import Corpus
from topiczoo.diagnostics import align
from topiczoo.diagnostics.convergence.alignment import _assign, _room, _View, _Views
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


def test_draws_follow_the_nearest_snapshot_also_where_a_chain_renumbers_its_topics():
    """Between the snapshots at 19 and 23 topics are renumbered after draw 21, which is as near to one as to the other."""
    beta, eta, usage = posterior(num_chains=2)
    order = np.tile(np.arange(6), (2, 40, 1))
    order[0, 22:] = [5, 4, 3, 2, 1, 0]
    usage = usage * np.linspace(1, 2, 40)[:, None]  # that of a draw goes with the topics of this draw
    beta_, eta_, usage_ = shuffled(order, beta, eta, usage)
    places = np.arange(3, 40, 4)
    aligned = align(made_fit(beta_[:, places], snapshots=places, eta=eta_, usage=usage_))
    np.testing.assert_array_equal(aligned.snapshots["beta"], beta[:, places])
    np.testing.assert_array_equal(aligned.draws["eta"], eta)
    np.testing.assert_allclose(aligned.alignment.topics["usage"], usage[:, places].mean((0, 1)))


def test_coefficients_tell_topics_apart_at_the_snapshots_and_any_number_of_topics():
    """Three topics of the same words go round in the second half of a chain: their coefficients alone say so."""
    beta, eta, usage = posterior(num_chains=1)
    beta[:, :, 1:3] = beta[:, :, :1]
    eta = eta + np.array([-3.0, 0.0, 3.0, 0, 0, 0], np.float32)
    order = np.tile(np.arange(6), (1, 40, 1))
    order[0, 20:, :3] = [1, 2, 0]
    beta_, eta_, usage_ = shuffled(order, beta, eta, usage)
    whole = align(made_fit(beta_, eta=eta_, usage=np.ones_like(usage_)))
    places = np.arange(0, 40, 2)
    some = align(made_fit(beta_[:, places], snapshots=places, eta=eta_, usage=np.ones_like(usage_)))
    for aligned in (whole, some):
        assert aligned.draws["eta"].std(1).max() < 0.2


def test_an_assignment_that_need_not_be_solved_is_the_one_that_would_be_found():
    """Topics between a target and another one, and coefficients that say the contrary of words."""
    rng, differ = np.random.default_rng(2), 0
    for _ in range(300):
        target = np.sqrt(rng.dirichlet(np.full(8, 0.1), 3)).astype(np.float32)
        words = target + rng.uniform(0, 1) * (target[rng.permutation(3)] - target)
        scores = rng.normal(size=(2, 3, 2)).astype(np.float32) * rng.choice([0.0, 2.0])
        there, here = _View(target, scores[0]), _View(words, scores[1])
        solved = _assign(here, there)
        np.testing.assert_array_equal(_assign(here, there, _room(there)), solved)
        like = sum(target[k] @ words[solved[k]] for k in range(3))
        differ += (solved != np.arange(3)).any()
        gaps = [((scores[0][k] - scores[1][solved[k]]) ** 2).mean() for k in range(3)]
        best = max(
            sum(
                target[k] @ words[p[k]] + 0.1 * np.exp(-((scores[0][k] - scores[1][p[k]]) ** 2).mean() / 2)
                for k in range(3)
            )
            for p in itertools.permutations(range(3))
        )
        np.testing.assert_allclose(like + 0.1 * np.exp(-np.array(gaps) / 2).sum(), best, rtol=1e-5)
    assert 50 < differ < 250


def test_terms_that_matching_does_not_look_at_are_one_more():
    """Of a thousand terms the five hundred that lead any topic stand for themselves, and each view is of length 1."""
    rng = np.random.default_rng(0)
    beta = rng.dirichlet(np.full(1000, 0.5), (1, 3, 4)).astype(np.float32)
    views = _Views(beta, None)
    assert len(views.leading) == 500
    assert beta.max((0, 1, 2))[views.leading].min() >= np.delete(beta.max((0, 1, 2)), views.leading).max()
    words = views.at(0, 2).words
    np.testing.assert_allclose(words[:, :-1] ** 2, beta[0, 2][:, views.leading], rtol=1e-5)
    np.testing.assert_allclose((words**2).sum(1), 1.0, rtol=1e-5)


def test_a_topic_of_a_chain_is_compared_with_the_nearest_of_the_others():
    """Two chains agree and the third has another topic: that one alone lacks it, and likeness is weighed by usage."""
    beta, eta, usage = posterior(num_chains=3)
    beta[2, :, 0] = 0.4 * beta[2, :, 0] + 0.6 / beta.shape[-1]
    found = align(made_fit(beta, eta=eta, usage=usage)).alignment
    of_topic = found.chains.query("topic == 0").set_index("chain")
    assert of_topic["matched"].tolist() == [True, True, False]
    assert of_topic["overlap"][0] > 0.95 > of_topic["overlap"][2] and found.unmatched == [0]
    stability, share = found.topics["stability"].to_numpy(), usage[0, 0] / usage[0, 0].sum()
    assert found.likeness == pytest.approx(sum(s * u for s, u in zip(stability, share, strict=True)))
    assert abs(found.likeness - stability.mean()) > 0.01


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
