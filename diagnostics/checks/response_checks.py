"""Posterior predictive checks of the response: does what the story predicts look like what was observed?

A document's topics are folded in from its words alone, so its own response enters only through what all documents
together taught the story. On held-out documents nothing of it enters at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from topiczoo.corpora import Corpus
from topiczoo.inference import Fit

LEVELS = (0.5, 0.8, 0.9, 0.95)
REAL, COUNT, CLASS = "real", "count", "class"  # kinds of responses: what a fair picture of them is


def check_response(
    fit: Fit, corpus: Corpus | None = None, y: Any = None, *, seed: int = 0, progress_bar: bool = False
) -> xr.DataTree:
    """Predictive draws beside what was observed, as ArviZ's plots of predictive checks take them.

    Parameters
    ----------
    corpus, y
        Documents and their responses; those of the fit by default. Unlabelled documents are left out.

    Returns
    -------
    A DataTree with the groups ``posterior_predictive`` and ``observed_data``, one variable a response.
    """
    if not isinstance(fit, Fit):
        raise TypeError(f"fit is a {type(fit).__name__}; give a Fit, as inference.gibbs returns it.")
    if (corpus is None) != (y is None):
        raise ValueError("corpus and y belong together; give both, or neither to check the fit on its own documents.")
    corpus, y = (fit.corpus, fit.y) if corpus is None else (corpus, fit.response.encode(y))
    if y is None:
        raise ValueError(f"The story {fit.story.name!r} was fitted without a response; there is none to check.")
    rows = labelled(y)
    if not len(rows):
        raise ValueError("y is NaN for every document; give responses to check the predictions against.")
    prediction = fit.predict(corpus[rows], seed=seed, progress_bar=progress_bar)
    return to_tree(prediction, take(y, rows), np.asarray(corpus.names)[rows])


def labelled(y: Any) -> np.ndarray:
    """Rows of the documents none of whose responses is missing."""
    parts = [np.asarray(part, float) for part in (y.values() if isinstance(y, Mapping) else [y])]
    return np.flatnonzero(~np.any([np.isnan(part.reshape(len(part), -1)).any(1) for part in parts], axis=0))


def take(y: Any, rows: np.ndarray) -> Any:
    """The responses of some documents."""
    if isinstance(y, Mapping):
        return {name: np.asarray(part)[rows] for name, part in y.items()}
    return np.asarray(y)[rows]


def observed_parts(prediction: Any, y: Any) -> dict[str, tuple[Any, np.ndarray | None]]:
    """Each response's name with its prediction and its observed values, None where there are none."""
    if not isinstance(prediction, Mapping):
        value = next(iter(y.values())) if isinstance(y, Mapping) else y
        return {"y": (prediction, None if value is None else np.asarray(value))}
    missing = [name for name in prediction if y is not None and name not in y]
    if missing:
        raise ValueError(
            f"y has the parts {', '.join(map(repr, y))} but the story's responses are {', '.join(map(repr, prediction))}; "
            "name the parts of y as the sites."
        )
    return {name: (part, None if y is None else np.asarray(y[name])) for name, part in prediction.items()}


def kind(prediction: Any) -> str:
    """Whether a response is a class, a count or a real number."""
    if prediction.probabilities is not None:
        return CLASS
    return COUNT if np.issubdtype(prediction.draws.dtype, np.integer) else REAL


def to_tree(prediction: Any, y: Any, names: np.ndarray) -> xr.DataTree:
    """A prediction and what was observed, as a DataTree."""
    predictive: dict[str, Any] = {}
    observed: dict[str, Any] = {}
    for name, (part, values) in observed_parts(prediction, y).items():
        assert values is not None
        draws = part.draws.reshape(len(part.expected), -1, *part.draws.shape[1:])
        dims = ("document", *(f"{name}_{i}" for i in range(draws.ndim - 3)))
        whole = kind(part) != REAL
        attributes = {"kind": kind(part)}
        predictive[name] = (("chain", "draw", *dims), draws.astype(np.int64 if whole else float), attributes)
        observed[name] = (dims, values.astype(np.int64 if whole else float), attributes)
    documents = {"document": names}
    sample = {"chain": np.arange(draws.shape[0]), "draw": np.arange(draws.shape[1])}
    return xr.DataTree.from_dict({
        "posterior_predictive": xr.Dataset(predictive, coords={**documents, **sample}),
        "observed_data": xr.Dataset(observed, coords=documents),
    })  # fmt: skip


def coverage(checked: xr.DataTree, levels: Sequence[float] = LEVELS) -> pd.DataFrame:
    """How many observed responses lie in their central predictive intervals, by level; classes have none.

    Columns: response, level, covered, error (binomial, were the level true), documents.
    """
    rows, tree = [], _columns(checked)
    for name, observed in tree["observed_data"].data_vars.items():
        if observed.attrs["kind"] == CLASS:
            continue
        draws = tree["posterior_predictive"].data_vars[name].stack(sample=("chain", "draw"))
        for level in levels:
            low, high = (draws.quantile(q, "sample") for q in ((1 - level) / 2, (1 + level) / 2))
            covered = float(((low <= observed) & (observed <= high)).mean())
            error = np.sqrt(level * (1 - level) / observed.size)
            rows.append(
                {"response": name, "level": level, "covered": covered, "error": error, "documents": observed.size}
            )
    return pd.DataFrame(rows, columns=["response", "level", "covered", "error", "documents"])


def _columns(checked: xr.DataTree) -> xr.DataTree:
    """The same with one variable for each column of a response: ArviZ's checks are of one column."""
    groups: dict[str, dict[str, xr.DataArray]] = {}
    for group in ("posterior_predictive", "observed_data"):
        groups[group] = {}
        for name, value in checked[group].data_vars.items():
            rest = [dim for dim in value.dims if dim not in ("chain", "draw", "document")]
            for place in np.ndindex(*(value.sizes[dim] for dim in rest)):
                label = f"{name}[{', '.join(map(str, place))}]" if place else str(name)
                groups[group][label] = value.isel(dict(zip(rest, place, strict=True)), drop=True)
    return xr.DataTree.from_dict({group: xr.Dataset(values) for group, values in groups.items()})
