"""The Corpus: every way in, slicing, and one clear sentence for every kind of bad input."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from topiczoo.corpora import Corpus
from topiczoo.corpora.corpus import long_document

TABLE = np.array([[2, 0, 1], [0, 3, 0], [1, 1, 1]])
TERMS = ["ant", "bee", "cat"]
TEXTS = ["cat ant Ant", "bee bee bee", "ant bee cat"]


def assert_is_table(corpus, table=TABLE, terms=TERMS):
    np.testing.assert_array_equal(corpus.counts.toarray(), table)
    assert corpus.vocabulary.tolist() == terms
    assert isinstance(corpus.counts, sparse.csr_array)
    assert corpus.counts.dtype == np.int32
    assert corpus.counts.has_canonical_format
    assert (corpus.counts.data > 0).all()


def some_corpus():
    covariates = pd.DataFrame({"year": [1999, 2004, 2015]}, index=[7, 8, 9])
    return Corpus.from_counts(TABLE, TERMS, names=["x", "y", "z"], covariates=covariates)


@pytest.fixture
def corpus():
    return some_corpus()


# --- ways in


@pytest.mark.parametrize(
    "convert",
    [
        np.asarray,
        np.ndarray.tolist,
        pd.DataFrame,
        lambda table: table.astype(np.float32),
        lambda table: table.astype(np.uint8),
        sparse.coo_matrix,
        sparse.csc_array,
        sparse.lil_array,
        sparse.dok_array,
        lambda table: sparse.csr_matrix(table, dtype=float),
    ],
)
def test_from_counts_takes_every_format(convert):
    corpus = Corpus.from_counts(convert(TABLE), TERMS)
    assert_is_table(corpus)
    assert corpus.names.tolist() == ["0", "1", "2"]
    assert corpus.covariates.shape == (3, 0)
    assert corpus.covariates.index.tolist() == ["0", "1", "2"]


def test_from_counts_adds_up_duplicates_without_overflow_and_drops_stored_zeros():
    rows, columns = [0, 0, 0, 1], [1, 1, 0, 0]
    counts = sparse.coo_array((np.array([200, 100, 0, 5], dtype=np.uint8), (rows, columns)), shape=(2, 2))
    assert_is_table(Corpus.from_counts(counts), [[0, 300], [5, 0]], ["0", "1"])


def test_from_counts_takes_presence_as_ones():
    assert_is_table(Corpus.from_counts(TABLE > 0, TERMS), TABLE > 0)


def test_from_counts_copies_and_leaves_its_input_writeable():
    counts = sparse.csr_array(TABLE.astype(np.int32))
    corpus = Corpus.from_counts(counts, TERMS)
    counts.data[0] = 99
    assert_is_table(corpus)


@pytest.mark.parametrize("convert", [lambda frame: frame, lambda frame: frame.astype(pd.SparseDtype(int, 0)),
                                     lambda frame: frame.astype("Int64"), lambda frame: frame.astype(float)])  # fmt: skip
def test_from_counts_takes_terms_and_names_from_a_frame(convert):
    frame = convert(pd.DataFrame(TABLE, index=["x", "y", "z"], columns=TERMS))
    corpus = Corpus.from_counts(frame)
    assert_is_table(corpus)
    assert corpus.names.tolist() == ["x", "y", "z"]
    told = Corpus.from_counts(frame, ["a", "b", "c"], names=[1, 2, 3])
    assert told.vocabulary.tolist() == ["a", "b", "c"] and told.names.tolist() == ["1", "2", "3"]
    unnamed = Corpus.from_counts(frame.reset_index(drop=True))  # whose index only numbers the rows
    assert unnamed.names.tolist() == ["0", "1", "2"] and unnamed.vocabulary.tolist() == TERMS
    assert Corpus.from_counts(frame.reset_index(drop=True)[1:]).names.tolist() == ["1", "2"]


def test_a_sparse_frame_stays_sparse(monkeypatch):
    frame = pd.DataFrame.sparse.from_spmatrix(sparse.csr_array(TABLE), columns=TERMS)
    monkeypatch.setattr(pd.DataFrame, "to_numpy", None)
    monkeypatch.setattr(pd.DataFrame, "__array__", None)
    assert_is_table(Corpus.from_counts(frame))


def test_a_long_term_or_name_takes_no_room_from_the_others():
    corpus = Corpus.from_tokens([["ant"] * 2, ["b" * 5000]], names=["x", "y" * 5000])
    assert corpus.vocabulary.nbytes == corpus.names.nbytes == 16 and corpus.vocabulary.tolist() == ["ant", "b" * 5000]
    assert {type(term) for term in Corpus.from_counts(TABLE, np.array(TERMS)).vocabulary} == {str}


def test_names_that_repeat_are_told_once():
    with pytest.warns(UserWarning, match=r"names holds duplicates \(x\): give each") as told:
        corpus = Corpus.from_counts(TABLE, names=["x", "y", "x"])
    assert len(told) == 1 and corpus.names.tolist() == ["x", "y", "x"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Corpus.from_counts(TABLE, names=corpus.names)  # of the same documents
        assert some_corpus()[[0, 0, 1]].names.tolist() == ["x", "x", "y"]


def test_from_texts_counts_words_and_passes_options_on():
    assert_is_table(Corpus.from_texts(TEXTS))
    assert_is_table(Corpus.from_texts(pd.Series(TEXTS, index=[5, 6, 7])))
    pairs = Corpus.from_texts(TEXTS, ngram_range=(2, 2), min_df=1)
    assert pairs.vocabulary.tolist() == ["ant ant", "ant bee", "bee bee", "bee cat", "cat ant"]
    assert Corpus.from_texts(TEXTS, stop_words=["cat"], lowercase=False).num_tokens == 7


def test_from_texts_with_a_vocabulary_keeps_its_order_and_drops_the_rest():
    corpus = Corpus.from_texts(TEXTS, vocabulary=["cat", "yak", "bee"])
    assert_is_table(corpus, [[1, 0, 0], [0, 0, 3], [1, 0, 1]], ["cat", "yak", "bee"])


def test_from_frame_takes_names_and_covariates_from_columns():
    frame = pd.DataFrame({"body": TEXTS, "id": [11, 12, 13], "year": [1, 2, 3], "other": 0})
    corpus = Corpus.from_frame(frame, "body", names="id", covariates=["year"])
    assert_is_table(corpus)
    assert corpus.names.tolist() == ["11", "12", "13"]
    assert corpus.covariates.to_dict() == {"year": {"11": 1, "12": 2, "13": 3}}
    assert_is_table(Corpus.from_frame(frame.rename(columns={"body": "text"})))


def test_from_tokens_takes_tokens_as_they_stand():
    tokens = [["cat", "ant", "ant"], np.array(["bee", "bee", "bee"]), ("ant", "bee", "cat")]
    assert_is_table(Corpus.from_tokens(tokens))
    assert Corpus.from_tokens([["New York", "a", "A"]]).vocabulary.tolist() == ["A", "New York", "a"]
    known = Corpus.from_tokens(tokens, vocabulary=["cat"], empty="keep")
    assert_is_table(known, [[1], [0], [1]], ["cat"])


@pytest.mark.parametrize("vocabulary", [TERMS, {1: "bee", 0: "ant", 2: "cat"}])
def test_from_bags_takes_lists_and_dictionaries_of_terms(vocabulary):
    bags = [[(2, 1), (0, 2)], [(1, 1), (1, 2)], [(0, 1), (1, 1), (2, 1)]]
    assert_is_table(Corpus.from_bags(bags, vocabulary))


def test_from_bags_without_vocabulary_numbers_the_terms():
    assert_is_table(Corpus.from_bags([[(2, 1)], [(0, 4)]]), [[0, 0, 1], [4, 0, 0]], ["0", "1", "2"])


# --- what a corpus tells, and slicing


def test_sizes_lengths_and_repr(corpus):
    assert (corpus.num_documents, len(corpus), corpus.num_terms, corpus.num_tokens) == (3, 3, 3, 9)
    assert corpus.lengths.tolist() == [3, 3, 3]
    assert corpus.lengths.dtype == np.int64
    assert repr(corpus) == "Corpus(3 documents, 3 terms, 9 tokens, covariates ['year'])"
    assert repr(Corpus.from_counts(TABLE)) == "Corpus(3 documents, 3 terms, 9 tokens)"


def test_a_document_with_more_than_a_tenth_of_all_words_is_named():
    table = np.ones((20, 2), int)
    table[3, 0] = 3  # 4 of 42 words
    names = [f"d{row}" for row in range(20)]
    assert long_document(Corpus.from_counts(table, names=names)) is None
    table[3, 0] = 11  # 12 of 50
    sentence = long_document(Corpus.from_counts(table, names=names))
    assert sentence.startswith("corpus holds document 'd3' with 24% of all words") and "leave it out" in sentence
    assert long_document(Corpus.from_counts(table[:19])) is None  # too few documents to speak of


def test_lengths_of_many_documents_are_added_up_a_part_at_a_time(monkeypatch):
    """Parts of any size, some of whose documents have no words."""
    counts = np.array([[0, 0, 0], [1, 2, 0], [0, 0, 5], [0, 0, 0], [0, 0, 0], [3, 0, 1], [0, 7, 0]])
    corpus = Corpus.from_counts(counts, empty="keep")
    for rows in range(1, 9):
        monkeypatch.setattr("topiczoo.corpora.corpus.ROWS", rows)
        np.testing.assert_array_equal(corpus.lengths, counts.sum(1))


def test_lengths_do_not_overflow():
    largest = np.iinfo(np.int32).max
    assert Corpus.from_counts([[largest, largest]]).lengths.tolist() == [2 * largest]


def test_tokens_expand_every_occurrence(corpus):
    document, term = corpus.tokens()
    assert document.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert term.tolist() == [0, 0, 2, 1, 1, 1, 0, 1, 2]
    assert document.dtype == term.dtype == np.int32


@pytest.mark.parametrize(
    "rows, expected",
    [
        (1, [1]),
        (-1, [2]),
        (np.int64(0), [0]),
        (slice(1, None), [1, 2]),
        (slice(None, None, -1), [2, 1, 0]),
        ([2, 0], [2, 0]),
        (np.array([1, 1, -3]), [1, 1, 0]),
        ([True, False, True], [0, 2]),
        (pd.Series([False, True, True]), [1, 2]),
    ],
)
def test_slicing_takes_counts_names_and_covariates_together(corpus, rows, expected):
    part = corpus[rows]
    assert_is_table(part, TABLE[expected])
    assert part.names.tolist() == np.array(["x", "y", "z"])[expected].tolist()
    assert part.covariates["year"].tolist() == np.array([1999, 2004, 2015])[expected].tolist()
    assert part.covariates.index.tolist() == part.names.tolist()
    assert part.source_rows.tolist() == expected
    assert part.vocabulary is corpus.vocabulary


def test_iterating_gives_one_document_at_a_time(corpus):
    assert [document.names.item() for document in corpus] == ["x", "y", "z"]


def test_a_corpus_cannot_be_changed(corpus):
    for array in (corpus.counts.data, corpus.vocabulary, corpus.names, corpus[1:].counts.data):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[0]
    with pytest.raises(AttributeError):
        corpus.names = ["a", "b", "c"]
    covariates = corpus.covariates
    covariates["year"] = 0
    assert corpus.covariates["year"].tolist() == [1999, 2004, 2015]


def test_counts_compute_although_they_cannot_be_changed(corpus):
    np.testing.assert_array_equal(corpus.counts @ np.ones(3), [3, 3, 3])
    np.testing.assert_array_equal((corpus.counts.T @ corpus.counts).toarray(), TABLE.T @ TABLE)
    np.testing.assert_array_equal(corpus.counts[:, [2, 0]].toarray(), TABLE[:, [2, 0]])


def test_with_vocabulary_drops_unknown_terms_and_keeps_emptied_documents(corpus):
    other = corpus.with_vocabulary(["yak", "cat", "ant"])
    assert_is_table(other, [[0, 1, 2], [0, 0, 0], [0, 1, 1]], ["yak", "cat", "ant"])
    assert other.names.tolist() == corpus.names.tolist()
    assert other.covariates.equals(corpus.covariates)
    assert corpus.with_vocabulary(["yak"]).num_tokens == 0
    assert_is_table(other.with_vocabulary(TERMS), TABLE * [1, 0, 1])


# --- empty documents


def test_empty_documents_are_refused_dropped_or_kept():
    table = np.array([[0, 0], [1, 2], [0, 0], [3, 0]])
    covariates = {"year": [1, 2, 3, 4]}
    with pytest.raises(ValueError, match=r"2 of 4 documents hold no term .*\(a, c\).*empty='drop'"):
        Corpus.from_counts(table, names=list("abcd"), covariates=covariates)
    dropped = Corpus.from_counts(table, names=list("abcd"), covariates=covariates, empty="drop")
    assert_is_table(dropped, table[[1, 3]], ["0", "1"])
    assert dropped.names.tolist() == ["b", "d"]
    assert dropped.covariates["year"].tolist() == [2, 4]
    assert dropped.source_rows.tolist() == [1, 3]
    assert dropped[1].source_rows.tolist() == [3]
    assert repr(dropped) == "Corpus(2 documents, 2 terms, 6 tokens, 2 empty rows dropped, covariates ['year'])"
    assert dropped.num_dropped == 2 and dropped[1].num_dropped == 0
    kept = Corpus.from_counts(table, empty="keep")
    assert kept.lengths.tolist() == [0, 3, 0, 3]
    assert kept.source_rows.tolist() == [0, 1, 2, 3]


def test_only_the_first_few_empty_documents_are_named():
    with pytest.raises(ValueError, match=r"\(1, 2, 3, 4, 5, \.\.\.\)"):
        Corpus.from_counts(np.eye(10, 1))


# --- bad input: a call, the error, and words its one sentence must hold
