"""Streams of Parquet files: every document once a pass, in an order that repeats itself."""

from __future__ import annotations

import threading
import time

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction.text import CountVectorizer

from topiczoo import corpora
from topiczoo.corpora.streams import ahead

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

TERMS = [f"w{i}" for i in range(9)]
SIZES = (23, 1, 17)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Three files of documents of 0 to 7 words, as texts, as tokens and as counts; row groups of five."""
    folder, rng, first = tmp_path_factory.mktemp("stream"), np.random.default_rng(0), 0
    for number, size in enumerate(SIZES):
        words = [rng.integers(0, 9, rng.integers(0, 8)) for _ in range(size)]
        pairs = [np.unique(each, return_counts=True) for each in words]
        table = {
            "text": [" ".join(TERMS[i] for i in each) + " unknown" for each in words],
            "tokens": [[TERMS[i] for i in each] + ["unknown"] for each in words],
            "ids": [pair[0] for pair in pairs],
            "counts": [pair[1] for pair in pairs],
            "row": np.arange(first, first + size, dtype=float),
            "label": [["a", "b", None][i % 3] for i in range(size)],
            "id": [f"{number}-{i}" for i in range(size)],
        }
        first += size
        parquet.write_table(pyarrow.table(table), folder / f"{number}.parquet", row_group_size=5)
    return folder


def of(files, **options):
    return corpora.stream(
        f"{files}/*.parquet",
        **{"vocabulary": TERMS, "batch_size": 4, "window": 3, "names": "id", "y": "row", **options},
    )


def rows(batches):
    return [batch.y.astype(int).tolist() for batch in batches]


def test_a_pass_has_every_document_once_with_all_that_belongs_to_it(files):
    stream = of(files, covariates=["label"])
    whole = pd.concat([pd.read_parquet(files / f"{i}.parquet") for i in range(3)], ignore_index=True)
    found = list(stream)
    assert len(found) == stream.num_batches == 11 and stream.num_documents == 41
    assert [len(batch.corpus) for batch in found] == [4] * 10 + [1]
    assert sorted(np.concatenate(rows(found))) == list(range(41))
    for corpus, y in found:
        own = whole.iloc[y.astype(int)]
        assert corpus.names.tolist() == own["id"].tolist() and corpus.source_rows.tolist() == own.index.tolist()
        expected = [[text.split().count(term) for term in TERMS] for text in own["text"]]
        np.testing.assert_array_equal(corpus.counts.toarray(), expected)
        assert corpus.covariates["label"].fillna("").tolist() == own["label"].fillna("").tolist()


@pytest.mark.parametrize(
    "form",
    [
        {"vocabulary": CountVectorizer().fit(TERMS)},
        {"terms": "tokens"},
        {"terms": "ids", "counts": "counts"},
        {"terms": "ids", "counts": "counts", "vocabulary": 9},
    ],
    ids=["vectoriser", "tokens", "counts", "number of terms"],
)
def test_documents_are_the_same_in_every_form(files, form):
    for text, other in zip(of(files), of(files, **form), strict=True):
        np.testing.assert_array_equal(text.corpus.counts.toarray(), other.corpus.counts.toarray())
        assert text.corpus.names.tolist() == other.corpus.names.tolist()


def test_the_order_is_of_seed_and_pass_and_goes_on_from_any_batch(files):
    stream = of(files)
    first, second = rows(stream.batches(0)), rows(stream.batches(1))
    assert first != second and first == rows(of(files)) and first != rows(of(files, seed=1))
    for start in range(12):
        assert rows(stream.batches(1, start)) == second[start:]
    assert np.concatenate(rows(stream.in_order())).tolist() == list(range(41))
    moved = np.concatenate(first[:3])
    assert len({row // 5 for row in moved}) > 1 and (np.diff(moved) < 0).any()  # groups in another order, rows shuffled


def test_rows_of_one_group_are_shuffled_anew_in_every_pass_and_window(tmp_path):
    """There are no groups whose order could tell passes apart."""
    parquet.write_table(pyarrow.table({"text": ["w0"] * 24, "row": np.arange(24.0)}), tmp_path / "one.parquet")
    stream = corpora.stream(tmp_path / "one.parquet", vocabulary=TERMS, batch_size=4, window=3, y="row")
    passes = [np.concatenate(rows(stream.batches(number))).reshape(2, 12) for number in range(3)]
    for halves in passes:
        np.testing.assert_array_equal(np.sort(halves), np.arange(24).reshape(2, 12))
    orders = {tuple(half % 12) for halves in passes for half in halves}
    assert len(orders) == 6


def test_several_responses_labels_and_names_by_row(files):
    corpus, y = next(iter(of(files, y=["row", "label"], names=None).in_order()))
    assert corpus.names.tolist() == ["0", "1", "2", "3"] and pd.isna(y["label"]).tolist() == [False, False, True, False]
    assert of(files, y=None).in_order().batches().__next__().y is None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"text": "txt"}, "text asks for column 'txt', which .* has not, the nearest is 'text'"),
        ({"text": "row"}, "text names column 'row', which holds double in .*: give one of strings"),
        ({"terms": "text"}, "terms names column 'text', which holds string"),
        ({"terms": "ids", "text": "text"}, "leave one out"),
        ({"counts": "counts"}, "name the column of terms"),
        ({"terms": "ids", "vocabulary": 7}, "terms has the number 8, and vocabulary has 7 terms"),
        ({"vocabulary": 9}, "terms are no numbers"),
        ({"vocabulary": CountVectorizer()}, "CountVectorizer without terms"),
        ({"min_df": 2}, "no vectorizer option for a fixed vocabulary is called 'min_df'"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"covariates": "label"}, "covariates is the bare string"),
    ],
)
def test_what_cannot_be_read_is_said_before_anything_is(files, options, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        of(files, **options)


def test_files_that_are_none_are_named(files, tmp_path):
    with pytest.raises(FileNotFoundError, match="no Parquet file"):
        corpora.stream(tmp_path / "*.parquet", vocabulary=TERMS)
    (tmp_path / "bad.parquet").write_text("no Parquet")
    with pytest.raises(ValueError, match=r"bad\.parquet', which is no readable Parquet"):
        corpora.stream([files, tmp_path], vocabulary=TERMS)


def test_counts_that_do_not_belong_to_terms_are_refused(tmp_path):
    parquet.write_table(pyarrow.table({"t": [[0, 1], [2]], "n": [[1, 2], [1, 1]]}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="counts has 2 numbers in row 1, where terms has 1"):
        list(corpora.stream(tmp_path, terms="t", counts="n", vocabulary=3, shuffle=False))


def test_items_are_made_ahead_by_a_thread_that_ends():
    made = []

    def items():
        for i in range(100):
            made.append(i)
            yield i

    before, taken = threading.active_count(), ahead(items(), 2)
    assert next(taken) == 0
    for _ in range(100):
        if len(made) >= 3:
            break
        time.sleep(0.01)
    assert 3 <= len(made) <= 5
    taken.close()
    assert threading.active_count() == before

    def fails():
        yield 1
        raise KeyError("told to the one who asks")

    with pytest.raises(KeyError, match="who asks"):
        list(ahead(fails(), 2))
