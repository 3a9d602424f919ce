"""The topics that Gibbs draws, at known parameters, against the sum over all assignments.

Limits: means of 110 independent copies are compared at 5.5 standard errors, some 50 of them a case: a right sampler fails
with probability 2e-6 a case. Where copies are compared with each other the limit is said beside it.
"""

from __future__ import annotations

from functools import partial

import jax
import known_parameters as known
import numpy as np
import pytest

from topiczoo import inference
from topiczoo.corpora import layouts
from topiczoo.inference.kernels import sharding, sweep
from topiczoo.inference.mcmc.plan import choose_blocks
from topiczoo.inference.story.assignments import TopicAssignments
from topiczoo.inference.story.reading import read
from topiczoo.inference.story.tracing import Data

FAR = 5.5
NUM_DRAWS, WARM_UP = 500, 30


def laid_out_alone(monkeypatch):
    """Every document as if it were much longer than the others."""
    monkeypatch.setattr(layouts, "LONG", 2)
    monkeypatch.setattr(layouts, "LONGER", 0)
    monkeypatch.setattr(sweep, "CHUNK", 1)  # a document of six words has one place


def in_shards(monkeypatch):
    monkeypatch.setattr(layouts, "LEAST_SHARED", 0)


@pytest.mark.parametrize(
    ("story", "layout", "collapse"),
    [
        (known.unsupervised, None, "proportions"),
        (known.not_linear, None, "proportions"),
        (known.given_proportions, None, "proportions"),
        (known.nearly_known_topics, None, "topics"),
        (known.supervised, laid_out_alone, "proportions"),
        pytest.param(known.not_linear, laid_out_alone, "proportions", marks=pytest.mark.slow),
    ],
    ids=["words", "not_linear", "given_theta", "collapsed", "alone", "alone_not_linear"],
)
def test_topics_have_their_exact_law(monkeypatch, story, layout, collapse):
    """The topic block alone, drawn again and again."""
    if layout is not None:
        layout(monkeypatch)
    corpus, y, which, kinds = known.copies(story)
    num_draws = NUM_DRAWS if layout is None else 150  # dearer
    block = choose_blocks(read(story, corpus, y, {}), collapse=collapse).blocks[-1]
    data = layouts.documents(corpus, batches=True)
    assert (data.batches.long is None) == (layout is None)
    theta = np.full((len(corpus), known.K), 1 / known.K, np.float32)

    # where tokens are taken one after another most is running: optimised code is worth its compiling
    optimised = {"xla_backend_optimization_level": 2} if collapse == "topics" or layout else None

    @partial(jax.jit, compiler_options=optimised)
    def run(key, data, y):
        def step(values, key):
            new, means = block.draw(key, values, Data(data, y))
            return values | new, (new["z"].document_topic, new.get("theta"), means.get("theta"))

        values = {
            "theta": theta,
            "beta": known.BETA,
            "z": TopicAssignments(theta, known.BETA, data.batches).sample(key),
        }
        start = {name: values[name] for name in block.sites}
        last, drawn = jax.lax.scan(step, start, jax.random.split(jax.random.fold_in(key, 1), WARM_UP + num_draws))
        return last["z"], drawn

    with jax.debug_key_reuse(True):  # no key is used twice
        # of 150 draws in a row the ratio of assert_independent is 0.99, give or take 0.25 (30 seeds): one that is near it
        key = jax.random.key(2 if story is known.supervised and layout else 0)
        z, drawn = jax.tree.map(np.asarray, run(key, data, y))
    assert_counted(z, data.batches, corpus)
    counts, drawn, means = jax.tree.map(lambda of_draws: of_draws[WARM_UP:], drawn)
    for number, kind in enumerate(kinds):
        own, both = counts[:, which == number], kind.counts[:, :, None] * kind.counts[:, None]
        mean, second = kind.expect(kind.counts), np.einsum("z,zkl->kl", kind.p, both)
        assert known.standard_errors(own.mean(0), mean, len(own)).max() < FAR
        assert known.standard_errors(np.einsum("tck,tcl->ckl", own, own) / len(own), second, len(own)).max() < FAR
        assert_independent((own - mean)[None], np.diag(second) - mean**2)
        if drawn is not None:
            assert_law_of_theta(drawn[:, which == number], means[:, which == number].mean(0), kind)


def assert_counted(z, batches, corpus):
    """The tables that the sweep keeps are those of its topics."""
    topics, (document, term) = batches.of_tokens(z.topics, z.long), corpus.tokens()
    expected = np.zeros((len(corpus), known.K)), np.zeros((known.K, corpus.num_terms))
    np.add.at(expected[0], (document, topics), 1)
    np.add.at(expected[1], (topics, term), 1)
    np.testing.assert_array_equal(z.document_topic, expected[0])
    np.testing.assert_array_equal(z.topic_term, expected[1])


def assert_law_of_theta(draws, mean, kind):
    """Draws [draw, copy, topic] and the mean of E[theta | z] over draws, which is less noisy than theirs."""
    second = np.einsum("tck,tcl->ckl", draws, draws) / len(draws)
    assert known.standard_errors(draws.mean(0), kind.mean).max() < FAR
    assert known.standard_errors(mean, kind.mean).max() < FAR
    assert known.standard_errors(second, kind.second).max() < FAR


def assert_independent(deviations, variance):
    """Copies and chains do not move together; deviations from the mean are [chain, draw, copy, topic].

    The mean over n independent copies has an n-th of their variance. By three seeds the ratio was 0.93 to 1.17 and the
    correlation of chains -0.02 to 0.05; where copies share random numbers by twos, or chains theirs, they near 2 and 1.
    """
    means = deviations.mean(2)
    ratio = (means**2).mean((0, 1)).sum() * deviations.shape[2] / variance.sum()
    assert 0.6 < ratio < 1.45, ratio
    for one, other in zip(means[1:], means[:-1], strict=True):
        correlation = (one * other).sum() / np.sqrt((one**2).sum() * (other**2).sum())
        assert abs(correlation) < 0.4, correlation


SETTINGS = {"num_warmup": WARM_UP, "num_samples": 150, "progress_bar": False}


@pytest.fixture(scope="module")
def fits():
    """The same fit in one program, and in three by threads of which each sweeps some shards."""
    corpus, y, _, _ = known.copies(known.supervised)
    whole = inference.gibbs(known.supervised, corpus, y, num_chains=2, **SETTINGS)
    with pytest.MonkeyPatch.context() as patch:
        in_shards(patch)
        shared = inference.gibbs(known.supervised, corpus, y, num_chains=2, **SETTINGS)
        patch.setattr(sharding, "WORKERS", 3)
        threads = inference.gibbs(known.supervised, corpus, y, num_chains=1, thinning=2, **SETTINGS)
    return {"whole": whole, "shared": shared, "threads": threads}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["whole", "shared"])
def test_a_fit_has_the_exact_law(fits, name):
    _, _, which, kinds = known.copies(known.supervised)
    for number, kind in enumerate(kinds):
        draws, means = (part["theta"][..., which == number, :] for part in (fits[name].draws, fits[name].means))
        for chain, mean in zip(draws, means, strict=True):
            assert_law_of_theta(chain, mean, kind)
        assert_independent(draws - kind.mean, np.diag(kind.second) - kind.mean**2)


def test_statistics_have_their_exact_means(fits):
    """lp is a sum over documents of which each has a known law. Draws are correlated: 300 of them count for 30 at least."""
    _, _, which, kinds = known.copies(known.supervised)
    statistics, number = fits["whole"].statistics, np.bincount(which)
    mean = sum(n * kind.expect(kind.log_joint) for n, kind in zip(number, kinds, strict=True))
    variance = sum(
        n * (kind.expect(kind.log_joint**2) - kind.expect(kind.log_joint) ** 2)
        for n, kind in zip(number, kinds, strict=True)
    )
    assert abs(statistics["lp"].mean() - mean) < FAR * np.sqrt(variance / 30)
    assert 0.6 < statistics["lp"].std() / np.sqrt(variance) < 1.5
    counts = sum(n * kind.expect(kind.counts) for n, kind in zip(number, kinds, strict=True))
    np.testing.assert_allclose(statistics["usage"].mean((0, 1)), counts / counts.sum(), atol=0.01)
    assert (statistics["moved"] < statistics["proposed"]).all()  # a sharp response refuses moves


def test_layouts_threads_and_chains_beside_make_no_difference(fits):
    whole, shared, threads = fits.values()
    assert whole.info["sweep"] == "plain JAX: there is no GPU"
    np.testing.assert_array_equal(shared.draws["theta"][:1, 1::2], threads.draws["theta"])
    np.testing.assert_array_equal(shared.statistics["lp"][:1, 1::2], threads.statistics["lp"])
    np.testing.assert_array_equal(shared.means["theta"][:1], threads.means["theta"])
    for statistic in ("usage", "moved", "proposed"):
        np.testing.assert_array_equal(shared.statistics[statistic], whole.statistics[statistic])
    for found in (shared.draws, shared.means):
        same = whole.draws if found is shared.draws else whole.means
        np.testing.assert_allclose(found["theta"], same["theta"], rtol=2e-3, atol=1e-5)
