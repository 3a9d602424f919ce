"""A corpus that somebody has counted, in a folder: counts.npz, vocabulary.txt, documents.csv and, if kept, text.csv.gz."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pandas as pd
from scipy import sparse

from .corpus import Corpus

FILES = ("counts.npz", "vocabulary.txt", "documents.csv")
TEXTS = "text.csv.gz"


def prepared(folder: Path, vectorizer_options: dict[str, Any]) -> Corpus:
    """The corpus of a folder, once its files fit each other; with options its texts are counted anew.

    counts.npz is a scipy matrix of documents and terms, vocabulary.txt has a term a line, documents.csv a row a document,
    text.csv.gz a row a document with a column `text`. Columns of documents.csv become covariates.
    """
    for name in FILES:
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder} has no {name}: a prepared corpus is {', '.join(FILES)}")
    try:
        counts = sparse.load_npz(folder / FILES[0]).tocsr()
        terms = (folder / FILES[1]).read_text(encoding="utf-8").removesuffix("\n").split("\n")
        table = pd.read_csv(folder / FILES[2])
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError) as error:
        reason = str(error).split("\n")[0].rstrip(". ")
        raise ValueError(f"{folder} cannot be read ({reason}): prepare it anew") from error
    rows = {FILES[0]: counts.shape[0], FILES[2]: len(table)}
    texts = _texts(folder) if vectorizer_options else None
    if texts is not None:
        rows[TEXTS] = len(texts)
    if len(set(rows.values())) != 1:
        raise ValueError(f"{folder} is not one corpus, its files have {rows} documents: prepare it anew")
    if counts.shape[1] != len(terms):
        raise ValueError(
            f"{folder} is not one corpus, {FILES[0]} has {counts.shape[1]} terms and {FILES[1]} {len(terms)}: prepare anew"
        )
    names = next((table[column] for column in ("id", "doc") if column in table and table[column].is_unique), None)
    if texts is not None:
        options = {"empty": "drop", **vectorizer_options}
        return Corpus.from_texts(texts, names=names, covariates=table, **options)
    return Corpus.from_counts(counts, terms, names=names, covariates=table, empty="drop")


def _texts(folder: Path) -> list[str]:
    file = folder / TEXTS
    if not file.is_file():
        raise FileNotFoundError(f"{folder} has counts and no {TEXTS} to count anew: leave the vectoriser's options out")
    try:
        return pd.read_csv(file, keep_default_na=False)["text"].tolist()
    except (OSError, ValueError, KeyError, EOFError) as error:
        reason = str(error).split("\n")[0].rstrip(". ")
        raise ValueError(f"{file} cannot be read ({reason}): prepare it anew") from error
