"""A corpus in files, swept shard by shard: the draws of the same corpus in memory, to the last bit."""

from __future__ import annotations

import json

import numpy as np
import pytest

from topiczoo import inference
from topiczoo.corpora import Corpus, layouts
from topiczoo.inference.gpu import choosing
from topiczoo.inference.mcmc import streamed
from topiczoo.inference.story import sweeping
from topiczoo.inference.streams import shards

RNG = np.random.default_rng(0)
COUNTS = RNG.poisson(0.5, (90, 30)) + np.eye(90, 30, dtype=int)
CORPUS = Corpus.from_counts(COUNTS, empty="keep")
Y = RNG.normal(size=90)
SHORT = {"num_topics": 3, "num_warmup": 2, "num_samples": 4, "num_chains": 1, "progress_bar": False}


@pytest.fixture(autouse=True)
def several_shards(monkeypatch):
    monkeypatch.setattr(layouts, "LEAST_SHARED", 100)
    monkeypatch.setattr(shards, "LEAST_SHARED", 100)
    monkeypatch.setattr(shards, "TOKENS", 150)


def assert_same_draws(found, expected, rounded=False):
    """``rounded``: log joint densities of documents are added up shard by shard, and so may differ in the last digits."""
    assert set(found.draws) | {"theta"} == set(expected.draws)
    for part in ("draws", "statistics"):
        for name, value in getattr(found, part).items():
            tolerance = 1e-6 if rounded and name == "lp" else 0
            np.testing.assert_allclose(value, getattr(expected, part)[name], rtol=tolerance, err_msg=name)


def test_terms_come_back_from_files_as_they_are_laid_out_in_memory(tmp_path):
    found = shards.Shards(tmp_path / "new" / "folder", CORPUS)
    found.write()
    assert found.number == -(-CORPUS.num_tokens // 150) > 8 and found.terms(0).dtype == np.uint8
    expected = layouts.token_batches(CORPUS, found.number)
    read = dict(found.ahead(range(found.number), 3))
    assert list(read) == list(range(found.number))
    np.testing.assert_array_equal(np.stack(list(read.values())), expected.terms)
    one = found.of(3, read[3])
    np.testing.assert_array_equal(one.rows[0], expected.rows[3])
    np.testing.assert_array_equal(one.terms[0], expected.terms[3])


def test_a_folder_is_written_once_and_never_for_another_corpus(tmp_path):
    shards.Shards(tmp_path, CORPUS).write()
    path = tmp_path / "terms-00000.npy"
    before = path.stat().st_mtime_ns
    shards.Shards(tmp_path, CORPUS).write()
    assert path.stat().st_mtime_ns == before
    with pytest.raises(ValueError, match="holds another corpus, or another layout; give another folder"):
        shards.Shards(tmp_path, Corpus.from_counts(COUNTS[::-1], empty="keep")).write()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("")
    with pytest.raises(ValueError, match="give a folder of its own"):
        shards.Shards(tmp_path / "other", CORPUS).write()
    assert "shape" in json.loads((tmp_path / shards.SIZES).read_text())


def test_draws_are_those_of_the_corpus_in_memory(tmp_path):
    long = Corpus.from_counts(COUNTS * 3, empty="keep")  # enough words for merged topics
    found = inference.gibbs("lda", long, **SHORT, shards=tmp_path)
    assert found.info["start"] == "merged" and found.info["as_means"] == ["theta"]
    assert_same_draws(found, inference.gibbs("lda", long, **SHORT), rounded=True)


@pytest.mark.parametrize("story, y", [("lda", None), ("slda", Y)])
def test_a_device_that_gets_one_shard_after_the_other_draws_as_in_memory(monkeypatch, tmp_path, story, y):
    """The kernel, run step by step on a host, and counts that stay with the device."""
    monkeypatch.setattr(choosing, "INTERPRETED", True)
    monkeypatch.setattr(layouts, "LEAST_SHARED", 1 << 21)
    run = SHORT | {"num_samples": 2, "start": "random"}
    expected = inference.gibbs(story, CORPUS, y, **run)
    assert expected.info["sweep"] == choosing.KERNEL
    monkeypatch.setattr(streamed, "is_by_device", lambda: True)
    monkeypatch.setattr(sweeping, "LARGEST", 2000)  # places of a kernel: fewer than the corpus has, more than a shard
    found = inference.gibbs(story, CORPUS, y, **run, shards=tmp_path)
    assert found.info["sweep"] == choosing.KERNEL
    assert_same_draws(found, expected)


def test_seeded_topics_start_as_in_memory(tmp_path):
    long = Corpus.from_counts(COUNTS * 3, empty="keep")
    run = SHORT | {"seeds": np.eye(2, long.num_terms, dtype=bool), "num_warmup": 0}
    found = inference.gibbs("seeded_lda", long, **run, shards=tmp_path)
    assert found.info["start"] == "seeded"
    assert_same_draws(found, inference.gibbs("seeded_lda", long, **run), rounded=True)


@pytest.mark.slow
def test_a_response_and_a_checkpoint_as_in_memory(tmp_path):
    run = SHORT | {"num_chains": 2, "thinning": 2}
    expected = inference.gibbs("slda", CORPUS, Y, **run)
    found = inference.gibbs("slda", CORPUS, Y, **run, shards=tmp_path / "a", checkpoint=tmp_path / "run")
    assert_same_draws(found, expected)
    longer = inference.more(found, num_samples=2)
    assert_same_draws(longer, inference.gibbs("slda", CORPUS, Y, **run | {"num_samples": 6}))
    assert np.isfinite(found.predict(CORPUS[:5]).mean).all()
    assert found.topics().shape[0]
    found.save(tmp_path / "fit.nc")
    np.testing.assert_array_equal(inference.load(tmp_path / "fit.nc").draws["eta"], found.draws["eta"])


@pytest.mark.longest
def test_learned_priors_as_in_memory(tmp_path):
    run = SHORT | {"alpha": "learned", "gamma": "learned"}
    assert_same_draws(inference.gibbs("lda", CORPUS, **run, shards=tmp_path), inference.gibbs("lda", CORPUS, **run))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda f: inference.gibbs("ctm", CORPUS, **SHORT, shards=f), "needs a Dirichlet theta that only words read"),
        (lambda f: inference.gibbs("lda", CORPUS, **SHORT, shards=f, collapse="topics"), "collapse='proportions'"),
        (lambda f: inference.gibbs("lda", CORPUS, **SHORT, shards=f, keep=["theta"]), "which shards= never holds"),
        (
            lambda f: inference.gibbs("lda", Corpus.from_counts(np.r_[COUNTS, COUNTS[:1] + 400]), **SHORT, shards=f),
            "no place for documents that are much longer than others, as '90' is",
        ),
    ],
)
def test_what_shards_do_not_serve_is_refused_before_anything_is_written(call, sentence, tmp_path):
    with pytest.warns(UserWarning) if "longer" in sentence else np.errstate():
        with pytest.raises(ValueError, match=sentence):
            call(tmp_path / "folder")
    assert not (tmp_path / "folder").exists()
