"""The Corpus: every way in, slicing, and one clear sentence for every kind of bad input."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from topiczoo import corpora
from topiczoo.corpora import Corpus

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


@pytest.fixture
def corpus():
    covariates = pd.DataFrame({"year": [1999, 2004, 2015]}, index=[7, 8, 9])
    return Corpus.from_counts(TABLE, TERMS, names=["x", "y", "z"], covariates=covariates)


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
    kept = Corpus.from_counts(table, empty="keep")
    assert kept.lengths.tolist() == [0, 3, 0, 3]
    assert kept.source_rows.tolist() == [0, 1, 2, 3]


def test_only_the_first_few_empty_documents_are_named():
    with pytest.raises(ValueError, match=r"\(1, 2, 3, 4, 5, \.\.\.\)"):
        Corpus.from_counts(np.eye(10, 1))


# --- bad input: a call, the error, and words its one sentence must hold

FRAME = pd.DataFrame({"text": ["ant bee", None], "year": [1, 2]})
BAD = {
    "no documents": (
        lambda: Corpus.from_counts(np.zeros((0, 3))),
        ValueError,
        "counts|no documents|at least one",
    ),
    "no texts": (lambda: Corpus.from_texts([]), ValueError, "empty|no documents|at least one"),
    "no tokens": (lambda: Corpus.from_tokens([]), ValueError, "empty|no documents|at least one"),
    "only empty lists": (
        lambda: Corpus.from_tokens([[], []]),
        ValueError,
        "tokens|all 2 documents|at least one",
    ),
    "no bags": (lambda: Corpus.from_bags([], TERMS), ValueError, "no documents|at least one"),
    "no terms": (lambda: Corpus.from_counts(np.zeros((3, 0))), ValueError, "counts|vocabulary is empty"),
    "vocabulary empty": (lambda: Corpus.from_texts(["a"], vocabulary=[]), ValueError, "vocabulary is empty"),
    "only stop words": (
        lambda: Corpus.from_texts(["the and"], stop_words="english"),
        ValueError,
        "texts|'english'|empty vocabulary|change",
    ),
    "all pruned": (
        lambda: Corpus.from_texts(TEXTS, min_df=5),
        ValueError,
        "texts|'min_df': 5|change",
    ),
    "all dropped": (
        lambda: Corpus.from_counts([[0], [0]], empty="drop"),
        ValueError,
        "all 2 documents|empty='drop'|check",
    ),
    "negative": (
        lambda: Corpus.from_counts([[1, 2], [0, -3]]),
        ValueError,
        "counts[1, 1]|-3|negative|start at 0",
    ),
    "fraction": (lambda: Corpus.from_counts([[1, 0.5]]), ValueError, "counts[0, 1]|0.5|whole|raw counts"),
    "NaN": (lambda: Corpus.from_counts([[1, np.nan]]), ValueError, "counts[0, 1]|nan|finite|replace"),
    "inf": (lambda: Corpus.from_counts([[np.inf, 1]]), ValueError, "counts[0, 0]|inf|finite|replace"),
    "too big": (lambda: Corpus.from_counts([[2**31]]), ValueError, "counts[0, 0]|2147483648|32-bit|rescale"),
    "1-D": (lambda: Corpus.from_counts([1, 2]), ValueError, "counts|1 dimension|(2,)|reshape"),
    "3-D": (lambda: Corpus.from_counts(np.ones((1, 2, 3))), ValueError, "counts|3 dimension"),
    "ragged": (lambda: Corpus.from_counts([[1], [1, 2]]), ValueError, "counts|different lengths|rectangular"),
    "words for counts": (lambda: Corpus.from_counts([["a", "b"]]), TypeError, "counts|dtype|astype(int)"),
    "objects for counts": (lambda: Corpus.from_counts([[1, None]]), TypeError, "counts|object|astype(int)"),
    "vocabulary length": (
        lambda: Corpus.from_counts(TABLE, ["a"]),
        ValueError,
        "vocabulary|1 terms|3 columns",
    ),
    "vocabulary twice": (
        lambda: Corpus.from_counts(TABLE, ["a", "b", "a"]),
        ValueError,
        "vocabulary|duplicate|(a)|one column",
    ),
    "vocabulary type": (
        lambda: Corpus.from_counts(TABLE, ["a", 7, "b"]),
        TypeError,
        "vocabulary[1]|7|string",
    ),
    "vocabulary string": (lambda: Corpus.from_counts(TABLE, "abc"), TypeError, "vocabulary|'abc'|list"),
    "vocabulary set": (lambda: Corpus.from_counts(TABLE, set(TERMS)), TypeError, "vocabulary|set|list"),
    "names length": (
        lambda: Corpus.from_counts(TABLE, names=["a"]),
        ValueError,
        "names|1 entries|3 documents",
    ),
    "covariates length": (
        lambda: Corpus.from_counts(TABLE, covariates={"year": [1]}),
        ValueError,
        "covariates|1 rows|3 documents",
    ),
    "covariates type": (
        lambda: Corpus.from_counts(TABLE, covariates=[1, 2, 3]),
        TypeError,
        "covariates|list|DataFrame",
    ),
    "empty": (
        lambda: Corpus.from_counts(TABLE, empty="skip"),
        ValueError,
        "empty|'skip'|'error', 'drop' or 'keep'",
    ),
    "missing text": (lambda: Corpus.from_texts(["a", None]), ValueError, "texts|None|row 1|drop|fill"),
    "NaN text": (lambda: Corpus.from_texts(["ant", "bee", np.nan]), ValueError, "texts|nan|row 2|drop|fill"),
    "number for text": (lambda: Corpus.from_texts(["a", 3]), TypeError, "texts|int|row 1|string"),
    "bare string": (lambda: Corpus.from_texts("one two"), TypeError, "texts|'one two'|list of strings"),
    "frame for texts": (lambda: Corpus.from_texts(FRAME), TypeError, "texts|DataFrame|list of strings"),
    "vectorizer option": (lambda: Corpus.from_texts(TEXTS, min_fd=2), TypeError, "'min_fd'|min_df|choose"),
    "missing cell": (lambda: Corpus.from_frame(FRAME), ValueError, "frame['text']|row 1|drop|fill"),
    "unknown column": (lambda: Corpus.from_frame(FRAME, "body"), ValueError, "text|'body'|['text', 'year']"),
    "unknown names": (
        lambda: Corpus.from_frame(FRAME, names="id"),
        ValueError,
        "names|'id'|['text', 'year']",
    ),
    "unknown covariate": (
        lambda: Corpus.from_frame(FRAME, covariates=["x"]),
        ValueError,
        "covariates|'x'|'year'",
    ),
    "covariates string": (
        lambda: Corpus.from_frame(FRAME, covariates="year"),
        TypeError,
        "covariates|['year']",
    ),
    "no frame": (lambda: Corpus.from_frame(TEXTS), TypeError, "frame|list|DataFrame|from_texts"),
    "token type": (lambda: Corpus.from_tokens([["a"], ["b", 3]]), TypeError, "tokens[1][1]|3|int|str()"),
    "string for tokens": (lambda: Corpus.from_tokens(["ant bee"]), TypeError, "tokens[0]|'ant bee'|list"),
    "no pair": (lambda: Corpus.from_bags([[(0, 1)], [3]]), TypeError, "bags[1]|3|(term_id, count)"),
    "bag id too big": (lambda: Corpus.from_bags([[(3, 1)]], TERMS), ValueError, "bags[0]|3|below 3"),
    "bag id negative": (lambda: Corpus.from_bags([[(-1, 1)]]), ValueError, "bags[0]|-1|from 0"),
    "bag weights": (lambda: Corpus.from_bags([[(0, 0.4)]]), ValueError, "counts[0, 0]|0.4|tf-idf"),
    "bag vocabulary gaps": (
        lambda: Corpus.from_bags([[(0, 1)]], {0: "a", 2: "b"}),
        ValueError,
        "vocabulary|id 1|without gaps",
    ),
    "row out of range": (lambda: Corpus.from_counts(TABLE)[3], IndexError, "rows|3|integer|slice"),
    "mask too short": (lambda: Corpus.from_counts(TABLE)[[True, False]], IndexError, "rows|3 documents|mask"),
    "two indices": (lambda: Corpus.from_counts(TABLE)[0, 1], IndexError, "rows|3 documents"),
    "table of rows": (lambda: Corpus.from_counts(TABLE)[[[0, 1]]], IndexError, "rows|(1, 2)|flat list"),
    "name for row": (lambda: Corpus.from_counts(TABLE)["x"], IndexError, "rows|integer|slice"),
    "no rows": (lambda: Corpus.from_counts(TABLE)[[]], ValueError, "rows|none of the 3|at least one"),
    "no csv": (lambda: corpora.read_csv("no/such.csv"), FileNotFoundError, "path|'no/such.csv'|check"),
    "no ldac": (lambda: corpora.read_ldac("no/such.dat"), FileNotFoundError, "path|'no/such.dat'|check"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_one_clear_sentence(case):
    call, error, words = BAD[case]
    with pytest.raises(error) as caught:
        call()
    message = str(caught.value)
    for word in words.split("|"):
        assert word in message
    assert "\n" not in message


# --- readers


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


@pytest.mark.parametrize(
    "content, options, words",
    [
        ("text\nant\n", {"text": "body"}, "text|'body'|['text']"),
        ("text\nant\n", {"y": "stars"}, "y|'stars'|['text']"),
        ("text,label\nant,a\nbee,\n", {"y": "label"}, "y|'label'|row 1|unlabelled"),
        ("text,label\nant,a\n,b\n", {}, "1 of 2 documents|(1)|empty='drop'"),
        ("text,label\nant,a,b,c\nant,a\n", {}, "table.csv|not a readable table|more cells"),
        ("text,label\nant,a\nant,a,b\n", {}, "table.csv|not a readable table|line 3"),
        ("", {}, "table.csv|not a readable table"),
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


def test_read_ldac_gives_back_what_was_written(tmp_path, corpus):
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
