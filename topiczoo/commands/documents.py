"""The documents of a command: read from the file that is named, in the words of a fit where there is one."""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

# columns and files as corpora.read calls them, and as the command line does
CALLED = {"names": "--id", "text": "--text", "y": "--y", "covariates": "--covariates", "vocabulary": "--vocabulary",
          "responses": "--responses", "delimiter": "--delimiter", "encoding": "--encoding", "format": "--format",
          "min_df": "--min-df", "max_df": "--max-df", "stop_words": "--stop-words", "ngram_range": "--ngrams",
          "keep_texts": "--keep-texts", "files": "DATA"}  # fmt: skip
DEFAULTS: dict[str, Any] = {"min_df": 2, "stop_words": "english"}


def read_corpus(options: argparse.Namespace, path: str) -> tuple[Any, Any, dict[str, Any]]:
    """Documents to be fitted, their responses or None, and how their words were chosen."""
    given = chosen_words(options)
    words = given if _format(options, path) == "ldac" else {**DEFAULTS, **given}
    kept = {"keep_texts": True} if options.keep_texts else {}
    corpus, y = _read(options, path, empty="drop", vocabulary=options.vocabulary, **words, **kept)
    reasons = {"left out, without a word of the vocabulary": corpus.num_dropped, "unlabelled": _unlabelled(y)}
    print_rows(len(corpus) + corpus.num_dropped, reasons)
    print(f"{corpus!r}")
    return corpus, y, words


def read_new(options: argparse.Namespace, path: str, fit: Any, *, keep_texts: bool = False) -> tuple[Any, Any]:
    """New documents in the words of a fit, and their responses or None; ``keep_texts`` where they are to be read."""
    format = _format(options, path)
    if format == "ldac":
        if options.vocabulary is None and fit.info.get("format") != "ldac":
            raise ValueError(f"{path!r} is LDA-C, and the fit was to texts; give its terms by --vocabulary FILE.")
        corpus, y = _read(options, path, empty="keep", vocabulary=options.vocabulary or fit.vocabulary)
        corpus = corpus.with_vocabulary(fit.vocabulary)
    else:
        if options.vocabulary is not None:
            raise ValueError(
                "--vocabulary names the terms of LDA-C; texts are counted in those of the fit: leave it out."
            )
        words = _words_of(fit)
        if format != "folder":
            options.text = options.text or fit.info.get("text")
        if options.covariates is None:
            options.covariates = ",".join(map(str, fit.corpus.covariates.columns)) or None
        corpus, y = _read(options, path, empty="keep", vocabulary=fit.vocabulary, keep_texts=keep_texts, **words)
    unknown = int((corpus.lengths == 0).sum())
    if unknown == len(corpus):
        raise ValueError(
            f"{path!r} has no document with a word that the fit knows, in {unknown} rows of column {options.text!r}; give "
            "texts of the kind that was fitted."
        )
    print_rows(len(corpus), {"without a word that the fit knows": unknown, "unlabelled": _unlabelled(y)})
    return corpus, y


def stream_of(options: argparse.Namespace, path: str, fit: Any) -> Any:
    """New documents in the words of a fit, batch by batch."""
    from topiczoo import corpora

    covariates = options.covariates or ",".join(map(str, fit.corpus.covariates.columns))
    columns = [name.strip() for name in covariates.split(",") if name.strip()]
    text = options.text or fit.info.get("text") or "text"
    with called_as_here():
        return corpora.stream(
            path, text, vocabulary=fit.vocabulary, names=options.id, covariates=columns, **_words_of(fit)
        )


def _words_of(fit: Any) -> dict[str, Any]:
    """How the words of a fit were chosen, as far as that tells how texts are split."""
    known = fit.info.get("vectoriser", {})
    words: dict[str, Any] = {"stop_words": known["stop_words"]} if known.get("stop_words") else {}
    if "ngram_range" in known:
        words["ngram_range"] = tuple(known["ngram_range"])
    return words


@contextlib.contextmanager
def called_as_here() -> Iterator[None]:
    """A sentence that begins with an argument of a reader begins with what the command line calls it."""
    try:
        yield
    except (ValueError, TypeError, FileNotFoundError) as error:
        said = re.sub(r"^(\w+)(?= )", lambda word: CALLED.get(word[1], word[1]), str(error))
        raise type(error)(said) from None


def standardised(y: Any, column: str) -> tuple[Any, list[float]]:
    """Responses in standard units, and the mean and deviation they had."""
    import numpy as np

    if not np.issubdtype(y.dtype, np.number):
        raise ValueError(f"--standardise needs numbers, and the column {column!r} holds labels; leave it out.")
    mean, deviation = float(np.nanmean(y)), float(np.nanstd(y)) or 1.0
    return (y - mean) / deviation, [mean, deviation]


def check_responses(options: argparse.Namespace) -> None:
    """Refuse options that ask for responses where there are none."""
    if options.standardise and not (options.y or options.responses):
        raise ValueError("--standardise is of use with --y only; name the column of responses, or leave it out.")
    if options.y and options.responses:
        raise ValueError("--y and --responses are both given; --responses is for LDA-C, --y for all others.")


def chosen_words(options: argparse.Namespace) -> dict[str, Any]:
    """The options of words that are given, as scikit-learn's vectoriser takes them."""
    words: dict[str, Any] = {}
    for name in ("min_df", "max_df"):
        if (said := getattr(options, name)) is not None:
            words[name] = _share_or_number(CALLED[name], str(said))
    if options.stop_words is not None:
        words["stop_words"] = _stop_words(options.stop_words)
    if options.ngrams is not None:
        words["ngram_range"] = _range(options.ngrams)
    return words


def print_rows(rows: int, reasons: Mapping[str, Any]) -> None:
    """How many rows were read, and for each reason how many of them count for less."""
    told = [f"{number} {reason}" for reason, number in reasons.items() if number]
    print(f"{rows} rows read: {'; '.join(told) or 'all of them count'}")


def _read(options: argparse.Namespace, path: str, **settings: Any) -> tuple[Any, Any]:
    from topiczoo import corpora

    y, responses = getattr(options, "y", None), getattr(options, "responses", None)
    covariates = [name.strip() for name in options.covariates.split(",")] if options.covariates else None
    options.text = options.text or "text"
    with called_as_here():
        data: Any = corpora.read(
            path, options.text, y=y, names=options.id, covariates=covariates, format=options.format,
            delimiter=options.delimiter, encoding=options.encoding, responses=responses, tell=print, **settings,
        )  # fmt: skip
    return data if y or responses else (data, None)


def _format(options: argparse.Namespace, path: str) -> str:
    from topiczoo.corpora.files.tables import format_of

    if not Path(path).exists():
        raise FileNotFoundError(f"{path!r} is not there; look at the name and the folder.")
    return format_of(Path(path), options.format)


def _share_or_number(option: str, said: str) -> float | int:
    """A number of documents, or with a point their share, as scikit-learn has it."""
    if re.fullmatch(r"\d+", said) and int(said) >= 1:
        return int(said)
    if re.fullmatch(r"\d*\.\d+", said) and 0 <= float(said) <= 1:
        return float(said)
    raise ValueError(f"{option} is {said!r}; give a number of documents such as 5, or a share from 0.0 to 1.0.")


def _stop_words(said: str) -> str | list[str] | None:
    if said in ("english", "none"):
        return None if said == "none" else said
    if not Path(said).is_file():
        raise FileNotFoundError(f"--stop-words {said!r} is no file; give one with a word a line, english, or none.")
    from topiczoo.corpora.ldac import lines_of

    lines = lines_of(said, "--stop-words", None)
    # as texts are cut into words: "don't" is don there
    return sorted({word for line in lines for word in re.findall(r"\b\w\w+\b", line.lower())})


def _range(said: str) -> tuple[int, int]:
    numbers = [part.strip() for part in said.split(",")]
    if not (len(numbers) in (1, 2) and all(part.isdecimal() for part in numbers)):
        raise ValueError(f"--ngrams is {said!r}; give two whole numbers, such as 1,2.")
    low, high = int(numbers[0]), int(numbers[-1])
    if not 1 <= low <= high:
        raise ValueError(f"--ngrams is {said!r}; give two whole numbers from 1 on, the smaller first, such as 1,2.")
    return low, high


def _unlabelled(y: Any) -> int:
    import pandas as pd

    return 0 if y is None else int(pd.isna(y).sum())
