"""The same seed gives the same draws: on any number of devices and threads, whatever else is in the corpus."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import stories
from exact import Exact, standard_errors_apart, summaries

from topiczoo import corpora, inference, models
from topiczoo.corpora import layouts
from topiczoo.inference import sharding

QUIET = {"progress_bar": False}
SHORT = {"num_warmup": 3, "num_samples": 4, **QUIET}

EVERY_ENGINE = """
import hashlib, json, warnings
warnings.filterwarnings("ignore")
import numpy as np, jax
from topiczoo import corpora, inference, models
from topiczoo.corpora import layouts

def digest(*arrays):
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()

def of(fit):
    return digest(*fit.draws.values(), *fit.means.values(), np.asarray(fit.info.get("bound", 0.0)))

corpus, y = corpora.load_reviews(num_documents=120)
y, quiet = (y - y.mean()) / y.std(), {"progress_bar": False}
few = {"num_topics": 4, **quiet}
found = {"devices": jax.device_count()}
for least in (0, 10**9):
    layouts.LEAST_SHARED = least
    fit = inference.gibbs(models.slda, corpus, y, num_warmup=3, num_samples=5, num_chains=2, **few)
    found[f"gibbs {least}"] = of(fit)
    found[f"one chain {least}"] = of(
        inference.gibbs(models.slda_glm, corpus, y > 0, response="logit", num_warmup=3, num_samples=5, num_chains=1, **few)
    )
    found[f"predict {least}"] = digest(fit.predict(corpus[:70], most_draws=5).draws)
    found[f"plug-in {least}"] = digest(fit.predict(corpus[:70], rule="plug-in").draws, fit.transform(corpus[:20]))
    found[f"vem {least}"] = of(inference.vem(models.slda, corpus, y, num_iterations=5, **few))
    found[f"vem, a margin {least}"] = of(
        inference.vem(models.medlda, corpus, y > 0, margin="binary", num_iterations=3, **few)
    )
    found[f"vem, sequential {least}"] = of(
        inference.vem(models.slda, corpus, y, order="sequential", num_iterations=3, **few)
    )
found["nuts"] = of(inference.nuts(models.slda, corpus[:20], y[:20], num_warmup=4, num_samples=4, max_tree_depth=3, **few))
found["svi"] = of(inference.svi(models.slda, corpus, y, num_steps=20, num_draws=10, **few))
print(json.dumps(found))
"""


@pytest.mark.slow
def test_every_engine_gives_the_same_on_any_number_of_devices(tmp_path):
    flags = [flag for flag in os.environ["XLA_FLAGS"].split() if "device_count" not in flag]
    found = []
    for devices in (1, 8):  # 2 and 4 give the same, too
        forced = " ".join([*flags, f"--xla_force_host_platform_device_count={devices}"])
        environment = {**os.environ, "XLA_FLAGS": forced}
        environment.pop("PJRT_NPROC", None)
        printed = subprocess.check_output([sys.executable, "-c", EVERY_ENGINE], env=environment, cwd=tmp_path)
        found.append(json.loads(printed.splitlines()[-1]))
    assert [one.pop("devices") for one in found] == [1, 8]
    assert len(found[0]) == 16 and len(set(found[0].values())) > 10  # shards or not, some agree to the last bit
    for one in found[1:]:
        assert one == found[0]


@pytest.fixture(scope="module")
def reviews():
    corpus, y = corpora.load_reviews(num_documents=90)
    return corpus, (y - y.mean()) / y.std()


def test_threads_and_chains_beside_make_no_difference(reviews, monkeypatch):
    monkeypatch.setattr(layouts, "LEAST_SHARED", 0)
    corpus, y = reviews
    found = []
    for workers, chains in ((1, 1), (3, 1), (2, 2)):
        monkeypatch.setattr(sharding, "WORKERS", workers)
        fit = inference.gibbs(models.slda, corpus, y, num_topics=3, num_chains=chains, **SHORT)
        bound = inference.vem(models.slda, corpus, y, num_topics=3, num_iterations=3, **QUIET).info["bound"]
        drawn = fit.predict(corpus[:30], most_draws=3).draws[:600]
        assert (
            fit.info["devices"] == 2
            and {"jax", "numpyro"} < set(fit.info["versions"])
            and "cpu" in fit.info["platform"]
        )
        found.append([*(fit.draws[site][0] for site in ("beta", "eta", "sigma", "theta")), np.asarray(bound), drawn])
    for other in found[1:]:
        for a, b in zip(found[0][:5], other[:5], strict=True):
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(found[0][5], found[1][5])


def test_the_layout_makes_no_difference(reviews, monkeypatch):
    """One program or three, one shard or eight: the same topics are drawn, and the rest but for rounding."""
    corpus, y = reviews
    found = []
    for least in (10**9, 0):
        monkeypatch.setattr(layouts, "LEAST_SHARED", least)
        found.append(inference.gibbs(models.slda, corpus, y, num_topics=3, num_chains=1, **SHORT))
    whole, shared = found
    np.testing.assert_array_equal(whole.statistics["usage"], shared.statistics["usage"])
    np.testing.assert_array_equal(whole.statistics["moved"], shared.statistics["moved"])
    for site in ("beta", "eta", "sigma", "theta"):
        np.testing.assert_allclose(whole.draws[site], shared.draws[site], rtol=2e-3, atol=1e-5)


def test_documents_are_predicted_alike_whatever_is_beside_them(reviews):
    corpus, y = reviews
    fit = inference.gibbs(models.slda, corpus, y, num_topics=3, num_chains=1, **SHORT)
    alone, beside = (fit.transform(corpus[rows], most_draws=3) for rows in ([0, 1], [0, 1, 5, 7, 11]))
    np.testing.assert_allclose(alone, beside[:2], rtol=1e-4)


@pytest.mark.parametrize(
    "story",
    [models.lda, pytest.param(models.slda, marks=pytest.mark.slow), stories.squared_shares],
    ids=["lda", "slda", "squared"],
)
def test_documents_laid_out_alone_have_the_exact_posterior(story, monkeypatch):
    """theta drawn, words of a document proposed together: the sum over all topics must come out all the same."""
    monkeypatch.setattr(layouts, "LONG", 2)
    monkeypatch.setattr(layouts, "LONGER", 0)
    corpus, y = stories.tiny()
    assert layouts.token_blocks(corpus, long=True).long is not None
    arguments = {"num_topics": 2, "alpha": 0.5, "gamma": 0.5} if story in (models.lda, models.slda) else {}
    responses = (None,) if story is models.lda else (y,)
    exact = Exact(story, corpus, *responses, **arguments).summaries()
    settings = {"num_warmup": 250, "num_samples": 3000, "num_chains": 2, "seed": 3, **QUIET}
    fit = inference.gibbs(story, corpus, *responses, **settings, **arguments)
    apart = standard_errors_apart(summaries(fit.draws), exact)
    assert max(apart.values()) < 4, apart


def test_a_long_document_is_predicted_as_it_would_be_among_others(reviews, monkeypatch):
    corpus, y = reviews
    fit = inference.gibbs(models.slda, corpus, y, num_topics=3, num_chains=1, **SHORT)
    counts = np.vstack([corpus.counts.toarray(), 30 * corpus.counts.toarray()[:1]])
    longer = corpora.Corpus.from_counts(counts, corpus.vocabulary)
    found = []
    for long in (1000, 10**9):
        monkeypatch.setattr(layouts, "LONG", long)
        assert (layouts.token_blocks(longer, long=True).long is None) == (long == 10**9)
        found.append(fit.transform(longer, most_draws=4, num_burn=4))
        tokens = inference.token_topics(fit, longer, most_draws=4)
        share = np.mean(tokens.topics[:, tokens.document == len(longer) - 1] == 0)
        np.testing.assert_allclose(share, found[-1][-1, 0], atol=0.05)
    np.testing.assert_allclose(*found, atol=0.05)


def test_a_long_document_costs_in_proportion_to_its_tokens():
    lengths = np.append(np.full(300, 60), 300_000)
    corpus = corpora.Corpus.from_counts(lengths[:, None] * np.array([[1, 1]]))
    blocks = layouts.token_blocks(corpus, long=True)
    stored = blocks.terms.size + blocks.long.terms.size
    assert stored < 1.2 * corpus.num_tokens < layouts.token_blocks(corpus).terms.size / 10
    np.testing.assert_array_equal(blocks.of_tokens(blocks.terms, blocks.long.terms), corpus.tokens()[1])
