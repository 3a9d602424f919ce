"""The topics that Gibbs draws, at known parameters, against the sum over all assignments.

Limits: means of 110 independent copies are compared at 5.5 standard errors, some 60 of them a case: a right sampler fails
with probability 5e-6 a case, if all were independent. Where copies are compared with each other the limit is said there.
"""

from __future__ import annotations

import jax
import known_parameters as known
import numpy as np
import pytest

from topiczoo import inference
from topiczoo.corpora import layouts
from topiczoo.inference.assignments import TopicAssignments
from topiczoo.inference.gibbs_engine import choose_blocks
from topiczoo.inference.reading import read

FAR = 5.5


@pytest.mark.parametrize(
    ("story", "options"),
    [
        (known.unsupervised, {}), (known.supervised, {}), (known.supervised, {"shards": True}),
        (known.nearly_known_topics, {"collapse": "topics"}),
    ],
    ids=["words", "response", "shards", "collapsed"],
)  # fmt: skip
def test_theta_has_its_exact_law(monkeypatch, story, options):
    if options.pop("shards", False):
        monkeypatch.setattr(layouts, "LEAST_SHARED", 0)
    corpus, y, which, kinds = known.copies(story)
    settings = {"num_warmup": 30, "num_samples": 150, "num_chains": 2, "progress_bar": False}
    fit = inference.gibbs(story, corpus, y, **settings, **options)
    for number, kind in enumerate(kinds):
        draws, means = fit.draws["theta"][:, :, which == number], fit.means["theta"][:, which == number]
        for chain, mean in zip(draws, means, strict=True):
            second = np.einsum("tck,tcl->ckl", chain, chain) / len(chain)
            assert known.standard_errors(chain.mean(0), kind.mean).max() < FAR
            assert known.standard_errors(mean, kind.mean).max() < FAR  # less noisy: E[theta | z]
            assert known.standard_errors(second, kind.second).max() < FAR
        assert_independent(draws - kind.mean, np.diag(kind.second) - kind.mean**2)


@pytest.mark.parametrize("story", [known.not_linear, known.given_proportions], ids=lambda story: story.__name__)
def test_counts_have_their_exact_law(story):
    """The sweep alone, where theta is not stored or the response is no function of zbar @ eta."""
    corpus, y, which, kinds = known.copies(story)
    block = choose_blocks(read(story, corpus, y, {})).blocks[-1]
    data, start = layouts.documents(corpus, blocks=True), np.full((len(corpus), known.K), 1 / known.K, np.float32)

    @jax.jit
    def run(key, data, y):
        def step(values, key):
            values = values | block.draw(key, values, data, y)[0]
            return values, values["z"].document_topic

        values = {"theta": start, "z": TopicAssignments(start, known.BETA, data.blocks).sample(key)}
        return jax.lax.scan(step, {n: values[n] for n in block.sites}, jax.random.split(key, 180))[1]

    counts = np.asarray(run(jax.random.key(0), data, y))[30:]  # [draw, document, topic]
    for number, kind in enumerate(kinds):
        own, both = counts[:, which == number], kind.counts[:, :, None] * kind.counts[:, None]
        mean, second = kind.expect(kind.counts), np.einsum("z,zkl->kl", kind.p, both)
        assert known.standard_errors(own.mean(0), mean).max() < FAR
        assert known.standard_errors(np.einsum("tck,tcl->ckl", own, own) / len(own), second).max() < FAR
        assert_independent((own - mean)[None], np.diag(second) - mean**2)


def assert_independent(deviations, variance):
    """Copies and chains do not move together; deviations from the mean are [chain, draw, copy, topic].

    The mean over n independent copies has an n-th of their variance: with every fifth of 150 draws and six topics the ratio
    is 1 with a deviation of about 0.1, and 2 where copies share random numbers by twos. The means of two chains have no
    correlation, with a deviation of 0.08.
    """
    means = deviations.mean(2)
    ratio = (means**2).mean((0, 1)).sum() * deviations.shape[2] / variance.sum()
    assert 0.5 < ratio < 1.6, ratio
    for one, other in zip(means[1:], means[:-1], strict=True):
        correlation = (one * other).sum() / np.sqrt((one**2).sum() * (other**2).sum())
        assert abs(correlation) < 0.45, correlation
