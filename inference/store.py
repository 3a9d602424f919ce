"""Fits as ArviZ DataTrees, and on disk as one netCDF file; nothing is pickled."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from .fit import Fit
from .reading import Story

FORMAT = "topiczoo fit"
VERSION = 1


def to_datatree(fit: Fit) -> xr.DataTree:
    """posterior and sample_stats as ArviZ expects them; large sites in ``snapshots``, running means in ``means``."""
    groups = {"posterior": _dataset(fit, fit.draws, ("chain", "draw"))}
    if fit.statistics:
        groups["sample_stats"] = _dataset(fit, fit.statistics, ("chain", "draw"))
    if fit.snapshots:
        groups["snapshots"] = _dataset(fit, fit.snapshots, ("chain", "draw")).assign_coords(draw=fit.snapshot_index)
    if fit.means:
        groups["means"] = _dataset(fit, fit.means, ("chain",))
    tree = xr.DataTree.from_dict(groups)
    tree.attrs = {"inference_library": "topiczoo", "story": fit.story.name, "engine": fit.engine}
    return tree


def _dataset(fit: Fit, arrays: Mapping[str, np.ndarray], leading: tuple[str, ...]) -> xr.Dataset:
    labels = {"term": fit.vocabulary, "document": fit.document_names}
    variables, coords = {}, {}
    for name, array in arrays.items():
        rest = array.ndim - len(leading)
        known = fit.story.dims.get(name, (None,) * rest)
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
        "arguments": _json({name: np.asarray(value).tolist() for name, value in fit.story.arguments.items()}),
        "dims": _json(fit.story.dims),
        "info": _json(fit.info),
    }
    tree["corpus"] = xr.DataTree(
        xr.Dataset(
            {
                "vocabulary": ("term", fit.vocabulary.astype(str)),
                "document_names": ("document", fit.document_names.astype(str)),
            }
        )
    )
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    os.close(handle)
    try:
        tree.to_netcdf(temporary, engine="h5netcdf")
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)
    return path


def load(path: str | Path, story: Callable | None = None) -> Fit:
    """Read a fit written by ``Fit.save``.

    The story is found again by its module and name; a story written in a notebook or script must be given.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"path {str(path)!r} is no file; give one written by Fit.save.")
    try:
        tree = xr.open_datatree(path, engine="h5netcdf")
        tree = tree.load()
        tree.close()
    except Exception as error:
        raise ValueError(
            f"{str(path)!r} cannot be read as netCDF: it is truncated or of another kind; save the fit again."
        ) from error
    if tree.attrs.get("format") != FORMAT:
        raise ValueError(f"{str(path)!r} is not a topiczoo fit; give a file written by Fit.save.")
    if tree.attrs["version"] > VERSION:
        raise ValueError(
            f"{str(path)!r} was written by a newer topiczoo (version {tree.attrs['version']}); update topiczoo."
        )
    bound = Story(story or _find_story(tree.attrs, path), json.loads(tree.attrs["arguments"]))
    bound.dims = {name: tuple(dims) for name, dims in json.loads(tree.attrs["dims"]).items()}
    vocabulary, names = (np.asarray(tree["corpus"][name].values, str) for name in ("vocabulary", "document_names"))
    groups = {
        name: _arrays(tree[name]) if name in tree.children else {}
        for name in ("posterior", "sample_stats", "snapshots", "means")
    }
    return Fit(
        bound,
        _Labels(vocabulary, names),
        groups["posterior"],
        engine=tree.attrs["engine"],
        info=json.loads(tree.attrs["info"]),
        statistics=groups["sample_stats"],
        means=groups["means"],
        snapshots=groups["snapshots"],
        snapshot_index=np.asarray(tree["snapshots"]["draw"]) if groups["snapshots"] else None,
    )


class _Labels(NamedTuple):
    """The names a fit needs of its corpus, without the corpus."""

    vocabulary: np.ndarray
    names: np.ndarray


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


def _source(function: Callable) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return ""


def _json(value: Any) -> str:
    return json.dumps(value, default=lambda item: np.asarray(item).tolist())
