"""Responses: named arrays of numbers, NaN where missing, and the labels of classes that stand behind them.

Outside, a response is an array, a Series, a Categorical or labels, or a dict of such; inside it is float arrays with one row
a document. Labels are strings, booleans or a pandas Categorical outside, numbers 0, 1, ... inside.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
import pandas as pd

from topiczoo.corpora import Corpus

Y = (
    np.ndarray | jax.Array | dict[str, Any] | None
)  # a response as a story takes it: one array, several by name, or none
ONE = "y"  # the name of a response that came without one

CLASSES = (dist.BernoulliLogits, dist.BernoulliProbs, dist.CategoricalLogits, dist.CategoricalProbs)

FIXES = {  # of what could be taken for numbers, by NumPy's kind of dtype
    "M": "dates; give numbers, e.g. days since the first",
    "m": "durations; give numbers, e.g. days",
    "c": "complex numbers; give real ones, e.g. their real parts",
}


@dataclass(frozen=True)
class Response:
    """What is observed of documents beside their words."""

    parts: dict[str, np.ndarray]  # float32, one row a document, NaN where missing; empty without a response
    several: bool = False  # whether it came as a dict
    classes: np.ndarray | None = None  # labels in the order of their codes, where it came as labels

    @classmethod
    def of(cls, corpus: Corpus, y: Any) -> Response:
        """A response as the user has it, one row a document; a Response, of a run that goes on, stays as it is."""
        if y is None:
            return cls({})
        if isinstance(y, Response):
            return y
        codes, classes = labels_as_codes(in_order(corpus, y))
        return cls(*_parts(corpus, codes), classes)

    def like_this(self, corpus: Corpus, y: Any) -> Response:
        """A response of other documents; labels have the codes that they have here."""
        return Response(*_parts(corpus, self.encode(in_order(corpus, y))), self.classes)

    @property
    def y(self) -> Y:
        """The response as a story takes it."""
        if not self.parts:
            return None
        return self.parts if self.several else self.parts[ONE]

    def on_device(self) -> Y:
        """The same as JAX's arrays."""
        return jax.tree.map(jax.device_put, self.y)

    def __bool__(self) -> bool:
        return bool(self.parts)

    def named(self, site: str) -> np.ndarray | None:
        """What is observed of a site: the part of its name, or the one part there is."""
        return self.parts.get(site if self.several else ONE)

    def called(self, name: str) -> str:
        """How a sentence calls a part."""
        return f"y[{name!r}]" if self.several else ONE

    @property
    def missing(self) -> bool:
        """Whether any number is missing."""
        return any(bool(np.isnan(part).any()) for part in self.parts.values())

    def take(self, rows: Any) -> Response:
        """The response of some documents."""
        return replace(self, parts={name: part[rows] for name, part in self.parts.items()})

    def encode(self, y: Any) -> Any:
        """Labels as this response's codes, NaN where one is missing; numbers stay."""
        return codes_of(self.classes, y)

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Codes as labels, where the response came as labels."""
        return codes if self.classes is None else self.classes[codes]

    def without_labels(self, corpus: Corpus, y: Any) -> Response:
        """The response read as numbers, for a story that has no class to give the labels to."""
        return replace(self, parts={ONE: _numbers(ONE, in_order(corpus, y), corpus)}, classes=None)


def _parts(corpus: Corpus, codes: Any) -> tuple[dict[str, np.ndarray], bool]:
    """The numbers by name, and whether they came by name."""
    if not isinstance(codes, Mapping):
        return {ONE: _numbers(ONE, codes, corpus)}, False
    return {name: _numbers(f"y[{name!r}]", part, corpus) for name, part in codes.items()}, True


def labels_as_codes(y: Any) -> tuple[Any, np.ndarray | None]:
    """Labels as codes, NaN where one is missing, and the labels in the order of their codes; numbers stay, with None.

    Strings are in sorted order, False comes before True, and a Categorical has the order of its categories; one of
    numbers is read as those numbers.
    """
    labels = _labels(y)
    if labels is None:
        return y, None
    if isinstance(labels.dtype, pd.CategoricalDtype):
        classes = _names(labels.cat.categories)
    else:
        classes = np.array([False, True]) if _all(bool, labels) else np.unique(_names(labels.dropna()))
    return codes_of(classes, y), classes


def codes_of(classes: np.ndarray | None, y: Any) -> Any:
    """Labels as the codes that a fit with these classes has for them, NaN where one is missing; numbers stay."""
    labels = _labels(y)
    if classes is None or labels is None:
        return y
    present = labels.notna().to_numpy()
    names = _names(labels[present])
    places = pd.Index(classes.tolist(), dtype=object).get_indexer(names.tolist())
    if (places < 0).any():
        unknown, known = names[places < 0][0].item(), ", ".join(map(repr, classes.tolist()))
        raise ValueError(
            f"y has the label {unknown!r}, which the fit has not seen; write it as one of {known}, "
            "or None where unlabelled."
        )
    codes = np.full(len(labels), np.nan)
    codes[present] = places
    return codes


def warn_of_order(y: Any, classes: np.ndarray) -> None:
    """Say in which order an ordered response takes strings: sorted is seldom the order of their meaning."""
    if isinstance(y, Response):
        return
    if classes.dtype.kind == "U" and not isinstance(getattr(y, "dtype", None), pd.CategoricalDtype):
        order = " < ".join(map(repr, classes.tolist()))
        warnings.warn(
            f"y's labels are taken in the order {order}; for another give pd.Categorical(y, [...], ordered=True).",
            stacklevel=5,
        )


def _labels(y: Any) -> pd.Series | None:
    """y as a series if it holds labels."""
    if y is None or isinstance(y, Mapping) or np.ndim(y) != 1:
        return None
    series = pd.Series(y)
    if isinstance(series.dtype, pd.CategoricalDtype):
        categories = series.cat.categories
        return None if pd.api.types.is_numeric_dtype(categories.dtype) and not _all(bool, categories) else series
    return series if _all(str, series) or _all(bool, series) else None


def _all(kind: type, labels: pd.Series | pd.Index) -> bool:
    present = labels.dropna().tolist()
    return bool(present) and all(isinstance(label, kind) for label in present)


def _names(labels: pd.Series | pd.Index) -> np.ndarray:
    """Booleans as they are, anything else by its name."""
    return np.array(labels.tolist()) if _all(bool, labels) else labels.astype(str).to_numpy(str)


def in_order(corpus: Corpus, y: Any) -> Any:
    """y in the order of the documents where its index names them in another, refused where it names some of them.

    Row numbers name nothing: a frame that was filtered or shuffled before its texts became a corpus still has them. So a
    corpus whose documents are but numbered takes y row by row, and so does one that has none of the index' labels.
    """
    if isinstance(y, dict):
        return {name: in_order(corpus, part) for name, part in y.items()}
    if not isinstance(y, pd.Series | pd.DataFrame) or len(y) != len(corpus):
        return y
    if y.index.nlevels > 1 or not y.index.is_unique:
        return y
    labels, names = pd.Index(y.index.astype(str)), pd.Index(corpus.names)
    if labels.equals(names) or names.equals(pd.RangeIndex(len(names)).astype(str)):
        return y
    known = labels.isin(names)
    if known.all() and names.is_unique:
        return y.iloc[labels.get_indexer(names)]
    if known.any() and not pd.api.types.is_integer_dtype(y.index.dtype):
        raise ValueError(
            f"y has {labels[~known][0]!r} in its index, which is no name of a document, beside others that are; give one "
            "row a document under its name, or y.to_numpy() for rows in the documents' order."
        )
    return y


def _numbers(name: str, y: Any, corpus: Corpus) -> np.ndarray:
    table = pd.DataFrame(y) if np.ndim(y) == 2 else pd.Series(y)
    for dtype in table.dtypes if np.ndim(y) == 2 else [table.dtype]:
        if dtype.kind in FIXES:
            raise ValueError(f"{name} holds {FIXES[dtype.kind]}.")
    try:
        values = table.to_numpy(float, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} is not numeric ({error}); labels are for one response that is a class: code them as numbers, "
            "NaN where unlabelled."
        ) from error
    if len(values) != len(corpus):
        raise ValueError(f"{name} has {len(values)} values for {len(corpus)} documents; give one for each.")
    if np.isinf(values).any():
        raise ValueError(
            f"{name} is infinite at document {int(np.argmax(np.isinf(values)))}; give a finite number, or NaN."
        )
    return values.astype(np.float32)
