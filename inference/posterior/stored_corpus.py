"""The documents of a saved fit: their words as arrays, their names, vocabulary and covariates as JSON."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from topiczoo.corpora import Corpus

WORDS = ("word_document", "word_term", "word_count")


def read_corpus(state: Mapping[str, Any], words: Sequence[np.ndarray]) -> Corpus:
    vocabulary, names = state["vocabulary"], np.array(state["document_names"], object)
    names.flags.writeable = False  # as those of the corpus that was fitted, in which they may repeat
    document, term, count = words
    counts = sparse.coo_array((count, (document, term)), shape=(len(names), len(vocabulary)))
    corpus = Corpus.from_counts(
        counts, vocabulary, names=names, covariates=_read_frame(state["covariates"]), empty="keep"
    )
    if state.get("sentences") is not None:  # since they are kept
        corpus = corpus.with_sentences(*state["sentences"])
    return corpus if state["texts"] is None else corpus.with_texts(state["texts"])


def plain_sentences(corpus: Corpus) -> list[list[int]] | None:
    """The words of documents in their order, and the sentence of each, where they are kept."""
    found = corpus.sentences
    return None if found is None else [found.terms.tolist(), found.numbers.tolist()]


def plain_frame(frame: pd.DataFrame) -> dict[str, Any]:
    """Covariates as JSON has them: numbers and texts exactly, dates, categories and the like as pandas writes them."""
    exact, rest = {}, {}
    for place in range(frame.shape[1]):
        column = frame.iloc[:, place].reset_index(drop=True)
        if isinstance(column.dtype, np.dtype) and column.dtype.kind in "fiub":
            exact[str(place)] = [str(column.dtype), column.tolist()]
        elif not isinstance(column.dtype, pd.CategoricalDtype) and all(isinstance(value, str) for value in column):
            # pandas has texts in a kind of their own, which holds no half of a character where pyarrow is installed
            exact[str(place)] = ["object" if column.dtype == object else "", column.tolist()]
        else:
            rest[str(place)] = column
    try:
        table = pd.DataFrame(rest).to_json(orient="table", index=False) if rest else ""
    except (TypeError, ValueError, OverflowError) as error:
        names = [frame.columns[int(place)] for place in rest]
        raise ValueError(
            f"The covariates {names} cannot be saved ({error}); make them numbers, texts, dates or categories."
        ) from error
    return {"columns": list(frame.columns), "exact": exact, "table": table}


def _read_frame(stored: Any) -> pd.DataFrame | None:
    if not stored:
        return None
    if isinstance(stored, str):  # of version 2
        return pd.read_json(io.StringIO(stored), orient="table")
    columns = {place: pd.Series(values, dtype=kind or None) for place, (kind, values) in stored["exact"].items()}
    if stored["table"]:
        columns |= dict(pd.read_json(io.StringIO(stored["table"]), orient="table").items())
    if not stored["columns"]:
        return None
    frame = pd.concat([columns[str(place)] for place in range(len(stored["columns"]))], axis=1)
    return frame.set_axis(stored["columns"], axis=1)
