"""Checkpoints: a run that was cut short, wherever, ends with what it would have ended with, to the last bit."""

from __future__ import annotations

import errno
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import stories
from lengths import longest_but

from topiczoo import inference
from topiczoo.command_line import main
from topiczoo.inference.lasting import checkpoint, manifest, sealed, trees
from topiczoo.inference.lasting.checkpoint import Checkpoint
from topiczoo.inference.marginal import nuts_engine
from topiczoo.inference.mcmc import engine
from topiczoo.models import draw_words

PAGE = Path(__file__).resolve().parents[1] / "docs" / "lasting.md"
QUIET = {"progress_bar": False}
RUN = {"num_topics": 2, "num_warmup": 20, "num_samples": 40, "num_chains": 2, **QUIET}
CHUNK_TOKENS = 2000  # chunks of ten draws

# the run of the fixture below in a process of its own, which kills itself when it has the disk keep something
KILLED = """
import os, signal, sys
import test_lasting
from topiczoo import inference
from topiczoo.inference.lasting import checkpoint
from topiczoo.inference.mcmc import engine

engine.CHUNK_TOKENS, checkpoint.EVERY, checkpoint.MOST = {chunk}, 0.0, 1e9
keep, calls = os.fsync, []

def fsync(handle):
    calls.append(handle)
    if len(calls) == {at}:
        os.kill(os.getpid(), signal.SIGKILL)
    keep(handle)

os.fsync = fsync
test_lasting.fit(checkpoint={folder!r})
"""


@pytest.fixture(scope="module", autouse=True)
def often():
    """A checkpoint after every chunk. Not by ``monkeypatch``: programs that are kept shall be."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "CHUNK_TOKENS", CHUNK_TOKENS)
        patch.setattr(nuts_engine, "CHUNK", 4)
        patch.setattr(checkpoint, "EVERY", 0.0)
        patch.setattr(checkpoint, "MOST", 1e9)
        yield


@pytest.fixture(autouse=True)
def interruptible():
    """What a shell starts in the background ignores Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def whole():
    return fit()


def own(corpus, *, num_topics=2):
    """A story that is none of the zoo's."""
    draw_words(corpus, stories.proportions(corpus, num_topics), stories.topics(corpus, num_topics))


def fit(**options):
    return inference.gibbs(own, stories.small()[0], **{**RUN, **options})


def resume(folder):
    return inference.resume(folder, own, **QUIET)


class Cut(Exception):
    """The end of a run that nobody catches."""


def cut_at(number, act=None):
    """Within it a run is cut short when it has looked so many times whether to write."""
    patch, calls = pytest.MonkeyPatch.context(), []
    right = Checkpoint.look

    def look(self, tell, *, last=False):
        calls.append(1)
        if len(calls) == number and act is not None:
            act()
        right(self, tell, last=last)
        if len(calls) == number and act is None:
            raise Cut

    class Cutting:
        def __enter__(self):
            patch.__enter__().setattr(Checkpoint, "look", look)

        def __exit__(self, kind, *_):
            patch.__exit__(None, None, None)
            return kind is Cut

    return Cutting()


def cut(folder, number=4):
    with cut_at(number):
        fit(checkpoint=folder)
    return folder


def assert_same(one, two):
    for group in ("draws", "means", "statistics", "snapshots"):
        first, second = getattr(one, group), getattr(two, group)
        assert first.keys() == second.keys()
        for name in first:
            assert first[name].dtype == second[name].dtype
            np.testing.assert_array_equal(first[name], second[name], err_msg=f"{group} {name}")
    np.testing.assert_array_equal(one.snapshot_index, two.snapshot_index)
    for name in ("bound", "losses", "starts", "converged", "blocks"):
        np.testing.assert_array_equal(one.info.get(name, 0), two.info.get(name, 0))


def test_a_process_that_was_killed_goes_on_to_the_same_end(whole, tmp_path):
    """At a random moment of 24 at which something is half written: documents, states, draws, folders."""
    at, folder = random.randint(1, 24), tmp_path / "folder"
    print(f"killed at {at}")
    code = KILLED.format(chunk=CHUNK_TOKENS, at=at, folder=str(folder))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    died = subprocess.run([sys.executable, "-P", "-c", code], env=environment, capture_output=True)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()
    assert_same(fit(checkpoint=folder), whole)  # the same call goes on
    assert_same(resume(folder), whole)  # and there is nothing left to do
    assert len(checkpoint.states(folder)) == checkpoint.KEPT


@pytest.mark.parametrize("number", [1, 2, 3, 5])
def test_a_run_goes_on_from_any_chunk(whole, tmp_path, number):
    """In the warm-up, at its end, and among the draws; without what the first had at hand."""
    cut(tmp_path / "folder", number)
    assert_same(resume(tmp_path / "folder"), whole)


def test_large_sites_go_on_as_means_and_some_draws(tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "BUDGET", 100)
        once = fit()
        assert set(once.snapshots) == {"beta"}
        assert_same(resume(cut(tmp_path / "folder", 5)), once)


Y = np.array([0.3, -1.2, 0.8, 1.1, -0.4, 0.9, -1.5, 0.2, 0.7, -0.6, 1.3, -0.9])
CLASSES = np.where(Y > 0, "good", "bad")
OTHERS = {
    "vem": ("vem", "slda", Y, {"num_iterations": 6}),
    "vem, margins from two starts": (
        "vem", "medlda", CLASSES, {"margin": "binary", "num_iterations": 4, "num_starts": 2}
    ),
    "svi, batches": ("svi", "slda", Y, {"num_steps": 9, "num_draws": 10, "batch_size": 5}),
    "nuts": ("nuts", "slda", Y, {"num_warmup": 8, "num_samples": 8, "max_tree_depth": 2}),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", longest_but(OTHERS, "vem, margins from two starts", "svi, batches", "nuts"))
def test_every_engine_goes_on_to_the_same_end(case, tmp_path):
    name, story, y, options = OTHERS[case]
    corpus, _ = stories.small()
    run, options = getattr(inference, name), {"num_topics": 2, **options, **QUIET}
    once = run(story, corpus, y, **options)
    with cut_at(3):
        run(story, corpus, y, **options, checkpoint=tmp_path / "folder")
    assert_same(inference.resume(tmp_path / "folder", **QUIET), once)


def test_more_draws_are_those_of_a_longer_run(whole, tmp_path):
    short = fit(num_samples=20, checkpoint=tmp_path / "folder")
    more = inference.more(short, num_samples=20, **QUIET)
    assert_same(more, whole)
    assert inference.more(more, num_samples=5, **QUIET).draws["beta"].shape[1] == 45
    with pytest.raises(ValueError, match="which is gone; fit with checkpoint=folder"):
        checkpoint.remove(tmp_path / "folder")
        inference.more(more, num_samples=5)
    with pytest.raises(ValueError, match="was made without one"):
        inference.more(whole, num_samples=5)
    short.engine = "vem"
    with pytest.raises(ValueError, match="by vem, which has no chains"):
        inference.more(short, num_samples=5)


@pytest.mark.parametrize("damage", ["half", "bit", "part"])
def test_a_damaged_checkpoint_leaves_the_one_before(whole, tmp_path, damage):
    folder = cut(tmp_path / "folder", 5)
    last, _ = checkpoint.states(folder)
    path = folder / f"{'part' if damage == 'part' else 'state'}-{last:06d}.npz"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data[: len(data) // 2] if damage == "half" else data)
    with pytest.warns(UserWarning, match=f"checkpoint {last} of .* is damaged .*; the one before serves"):
        assert_same(resume(folder), whole)


def test_damage_that_nothing_can_mend_is_refused(tmp_path):
    folder = cut(tmp_path / "folder", 5)
    for path in folder.glob("part-*.npz"):
        path.write_bytes(path.read_bytes()[:-1])
    with (
        pytest.warns(UserWarning, match="is damaged"),
        pytest.raises(ValueError, match=r"No checkpoint of .* can be read"),
    ):
        resume(folder)
    for name in (manifest.DOCUMENTS, manifest.RUN):
        (folder / name).write_bytes((folder / name).read_bytes()[:-3])
        with pytest.raises(ValueError, match=f"{name}.* is (not as it was written|damaged)"):
            resume(folder)


def test_a_full_disk_is_said_and_costs_nothing(whole, tmp_path):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        act = lambda: patch.setattr(sealed.os, "fsync", full)  # noqa: E731
        with cut_at(5, act), pytest.warns(UserWarning, match=r"\(No space left on device\); the run goes on"):
            assert_same(fit(checkpoint=tmp_path / "folder"), whole)
        assert checkpoint.states(tmp_path / "folder")[0] == 4  # before the disk was full
        with pytest.raises(OSError, match=r"cannot be written to \(No space"):
            fit(checkpoint=tmp_path / "other")
    assert_same(resume(tmp_path / "folder"), whole)
    assert checkpoint.states(tmp_path / "folder")[0] == 6


def test_ctrl_c_writes_and_ends_with_what_was_drawn(whole, tmp_path):
    with cut_at(4, lambda: signal.raise_signal(signal.SIGINT)):
        found = fit(checkpoint=tmp_path / "folder")
    assert found.info["interrupted"] and found.draws["beta"].shape[1] == 20
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.MonkeyPatch.context() as patch:  # what was written is as far as that
        patch.setattr(checkpoint, "EVERY", 1e9)
        assert_same(resume(tmp_path / "folder"), whole)


def test_a_run_that_is_told_to_end_writes_first_and_a_second_signal_does_not_wait(tmp_path):
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(checkpoint, "EVERY", 1e9)
            with cut_at(3, lambda: signal.raise_signal(signal.SIGTERM)), pytest.raises(SystemExit):
                fit(checkpoint=tmp_path / "folder")
            assert checkpoint.states(tmp_path / "folder") == [1]
            twice = lambda: [signal.raise_signal(signal.SIGTERM) for _ in range(2)]  # noqa: E731
            with cut_at(2, twice), pytest.raises(SystemExit):
                fit(checkpoint=tmp_path / "other")
            assert checkpoint.states(tmp_path / "other") == []
    finally:
        signal.signal(signal.SIGTERM, before)


def changed(corpus, *, num_topics=2):
    """Not the story of the others."""
    draw_words(corpus, stories.proportions(corpus, num_topics, 0.1), stories.topics(corpus, num_topics))


OTHER = {  # what is changed of a run, and what is said
    "engine": ("nuts", "its engine is 'gibbs', and this one is 'nuts'; give that one"),
    "story": ("ours", "its story is 'own', and this one is 'ours'"),
    "platform": ("abacus", "its machine is .*, and this one is 'abacus'"),
    "sweep": ("C", "its topic sweep is .*, and this one is 'C'; give that one"),
    "settings": ({"seed": 1}, "seed of gibbs is 0 there and 1 here; give seed=0"),
    "arguments": ({"num_topics": 3}, "num_topics of the story 'own' is 2 there and 3 here; give num_topics=2"),
    "arrays": ({"prior": "12ab"}, "prior of the story 'own' holds other numbers"),
    "corpus": ("12ab", "its corpus is another; give the one it was begun with"),
    "response": ("12ab", "its response is another"),
    "versions": ({"jax": "0.1"}, "was written with jax .*, and this is 0.1; go on with that one"),
}


def test_a_checkpoint_of_something_else_is_refused_by_name(tmp_path):
    folder = cut(tmp_path / "folder", 1)
    then = manifest.read_manifest(folder)
    manifest.refuse_another(folder, then, then)
    for name, (new, said) in OTHER.items():
        now = {**then, name: {**then[name], **new} if isinstance(new, dict) else new}
        with pytest.raises(
            ValueError, match=f"{folder}' is of another run: .*{said}.*; or start anew in another folder"
        ):
            manifest.refuse_another(folder, then, now)
    with pytest.raises(ValueError, match="function given as response has changed"):
        manifest.refuse_another(
            folder,
            {**then, "functions": {"response": "lambda x: x"}},
            {**then, "functions": {"response": "lambda x: -x"}},
        )
    with pytest.warns(UserWarning, match="and here are 99: sums may be rounded otherwise; set PJRT_NPROC="):
        manifest.refuse_another(folder, then, {**then, "threads": "99"})
    corpus = stories.small()[0]
    with pytest.raises(ValueError, match="its corpus is another"):
        inference.gibbs(own, corpus[np.arange(len(corpus))[::-1]], **RUN, checkpoint=folder)
    with pytest.raises(ValueError, match=r"'own' of .* is none of topiczoo's own .* pass it: resume\(folder, story"):
        inference.resume(folder)
    changed.__name__ = "own"
    with pytest.raises(ValueError, match="the story 'own' has changed since then"):
        inference.resume(folder, changed)


def test_what_is_left_of_another_run_is_not_taken_for_this_one(tmp_path):
    """Its removal was cut short: the states are there, the description is gone."""
    cut(tmp_path, 3)
    (tmp_path / "run.json").unlink()
    left = min(tmp_path.glob("state-*"))
    left.rename(tmp_path / "state-000099.npz")
    cut(tmp_path, 1)
    assert sorted(path.name for path in tmp_path.glob("state-*")) == ["state-000001.npz"]


def test_a_folder_that_holds_something_else_is_refused(tmp_path):
    (tmp_path / "letter.txt").write_text("")
    with pytest.raises(FileNotFoundError, match="holds no checkpoint"):
        resume(tmp_path)
    with pytest.raises(ValueError, match=r"holds 'letter.txt', which is no checkpoint; give a folder of its own"):
        fit(checkpoint=tmp_path)
    with pytest.raises(TypeError, match="checkpoint is 3; give the name of a folder"):
        fit(checkpoint=3)
    with pytest.raises(ValueError, match=r"another version of topiczoo \(format 99"):
        manifest.write_manifest(tmp_path, {"format": 99})
        resume(tmp_path)


def test_a_state_comes_back_as_it_was():
    """Keys, numbers of Python and of NumPy, arrays of either library; and nothing that would have to be run."""
    state = {"key": jax.random.key(3), "old": jax.random.PRNGKey(3), "a": (1.5, 2, True, None), "b": np.float64(0.1)}
    state |= {"c": np.arange(3.0), "d": jax.numpy.ones((2, 0)), "e": np.array(0.1)}
    like = jax.tree.map(lambda leaf: leaf, state)
    found = trees.in_shape_of(like, *trees.flat(state))
    for new, old in zip(jax.tree.leaves(found), jax.tree.leaves(state), strict=True):
        assert type(new) is type(old) and np.shape(new) == np.shape(old)
    assert jax.random.uniform(found["key"]) == jax.random.uniform(state["key"])
    assert found["a"] == state["a"] and found["b"] == 0.1 and found["c"].dtype == float
    with pytest.raises(TypeError, match="holds a function"):
        trees.flat([print_nothing])
    with pytest.raises(sealed.Damaged, match="of the shape"):
        trees.in_shape_of([np.ones(3)], *trees.flat([np.ones(2)]))


def print_nothing():
    pass


@pytest.mark.slow
@pytest.mark.longest
def test_the_page_runs(tmp_path, monkeypatch):
    """docs/lasting.md, with a run that is cut short where the page says so."""
    monkeypatch.chdir(tmp_path)
    code = "\n".join(re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL))
    with cut_at(70, lambda: signal.raise_signal(signal.SIGINT)):
        exec(compile(code, str(PAGE), "exec"), names := {})
    assert not names["fit"].info["interrupted"] and names["longer"].draws["eta"].shape[1] == 100


@pytest.fixture
def reviews(tmp_path):
    path = tmp_path / "reviews.csv"
    path.write_text("text,mood\n" + "soup bread,good\nbread wine,bad\nwine soup soup,good\n" * 5)
    return path


def test_the_command_line_goes_on_where_it_was(reviews, tmp_path, capsys):
    settings = [f"--set={name}={value}" for name, value in RUN.items() if name != "progress_bar"]
    command = ["fit", "lda", str(reviews), *settings]
    out, once = tmp_path / "fit.nc", tmp_path / "once.nc"
    folder = Path(f"{out}.checkpoint")
    assert main([*command, str(once), "--no-checkpoint"]) == 0
    assert main([*command, str(out), "--set", "num_topics=0"]) == 2 and not folder.exists()  # nothing had begun
    with cut_at(1, lambda: signal.raise_signal(signal.SIGTERM)):
        assert main([*command, str(out)]) == 143
    assert f"topiczoo fit: told to end; go on by topiczoo resume {folder}." in capsys.readouterr().err
    assert not out.exists()
    with cut_at(2, lambda: signal.raise_signal(signal.SIGINT)):
        assert main(["resume", str(folder)]) == 130
    said = capsys.readouterr().err
    assert "topiczoo resume: interrupted; what there was by then (chains: 2, draws: " in said
    assert f"or go on by topiczoo resume {folder}." in said and inference.load(out).info["interrupted"]
    assert main([*command, "--seed", "1", str(out), "--force"]) == 0 and not folder.exists()  # starts anew
    out.unlink()
    with cut_at(3, lambda: signal.raise_signal(signal.SIGINT)):
        assert main([*command, str(out)]) == 130
    out.unlink()
    assert main([*command, "--seed", "1", str(out)]) == 2
    assert "seed of gibbs is 0 there and 1 here; give seed=0; or give fit --force" in capsys.readouterr().err
    assert main(["resume", str(folder)]) == 0
    assert_same(inference.load(out), inference.load(once))
    assert not folder.exists() and "checkpoint" not in inference.load(out).info
    assert main(["resume", str(folder)]) == 2
    assert "holds no checkpoint; give the folder that a fit has left" in capsys.readouterr().err
