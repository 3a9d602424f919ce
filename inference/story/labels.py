"""Labels of classes: strings, booleans or a pandas Categorical outside, numbers 0, 1, ... inside."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpyro.distributions as dist
import pandas as pd

CLASSES = (dist.BernoulliLogits, dist.BernoulliProbs, dist.CategoricalLogits, dist.CategoricalProbs)


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
    if classes.dtype.kind == "U" and not isinstance(getattr(y, "dtype", None), pd.CategoricalDtype):
        order = " < ".join(map(repr, classes.tolist()))
        warnings.warn(
            f"y's labels are taken in the order {order}; for another give pd.Categorical(y, [...], ordered=True).",
            stacklevel=4,
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
