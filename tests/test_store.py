"""Saved fits: whole or not at all, damaged files refused, nothing run that a file names."""

from __future__ import annotations

import hashlib
import io
import json
import os
import resource
import stat
import subprocess
import sys
from dataclasses import replace

import h5py
import numpy as np
import pandas as pd
import pytest
import xarray as xr

from topiczoo import diagnostics, inference, models
from topiczoo.corpora import Corpus
from topiczoo.inference.posterior import file_format, store, stored_story, whole_file
from topiczoo.inference.story.graph import StoryGraph
from topiczoo.inference.story.response import Response
from topiczoo.inference.story.tracing import Story

RNG = np.random.default_rng(0)
GIB = 2**30
NAMES = [f"review {row}" for row in range(8)]
AGE = [0.1, 1e-20, np.inf, np.nan, 1 / 3, -2.0, 0.0, 5e300]
SAID = pd.Series(
    ["a\0b", "a\udc80b", *"cdefgh"], dtype=object
)  # pandas with pyarrow has no other place for half a character
COVARIATES = pd.DataFrame({
    "age": AGE, 3: range(8), "kind": pd.Categorical(list("abcabcab")), "said": SAID,
    "day": pd.to_datetime(["2020-01-31"] * 8), "new": [True, False] * 4,
})  # fmt: skip


DIMS = {"beta": ("topic", "term"), "eta": ("topic",), "sigma": (), "theta": ("document", "topic")}


def made(beta=None, corpus=None, function=models.slda, **options):
    """A fit of slda with 3 topics of 6 terms, 8 documents and 2 chains of 5 draws; no engine has run."""
    rng = np.random.default_rng(1)
    corpus = corpus or Corpus.from_counts(
        rng.poisson(2, (8, 6)) + 1, list("uvwxyz"), names=NAMES, covariates=COVARIATES
    )
    story = Story(function, {"num_topics": 3, "alpha": 0.2})
    graph = StoryGraph.from_dims(DIMS)
    draws = {
        "beta": rng.dirichlet(np.ones(corpus.num_terms), (2, 5, 3)) if beta is None else beta,
        "eta": rng.normal(size=(2, 5, 3)),
        "sigma": rng.uniform(1, 2, (2, 5)),
    }
    draws = {name: value.astype(np.float32) for name, value in draws.items()}
    theta = rng.dirichlet(np.ones(3), (2, 2, corpus.num_documents)).astype(np.float32)
    options = {"info": {"seed": 3, "blocks": {"eta": "normal"}, "losses": np.arange(2.0)}, **options}
    response = Response({"y": np.append(np.nan, rng.normal(size=corpus.num_documents - 1)).astype(np.float32)})
    return inference.Fit(
        story, graph, corpus, response, draws, engine="gibbs",
        statistics={"diverging": rng.random((2, 5)) < 0.5}, means={"theta": theta.mean(1)},
        snapshots={"theta": theta}, snapshot_index=np.array([1, 4]), **options,
    )  # fmt: skip


@pytest.fixture
def fit():
    return made()


def same(one, two):
    """Whether two fits are equal, to the last bit."""
    for name in ("draws", "statistics", "snapshots", "means"):
        first, second = getattr(one, name), getattr(two, name)
        if list(first) != list(second) or not all(
            first[site].dtype == second[site].dtype and np.array_equal(first[site], second[site]) for site in first
        ):
            return False
    return (
        np.array_equal(one.y, two.y, equal_nan=True)
        and np.array_equal(one.snapshot_index, two.snapshot_index)
        and one.vocabulary.tolist() == two.vocabulary.tolist()
        and one.document_names.tolist() == two.document_names.tolist()
        and (one.corpus.counts != two.corpus.counts).nnz == 0
        and one.story.arguments == two.story.arguments
        and one.graph == two.graph
        and one.story.function is two.story.function
        and one.info["seed"] == two.info["seed"]
    )


def sealed(data):
    """The checksum's bytes, written a second time from their description."""
    return data + b"topiczoo sha256\n" + len(data).to_bytes(8, "little") + hashlib.sha256(data).digest()


def rewritten(data, edit):
    """The file after an edit in HDF5, with the checksum that belongs to it."""
    buffer = io.BytesIO(data[: -file_format.SEAL_BYTES])
    with h5py.File(buffer, "r+", libver="v108") as file:
        edit(file)
    return sealed(buffer.getvalue())


def with_state(data, change):
    """The file with its JSON changed."""

    def edit(file):
        state = json.loads(file["topiczoo/json"][()].tobytes())
        text = change(state)
        del file["topiczoo/json"]
        file["topiczoo/json"] = np.frombuffer(json.dumps(state if text is None else text).encode(), np.uint8)

    return rewritten(data, edit)


def old_file(fit, path):
    """As version 2 wrote it: xarray's netCDF, everything else in attributes, no checksum."""
    tree = fit.posterior.copy()
    tree.attrs |= {
        "format": "topiczoo fit", "version": 2, "story_module": "topiczoo.models.supervised", "story_source": "",
        "arguments": json.dumps(fit.story.arguments), "dims": json.dumps(fit.graph.dims),
        "info": json.dumps(fit.info, default=list), "several_responses": 0,
        "covariates": fit.corpus.covariates[["age", "kind"]].to_json(orient="table", index=False),
    }  # fmt: skip
    tree.to_netcdf(path, engine="h5netcdf")
    return path


def test_everything_comes_back_to_the_last_bit(fit, tmp_path):
    loaded = inference.load(fit.save(tmp_path / "fit.nc"))
    assert same(loaded, fit) and loaded.statistics["diverging"].dtype == bool
    assert loaded.info["losses"] == [0.0, 1.0] and "def slda(" in loaded.info["story_source"]
    frame, columns = loaded.corpus.covariates, ["age", 3, "kind", "said", "day", "new"]
    assert list(frame.columns) == columns and list(frame.index) == NAMES
    np.testing.assert_array_equal(frame["age"], AGE)
    assert frame["said"].tolist()[:2] == ["a\0b", "a\udc80b"] and frame[3].tolist() == list(range(8))
    assert frame["kind"].dtype == "category" and frame["day"].iloc[0] == pd.Timestamp("2020-01-31")
    fit.snapshots = {}
    aligned = diagnostics.align(fit)
    again = inference.load(aligned.save(tmp_path / "aligned"))
    np.testing.assert_array_equal(again.draws["beta"], aligned.draws["beta"])
    fit.draws["eta"] = np.where(fit.draws["eta"] < 0, np.nan, fit.draws["eta"])  # a fit that went wrong is kept, too
    np.testing.assert_array_equal(inference.load(fit.save(tmp_path / "fit.nc")).draws["eta"], fit.draws["eta"])


def test_xarray_reads_the_file_as_it_is(fit, tmp_path):
    path = fit.save(tmp_path / "fit.nc")
    for tree in (xr.open_datatree(path, engine="h5netcdf"), xr.open_datatree(path)):
        posterior = tree["posterior"]
        np.testing.assert_array_equal(posterior["beta"], fit.draws["beta"])
        assert posterior["beta"].dims == ("chain", "draw", "topic", "term")
        assert posterior["term"].values.tolist() == list("uvwxyz") and tree["sample_stats"]["diverging"].dtype == bool
        assert tree["snapshots"]["draw"].values.tolist() == [1, 4]
        tree.close()


def test_any_text_can_be_saved(fit, tmp_path):
    texts = np.array(["a\0b", "a\udc80b", "ä/\\0", "", "\x1f", "𝔘"])
    fit.corpus = replace(fit.corpus, vocabulary=texts, names=np.array([*texts, "c", "d"]))
    fit.response = replace(fit.response, classes=texts)
    fit.info["a\0\udc80"] = {"when": pd.Timestamp("2020-01-31"), "list": [np.float32(1), "\0\udc80"]}
    fit.draws |= {"scope/eta": fit.draws["eta"], "nothing": np.zeros((2, 5, 0))}
    path = fit.save(tmp_path / "fit.nc")
    assert list(xr.open_datatree(path, engine="h5netcdf")["posterior"]["term"].values[:2]) == ["a\\0b", "a\\udc80b"]
    with h5py.File(path) as file:
        state = file_format.read_state(file)
    assert state["vocabulary"] == state["classes"] == texts.tolist() and state["document_names"][:6] == texts.tolist()
    fit.corpus = replace(fit.corpus, vocabulary=np.array(list("uvwxyz")), names=np.array(NAMES))
    loaded = inference.load(fit.save(path))
    assert loaded.classes.tolist() == texts.tolist() and loaded.info["a\0\udc80"]["list"] == [1.0, "\0\udc80"]
    np.testing.assert_array_equal(loaded.draws["scope/eta"], fit.draws["eta"])
    assert loaded.draws["nothing"].shape == (2, 5, 0)


@pytest.mark.parametrize(
    ("path", "error", "words"),
    [
        (None, TypeError, "path is None; give the name of a file, such as 'fit.nc'"),
        (b"fit.nc", TypeError, "path is b'fit.nc'; give the name of a file"),
        (".", IsADirectoryError, "path '.' is a folder; give a file in it, such as 'fit.nc'"),
        ("a.csv", ValueError, "path is 'a.csv', and a fit is a netCDF file, not .csv; give 'a.nc'"),
        ("a.b.HTML", ValueError, r"not .HTML; give 'a.b.nc'"),
        ("a\0b.nc", ValueError, "no file has a NUL in its name"),
        ("no/fit.nc", FileNotFoundError, "path 'no/fit.nc' is in no existing folder; make 'no' first"),
        ("/dev/null", ValueError, "path '/dev/null' is a device"),
    ],
)
def test_a_path_that_cannot_be_meant_is_refused(fit, tmp_path, monkeypatch, path, error, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(store, "packed", None)  # before anything long is done
    with pytest.raises(error, match=words):
        fit.save(path)
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_loaded_by_its_name_is_said():
    with pytest.raises(TypeError, match=r"path is None; give the name of a file written by Fit.save"):
        inference.load(None)
    with pytest.raises(FileNotFoundError, match=r"path '.' is no file"):
        inference.load(".")


def test_a_full_disk_leaves_the_old_file_and_the_fit(fit, tmp_path):
    path = fit.save(tmp_path / "fit.nc")
    assert fit.posterior is not None  # and what it was is not what is saved
    old, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    fit.draws["eta"] = fit.draws["eta"] + 1
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(
            OSError, match=r"'.*fit.nc' could not be written \(File too large\); free 0.\d MB .* untouched"
        ):
            fit.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == old and list(tmp_path.iterdir()) == [path]
    assert same(inference.load(fit.save(path)), fit)


def test_a_name_that_the_disk_refuses_is_said(fit, tmp_path):
    with pytest.raises(OSError, match=r"could not be written \(File name too long\); .* give another path"):
        fit.save(tmp_path / ("x" * 300))


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path):
    code = (
        "import importlib.util, os, signal, sys; from pathlib import Path\n"
        f"spec = importlib.util.spec_from_file_location('whole_file', {whole_file.__file__!r})\n"
        "module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)\n"
        "os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)\n"
        "module.write_whole(Path(sys.argv[1]), memoryview(b'new'))\n"
    )
    path = tmp_path / "fit[1].nc"
    path.write_bytes(b"old")
    (tmp_path / ".fit.nc.0.part").touch()  # of another path
    assert subprocess.run([sys.executable, "-c", code, str(path)]).returncode == -9
    (left,) = set(os.listdir(tmp_path)) - {"fit[1].nc", ".fit.nc.0.part"}
    assert left.startswith(".fit[1].nc.") and path.read_bytes() == b"old"
    whole_file.write_whole(path, memoryview(b"newer"))
    assert set(os.listdir(tmp_path)) == {"fit[1].nc", ".fit.nc.0.part"} and path.read_bytes() == b"newer"


def test_two_processes_may_save_to_one_path(tmp_path, monkeypatch):
    """The other one takes this one's unfinished file for a left one."""
    path, moves, move = tmp_path / "fit.nc", [], os.replace

    def disturbed(hidden, target):
        moves.append(hidden)
        if len(moves) == 1:
            os.remove(hidden)
        move(hidden, target)

    monkeypatch.setattr(os, "replace", disturbed)
    whole_file.write_whole(path, memoryview(b"mine"))
    assert path.read_bytes() == b"mine" and len(moves) == 2 and list(tmp_path.iterdir()) == [path]


def test_permissions_and_links_stay(tmp_path):
    umask = os.umask(0o027)
    try:
        path = tmp_path / "fit.nc"
        whole_file.write_whole(path, memoryview(b"1"))
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o604)
        (tmp_path / "links").mkdir()
        link = tmp_path / "links" / "newest.nc"
        link.symlink_to("../fit.nc")
        whole_file.write_whole(link, memoryview(b"2"))
    finally:
        os.umask(umask)
    assert link.is_symlink() and path.read_bytes() == b"2" and stat.S_IMODE(path.stat().st_mode) == 0o604
    assert os.listdir(tmp_path / "links") == ["newest.nc"]


def test_large_draws_of_shares_are_rounded_and_nothing_else(tmp_path):
    terms = 2000
    counts = np.random.default_rng(2).poisson(0.2, (2, 60, 5, terms))
    corpus = Corpus.from_counts(np.ones((8, terms), int))
    gamma = np.random.default_rng(3).gamma(counts + 0.05)
    fit = made(gamma[:, :5, :3] / gamma[:, :5, :3].sum(-1, keepdims=True), corpus)
    beta = (gamma / gamma.sum(-1, keepdims=True)).astype(np.float32)
    fit.draws = {
        "beta": beta,
        "eta": RNG.normal(size=(2, 60, 5)),
        "wide": RNG.normal(size=beta.shape).astype(np.float32),
    }
    fit.story.arguments["num_topics"], fit.snapshots, fit.means, fit.statistics = 5, {}, {"beta": beta.mean(1)}, {}
    path = fit.save(tmp_path / "fit.nc")
    loaded = inference.load(path)
    with h5py.File(path) as file:
        assert file["posterior/beta"].id.get_storage_size() < 0.55 * beta.nbytes
        assert "rounded" in file["posterior/beta"].attrs and "rounded" not in file["posterior/wide"].attrs
    found = loaded.draws["beta"].astype(float)
    assert 1e-7 < np.abs(np.sqrt(found) - np.sqrt(beta.astype(float))).max() < 3e-6
    usual = beta > 1e-37
    assert np.abs(found[usual] / beta[usual] - 1).max() < 0.04
    np.testing.assert_array_equal(found == 0, beta == 0)
    for site in ("eta", "wide"):
        np.testing.assert_array_equal(loaded.draws[site], fit.draws[site])
    np.testing.assert_array_equal(loaded.means["beta"], fit.means["beta"])
    second = inference.load(loaded.save(tmp_path / "again.nc"))
    np.testing.assert_array_equal(second.draws["beta"], loaded.draws["beta"])
    double = file_format.rounded(beta.astype(float))
    assert np.abs(np.sqrt(double) - np.sqrt(beta.astype(float))).max() < 3e-6


def test_small_draws_are_rounded_like_large_ones(fit, tmp_path, monkeypatch):
    monkeypatch.setattr(file_format, "MANY", 0)
    monkeypatch.setattr(file_format, "SMALL", 0)
    fit.snapshots = {}
    loaded = inference.load(fit.save(tmp_path / "fit.nc"))
    assert not np.array_equal(loaded.draws["beta"], fit.draws["beta"])
    np.testing.assert_allclose(loaded.draws["beta"], fit.draws["beta"], rtol=1e-3)
    for name in ("eta", "sigma"):
        np.testing.assert_array_equal(loaded.draws[name], fit.draws[name])
    np.testing.assert_array_equal(loaded.means["theta"], fit.means["theta"])


def test_nothing_is_imported_or_taken_for_a_story_because_a_file_says_so(fit, tmp_path, monkeypatch):
    path = fit.save(tmp_path / "fit.nc")
    whole = path.read_bytes()
    (tmp_path / "trap.py").write_text("def slda(corpus, y=None, *, num_topics, alpha): pass")
    monkeypatch.syspath_prepend(tmp_path)
    for module, name in (
        ("trap", "slda"), ("os", "system"), ("topiczoo.models.vocabulary", "draw_words"), ("topiczoo.modelsx", "slda"),
        ("topiczoo.models", "background"), ("topiczoo.models.supervised", "numpyro"), ("topiczoo.inference", "gibbs"),
        ("topiczoo.models.supervised", "__import__"), ("", ""),
    ):  # fmt: skip
        path.write_bytes(with_state(whole, lambda state: state.update(story_module=module, story=name)))
        with pytest.raises(
            ValueError, match=rf"The story '{name}' .* none of topiczoo's own .* load\(path, story=...\)"
        ):
            inference.load(path)
    assert "trap" not in sys.modules
    path.write_bytes(with_state(whole, lambda state: state.update(story_module="topiczoo.models")))
    assert inference.load(path).story.function is models.slda
    trap = {"function": "os:system"}
    path.write_bytes(with_state(whole, lambda state: state["arguments"].update(alpha=trap)))
    with pytest.raises(
        ValueError, match=r"'system' given as alpha .* none of topiczoo's own .* load\(path, alpha=...\)"
    ):
        inference.load(path)
    assert inference.load(path, alpha=0.3).story.arguments["alpha"] == 0.3
    assert inference.load(path, story="slda", alpha=0.3).story.function is models.slda
    with pytest.raises(ValueError, match=r"story is 'os\.system'; give a function"):
        inference.load(path, story="os.system", alpha=0.3)


def test_an_argument_that_json_does_not_know_must_be_given_again(fit, tmp_path):
    fit.story.arguments["alpha"] = pd.Timestamp("2020-01-31")
    path = fit.save(tmp_path / "fit.nc")
    with pytest.raises(ValueError, match=r"'Timestamp' given as alpha .* load\(path, alpha=...\)"):
        inference.load(path)
    fit.info = {(1, 2): 3}
    with pytest.raises(TypeError, match=r"fit.info holds what no file can hold"):
        fit.save(path)


def test_a_story_that_has_changed_is_said_and_its_old_text_kept(fit, tmp_path, recwarn):
    path = fit.save(tmp_path / "fit.nc")
    whole, text = path.read_bytes(), stored_story.source(models.slda)
    docstring = text.split('"""')[1]
    for alike in (text.replace(docstring, "other"), text.replace("):\n", "):  # a comment\n\n", 1), ""):
        path.write_bytes(with_state(whole, lambda state: state.update(story_source=alike)))
        inference.load(path)
    assert not recwarn.list
    old = text.replace("zbar @ eta", "2 * (zbar @ eta)")
    assert old != text
    path.write_bytes(with_state(whole, lambda state: state.update(story_source=old)))
    with pytest.warns(UserWarning, match=r"The story 'slda' has changed since '.*fit.nc' was saved") as said:
        loaded = inference.load(path)
    assert loaded.info["story_source"] == old and said[0].filename == __file__
    with pytest.warns(UserWarning, match="has changed"):
        inference.load(loaded.save(path))  # the draws are still those of the old one
    with pytest.warns(UserWarning, match="The story 'lda' has changed"):
        inference.load(tmp_path / "fit.nc", story=models.lda)


def test_files_of_version_2_still_load(fit, tmp_path):
    path = old_file(fit, tmp_path / "old.nc")
    with pytest.warns(UserWarning, match="old.nc' is of an older topiczoo, without a checksum") as said:
        loaded = inference.load(path)
    assert said[0].filename == __file__
    assert same(loaded, fit)
    assert loaded.corpus.covariates["kind"].tolist() == list("abcabcab")
    with h5py.File(path, "r+") as file:
        file.attrs["version"] = store.VERSION + 1
    with pytest.raises(ValueError, match=r"newer topiczoo \(version 6\); update topiczoo"):
        inference.load(path)
    with h5py.File(path, "r+") as file:
        file.attrs["version"] = 3
    with pytest.raises(ValueError, match="lost its checksum"):
        inference.load(path)


def test_a_file_without_a_checksum_that_hangs_hdf5_is_refused(fit, tmp_path, monkeypatch):
    path = old_file(fit, tmp_path / "old.nc")
    monkeypatch.setattr(file_format, "PATIENCE", 0.5)
    monkeypatch.setattr(file_format, "LOOK_THROUGH", "while True: pass")
    with pytest.raises(ValueError, match=r"old.nc' cannot be read"):
        inference.load(path)


@pytest.mark.parametrize("old", [True, False])
@pytest.mark.filterwarnings("ignore:.*without a checksum")
def test_a_small_file_cannot_ask_for_much_memory(fit, tmp_path, old):
    """74 GiB, by shape or by chunk, in a file of a few kB; and numbers of another file."""
    path = old_file(fit, tmp_path / "fit.nc") if old else fit.save(tmp_path / "fit.nc")
    whole = path.read_bytes()

    def declared(**options):
        def edit(file):
            del file["posterior/eta"]
            file["posterior"].create_dataset("eta", dtype="f4", **options)

        return edit

    many = {"shape": (2, 5, 2 * 10**9), "chunks": (1, 1, 10**6), "compression": "gzip"}
    wide = {"shape": (2, 5, 3), "chunks": (2, 5, 10**8), "maxshape": (2, 5, None), "compression": "gzip"}
    foreign = {"shape": (2, 5, 3), "external": [("/etc/hostname", 0, 120)]}
    for options, words in ((many, "only 0 bytes"), (wide, "only 0 bytes"), (foreign, "link to another place")):
        if old:
            path.write_bytes(whole)
            with h5py.File(path, "r+") as file:
                declared(**options)(file)
        else:
            path.write_bytes(rewritten(whole, declared(**options)))
        with pytest.raises(ValueError, match=f"does not agree with itself .*'eta' .*{words}"):
            inference.load(path)
