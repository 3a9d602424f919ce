"""Bad input to a corpus: one clear sentence each."""

import numpy as np
import pandas as pd
import pytest
from test_corpora import TABLE, TERMS, TEXTS

from topiczoo import corpora
from topiczoo.corpora import Corpus

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
    "NUL in a term": (
        lambda: Corpus.from_tokens([["ant", "b\0b"]]),
        ValueError,
        "vocabulary[1]|'b\\x00b'|NUL|replace",
    ),
    "half a character": (lambda: Corpus.from_tokens([["\ud800"]]), ValueError, "vocabulary[0]|surrogate|replace"),
    "NUL in a name": (lambda: Corpus.from_counts(TABLE, names="x y z\0".split()), ValueError, "names[2]|NUL|replace"),
    "columns twice": (
        lambda: Corpus.from_counts(pd.DataFrame(TABLE, columns=["a", "b", "a"])),
        ValueError,
        "vocabulary|duplicate|(a)",
    ),
    "frame with a gap": (
        lambda: Corpus.from_counts(pd.DataFrame({"a": pd.array([1, None], dtype="Int64")})),
        ValueError,
        "counts[1, 0]|nan|finite",
    ),
    "frame with words": (lambda: Corpus.from_counts(FRAME), TypeError, "counts|object|astype(int)"),
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
