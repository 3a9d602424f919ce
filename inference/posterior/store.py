"""Fits as ArviZ DataTrees, and on disk as one netCDF file; nothing is pickled, and nothing is run that a file names."""

from __future__ import annotations

import io
import json
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from topiczoo.models.catalogue import as_story

from ..programs.processes import is_first
from ..story.graph import Dims, StoryGraph
from ..story.response import Response
from ..story.tracing import Story
from .file_checks import check_fit, check_shapes, check_state, compare, described
from .file_format import (
    attributes_of,
    check_seal,
    look_through,
    netcdf_name,
    packed,
    read_array,
    read_state,
    stored_names,
)
from .posterior import STATISTIC_DIMS, Posterior
from .stored_corpus import WORDS, plain_frame, plain_sentences, read_corpus
from .stored_story import find_argument, find_story, plain, source, warn_if_changed
from .tables import are_shares
from .whole_file import checked_path, write_whole

if TYPE_CHECKING:
    import xarray as xr

FORMAT = "topiczoo fit"
# version 4 had no names of topics and no texts; version 3 axes of sites and no graph; version 2 no checksum, and attributes
# in the place of one JSON text
VERSION = 5
ARRAYS = ("posterior", "sample_stats", "snapshots", "means", "observed_data")
# all that a file can bring about, but no lack of memory for an honest one
DAMAGE = (ArithmeticError, AssertionError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError)

Groups = dict[str, dict[str, np.ndarray]]


def to_datatree(fit: Posterior) -> xr.DataTree:
    """posterior, sample_stats, observed_data and constant_data as ArviZ expects them.

    Large sites are in ``snapshots``, running means in ``means``; constant_data holds the words as (document, term, count).
    """
    dims, every = fit.graph.dims, ("chain", "draw")
    groups = {"posterior": _dataset(fit, fit.draws, every, dims)}
    if fit.statistics:
        groups["sample_stats"] = _dataset(fit, fit.statistics, every, STATISTIC_DIMS)
    if fit.snapshots:
        groups["snapshots"] = _dataset(fit, fit.snapshots, every, dims).assign_coords(draw=fit.snapshot_index)
    if fit.means:
        groups["means"] = _dataset(fit, fit.means, ("chain",), dims)
    if responses := _responses(fit):
        groups["observed_data"] = _dataset(fit, responses, ("document",), {})
    import xarray as xr  # a tenth of a second of start-up

    pairs = fit.corpus.counts.tocoo()
    words = dict(zip(WORDS, (pairs.row, pairs.col, pairs.data), strict=True))
    groups["constant_data"] = xr.Dataset(
        {name: ("pair", np.asarray(value, np.int32)) for name, value in words.items()},
        coords={"term": fit.vocabulary, "document": fit.document_names},
    )
    tree = xr.DataTree.from_dict(groups)
    tree.attrs = {"inference_library": "topiczoo", "story": fit.story.name, "engine": fit.engine}
    return tree


def _dataset(
    fit: Posterior,
    arrays: Mapping[str, np.ndarray],
    leading: tuple[str, ...],
    dims_of: Mapping[str, tuple[str | None, ...]],
) -> xr.Dataset:
    import xarray as xr

    labels = {"term": fit.vocabulary, "document": fit.document_names}
    if fit.topic_names is not None:
        labels |= {"topic": fit.topic_names, "other_topic": fit.topic_names}
    variables, coords = {}, {}
    for name, array in arrays.items():
        rest = array.ndim - len(leading)
        known = dims_of.get(name, (None,) * rest)
        name = netcdf_name(name)
        dims = (*leading, *_apart(name, known[:rest]))
        variables[name] = (dims, array)
        for dim, size in zip(dims, array.shape, strict=True):
            coords[dim] = labels[dim] if dim in labels and len(labels[dim]) == size else np.arange(size)
    return xr.Dataset(variables, coords=coords)


def _apart(name: str, axes: Dims) -> list[str]:
    """Names for the axes of a site, each another, as xarray wants them: a second axis of topics is that of other topics."""
    found: list[str] = []
    for place, axis in enumerate(axes):
        axis = axis or f"{name}_{place}"
        while axis in found:
            axis = f"other_{axis}"
        found.append(axis)
    return found


def _responses(fit: Posterior) -> dict[str, np.ndarray]:
    return {name: np.asarray(value) for name, value in fit.response.parts.items()}


def save(fit: Posterior, path: str | Path) -> Path:
    """Write the fit to one netCDF file with a checksum. See :meth:`Fit.save`."""
    path = checked_path(path)
    if not is_first():
        return path  # of several processes one writes
    try:
        check_fit(fit)
    except ValueError as error:
        raise ValueError(f"The fit cannot be saved: {error}; make it anew.") from error
    function, info = fit.story.function, dict(fit.info)
    arrays = (fit.draws, fit.statistics, fit.snapshots, fit.means, _responses(fit))
    state = {
        "story": fit.story.name,
        "story_module": getattr(function, "__module__", ""),
        "story_source": info.pop("story_source", "") or source(function),
        "engine": fit.engine,
        "arguments": {name: plain(value) for name, value in fit.story.arguments.items()},
        "graph": fit.graph.as_json(),
        "classes": fit.classes,
        "vocabulary": fit.vocabulary,
        "document_names": fit.document_names,
        "topic_names": fit.topic_names,
        "texts": fit.corpus.texts,
        "sentences": plain_sentences(fit.corpus),
        "covariates": plain_frame(fit.corpus.covariates),
        "several_responses": fit.response.several,
        "info": info,
        "arrays": described(dict(zip(ARRAYS, arrays, strict=True))),
    }
    try:
        text = json.dumps(state, default=_listed)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"fit.info holds what no file can hold ({error}); take it out with del fit.info[...]."
        ) from error
    tree = to_datatree(fit)  # as it is now: fit.posterior may be from before a change
    tree.attrs = {**tree.attrs, "format": FORMAT, "version": VERSION}
    write_whole(path, packed(tree, text))
    return path


def _listed(item: Any) -> Any:
    """What JSON does not know: arrays as lists, any other object as its text."""
    listed = np.asarray(item).tolist()
    return str(item) if listed is item else listed


def load(path: str | Path, story: str | Callable | None = None, **arguments: Any) -> Posterior:
    """Read a fit written by ``Fit.save``.

    A story of the zoo is found again by its name. Any other must be given, and so must functions of yours among its
    arguments: ``load(path, story=my_story, response=my_response)``. Nothing is imported or run because a file names it.
    ``fit.info["story_source"]`` is the story's text when it was saved; if the story has changed since, a warning says so.

    A file whose checksum is wrong or which does not agree with itself is refused.
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path is {path!r}; give the name of a file written by Fit.save.")
    if not os.path.isfile(path):
        raise FileNotFoundError(f"path {str(path)!r} is no file; give one written by Fit.save.")
    shown = str(path)
    state, groups, words = _read(Path(path).read_bytes(), shown)
    function = find_story(state, shown) if story is None else as_story(story)
    warn_if_changed(function, state["story_source"], shown)
    kept = {
        name: find_argument(name, value, shown) for name, value in state["arguments"].items() if name not in arguments
    }
    bound = Story(function, {**kept, **arguments})
    try:
        fit = _assembled(bound, state, groups, words)
        check_fit(fit)
        if not arguments and story is None:
            check_shapes(fit)
    except DAMAGE as error:
        raise _contradiction(shown, error) from error
    return fit


def _contradiction(path: str, error: Exception) -> ValueError:
    reason = " ".join(str(error).split()).rstrip(".")
    return ValueError(f"{path!r} does not agree with itself ({reason}); save the fit again.")


def _assembled(story: Story, state: Mapping[str, Any], groups: Groups, words: list[np.ndarray]) -> Posterior:
    if state["graph"] is None:
        dims = {name: tuple(axes) for name, axes in state["dims"].items()}
        draws = {**groups["means"], **groups["posterior"]}
        shares = [name for name, value in draws.items() if value.size and value.ndim and are_shares(value)]
        graph = StoryGraph.from_dims(dims, shares)
    else:
        graph = StoryGraph.from_json(state["graph"])
    classes = None if state["classes"] is None else np.array(state["classes"])
    return Posterior(
        story,
        graph,
        read_corpus(state, words[:3]),
        Response(groups["observed_data"], bool(state["several_responses"]), classes),
        groups["posterior"],
        engine=state["engine"],
        info={**state["info"], "story_source": state["story_source"]},
        statistics=groups["sample_stats"],
        means=groups["means"],
        snapshots=groups["snapshots"],
        snapshot_index=words[3] if groups["snapshots"] else np.arange(0),
        topic_names=None if state["topic_names"] is None else np.array(state["topic_names"], object),
    )


def _read(data: bytes, path: str) -> tuple[dict[str, Any], Groups, list[np.ndarray]]:
    """What was saved as JSON, the arrays of each group, the words and the draws of snapshots."""
    sealed = check_seal(data, path)
    if not sealed:
        look_through(path)
    try:
        file = h5py.File(io.BytesIO(data), "r")
        attributes = attributes_of(file)
    except DAMAGE as error:
        raise ValueError(
            f"{path!r} cannot be read as netCDF: it is truncated or of another kind; save the fit again."
        ) from error
    _check_version(attributes, path)
    try:
        with file:
            state = read_state(file) if sealed else _old_state(file, attributes, path)
            if attributes["version"] < 4:
                state["graph"] = None  # what is known of its sites are their axes
            if attributes["version"] < 5:
                state |= {"topic_names": None, "texts": None}
            check_state(state)
            names = state["arrays"] or {group: stored_names(file, group) for group in ARRAYS}
            groups: Groups = {group: {} for group in ARRAYS}
            for group, arrays in groups.items():
                for name in names.get(group, ()):
                    arrays[name] = read_array(file, group, netcdf_name(name))
            if state["arrays"]:
                compare(groups, state["arrays"])
            words = [read_array(file, "constant_data", name) for name in WORDS]
            if groups["snapshots"]:
                words.append(read_array(file, "snapshots", "draw"))
    except DAMAGE as error:
        raise _contradiction(path, error) from error
    return state, groups, words


def _check_version(attributes: Mapping[str, Any], path: str) -> None:
    version = attributes.get("version")
    if attributes.get("format") != FORMAT or not isinstance(version, int):
        raise ValueError(f"{path!r} is not a topiczoo fit; give a file written by Fit.save.")
    if version < 2:
        raise ValueError(f"{path!r} was written by an older topiczoo, without its documents; fit and save again.")
    if version > VERSION:
        raise ValueError(f"{path!r} was written by a newer topiczoo (version {version}); update topiczoo.")


def _old_state(file: h5py.File, attributes: dict[str, Any], path: str) -> dict[str, Any]:
    """What version 2 kept in attributes and labels."""
    if attributes["version"] != 2:
        raise ValueError("it has lost its checksum")
    warnings.warn(
        f"{path!r} is of an older topiczoo, without a checksum, so that damage may go unseen; save the fit again.",
        stacklevel=5,
    )
    texts = {name: json.loads(attributes[name]) for name in ("arguments", "dims", "info")}
    return {
        **{name: attributes[name] for name in ("story", "story_module", "story_source", "engine", "several_responses")},
        **texts,
        "classes": json.loads(attributes.get("classes", "null")),
        "covariates": attributes.get("covariates"),
        "vocabulary": read_array(file, "constant_data", "term").tolist(),
        "document_names": read_array(file, "constant_data", "document").tolist(),
        "arrays": None,
    }
