"""Documents from files of every format that is read, and what is guessed of them: found, said, or refused in a sentence."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from topiczoo import corpora
from topiczoo.commands import parser
from topiczoo.corpora.files import tables
from topiczoo.corpora.files.guessing import delimiter_of, encoding_of

TEXTS = ['soup bread\n"très bon", he said; twice', "", "bread 😀 wine | wine", "NA"]
WORDS = {"soup": [1, 0, 0, 0], "wine": [0, 0, 2, 0], "na": [0, 0, 0, 1], "bread": [1, 0, 1, 0], "très": [1, 0, 0, 0]}


def table(texts=TEXTS):
    return pd.DataFrame(
        {"name": ["007", "=8", "ä", "9"], "text": texts, "stars": [3.5, 1, np.nan, 2], "year": [1, 2, 3, 4]}
    )


def assert_is_the_table(corpus, stars, words=WORDS):
    columns = {term: column for column, term in enumerate(corpus.vocabulary)}
    for word, counts in words.items():
        assert corpus.counts[:, [columns[word]]].toarray().ravel().tolist() == counts, word
    assert corpus.names.tolist() == ["007", "=8", "ä", "9"] and corpus.covariates["year"].tolist() == [1, 2, 3, 4]
    np.testing.assert_array_equal(stars, [3.5, 1, np.nan, 2])


def read(path, **options):
    told = []
    found = corpora.read(
        path, y="stars", names="name", covariates=["year"], empty="keep", tell=told.append, **options
    )  # fmt: skip
    return *found, told


LATIN = [text.replace("😀", "") for text in TEXTS]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize(
    ("encoding", "guessed"),
    [("utf-8", "utf-8"), ("utf-8-sig", "utf-8-sig"), ("utf-16", "utf-16"), ("utf-16-le", "utf-16-le"),
     ("utf-16-be", "utf-16-be"), ("utf-32", "utf-32"), ("latin-1", "cp1252"), ("cp1252", "cp1252")],
)  # fmt: skip
def test_delimiter_and_encoding_of_a_table_are_guessed_and_said(tmp_path, delimiter, encoding, guessed):
    """Quotes, newlines and other delimiters within quotes, blank cells, accents and emoji."""
    path = tmp_path / "table.csv"
    one_byte = encoding in ("latin-1", "cp1252")
    table(LATIN if one_byte else TEXTS).to_csv(path, sep=delimiter, index=False, encoding=encoding)
    corpus, stars, told = read(path)
    assert_is_the_table(corpus, stars)
    assert told == [f"{path}: CSV, delimiter {delimiter!r}, encoding {guessed} (guessed)"]
    corpus, stars, told = read(path, delimiter="tab" if delimiter == "\t" else delimiter, encoding=encoding)
    assert_is_the_table(corpus, stars)
    assert told == []


def test_numbers_with_decimal_commas_are_numbers_where_cells_are_not_divided_by_commas(tmp_path):
    path = tmp_path / "table.csv"
    frame = table().assign(stars=["3,5", "1", "", "2"], label=["1,2", "3,4", "a", "b"])
    frame.to_csv(path, sep=";", index=False)
    corpus, stars, told = read(path)
    assert_is_the_table(corpus, stars)
    assert "decimal commas in 'stars'" in told[0]
    _, labels = corpora.read(path, y="label", empty="keep")
    assert labels.tolist() == ["1,2", "3,4", "a", "b"]
    frame.to_csv(path, index=False)
    assert read(path)[1].tolist() == ["3,5", "1", None, "2"]  # between commas a comma is quoted, and meant


def test_bytes_without_a_character_in_cp1252_are_latin_1(tmp_path):
    (tmp_path / "a.txt").write_bytes("caf\xe9 \x81".encode("latin-1"))
    assert encoding_of(tmp_path / "a.txt") == "latin-1"
    (tmp_path / "a.txt").write_bytes(b"plain" * 100_000 + "é".encode())  # beyond what is looked at of the head
    assert encoding_of(tmp_path / "a.txt") == "utf-8"


def test_utf_8_that_is_damaged_here_and_there_is_utf_8(tmp_path):
    """As texts are that were cut at so many bytes; most accents must not become two characters for it."""
    rows = ["text", *["très bon" for _ in range(100)]]
    path, told = tmp_path / "a.csv", []
    path.write_bytes("\n".join(rows).encode() + b"\nbon caf\xc3\nwine\n")
    corpus = corpora.read(path, tell=told.append)
    assert corpus.vocabulary.tolist() == ["bon", "caf", "très", "wine"]
    assert "encoding utf-8, 1 texts with bytes that are no characters (guessed)" in told[0]
    path.write_bytes(b"text\n" + "très bon\n".encode() * 3 + "très bon\n".encode("cp1252") * 3)
    assert encoding_of(path) == "cp1252"
    path.write_bytes(b"a" * (1 << 22) + "é".encode() + b"a" * (1 << 22))  # a character on the border of two blocks
    assert encoding_of(path) == "utf-8"
    path.write_bytes(b"a" * ((1 << 22) - 1) + "é".encode() + b"a")
    assert encoding_of(path) == "utf-8"


@pytest.mark.parametrize(
    ("text", "wanted", "first", "delimiter"),
    [
        ("text\nsoup, bread, wine\nsoup\nwine; a; b\n", ["text"], ",", "\t"),  # lines, whatever is in them
        ("text,stars\na;b;c,1\nd;e;f,2\n", ["text", "stars"], ",", ","),
        ("body;text, all;stars\na;b;1\n", ["stars"], ",", ";"),
        ("a, b;text;stars\nc, d;soup;1\n", ["text", "stars"], ",", ";"),  # the header says it, as many cells either way
        ("a,b;c,d\n1,2;3,4\n", ["text"], ",", ","),  # equals: by the ending
        ("a,b;c,d\n1,2;3,4\n", ["text"], ";", ";"),
        ("x;y\n1;2,5\n3;4,5\n", ["text"], ",", ";"),
        ('text;n\n"a;\n;b, ""c""";1\n', [], ",", ";"),
        ("", ["text"], "\t", "\t"),
    ],
)  # fmt: skip
def test_a_delimiter_is_that_which_makes_a_table_with_the_wanted_columns(tmp_path, text, wanted, first, delimiter):
    (tmp_path / "a.csv").write_text(text)
    assert delimiter_of(tmp_path / "a.csv", "utf-8", wanted, first) == delimiter


def test_json_lines(tmp_path):
    rows = table().astype(object).where(table().notna(), None).to_dict("records")
    del rows[2]["stars"]  # an object without a key
    lines = [json.dumps(row) for row in rows]
    path = tmp_path / "table.jsonl"
    path.write_text("\n".join([*lines[:2], "", *lines[2:]]), encoding="utf-8")
    corpus, stars, told = read(path)
    assert_is_the_table(corpus, stars)
    assert told == []
    with gzip.open(tmp_path / "table.jsonl.gz", "wt", encoding="utf-16") as file:
        file.write("\n".join(lines))
    corpus, stars, told = read(tmp_path / "table.jsonl.gz")
    assert_is_the_table(corpus, stars)
    assert "encoding utf-16 (guessed)" in told[0]
    lines = ['{"text": "soup", "y": "a"}', '{"text": null, "y": ""}', '{"text": "wine", "y": "b\u2028"}']
    path.write_text("\n".join(lines), encoding="utf-8")
    assert corpora.read(path, y="y", empty="keep")[1].tolist() == ["a", None, "b\u2028"]


def test_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "table.parquet"
    table().assign(text=[*TEXTS[:1], None, *TEXTS[2:]], more=[[1], [2], [3], [4]]).to_parquet(path)
    assert_is_the_table(*read(path)[:2])
    with pytest.raises(ValueError, match=r"text asks for column 'txt', .* the nearest is 'text': .*'more'"):
        corpora.read(path, "txt")
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(ValueError, match="is no readable Parquet"):
        corpora.read(path)


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "table.parquet").write_bytes(b"PAR1")
    with pytest.raises(
        ImportError, match=r"table\.parquet' is Parquet, which needs pyarrow: pip install 'topiczoo\[parq"
    ):
        corpora.read(tmp_path / "table.parquet")


def test_a_folder_of_texts_has_ids_and_folders_as_classes(tmp_path):
    for name, text in {
        "b/2.txt": "wine soup",
        "a/1.txt": "soup",
        "a/10.md": "très bon",
        "b/.no.txt": "x",
        "a/x.csv": "",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="cp1252")
    told = []
    corpus, folders = corpora.read(tmp_path, y="folder", tell=told.append)
    assert corpus.names.tolist() == ["a/1.txt", "a/10.md", "b/2.txt"] and folders.tolist() == ["a", "a", "b"]
    assert corpus.vocabulary.tolist() == ["bon", "soup", "très", "wine"]
    assert told == [f"{tmp_path}: a folder, encoding cp1252 of 1 files (guessed)"]
    (tmp_path / "c").mkdir()
    with pytest.raises(ValueError, match=r"is a folder without a file that ends in \.txt"):
        corpora.read(tmp_path / "c")


def test_ldac_with_its_terms_and_responses(tmp_path):
    (tmp_path / "a.dat").write_text("2 0:1 2:3\n0\n1 1:1\n")
    (tmp_path / "terms.txt").write_text("ant\nbee\ncat\n")
    (tmp_path / "numbers.txt").write_text("1.5\n7\n\n")
    (tmp_path / "labels.txt").write_text("a\nb\nNA\n")
    files = {"vocabulary": tmp_path / "terms.txt", "empty": "drop"}
    corpus, y = corpora.read(tmp_path / "a.dat", responses=tmp_path / "numbers.txt", **files)
    assert corpus.counts.toarray().tolist() == [[1, 0, 3], [0, 1, 0]] and corpus.vocabulary.tolist() == [
        "ant",
        "bee",
        "cat",
    ]
    np.testing.assert_array_equal(y, [1.5, np.nan])  # the second document is empty
    assert corpora.read(tmp_path / "a.dat", responses=tmp_path / "labels.txt", **files)[1].tolist() == ["a", None]
    (tmp_path / "numbers.txt").write_text("1.5\n7\n")
    with pytest.raises(ValueError, match=r"numbers\.txt' has 2 lines for 3 documents"):
        corpora.read(tmp_path / "a.dat", responses=tmp_path / "numbers.txt", **files)
    for options, words in (
        ({"y": "stars"}, "y names a column, and path .* is LDA-C"), ({"min_df": 2}, "min_df chooses words of texts"),
        ({"delimiter": ";"}, "delimiter is ';', and path .* is LDA-C: leave it out"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            corpora.read(tmp_path / "a.dat", **options)


def test_a_file_of_terms_chooses_the_words_of_texts(tmp_path):
    (tmp_path / "terms.txt").write_text("wine\n\nsoup\n")
    table().to_csv(tmp_path / "table.csv", index=False)
    corpus = corpora.read(tmp_path / "table.csv", vocabulary=tmp_path / "terms.txt", empty="drop")
    assert corpus.vocabulary.tolist() == ["wine", "soup"] and corpus.source_rows.tolist() == [0, 2]


def test_the_format_is_by_the_ending_or_as_said(tmp_path):
    table().to_csv(tmp_path / "table.log", index=False)
    with pytest.raises(ValueError, match=r"table\.log' ends in none of \.csv .* say its format, one of csv, tsv,"):
        corpora.read(tmp_path / "table.log")
    assert len(corpora.read(tmp_path / "table.log", format="csv", empty="keep")) == 4
    with pytest.raises(ValueError, match=r"format is 'folder' and path .* is a file"):
        corpora.read(tmp_path / "table.log", format="folder")
    with pytest.raises(ValueError, match="format is 'xml': choose from 'csv', 'tsv',"):
        corpora.read(tmp_path / "table.log", format="xml")
    with pytest.raises(FileNotFoundError, match=r"none\.csv' is not there"):
        corpora.read(tmp_path / "none.csv")
    assert parser.FORMATS == tables.FORMATS  # the command line has them without waiting for pandas


@pytest.mark.parametrize(
    ("name", "content", "options", "words"),
    [
        ("a.xlsx", b"PK\x03\x04rest", {}, "a.xlsx' is a spreadsheet: save it as CSV"),
        ("a.csv", b"PK\x03\x04rest", {}, "is a zip archive or a workbook, no text: export it as CSV"),
        ("a.csv", bytes(range(256)) * 9, {}, "is a binary file, no text"),
        ("a.csv", b"text\n" + b"\x01\x02" * 99, {}, "is a binary file, no text"),
        ("a.jsonl", b"%PDF-1.7", {}, "is a PDF, no text"),
        ("a.dat", b"\x89HDF\r\n", {}, "is HDF5 or netCDF, no text"),
        ("a.csv.gz", b"text\nsoup\n", {}, "ends in .gz and is not gzipped"),
        ("a.csv", b"text\nsoup\n", {"encoding": "utf-9"}, "encoding is 'utf-9', which Python does not know: give one"),
        ("a.csv", b"text\nsoup\n", {"encoding": "rot13"}, "encoding is 'rot13', which Python does not know: give one"),
        ("a.csv", "text\ncafé\n".encode("latin-1"), {"encoding": "utf-8"}, "is no text in encoding utf-8-sig"),
        ("a.csv", b"text\nsoup\n", {"delimiter": "::"}, "delimiter is '::': give one character"),
        ("a.csv", b'text\n"soup\n', {}, "is not a readable table"),
        ("a.jsonl", b'{"text": "a"}\n{"text": \n', {}, "a.jsonl, line 2: no JSON"),
        ("a.jsonl", b'{"text": "a"}\n[1]\n', {}, "a.jsonl, line 2: no JSON object, but [1]"),
        ("a.jsonl", b"\n", {}, "is an empty file"),
        ("a.jsonl", b'{"text": "soup", "y": [1]}\n', {"y": "y"}, "column 'y' holds lists or objects"),
        ("a.jsonl", b'{"text": 5}\n', {}, "frame['text'] is a int in row 0"),
        ("a.csv", b"Text,stars\nsoup,1\n", {}, "text asks for column 'text', which is not there, the nearest is 'Text'"),
        ("a.csv", b"text,stars\nsoup,1\n", {"y": "star"}, "y asks for column 'star', which is not there, the nearest is"),
        ("a.csv", b"text,stars\nsoup,1\n", {"names": "id"}, "names asks for column 'id', which is not there: the"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_one_sentence(tmp_path: Path, name, content, options, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises((ValueError, TypeError)) as caught:
        corpora.read(tmp_path / name, **options)
    assert words in str(caught.value) and "\n" not in str(caught.value)
