"""Corpora by name: copies that are there, published files, downloads, and what is said when there is none."""

from __future__ import annotations

import gzip
import hashlib
import io
import sys
import tarfile
import zipfile
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from topiczoo import corpora
from topiczoo.corpora import named

TEXTS = ["good good film", "bad film", "film film bad"]
SCALE = {
    "scaledata/Ann+Lee/subj.Ann+Lee": "good good film\nbad film\n", "scaledata/Ann+Lee/id.Ann+Lee": "7\n8\n",
    "scaledata/Ann+Lee/rating.Ann+Lee": "0.9\n0.1\n", "scaledata/Ann+Lee/label.3class.Ann+Lee": "2\n0\n",
    "scaledata/Bo/subj.Bo": "film film bad\n", "scaledata/Bo/id.Bo": "9\n", "scaledata/Bo/rating.Bo": "0.2\n",
}  # fmt: skip


def tarred(files: dict[str, str], links: dict[str, str] | None = None) -> bytes:
    """A gzipped tar archive; the same bytes for the same files."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode("latin-1"))
            archive.addfile(member, io.BytesIO(text.encode("latin-1")))
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
    return gzip.compress(raw.getvalue(), mtime=0)


def write_prepared(folder, **changes):
    """The three texts, counted, with what is to be different."""
    folder.mkdir(parents=True)
    terms = changes.get("terms", ["bad", "film", "good"])
    counts = [[text.split().count(term) for term in ["bad", "film", "good"]] for text in TEXTS]
    sparse.save_npz(folder / "counts.npz", sparse.csr_array(np.array(counts)))
    (folder / "vocabulary.txt").write_text("\n".join(terms) + "\n")
    table = pd.DataFrame({"id": [7, 8, 9], "author": ["Ann Lee", "Ann Lee", "Bo"], "rating": [0.9, 0.1, 0.2]})
    table.iloc[: changes.get("rows", 3)].to_csv(folder / "documents.csv", index=False)
    if "texts" in changes:
        pd.DataFrame({"text": changes["texts"]}).to_csv(folder / "text.csv.gz", index=False)


def entries(folder):
    return sorted(path.name for path in folder.rglob("*"))


@pytest.fixture
def no_network(monkeypatch):
    """A downloader that hands out what is put into it, and fails where nothing is."""
    pooch = pytest.importorskip("pooch")
    served: dict[str, bytes] = {}

    def download(self, url, output_file, pooch, check_only=False):
        if url not in served:
            raise ConnectionError(f"no route to {url}\nand more lines")
        with open(output_file, "wb") as file:
            file.write(served[url])

    monkeypatch.setattr(pooch.HTTPDownloader, "__call__", download)
    return served


def is_the_films(corpus, rating):
    assert corpus.vocabulary.tolist() == ["bad", "film", "good"]
    assert corpus.counts.toarray().tolist() == [[0, 1, 2], [1, 1, 0], [1, 2, 0]]
    assert rating.tolist() == [0.9, 0.1, 0.2] and corpus.names.tolist() == ["7", "8", "9"]
    assert corpus.covariates["author"].tolist() == ["Ann Lee", "Ann Lee", "Bo"]


def test_a_prepared_copy_is_found_by_the_variable_and_its_terms_of_use_are_told(tmp_path, monkeypatch, capsys):
    write_prepared(tmp_path / "movie-reviews")
    monkeypatch.setenv("TOPICZOO_DATA", str(tmp_path))
    monkeypatch.setitem(sys.modules, "pooch", None)  # nothing is downloaded
    is_the_films(*corpora.fetch("movie-reviews"))
    said = capsys.readouterr().out
    assert "3 documents, 3 terms, 8 tokens" in said and "Licence: none is stated" in said and "Pang" in said
    assert entries(tmp_path) == ["counts.npz", "documents.csv", "movie-reviews", "vocabulary.txt"]
    corpora.fetch("movie-reviews", tell=None)
    assert capsys.readouterr().out == ""


def test_texts_of_a_prepared_copy_are_counted_anew_where_options_are_given(tmp_path):
    write_prepared(tmp_path / "movie-reviews", texts=["good good film", "bad", "NA film bad"])
    corpus, rating = corpora.fetch("movie-reviews", folder=tmp_path, stop_words=["bad"], keep_texts=True, tell=None)
    assert corpus.vocabulary.tolist() == ["film", "good", "na"]
    assert rating.tolist() == [0.9, 0.2] and corpus.texts.tolist() == ["good good film", "NA film bad"]  # one was empty


@pytest.mark.parametrize(
    "changes, options, words",
    [
        ({"rows": 2}, {}, "'counts.npz': 3|'documents.csv': 2|anew"),
        ({"terms": ["a", "b"]}, {}, "3 terms|vocabulary.txt 2|anew"),
        ({}, {"min_df": 2}, "text.csv.gz|leave the vectoriser's options out"),
        ({"texts": TEXTS[:2]}, {"min_df": 2}, "'text.csv.gz': 2|anew"),
    ],
)
def test_a_copy_whose_files_do_not_fit_each_other_is_refused(tmp_path, changes, options, words):
    write_prepared(tmp_path / "movie-reviews", **changes)
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        corpora.fetch("movie-reviews", folder=tmp_path, **options)
    assert all(word in str(caught.value) for word in words.split("|")), caught.value


@pytest.mark.parametrize("name", ["counts.npz", "vocabulary.txt", "documents.csv"])
def test_a_copy_with_a_file_that_is_damaged_or_missing_is_refused(tmp_path, name):
    folder = tmp_path / "movie-reviews"
    write_prepared(folder)
    (folder / name).write_bytes(b"\xff\x00")
    with pytest.raises(ValueError, match=r"movie-reviews .*anew"):
        corpora.fetch("movie-reviews", folder=tmp_path)
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"no {name}"):
        corpora.fetch("movie-reviews", folder=tmp_path)


def test_a_published_file_is_downloaded_once_checked_and_read_without_unpacking(tmp_path, monkeypatch, no_network):
    content = tarred(SCALE)
    source = replace(named.SOURCES["movie-reviews"], sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(named.SOURCES, "movie-reviews", source)
    monkeypatch.setitem(no_network, source.url, content)
    is_the_films(*corpora.fetch("movie-reviews", folder=tmp_path / "new" / "folder", min_df=1))
    assert entries(tmp_path) == ["folder", "new", "scale_data.tar.gz"]
    no_network.clear()
    is_the_films(*corpora.fetch("movie-reviews", folder=tmp_path / "new" / "folder", min_df=1))


def test_another_file_than_the_one_expected_leaves_nothing_behind(tmp_path, no_network):
    no_network[named.SOURCES["newsgroups20"].url] = tarred(SCALE)
    with pytest.raises(OSError, match=r"could not be downloaded.*20news-bydate\.tar\.gz"):
        corpora.fetch("newsgroups20", folder=tmp_path)
    assert entries(tmp_path) == []


def test_a_file_that_lies_there_is_held_to_its_checksum(tmp_path):
    (tmp_path / "20news-bydate.tar.gz").write_bytes(tarred(SCALE))
    with pytest.raises(ValueError, match=r"SHA-256.*8f1b2514.*remove it"):
        corpora.fetch("newsgroups20", folder=tmp_path)


def test_without_a_network_one_sentence_says_which_file_to_put_where(tmp_path, no_network):
    with pytest.raises(OSError) as caught:
        corpora.fetch("newsgroups20", folder=tmp_path)
    said = str(caught.value)
    for word in (
        "no route",
        "https://ndownloader.figshare.com",
        str(tmp_path / "20news-bydate.tar.gz"),
        "TOPICZOO_DATA",
    ):
        assert word in said
    assert "\n" not in said and entries(tmp_path) == []


def test_a_file_of_which_no_checksum_is_known_is_downloaded_only_when_told(tmp_path, no_network):
    content = tarred(SCALE)
    no_network[named.SOURCES["movie-reviews"].url] = content
    with pytest.raises(OSError, match="could not be downloaded"):
        corpora.fetch("movie-reviews", folder=tmp_path, checksum="0" * 64)
    assert entries(tmp_path) == []
    told = "sha256:" + hashlib.sha256(content).hexdigest().upper()
    is_the_films(*corpora.fetch("movie-reviews", folder=tmp_path, checksum=told, min_df=1))
    for folder in (tmp_path, tmp_path / "other"):
        is_the_films(*corpora.fetch("movie-reviews", folder=folder, checksum="unchecked", min_df=1))


def test_without_pooch_a_sentence_tells_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ImportError, match=r"pip install 'topiczoo\[data\]'; or download https.*TOPICZOO_DATA"):
        corpora.fetch("newsgroups20", folder=tmp_path)


@pytest.mark.parametrize(
    "name, options, words",
    [
        ("newsgroups", {}, "name is 'newsgroups'|'newsgroups20'"),
        ("movie-reviews", {}, "no checksum is known|checksum=|scale_data.tar.gz"),
        ("geotext", {}, "cannot be downloaded|counts.npz|TOPICZOO_DATA"),
        ("bbc-news", {"checksum": "abc"}, "checksum is 'abc'|64"),
        ("newsgroups20", {"checksum": "0" * 64}, "8f1b2514|leave it out"),
        ("newsgroups20", {"checksum": "unchecked"}, "8f1b2514|leave it out"),
    ],
)
def test_what_cannot_be_had_is_said_before_anything_is_written(tmp_path, name, options, words):
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        corpora.fetch(name, folder=tmp_path, **options)
    assert all(word in str(caught.value) for word in words.split("|")), caught.value
    assert entries(tmp_path) == []


def test_every_published_archive_is_read_as_it_is_laid_out(tmp_path, monkeypatch):
    news = {
        "20news-bydate-test/sci.space/3": "Subject: a\n\nmoon", "20news-bydate-train/sci.space/2": "sun",
        "20news-bydate-train/alt.atheism/9": "caf\xe9", "20news-bydate-train/alt.atheism/cmd": "not a post",
    }  # fmt: skip
    (tmp_path / "20news-bydate.tar.gz").write_bytes(content := tarred(news))
    known = replace(named.SOURCES["newsgroups20"], sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(named.SOURCES, "newsgroups20", known)
    corpus, group = corpora.fetch("newsgroups20", folder=tmp_path, min_df=1)
    assert group.tolist() == ["alt.atheism", "sci.space", "sci.space"]
    assert corpus.covariates["split"].tolist() == ["train", "train", "test"] and "café" in corpus.vocabulary
    with zipfile.ZipFile(tmp_path / "bbc-fulltext.zip", "w") as archive:
        for name, text in {
            "bbc/": "",
            "bbc/tech/002.txt": "é",
            "bbc/sport/001.txt": "ball",
            "bbc/README.TXT": "no",
        }.items():
            archive.writestr(name, text.encode("latin-1" if "tech" in name else "utf-8"))
    corpus, category = corpora.fetch("bbc-news", folder=tmp_path, min_df=1, token_pattern=r"\w+")
    assert category.tolist() == ["sport", "tech"] and corpus.vocabulary.tolist() == ["ball", "é"]
    papers = {"nipstxt/nips00/0001.txt": "neural", "nipstxt/nips12/0003.txt": "kernel", "nipstxt/idx/a.txt": "no"}
    (tmp_path / "nips12raw_str602.tgz").write_bytes(tarred(papers))
    corpus, y = corpora.fetch("nips12", folder=tmp_path, min_df=1)
    assert y is None and corpus.covariates["year"].tolist() == [1987, 1999]


def test_a_hostile_archive_writes_nothing_and_its_links_are_not_followed(tmp_path):
    outside, folder = tmp_path / "secret", tmp_path / "cache"
    outside.write_text("a secret\n")
    folder.mkdir()
    hostile = {**SCALE, "../escaped/subj.Eve": "x\n"}
    (folder / "scale_data.tar.gz").write_bytes(tarred(hostile, {"scaledata/Eve/id.Eve": str(outside)}))
    with pytest.raises(ValueError, match=r"Eve.*whole published file"):
        corpora.fetch("movie-reviews", folder=folder)
    assert entries(tmp_path) == ["cache", "scale_data.tar.gz", "secret"]


@pytest.mark.parametrize(
    "content, words", [(b"<html>", "neither a tar nor a zip"), (tarred({"a": "b"}), "none of the texts")]
)
def test_a_file_that_is_something_else_is_refused(tmp_path, content, words):
    (tmp_path / "bbc-fulltext.zip").write_bytes(content)
    with pytest.raises(ValueError, match=words):
        corpora.fetch("bbc-news", folder=tmp_path)
