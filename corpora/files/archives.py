"""Published archives of texts as tables, a row a document. Members are read where they lie: nothing is unpacked."""

from __future__ import annotations

import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote_plus

import pandas as pd

Table = Callable[[Path], pd.DataFrame]


def members(archive: Path, pattern: str) -> Iterator[tuple[tuple[str, ...], bytes]]:
    """Groups of the pattern and content, for every plain file of a tar or zip archive whose path matches, by path."""
    whole = re.compile(pattern)
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            for name in sorted(zipped.namelist()):
                if found := whole.fullmatch(name):
                    yield found.groups(), zipped.read(name)
    elif tarfile.is_tarfile(archive):
        with tarfile.open(archive) as tarred:
            for member in sorted(tarred.getmembers(), key=lambda member: member.name):
                found = whole.fullmatch(member.name)
                if found and member.isreg() and (opened := tarred.extractfile(member)) is not None:
                    yield found.groups(), opened.read()
    else:
        raise ValueError(f"{archive} is neither a tar nor a zip archive: put the published file there")


def newsgroups(archive: Path) -> pd.DataFrame:
    """20news-bydate: a folder a part and a group, a file a post with its header."""
    found = [
        {"id": f"{group}/{post}", "group": group, "split": split, "text": content.decode("latin-1")}
        for (split, group, post), content in members(archive, r"20news-bydate-(train|test)/([^/]+)/(\d+)")
    ]
    return pd.DataFrame(sorted(found, key=lambda row: row["split"] == "test"))  # training posts come first


def film_reviews(archive: Path) -> pd.DataFrame:
    """Pang and Lee's scale data: of each critic a file of extracts, of ratings and of ids, a line a review."""
    found: dict[str, dict[str, list[str]]] = {}
    for (what, author), content in members(archive, r"(?:[^/]+/)*(subj|id|rating)\.([^/.]+)"):
        lines = content.decode("latin-1").rstrip("\n").split("\n")
        found.setdefault(unquote_plus(author), {})[what] = [line.strip() for line in lines]
    critics = []
    for author, columns in found.items():
        sizes = {what: len(lines) for what, lines in columns.items()}
        if set(sizes) != {"subj", "id", "rating"} or len(set(sizes.values())) != 1:
            raise ValueError(f"{archive} holds {sizes} lines of {author}: put the whole published file there")
        ratings = pd.to_numeric(pd.Series(columns["rating"]))
        critics.append(
            pd.DataFrame({"id": columns["id"], "author": author, "rating": ratings, "text": columns["subj"]})
        )
    return pd.concat(critics, ignore_index=True) if critics else pd.DataFrame()


def bbc_news(archive: Path) -> pd.DataFrame:
    """bbc-fulltext: a folder a category, a file an article."""
    return pd.DataFrame(
        [
            {"id": f"{category}.{number}", "category": category, "text": _either(content)}
            for (category, number), content in members(archive, r"bbc/([a-z]+)/(\d+)\.txt")
        ]
    )


def conference_papers(archive: Path) -> pd.DataFrame:
    """nips12raw: a folder a volume, the first that of 1987, and a scanned paper a file."""
    return pd.DataFrame(
        [
            {"id": f"nips{volume}/{paper}", "year": 1987 + int(volume), "text": content.decode("latin-1")}
            for (volume, paper), content in members(archive, r"nipstxt/nips(\d+)/(\d+)\.txt")
        ]
    )


def _either(content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return content.decode("latin-1")
