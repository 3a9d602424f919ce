"""Fits as ArviZ DataTrees, and on disk as one netCDF file; nothing is pickled."""

from __future__ import annotations

import importlib
import inspect
import io
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import xarray as xr
from scipy import sparse

from topiczoo.corpora import Corpus

from .fit import STATISTIC_DIMS, Fit
from .running import Story

FORMAT = "topiczoo fit"
VERSION = 2


def to_datatree(fit: Fit) -> xr.DataTree:
    """posterior, sample_stats, observed_data and constant_data as ArviZ expects them.

    Large sites are in ``snapshots``, running means in ``means``; constant_data holds the words as (document, term, count).
    """
    dims, every = fit.story.dims, ("chain", "draw")
    groups = {"posterior": _dataset(fit, fit.draws, every, dims)}
    if fit.statistics:
        groups["sample_stats"] = _dataset(fit, fit.statistics, every, STATISTIC_DIMS)
    if fit.snapshots:
        groups["snapshots"] = _dataset(fit, fit.snapshots, every, dims).assign_coords(draw=fit.snapshot_index)
    if fit.means:
        groups["means"] = _dataset(fit, fit.means, ("chain",), dims)
    responses = fit.y if isinstance(fit.y, Mapping) else {} if fit.y is None else {"y": fit.y}
    if responses:
        arrays = {name: np.asarray(value) for name, value in responses.items()}
        groups["observed_data"] = _dataset(fit, arrays, ("document",), {})
    pairs = fit.corpus.counts.tocoo()
    words = {"word_document": pairs.row, "word_term": pairs.col, "word_count": pairs.data}
    groups["constant_data"] = xr.Dataset(
        {name: ("pair", np.asarray(value, np.int32)) for name, value in words.items()},
        coords={"term": fit.vocabulary, "document": fit.document_names},
    )
    tree = xr.DataTree.from_dict(groups)
    tree.attrs = {"inference_library": "topiczoo", "story": fit.story.name, "engine": fit.engine}
    return tree


def _dataset(
    fit: Fit,
    arrays: Mapping[str, np.ndarray],
    leading: tuple[str, ...],
    dims_of: Mapping[str, tuple[str | None, ...]],
) -> xr.Dataset:
    labels = {"term": fit.vocabulary, "document": fit.document_names}
    variables, coords = {}, {}
    for name, array in arrays.items():
        rest = array.ndim - len(leading)
        known = dims_of.get(name, (None,) * rest)
        dims = (*leading, *(dim or f"{name}_{i}" for i, dim in enumerate(known[:rest])))
        variables[name] = (dims, array)
        for dim, size in zip(dims, array.shape, strict=True):
            coords[dim] = labels[dim] if dim in labels and len(labels[dim]) == size else np.arange(size)
    return xr.Dataset(variables, coords=coords)


def save(fit: Fit, path: str | Path) -> Path:
    """Write the fit to one netCDF file; the old file stays until the new one is whole."""
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"path {str(path)!r} is in no existing folder; make {str(path.parent)!r} first.")
    function = fit.story.function
    tree = fit.posterior.copy()
    tree.attrs = {
        **tree.attrs,
        "format": FORMAT,
        "version": VERSION,
        "story_module": getattr(function, "__module__", ""),
        "story_source": _source(function),
        "arguments": _json({name: _plain(value) for name, value in fit.story.arguments.items()}),
        "dims": _json(fit.story.dims),
        "info": _json(fit.info),
    }
    covariates = fit.corpus.covariates
    if covariates.shape[1]:
        tree.attrs["covariates"] = covariates.to_json(orient="table", index=False)
    if fit.classes is not None:
        tree.attrs["classes"] = _json(fit.classes)
    tree.attrs["several_responses"] = int(isinstance(fit.y, Mapping))
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    os.close(handle)
    try:
        tree.to_netcdf(temporary, engine="h5netcdf", encoding=_encoding(tree))
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)  # as any new file, not for the owner alone
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)
    return path


def _encoding(tree: xr.DataTree) -> dict[str, dict]:
    """Arrays that are mostly 0, as sparse deviations are, take next to no room when compressed; others gain nothing."""
    return {
        f"/{group}": {
            name: {"zlib": True, "complevel": 1}
            for name, variable in node.data_vars.items()
            if variable.dtype.kind == "f" and variable.size and np.mean(variable.values == 0) > 0.5
        }
        for group, node in tree.children.items()
    }


def load(path: str | Path, story: str | Callable | None = None, **arguments: Any) -> Fit:
    """Read a fit written by ``Fit.save``.

    The story is found again by its module and name; a story written in a notebook or script must be given, and so must
    functions among its arguments: ``load(path, response=my_response)``.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"path {str(path)!r} is no file; give one written by Fit.save.")
    try:
        # xarray would give each term and name the room of the longest: these are read below
        tree = xr.open_datatree(path, engine="h5netcdf", drop_variables=["term", "document"])
        tree = tree.load()
        tree.close()
    except Exception as error:
        raise ValueError(
            f"{str(path)!r} cannot be read as netCDF: it is truncated or of another kind; save the fit again."
        ) from error
    if tree.attrs.get("format") != FORMAT:
        raise ValueError(f"{str(path)!r} is not a topiczoo fit; give a file written by Fit.save.")
    if tree.attrs["version"] < VERSION:
        raise ValueError(f"{str(path)!r} was written by an older topiczoo, without its documents; fit and save again.")
    if tree.attrs["version"] > VERSION:
        raise ValueError(
            f"{str(path)!r} was written by a newer topiczoo (version {tree.attrs['version']}); update topiczoo."
        )
    stored = {n: v for n, v in json.loads(tree.attrs["arguments"]).items() if n not in arguments}
    restored = {name: _restored(name, value, path) for name, value in stored.items()}
    bound = Story(story or _find_story(tree.attrs, path), {**restored, **arguments})
    bound.dims = {name: tuple(dims) for name, dims in json.loads(tree.attrs["dims"]).items()}
    if "classes" in tree.attrs:
        bound.classes = np.array(json.loads(tree.attrs["classes"]))
    groups = {
        name: _arrays(tree[name]) if name in tree.children else {}
        for name in ("posterior", "sample_stats", "snapshots", "means")
    }
    return Fit(
        bound,
        _read_corpus(tree, path),
        groups["posterior"],
        y=_read_responses(tree),
        engine=tree.attrs["engine"],
        info=json.loads(tree.attrs["info"]),
        statistics=groups["sample_stats"],
        means=groups["means"],
        snapshots=groups["snapshots"],
        snapshot_index=np.asarray(tree["snapshots"]["draw"]) if groups["snapshots"] else None,
    )


def _read_corpus(tree: xr.DataTree, path: Path) -> Corpus:
    words = tree["constant_data"]
    with h5py.File(path) as file:
        vocabulary, names = (file["constant_data"][name].asstr()[...] for name in ("term", "document"))
    names.flags.writeable = False  # as those of the corpus that was fitted, in which they may repeat
    places = np.asarray(words["word_document"]), np.asarray(words["word_term"])
    counts = sparse.coo_array((np.asarray(words["word_count"]), places), shape=(len(names), len(vocabulary)))
    stored = tree.attrs.get("covariates")
    covariates = None if stored is None else pd.read_json(io.StringIO(stored), orient="table")
    return Corpus.from_counts(counts, vocabulary, names=names, covariates=covariates, empty="keep")


def _read_responses(tree: xr.DataTree) -> Any:
    if "observed_data" not in tree.children:
        return None
    responses = _arrays(tree["observed_data"])
    return responses if tree.attrs["several_responses"] else responses["y"]


def _arrays(node: Any) -> dict[str, np.ndarray]:
    return {str(name): np.asarray(variable.values) for name, variable in node.data_vars.items()}


def _find_story(attrs: Mapping[Any, Any], path: Path) -> Callable:
    try:
        return getattr(importlib.import_module(attrs["story_module"]), attrs["story"])
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"The story {attrs['story']!r} of {str(path)!r} is not found in module {attrs['story_module']!r}; "
            "pass it: load(path, story=...)."
        ) from error


def _plain(value: Any) -> Any:
    """An argument of the story as JSON has it; a function by its module and name."""
    if callable(value):
        return {"function": f"{value.__module__}:{getattr(value, '__qualname__', '')}"}
    return np.asarray(value).tolist()


def _restored(name: str, value: Any, path: Path) -> Any:
    if isinstance(value, list):
        return np.asarray(value)
    if not (isinstance(value, dict) and set(value) == {"function"}):
        return value
    module, _, function = value["function"].partition(":")
    try:
        return getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"The function {function!r} given as {name} to the story of {str(path)!r} is not found in module {module!r}; "
            f"pass it: load(path, {name}=...)."
        ) from error


def _source(function: Callable) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return ""


def _json(value: Any) -> str:
    return json.dumps(value, default=lambda item: np.asarray(item).tolist())
