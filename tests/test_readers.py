"""Corpora read from files: tables and LDA-C."""

import numpy as np
import pandas as pd
import pytest
from test_corpora import TERMS, TEXTS, assert_is_table, some_corpus

from topiczoo import corpora


@pytest.mark.parametrize("ending, separator", [("csv", ","), ("csv.gz", ","), ("tsv", "\t"), ("CSV", ",")])
def test_read_csv_reads_tables_by_their_ending(tmp_path, ending, separator):
    path = tmp_path / f"table.{ending}"
    pd.DataFrame({"text": TEXTS, "id": ["007", "008", "NA"], "year": [1, 2, 3]}).to_csv(
        path, sep=separator, index=False
    )
    corpus = corpora.read_csv(path, names="id", covariates=["year"])
    assert_is_table(corpus)
    assert corpus.names.tolist() == ["007", "008", "NA"]
    assert corpus.covariates["year"].tolist() == [1, 2, 3]


def test_read_csv_aligns_responses_with_the_documents_kept(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("text,stars,label\nant bee,4.5,yes\n,1,no\nNA,,maybe\ncat,2,no\n")
    corpus, stars = corpora.read_csv(path, y="stars", empty="drop")
    assert corpus.source_rows.tolist() == [0, 2, 3]
    assert corpus.vocabulary.tolist() == ["ant", "bee", "cat", "na"]
    np.testing.assert_array_equal(stars, [4.5, np.nan, 2.0])
    _, labels = corpora.read_csv(path, y="label", empty="drop", stop_words=["bee"])
    assert labels.tolist() == ["yes", "maybe", "no"]
    assert labels.dtype.kind == "U"
    path.write_text("text,label\nant,a\nbee,\n,b\ncat,NA\nant,c\n")
    _, labels = corpora.read_csv(path, y="label", empty="drop")
    assert labels.tolist() == ["a", None, None, "c"]  # None: unlabelled, to every engine


@pytest.mark.parametrize(
    "content, options, words",
    [
        ("text\nant\n", {"text": "body"}, "text|'body'|['text']"),
        ("text\nant\n", {"y": "stars"}, "y|'stars'|['text']"),
        ("text,label\nant,a\n,b\n", {}, "1 of 2 documents|(1)|empty='drop'"),
        ("text,label\nant,a,b,c\nant,a\n", {}, "table.csv|not a readable table|more cells"),
        ("text,label\nant,a\nant,a,b\n", {}, "table.csv|not a readable table|line 3"),
        ("", {}, "table.csv|not a readable table"),
        ("text,label\n", {}, "table.csv|a header and no rows|at least one"),
    ],
)
def test_read_csv_names_what_is_wrong(tmp_path, content, options, words):
    path = tmp_path / "table.csv"
    path.write_text(content)
    with pytest.raises(ValueError) as caught:
        corpora.read_csv(path, **options)
    for word in words.split("|"):
        assert word in str(caught.value)


def test_read_csv_refuses_other_endings(tmp_path):
    (tmp_path / "table.xlsx").write_text("")
    with pytest.raises(ValueError, match=r"table\.xlsx.*\.csv or .*convert"):
        corpora.read_csv(tmp_path / "table.xlsx")


def write_ldac(path, corpus):
    lines = []
    for document in corpus:
        pairs = [f"{term}:{count}" for term, count in zip(document.counts.indices, document.counts.data, strict=True)]
        lines.append(" ".join([str(len(pairs)), *pairs]))
    path.write_text("\n".join(lines) + "\n")


def test_read_ldac_gives_back_what_was_written(tmp_path):
    corpus = some_corpus()
    path, terms = tmp_path / "corpus.dat", tmp_path / "terms.txt"
    write_ldac(path, corpus)
    terms.write_text("\n".join(TERMS) + "\n")
    assert_is_table(corpora.read_ldac(path, terms))
    assert_is_table(corpora.read_ldac(str(path), str(terms)))
    assert_is_table(corpora.read_ldac(path, np.array(TERMS)))
    assert_is_table(corpora.read_ldac(path), terms=["0", "1", "2"])


def test_read_ldac_takes_empty_documents_as_told(tmp_path):
    path = tmp_path / "corpus.dat"
    path.write_text("1 0:2\n0\n1 1:1\n")
    assert corpora.read_ldac(path, empty="keep").lengths.tolist() == [2, 0, 1]
    assert corpora.read_ldac(path, empty="drop").source_rows.tolist() == [0, 2]
    with pytest.raises(ValueError, match=r"1 of 3 documents .*\(1\)"):
        corpora.read_ldac(path)


@pytest.mark.parametrize(
    "content, words",
    [
        ("1 0:2\n3 0:1 1:1\n", "corpus.dat, line 2|announces 3|holds 2|truncated"),
        ("1 0:2 1:1\n", "corpus.dat, line 1|announces 1|holds 2"),
        ("1 0:2\n2 0:1 one:1\n", "corpus.dat, line 2|'one:1'|term:count"),
        ("1 0:-2\n", "corpus.dat, line 1|'0:-2'|from 0"),
        ("1 0:1.5\n", "corpus.dat, line 1|'0:1.5'|whole"),
        ("x 0:1\n", "corpus.dat, line 1|'x'|number of pairs"),
        ("1 0:1\n\n1 0:1\n", "corpus.dat, line 2|blank line|0 for an empty document"),
        ("1 3:1\n", "corpus.dat, line 1|term 3|vocabulary of 3 terms"),
        ("", "corpus.dat|empty file|no documents"),
    ],
)
def test_read_ldac_names_file_line_and_fault(tmp_path, content, words):
    path = tmp_path / "corpus.dat"
    path.write_text(content)
    with pytest.raises(ValueError) as caught:
        corpora.read_ldac(path, TERMS)
    for word in words.split("|"):
        assert word in str(caught.value)


def test_read_ldac_misses_the_vocabulary_file(tmp_path):
    path = tmp_path / "corpus.dat"
    path.write_text("1 0:1\n")
    with pytest.raises(FileNotFoundError, match=r"vocabulary .*terms\.txt"):
        corpora.read_ldac(path, tmp_path / "terms.txt")


def test_write_csv_keeps_spreadsheets_from_running_texts(tmp_path):
    names = pd.Index(["=1+1", "-5", "a=b", "\tx", "@me", "-5+cmd"], name="document")
    frame = pd.DataFrame({"label": ["+yes", "no", "\rno", "-no", "", "no"], "=low": [-1.5, 2, 0, 0, 0, 1]}, index=names)
    path = tmp_path / "table.csv"
    corpora.write_csv(frame, path)
    found = pd.read_csv(path, keep_default_na=False, dtype={"document": str})
    assert found.columns.tolist() == ["document", "label", "'=low"]
    assert found["document"].tolist() == ["'=1+1", "-5", "a=b", "'\tx", "'@me", "'-5+cmd"]
    assert found["label"].tolist() == ["'+yes", "no", "'\rno", "'-no", "", "no"]
    assert found["'=low"].tolist() == [-1.5, 2, 0, 0, 0, 1]
    corpora.write_csv(frame, path, raw=True)
    raw = pd.read_csv(path, keep_default_na=False, dtype={"document": str}, index_col="document")
    pd.testing.assert_frame_equal(raw, frame, check_index_type=False)
