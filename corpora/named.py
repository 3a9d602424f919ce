"""Corpora by name: `fetch` reads a copy on this machine, or downloads the published file, checks it and keeps it."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .corpus import Corpus
from .files.archives import Table, bbc_news, conference_papers, film_reviews, newsgroups
from .ldac import as_responses
from .prepared import FILES, prepared

VARIABLE = "TOPICZOO_DATA"
COUNTING = {"min_df": 5}  # of texts, unless told otherwise


@dataclass(frozen=True)
class Source:
    """Where a corpus comes from and on what terms.

    A corpus without `url` is not published as a file that can be read here: `page` says where it is described, and only a
    prepared copy serves. `sha256` is None where no published checksum is known: such a file is downloaded only for who
    gives one, or says that it need not be checked.
    """

    title: str
    response: str | tuple[str, ...] | None
    page: str
    terms_of_use: str
    cite: str
    url: str | None = None
    file: str = ""
    sha256: str | None = None
    table: Table | None = None


SOURCES = {
    "newsgroups20": Source(
        "20 Newsgroups, split by date",
        "group",
        "http://qwone.com/~jason/20Newsgroups/",
        "none is stated, the posts are their authors': measure on it, do not pass it on",
        "K. Lang (1995), Newsweeder: learning to filter netnews, ICML",
        # address and checksum are those of sklearn.datasets.fetch_20newsgroups
        "https://ndownloader.figshare.com/files/5975967",
        "20news-bydate.tar.gz",
        "8f1b2514ca22a5ade8fbb9cfa5727df95fa587f4c87b786e15c759fa66d95610",
        newsgroups,
    ),
    "movie-reviews": Source(
        "film reviews by four critics with ratings between 0 and 1 (scale data 1.0)",
        "rating",
        "https://www.cs.cornell.edu/people/pabo/movie-review-data/",
        "none is stated: measure on it, do not pass it on",
        "B. Pang and L. Lee (2005), Seeing stars, ACL",
        "https://www.cs.cornell.edu/people/pabo/movie-review-data/scale_data.tar.gz",
        "scale_data.tar.gz",
        table=film_reviews,
    ),
    "bbc-news": Source(
        "BBC news of 2004 and 2005 in five categories",
        "category",
        "http://mlg.ucd.ie/datasets/bbc.html",
        "the BBC owns the articles, for research only: measure on it, do not pass it on",
        "D. Greene and P. Cunningham (2006), Practical solutions to the problem of diagonal dominance, ICML",
        "http://mlg.ucd.ie/files/datasets/bbc-fulltext.zip",
        "bbc-fulltext.zip",
        table=bbc_news,
    ),
    "nips12": Source(
        "papers of NIPS, volumes 0 to 12 (1987 to 1999)",
        None,
        "https://cs.nyu.edu/~roweis/data.html",
        "none is stated, the papers are their authors': measure on it, do not pass it on",
        "S. Roweis, NIPS conference papers volumes 0 to 12",
        "https://cs.nyu.edu/~roweis/data/nips12raw_str602.tgz",
        "nips12raw_str602.tgz",
        table=conference_papers,
    ),
    "geotext": Source(
        "Twitter authors with latitude and longitude (GeoText 2010-10-12)",
        ("latitude", "longitude"),
        "http://www.cs.cmu.edu/~ark/GeoText/",
        "see its page: measure on it, do not pass it on",
        "J. Eisenstein and others (2010), A latent variable model for geographic lexical variation, EMNLP",
    ),
    "political-blogs": Source(
        "5000 posts of six political blogs of 2008 (poliblog5k of the R package stm)",
        "rating",
        "https://cran.r-project.org/package=stm",
        "see its page: measure on it, do not pass it on",
        "J. Eisenstein and E. Xing (2010), The CMU 2008 political blog corpus",
    ),
}  # fmt: skip


def fetch(
    name: str,
    *,
    folder: str | os.PathLike[str] | None = None,
    checksum: str | None = None,
    tell: Callable[[str], Any] | None = print,
    **vectorizer_options: Any,
) -> tuple[Corpus, np.ndarray | None]:
    """A public corpus by its name: "newsgroups20", "movie-reviews", "bbc-news", "nips12", "geotext", "political-blogs".

    It is looked for in a folder, first that of `folder`, else that of the variable ``TOPICZOO_DATA``, else the user's cache:

    * as `NAME/` with counts.npz, vocabulary.txt and documents.csv, a copy that somebody has prepared: it is taken as it is,
      once its parts fit each other, and with `vectorizer_options` its text.csv.gz is counted anew;
    * as the published file, whose texts are counted by `CountVectorizer` (terms of five documents or more unless the options
      say otherwise). What is not there is downloaded, where pooch is installed: ``pip install 'topiczoo[data]'``.

    The two may count words differently: what is said at the end tells documents, terms and tokens.

    Parameters
    ----------
    checksum : the SHA-256 that the published file must have, for a file whose checksum this package does not know;
        "unchecked" takes whatever comes.
    tell : called with two sentences, on what was read and on its terms of use; None for silence.

    Returns
    -------
    The corpus and its responses: labels or ratings, [documents, 2] of latitude and longitude, or None. All columns, the
    published split into train and test with them, are `corpus.covariates`.

    >>> corpus, rating = corpora.fetch("movie-reviews")
    """
    source = SOURCES.get(name)
    if source is None:
        raise ValueError(f"name is {name!r}: choose from {', '.join(map(repr, SOURCES))}")
    known = _sum(checksum, source)
    base = _folder() if folder is None else Path(folder)
    if (base / name).is_dir():
        origin = base / name
        corpus = prepared(origin, vectorizer_options)
    else:
        origin = _published(name, source, base, known)
        assert source.table is not None
        corpus = _counted(source.table(origin), origin, vectorizer_options)
    y = _responses(corpus, source.response, origin)
    if tell is not None:
        dropped = f", {corpus.num_dropped} empty ones left out" if corpus.num_dropped else ""
        tell(
            f"{name}: {source.title}; {len(corpus)} documents{dropped}, {corpus.num_terms} terms, "
            f"{int(corpus.lengths.sum())} tokens, from {origin}."
        )
        tell(f"Licence: {source.terms_of_use}. Source: {source.page}. Please cite {source.cite}.")
    return corpus, y


def _folder() -> Path:
    """The one that the variable names, or data/ in the user's cache folder."""
    if asked := os.environ.get(VARIABLE, "").strip():
        return Path(asked).expanduser()
    try:
        home = Path.home()
    except RuntimeError:
        raise OSError(f"the user has no home folder to keep data in: set {VARIABLE} to a folder") from None
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "topiczoo" / "data"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "topiczoo" / "data"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "topiczoo" / "data"


def _sum(checksum: str | None, source: Source) -> str | None:
    """The checksum to hold the file to: that of the registry, the user's, or "unchecked"; None where none is known."""
    if checksum is None:
        return source.sha256
    told = checksum.removeprefix("sha256:").lower()
    if told != "unchecked" and not re.fullmatch("[0-9a-f]{64}", told):
        raise ValueError(f"checksum is {checksum!r}: give the 64 hexadecimal digits of a SHA-256, or 'unchecked'")
    if source.sha256 not in (None, told):
        raise ValueError(f"checksum is {checksum!r}, and {source.file} is known to have {source.sha256}: leave it out")
    return told


def _published(name: str, source: Source, base: Path, known: str | None) -> Path:
    """The published file in the folder: as it lies there, or downloaded."""
    by_hand = f"put {base / name} there with {', '.join(FILES)}, or point {VARIABLE} at the folder that holds {name}"
    if source.url is None:
        raise FileNotFoundError(f"{name} cannot be downloaded (it is described at {source.page}): {by_hand}")
    file = base / source.file
    there = f"download {source.url} and put it there as {file}, or {by_hand}"
    if not file.is_file():
        if known is None:
            raise FileNotFoundError(
                f"{name} is not in {base}, and no checksum is known of {source.url}: give checksum= as its publisher tells "
                f"it, or 'unchecked'; or {there}"
            )
        _download(source.url, file, None if known == "unchecked" else known, there)
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if known not in (None, "unchecked", found):
        raise ValueError(f"{file} has the SHA-256 {found} and not {known}: remove it, and it is downloaded anew")
    return file


def _download(url: str, file: Path, known: str | None, there: str) -> None:
    """Download a file; it comes to its place whole and checked, or not at all."""
    try:
        import pooch
    except ImportError:
        raise ImportError(
            f"{file} is not there, and downloading needs pooch: pip install 'topiczoo[data]'; or {there}"
        ) from None
    try:
        # pooch writes beside the place, compares the checksum, and moves the file to it at the end
        file.parent.mkdir(parents=True, exist_ok=True)
        pooch.retrieve(url, known, file.name, file.parent, downloader=pooch.HTTPDownloader(timeout=30))
    except (OSError, ValueError) as error:
        reason = str(error).split("\n")[0][:200].rstrip(". ")
        raise OSError(f"{url} could not be downloaded ({reason}): {there}") from error


def _counted(table: pd.DataFrame, origin: Path, options: dict[str, Any]) -> Corpus:
    if table.empty:
        raise ValueError(f"{origin} holds none of the texts it is known for: put the published file there")
    columns = [column for column in table.columns if column not in ("id", "text")]
    names = "id" if table["id"].is_unique else None
    return Corpus.from_frame(table, names=names, covariates=columns, **{"empty": "drop", **COUNTING, **options})


def _responses(corpus: Corpus, response: str | tuple[str, ...] | None, origin: Path) -> np.ndarray | None:
    if response is None:
        return None
    columns = [response] if isinstance(response, str) else list(response)
    if missing := [column for column in columns if column not in corpus.covariates]:
        raise ValueError(f"{origin} has no column {missing[0]!r} of responses: prepare it with one")
    if isinstance(response, str):
        return as_responses(corpus.covariates[response])
    return corpus.covariates[columns].to_numpy(dtype=float)
