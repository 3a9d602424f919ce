"""Predictions and proportions of the documents of a stream, batch by batch, from Parquet to Parquet."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from topiczoo.corpora import Corpus
from topiczoo.corpora.streams import Stream

from .posterior.posterior import Posterior
from .predictive.predicting import predict, transform
from .programs.progress import tqdm
from .story.validation import check_share

ENDINGS = (".parquet", ".pq")
Told = Callable[[Corpus], pd.DataFrame]


def predict_to(
    fit: Posterior, path: str | os.PathLike[str], stream: Stream, *, interval: float = 0.9, progress_bar: bool = True,
    **options: Any,
) -> Path:  # fmt: skip
    """Write the predictions of a stream's documents to a Parquet file, a row a document in the order of the files.

    Its columns are those of ``prediction.frame(interval)``, after the document's name; of several responses each has its
    name before them. ``options`` are those of ``fit.predict``. A document's prediction depends on its words alone, not on
    what else is in its batch (``alike``). The file is there whole or not at all, and memory does not grow with it.
    """
    return write(path, stream, predictions_of(fit, interval, **options), progress_bar)


def transform_to(
    fit: Posterior, path: str | os.PathLike[str], stream: Stream, *, progress_bar: bool = True, **options: Any
) -> Path:
    """Write the expected topic proportions of a stream's documents to a Parquet file, a row a document.

    Its columns are the document's name, and one a topic, "topic 0" or the name that the topic has. ``options`` are those of
    ``fit.transform``; the rest is as in :func:`predict_to`.
    """
    return write(path, stream, proportions_of(fit, **options), progress_bar)


def predictions_of(fit: Posterior, interval: float, **options: Any) -> Told:
    """A function from documents to the table of their predictions."""
    check_share(interval=interval)
    if not fit.response:
        raise ValueError(f"The story {fit.story.name!r} has no response; use transform_to for topic proportions.")

    def told(corpus: Corpus) -> pd.DataFrame:
        found = predict(fit, corpus, **{"alike": True, **options})
        if not isinstance(found, dict):
            return found.frame(interval)
        return pd.concat([part.frame(interval).add_prefix(f"{name}: ") for name, part in found.items()], axis=1)

    return told


def proportions_of(fit: Posterior, **options: Any) -> Told:
    """A function from documents to the table of their topic proportions."""

    def told(corpus: Corpus) -> pd.DataFrame:
        shares = transform(fit, corpus, **{"alike": True, **options})
        names = fit.topic_names if fit.topic_names is not None else [f"topic {k}" for k in range(shares.shape[1])]
        return pd.DataFrame(shares, pd.Index(corpus.names, name="document"), list(names))

    return told


def write(path: str | os.PathLike[str], stream: Stream, told: Told, progress_bar: bool = True) -> Path:
    """A table of each batch, one after the other, to a file that is put in its place when it is whole."""
    place = _checked(path, stream)
    import pyarrow
    from pyarrow import parquet

    hidden = place.with_name(f".{place.name}.{secrets.token_hex(4)}.part")
    writer = None
    try:
        for frame in _frames(stream, told, progress_bar):
            table = pyarrow.Table.from_pandas(frame.reset_index(), preserve_index=False)
            if writer is None:
                writer = parquet.ParquetWriter(hidden, table.schema)
            writer.write_table(table.cast(writer.schema))
        if writer is not None:
            writer.close()
        os.replace(hidden, place)
    finally:
        if writer is not None:
            writer.close()
        hidden.unlink(missing_ok=True)
    return place


def _frames(stream: Stream, told: Told, progress_bar: bool) -> Iterator[pd.DataFrame]:
    name = stream.columns.names or "document"
    with tqdm(total=stream.num_documents, unit="document", disable=not progress_bar) as bar:
        for corpus, _ in stream.in_order().batches():
            yield told(corpus).rename_axis(name)
            bar.update(len(corpus))


def _checked(path: Any, stream: Any) -> Path:
    """Where the table goes, before anything is computed."""
    if not isinstance(stream, Stream):
        raise TypeError(f"stream is a {type(stream).__name__}; give corpora.stream(...), or use predict and transform.")
    place = Path(path)
    if place.suffix.lower() not in ENDINGS:
        raise ValueError(f"path is {str(path)!r}, and a stream is written as Parquet; let it end in .parquet.")
    if place.is_dir() or not place.parent.is_dir():
        raise FileNotFoundError(f"path {str(path)!r} is no file in an existing folder; give another.")
    if os.path.abspath(path) in {os.path.abspath(group.path) for group in stream.groups}:
        raise ValueError(f"path {str(path)!r} is a file that the stream reads; give another.")
    return place
