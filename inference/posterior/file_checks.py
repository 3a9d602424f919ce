"""What a saved fit must agree on with itself: a file whose checksum is right may still have been written to mislead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..story.reader import site_shapes
from .naming import num_topics
from .posterior import Posterior
from .tables import are_shares

Groups = Mapping[str, Mapping[str, np.ndarray]]
LEADING = {"posterior": 2, "snapshots": 2, "means": 1}  # groups of sites, and the number of axes before the site's own
NEARLY = 2e-3  # how far from 1 shares may sum to: twice what makes them shares, for they may have been rounded
SHARES = ("topic", "term"), ("document", "topic")  # axes of topics and of proportions
STATE: dict[str, Any] = {
    "story": str, "story_module": str, "story_source": str, "engine": str, "arguments": dict,
    "graph": dict | None, "classes": list | None, "vocabulary": list, "document_names": list, "several_responses": int,
    "info": dict, "arrays": dict | None, "topic_names": list | None, "texts": list | None,
}  # fmt: skip


def described(groups: Groups) -> dict[str, dict[str, dict[str, Any]]]:
    """What can be said of every array: its shape, its kind, whether it is finite, whether it holds shares."""
    return {
        group: {name: _described(array) for name, array in arrays.items()} for group, arrays in groups.items() if arrays
    }


def _described(array: np.ndarray) -> dict[str, Any]:
    finite = _finite(array)
    shares = bool(finite and array.dtype.kind == "f" and array.ndim and array.size and are_shares(array))
    return {"shape": list(array.shape), "type": array.dtype.name, "finite": finite, "shares": shares}


def compare(groups: Groups, said: Mapping[str, Any]) -> None:
    """Every array is what was said of it when it was saved."""
    for group, arrays in groups.items():
        for name, array in arrays.items():
            then, where = said[group][name], f"{name!r} of the group {group!r}"
            if list(array.shape) != then["shape"] or array.dtype.name != then["type"]:
                raise ValueError(f"{where} has the shape {array.shape} instead of {tuple(then['shape'])}")
            if then["finite"] and not _finite(array):
                raise ValueError(f"{where} holds numbers that are not finite")
            if then["shares"] and (array.min() < 0 or np.abs(array.sum(-1) - 1).max() > NEARLY):
                raise ValueError(f"{where} holds numbers that are no shares")


def _finite(array: np.ndarray) -> bool:
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())


def check_state(state: Mapping[str, Any]) -> None:
    """What was saved as JSON is all there and of its kind."""
    for name, kind in STATE.items():
        if name not in state or not isinstance(state[name], kind):
            raise ValueError(f"{name} is missing or of another kind")


def check_fit(fit: Posterior) -> None:
    """Chains, draws, topics, terms and documents are as many everywhere."""
    if not fit.draws and not fit.snapshots:
        raise ValueError("there are no draws")
    sizes = {"term": fit.corpus.num_terms, "document": fit.corpus.num_documents}
    for group, name, array, dims in _sites(fit):
        leading = ("chain", f"draw ({group})")[: LEADING[group]]
        if array.ndim != len(leading) + len(dims):
            raise ValueError(f"the site {name!r} has {array.ndim} axes instead of {len(leading) + len(dims)}")
        named = dims if dims in SHARES else (None,) * len(dims)  # a site of other axes may leave a topic out
        for axis, size in zip((*leading, *named), array.shape, strict=True):
            if axis is not None and sizes.setdefault(axis, size) != size:
                raise ValueError(f"the site {name!r} has the size {size} on its axis {axis} instead of {sizes[axis]}")
    if fit.topic_names is not None:
        names, number = fit.topic_names.tolist(), num_topics(fit)
        if len(set(names)) != number or len(names) != number or not all(isinstance(name, str) for name in names):
            raise ValueError(f"there are {number} topics, and their names are not as many texts, each another")
    index = fit.snapshot_index
    if fit.snapshots and (
        index.dtype.kind not in "iu" or len(index) != sizes["draw (snapshots)"] or (np.diff(index) <= 0).any()
        or index[0] < 0 or index[-1] >= sizes.get("draw (posterior)", np.inf)
    ):  # fmt: skip
        raise ValueError("the draws of its snapshots are not in order")
    for value in fit.response.parts.values():
        if np.shape(value)[:1] != (fit.corpus.num_documents,):
            raise ValueError(f"y has the shape {np.shape(value)} for {fit.corpus.num_documents} documents")


def check_shapes(fit: Posterior) -> None:
    """Sites are as large as the story, with the arguments of the file, makes them."""
    made = site_shapes(fit.story, fit.corpus, fit.response)
    for group, name, array, dims in _sites(fit):
        there, here = array.shape[LEADING[group] :], made.get(name, ())
        if len(there) == len(here) and any(
            a != b for a, b, axis in zip(there, here, dims, strict=True) if axis != "document"
        ):
            raise ValueError(f"the site {name!r} has the shape {there} where the story with its arguments makes {here}")


def _sites(fit: Posterior) -> Iterator[tuple[str, str, np.ndarray, tuple[str | None, ...]]]:
    """Every array of a site: its group, its name, itself, and the names of its own axes."""
    for group, arrays in (("posterior", fit.draws), ("snapshots", fit.snapshots), ("means", fit.means)):
        for name, array in arrays.items():
            yield group, name, array, fit.graph.dims.get(name, (None,) * (array.ndim - LEADING[group]))
