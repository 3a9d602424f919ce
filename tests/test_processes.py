"""Several processes on loopback that make one run: the draws of one process, to the last bit."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import one_of_several
import pytest

from topiczoo.corpora import layouts
from topiczoo.inference.programs import processes
from topiczoo.inference.streams import shards

SCRIPT = Path(one_of_several.__file__)


def several(number, out, **options):
    """The processes, run to their end: exit status and what each has said."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(SCRIPT)]
    started = [
        subprocess.Popen(
            [*command, str(process), str(number), str(port), str(out), json.dumps(options)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "JAX_NUM_CPU_DEVICES": "1"},
        )
        for process in range(number)
    ]  # fmt: skip
    said = [process.communicate(timeout=500)[0] for process in started]
    return [process.returncode for process in started], said


def assert_all_drew(number, out, expected):
    for process in range(number):
        with np.load(f"{out}.{process}.npz") as found:
            assert set(found.files) == set(expected)
            for name, value in expected.items():
                np.testing.assert_array_equal(found[name], value, err_msg=f"{name} of process {process}")


@pytest.fixture
def small(monkeypatch):
    """Documents that are worth sharing out, and one that is long, though there are few."""
    monkeypatch.setattr(layouts, "LEAST_SHARED", 100)
    monkeypatch.setattr(layouts, "LONG", 1000)


@pytest.mark.slow
def test_two_processes_draw_what_one_draws(small, tmp_path):
    expected = one_of_several.drawn(
        one_of_several.fit("lda", start="random")
    )  # first: its programs are then on the disk
    codes, said = several(2, tmp_path / "two", story="lda", start="random")
    assert codes == [0, 0], said
    assert_all_drew(2, tmp_path / "two", expected)


@pytest.mark.longest
def test_four_processes_draw_what_one_draws_from_merged_topics(small, tmp_path):
    codes, said = several(4, tmp_path / "four", story="lda", num_chains=2)
    assert codes == [0] * 4, said
    assert_all_drew(4, tmp_path / "four", one_of_several.drawn(one_of_several.fit("lda", num_chains=2)))


@pytest.mark.longest
def test_a_process_that_is_killed_ends_the_others_and_all_go_on_from_the_checkpoint(small, tmp_path):
    options = {"start": "random", "checkpoint": str(tmp_path / "run"), "num_samples": 40, "keep": ["theta"]}
    codes, said = several(2, tmp_path / "killed", killed=True, **options)
    assert codes[1] == -9 and codes[0] not in (0, -9)
    assert "Another of the 2 processes has ended" in said[0] and "start all of them again" in said[0], said[0]
    assert (tmp_path / "run" / "run.json").exists()
    codes, said = several(2, tmp_path / "again", **options)
    assert codes == [0, 0], said
    del options["checkpoint"]
    assert_all_drew(2, tmp_path / "again", one_of_several.drawn(one_of_several.fit(**options)))


@pytest.mark.parametrize(
    "story", [pytest.param("lda", marks=pytest.mark.slow), pytest.param("slda", marks=pytest.mark.longest)]
)
def test_two_processes_that_sweep_shards_of_their_own_draw_what_one_draws(small, monkeypatch, tmp_path, story):
    monkeypatch.setattr(shards, "LEAST_SHARED", 100)
    monkeypatch.setattr(shards, "TOKENS", 150)
    options = {"story": story, "shards": str(tmp_path / "shards")}
    expected = one_of_several.drawn(one_of_several.fit(**options))
    shutil.rmtree(tmp_path / "shards")  # two processes may have one shard more
    going_on = options | {"checkpoint": str(tmp_path / "run")}
    codes, said = several(2, tmp_path / "killed", killed=True, **going_on)
    assert codes[1] == -9 and codes[0] not in (0, -9)
    assert "Another of the 2 processes has ended" in said[0] and "start all of them again" in said[0], said[0]
    assert (tmp_path / "run" / "run.json").exists()
    codes, said = several(2, tmp_path / "again", **going_on)
    assert codes == [0, 0], said
    assert_all_drew(2, tmp_path / "again", expected)


@pytest.mark.slow
def test_processes_that_are_asked_for_different_runs_say_so(tmp_path):
    codes, said = several(2, tmp_path / "other", seed="own")
    assert 0 not in codes
    assert all("make the same call in each" in text for text in said), said


def test_a_process_alone_has_all_parts_and_tells_nobody():
    parts = np.arange(8)
    assert processes.own(parts) is parts and processes.gathered(parts, 8) is parts and processes.total(parts) is parts
    processes.agree("anything", "never said")


@pytest.mark.parametrize(("count", "index", "expected"), [(2, 1, [4, 5, 6, 7]), (4, 1, [2, 3]), (3, 2, list(range(8)))])
def test_parts_are_shared_out_where_there_are_as_many_for_each(monkeypatch, count, index, expected):
    monkeypatch.setattr(processes.jax, "process_count", lambda: count)
    monkeypatch.setattr(processes.jax, "process_index", lambda: index)
    assert list(processes.own(np.arange(8))) == expected


def test_gathered_numbers_travel_in_few_bytes_and_come_back_as_they_were(monkeypatch):
    sent = []

    def gather(array, tiled):
        sent.append(array.nbytes)
        return np.concatenate([array, array])

    monkeypatch.setattr(processes.jax, "process_count", lambda: 2)
    monkeypatch.setattr(processes.multihost_utils, "process_allgather", gather)
    parts = np.array([[3, 255]], np.int32), np.array([[300.0]], np.float32)
    whole = processes.gathered(parts, 2, (255, 300))
    assert sent == [2 * 1 + 1 * 2] and [part.dtype for part in whole] == [np.int32, np.float32]
    np.testing.assert_array_equal(whole[0], [[3, 255]] * 2)
    np.testing.assert_array_equal(whole[1], [[300.0]] * 2)
    np.testing.assert_array_equal(processes.total(np.array([2**30, 1])), [2**31, 2])


@pytest.mark.parametrize(("processes", "shards"), [(1, 8), (2, 8), (3, 9), (64, 64)])
def test_a_corpus_has_as_many_shards_for_each_process(small, processes, shards):
    corpus = layouts.Corpus.from_counts(np.ones((300, 2), int))
    assert len(layouts.token_batches(corpus, processes=processes).terms) == shards
