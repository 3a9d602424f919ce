"""The same seed gives the same draws: on any number of devices and threads, whatever else is in the corpus."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import jax
import known_parameters as known
import numpy as np
import pytest
from fits import fit_of

from topiczoo import corpora, inference
from topiczoo.corpora import layouts
from topiczoo.inference.kernels import sharding, sweep

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
    if least:
        continue
    found["plug-in"] = digest(fit.predict(corpus[:70], rule="plug-in").draws, fit.transform(corpus[:20]))
    found["vem"] = of(inference.vem(models.slda, corpus, y, num_iterations=5, **few))
    found["vem, a margin"] = of(
        inference.vem(models.medlda, corpus, y > 0, margin="binary", num_iterations=3, num_starts=2, **few)
    )
    found["vem, sequential"] = of(
        inference.vem(models.slda, corpus, y, order="sequential", num_iterations=3, **few)
    )
found["nuts"] = of(inference.nuts(models.slda, corpus[:20], y[:20], num_warmup=4, num_samples=4, max_tree_depth=3, **few))
found["svi"] = of(inference.svi(models.slda, corpus, y, num_steps=20, num_draws=10, **few))
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.longest
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
    assert len(found[0]) == 12 and len(set(found[0].values())) >= 9  # the three of shards may agree with those of none
    for one in found[1:]:
        assert one == found[0]


@pytest.mark.parametrize("workers", [1, 3, 8])
def test_what_threads_find_of_shards_is_put_together_in_their_order(workers):
    corpus, _, _, _ = known.copies(known.unsupervised)
    batches = layouts.token_batches(corpus, shards=8)
    program = jax.jit(
        lambda between, batches: sharding.over_shards(lambda shard: shard[0].sum(), (batches.terms,), (), between)
    )
    found = sharding.by_threads(program, batches, batches, workers=workers)
    np.testing.assert_array_equal(found, np.asarray(batches.terms).sum((1, 2)))


@pytest.fixture(scope="module")
def fit():
    """LDA whose topics are known: 60 draws that are all alike."""
    corpus, _, _, _ = known.copies(known.unsupervised, 60)
    arguments = {"num_topics": known.K, "alpha": known.ALPHA, "gamma": 1.0}
    return fit_of("lda", {"beta": np.tile(known.BETA, (1, 60, 1, 1))}, corpus, **arguments)


def test_documents_are_predicted_alike_whatever_is_beside_them(fit):
    alone, beside = (fit.transform(fit.corpus[rows], most_draws=3) for rows in ([0, 1], [0, 1, 5, 7, 11]))
    np.testing.assert_allclose(alone, beside[:2], rtol=1e-4)


@pytest.mark.parametrize("long", [10**9, 2], ids=["in batches", "alone"])
def test_documents_folded_in_have_their_exact_topics(fit, monkeypatch, long):
    """Copies of a document are independent: 7 standard errors of 30 of them, which right code exceeds in 1e-6 runs."""
    monkeypatch.setattr(layouts, "LONG", long)
    monkeypatch.setattr(layouts, "LONGER", 0)
    monkeypatch.setattr(sweep, "CHUNK", 1)
    corpus, _, which, kinds = known.copies(known.unsupervised, 30)
    assert (layouts.token_batches(corpus, long=True).long is None) == (long == 10**9)
    fit.compiled.clear()  # programs do not know that the limits above have been changed
    found = fit.transform(corpus, most_draws=40, num_burn=4)
    for number, kind in enumerate(kinds):
        assert known.standard_errors(found[which == number], kind.mean).max() < 7
    if long == 2:
        return
    tokens = inference.token_topics(fit, corpus, most_draws=40, num_burn=4)
    shares = np.eye(known.K)[tokens.topics].mean(0)  # [tokens, topics]
    counts = np.add.reduceat(shares, np.flatnonzero(np.diff(tokens.document, prepend=-1)))
    for number, kind in enumerate(kinds):
        assert known.standard_errors(counts[which == number], kind.expect(kind.counts)).max() < 7


def test_a_long_document_costs_in_proportion_to_its_tokens():
    lengths = np.append(np.full(300, 60), 60_000)
    corpus = corpora.Corpus.from_counts(lengths[:, None] * np.array([[1, 1]]))
    batches = layouts.token_batches(corpus, long=True)
    stored = batches.terms.size + batches.long.terms.size
    assert stored < 1.2 * corpus.num_tokens < layouts.token_batches(corpus).terms.size / 10
    np.testing.assert_array_equal(batches.of_tokens(batches.terms, batches.long.terms), corpus.tokens()[1])
