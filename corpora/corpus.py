"""`Corpus`: documents as bags of words, with their vocabulary, names and covariates.

Whatever form the documents come in, they are checked once, here. Everything downstream may then rely on
whole, positive, 32-bit counts in canonical order, on at least one document and on at least one term.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import sparse

from .checks import (
    analyser,
    canonical_counts,
    check_covariates,
    check_list,
    check_names,
    check_texts,
    check_vocabulary,
    labelled_counts,
    numbered,
    require_columns,
    vectorize,
)
from .files.wording import first_few
from .sentences import Sentences, split

if TYPE_CHECKING:
    from .pairs import Pairs

LONG = 0.1  # of all words in one document: it decides the topics
ROWS = 50_000  # documents whose words are added up at a time
FEWEST = 20  # documents: among fewer, such a share is nothing strange


@dataclass(frozen=True, eq=False, repr=False)
class Corpus:
    """An immutable bag of words that slices like an array of documents.

    Build one with a `from_...` method: these check what they are given, the bare constructor does not.

    Attributes
    ----------
    counts : csr_array of int32, [documents, terms]; sorted, no duplicates, no stored zeros.
    vocabulary : array of str objects, the unique term behind each column.
    names : array of str objects, one a document.
    source_rows : array of int, for each document its row in the input. After `empty="drop"` or after
        slicing, `y[corpus.source_rows]` are the responses that belong to the documents still here.
    num_dropped : how many empty rows of the input `empty="drop"` left out; `repr` tells it too.
    texts : array of str objects, the documents as they were written, where they are kept (`keep_texts=True`); else None.
    sentences : the words in their order, where it is kept (`from_sentences`, `from_texts(..., sentences=True)`); else None.
    """

    counts: sparse.csr_array
    vocabulary: np.ndarray
    names: np.ndarray
    source_rows: np.ndarray
    _covariates: pd.DataFrame
    num_dropped: int = 0
    texts: np.ndarray | None = None
    sentences: Sentences | None = None

    def __post_init__(self) -> None:
        stored = (self.counts.data, self.counts.indices, self.counts.indptr)
        texts = () if self.texts is None else (self.texts,)
        for array in (*stored, self.vocabulary, self.names, self.source_rows, *texts):
            array.flags.writeable = False

    @classmethod
    def from_counts(
        cls,
        counts: Any,
        vocabulary: Iterable[str] | None = None,
        *,
        names: Iterable[Any] | None = None,
        covariates: pd.DataFrame | Mapping[str, Any] | None = None,
        empty: str = "error",
    ) -> Corpus:
        """Take a document-term matrix, dense, any scipy sparse format, or a DataFrame; the matrix is copied.

        Parameters
        ----------
        counts : [documents, terms], whole numbers of any numeric type.
        vocabulary : the term behind each column; by default a DataFrame's columns, or the numbers "0", "1", ...
        names : one a document; by default a DataFrame's index, or the row numbers "0", "1", ... A name that two
            documents have is warned of.
        covariates : a DataFrame, or a mapping from column name to values, with one row a document.
        empty : what to do with documents without tokens: "error", "drop" or "keep".
        """
        if empty not in ("error", "drop", "keep"):
            raise ValueError(f"empty is {empty!r}: choose 'error', 'drop' or 'keep'")
        if isinstance(counts, pd.DataFrame):
            counts, vocabulary, names = labelled_counts(counts, vocabulary, names)
        matrix = canonical_counts(counts)
        num_documents, num_terms = matrix.shape
        terms = numbered(num_terms) if vocabulary is None else check_vocabulary(vocabulary, num_terms)
        labels = numbered(num_documents) if names is None else check_names(names, num_documents)
        frame = pd.DataFrame(index=labels) if covariates is None else check_covariates(covariates, labels)
        corpus = cls(matrix, terms, labels, np.arange(num_documents), frame)
        filled = corpus.lengths > 0
        if empty == "keep" or filled.all():
            return corpus
        if empty == "error":
            raise ValueError(
                f"{(~filled).sum()} of {num_documents} documents hold no term of the vocabulary "
                f"({first_few(corpus.names[~filled])}): pass empty='drop' to leave them out or "
                "empty='keep' to keep them"
            )
        if not filled.any():
            raise ValueError(
                f"all {num_documents} documents are empty, so empty='drop' leaves none: check the "
                "counts or texts, and the vocabulary"
            )
        return replace(corpus[filled], num_dropped=int((~filled).sum()))

    @classmethod
    def from_texts(
        cls,
        texts: Iterable[str],
        *,
        vocabulary: Iterable[str] | None = None,
        names: Iterable[Any] | None = None,
        covariates: pd.DataFrame | Mapping[str, Any] | None = None,
        empty: str = "error",
        keep_texts: bool = False,
        sentences: bool = False,
        **vectorizer_options: Any,
    ) -> Corpus:
        """Count the words of raw texts with scikit-learn's `CountVectorizer`.

        Its options (`min_df`, `max_df`, `stop_words`, `max_features`, `ngram_range`, ...) pass through.
        With a `vocabulary` only its terms are counted, in its order. The rest is as in `from_counts`.
        With `keep_texts` the texts stay with the documents, to be read beside their topics
        (`fit.documents`); a saved fit then holds them. With `sentences` the order of words and the sentences
        they stand in are kept, for stories that read them: texts are cut after full stops, exclamation and
        question marks, and between paragraphs.
        """
        documents = check_texts(texts, "texts")
        counts, terms = vectorize(documents, vocabulary, vectorizer_options)
        corpus = cls.from_counts(counts, terms, names=names, covariates=covariates, empty=empty)
        if sentences:
            analyse = analyser(vectorizer_options)
            corpus = corpus._in_order([[analyse(part) for part in split(documents[row])] for row in corpus.source_rows])
        return corpus.with_texts([documents[row] for row in corpus.source_rows]) if keep_texts else corpus

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        text: str = "text",
        *,
        names: str | None = None,
        covariates: Sequence[str] | None = None,
        vocabulary: Iterable[str] | None = None,
        empty: str = "error",
        **vectorizer_options: Any,
    ) -> Corpus:
        """Count the words of a DataFrame's `text` column, as `from_texts` does.

        `names` is the column of document names, `covariates` the list of columns to carry along; `keep_texts`
        and the vectoriser's options are those of `from_texts`.
        """
        if not isinstance(frame, pd.DataFrame):
            raise TypeError(f"frame is a {type(frame).__name__}: give a pandas DataFrame, or use from_texts")
        if isinstance(covariates, str):
            raise TypeError(f"covariates is the bare string {covariates!r}: give a list, [{covariates!r}]")
        carried = list(covariates or [])
        require_columns(frame, text=[text], names=[] if names is None else [names], covariates=carried)
        return cls.from_texts(
            check_texts(frame[text], f"frame[{text!r}]"),
            vocabulary=vocabulary,
            names=None if names is None else frame[names],
            covariates=frame[carried],
            empty=empty,
            **vectorizer_options,
        )

    @classmethod
    def from_tokens(
        cls,
        tokens: Iterable[Iterable[str]],
        *,
        vocabulary: Iterable[str] | None = None,
        names: Iterable[Any] | None = None,
        covariates: pd.DataFrame | Mapping[str, Any] | None = None,
        empty: str = "error",
    ) -> Corpus:
        """Count documents that are already lists of tokens; the tokens are taken as they stand.

        The vocabulary is the sorted set of tokens, or the one given, whose absent tokens are dropped.
        """
        documents = [
            check_list(document, f"tokens[{row}]", "a list of strings")
            for row, document in enumerate(check_list(tokens, "tokens", "a list of lists of strings"))
        ]
        for row, document in enumerate(documents):
            for position, token in enumerate(document):
                if not isinstance(token, str):
                    raise TypeError(
                        f"tokens[{row}][{position}] is {token!r} of type {type(token).__name__}: "
                        "every token must be a string, so convert it with str() or drop it"
                    )
        if vocabulary is None and documents and not any(documents):
            raise ValueError(f"tokens is empty in all {len(documents)} documents: give at least one token")
        counts, terms = vectorize(documents, vocabulary, {"analyzer": list, "token_pattern": None})
        return cls.from_counts(counts, terms, names=names, covariates=covariates, empty=empty)

    @classmethod
    def from_sentences(
        cls,
        documents: Iterable[Iterable[Iterable[str]]],
        *,
        vocabulary: Iterable[str] | None = None,
        names: Iterable[Any] | None = None,
        covariates: pd.DataFrame | Mapping[str, Any] | None = None,
        empty: str = "error",
    ) -> Corpus:
        """Take documents that are lists of sentences, each a list of tokens, and keep their order.

        The rest is as in `from_tokens`.
        """
        parts = [
            [check_list(part, f"documents[{row}][{place}]", "a list of strings") for place, part in enumerate(
                check_list(document, f"documents[{row}]", "a list of sentences"))]
            for row, document in enumerate(check_list(documents, "documents", "a list of lists of sentences"))
        ]  # fmt: skip
        tokens = [[token for part in document for token in part] for document in parts]
        corpus = cls.from_tokens(tokens, vocabulary=vocabulary, names=names, covariates=covariates, empty=empty)
        return corpus._in_order([parts[row] for row in corpus.source_rows])

    def with_sentences(self, terms: Any, numbers: Any) -> Corpus:
        """The same documents with their words in order: the term of each, and the sentence of its document it stands in."""
        order = Sentences(np.asarray(terms, np.int32), np.asarray(numbers, np.int32), np.cumsum([0, *self.lengths]))
        rows = np.repeat(np.arange(self.num_documents), self.lengths)
        if order.terms.shape != rows.shape or order.numbers.shape != rows.shape:
            raise ValueError(f"terms has {len(order.terms)} words for {len(rows)} that are counted: give as many")
        found = sparse.csr_array((np.ones(len(rows), np.int32), (rows, order.terms)), shape=self.counts.shape)
        if (found != self.counts).nnz or (np.diff(order.numbers)[np.diff(rows) == 0] < 0).any():
            raise ValueError(
                "terms are not the words that are counted, or numbers of sentences fall: give those counted"
            )
        return replace(self, sentences=order)

    def _in_order(self, documents: Sequence[Sequence[Sequence[str]]]) -> Corpus:
        """The same with its words in the order of these sentences."""
        column = {term: place for place, term in enumerate(self.vocabulary)}
        found = Sentences.of([[[column.get(w, -1) for w in part] for part in document] for document in documents])
        if not np.array_equal(np.diff(found.ends), self.lengths):
            raise ValueError(
                "sentences is True, but words counted in sentences are others than in whole texts (as pairs of words "
                "are): use ngram_range=(1, 1) and an analyzer of words, or from_sentences"
            )
        return replace(self, sentences=found)

    @classmethod
    def from_bags(
        cls,
        bags: Iterable[Iterable[tuple[int, int]]],
        vocabulary: Iterable[str] | Mapping[int, str] | None = None,
        *,
        names: Iterable[Any] | None = None,
        covariates: pd.DataFrame | Mapping[str, Any] | None = None,
        empty: str = "error",
    ) -> Corpus:
        """Take gensim's bags of words: for each document a list of `(term_id, count)`.

        `vocabulary` lists the terms by id, or maps ids to terms as gensim's `Dictionary` does. Without
        it there are as many terms as the largest id asks for.
        """
        terms: list[str] | None = None
        if isinstance(vocabulary, Mapping):
            missing = set(range(len(vocabulary))) - set(vocabulary)
            if missing:
                raise ValueError(
                    f"vocabulary maps {len(vocabulary)} ids but not id {min(missing)}: number the terms "
                    "0, 1, 2, ... without gaps (gensim: dictionary.compactify())"
                )
            terms = [vocabulary[column] for column in range(len(vocabulary))]
        elif vocabulary is not None:
            terms = check_list(vocabulary, "vocabulary", "a list of terms")
        rows: list[int] = []
        columns: list[int] = []
        values: list[float] = []
        documents = check_list(bags, "bags", "a list of documents, each a list of (term_id, count)")
        for row, bag in enumerate(documents):
            for pair in check_list(bag, f"bags[{row}]", "a list of (term_id, count)"):
                if not (isinstance(pair, Sequence | np.ndarray) and len(pair) == 2):
                    raise TypeError(f"bags[{row}] holds {pair!r}: give pairs (term_id, count)")
                term, count = pair
                if not isinstance(term, int | np.integer) or term < 0 or (terms is not None and term >= len(terms)):
                    limit = "" if terms is None else f" below {len(terms)}, the size of the vocabulary"
                    raise ValueError(f"bags[{row}] holds term id {term!r}: ids must be whole numbers from 0{limit}")
                rows.append(row)
                columns.append(int(term))
                values.append(count)
        num_terms = max(columns, default=-1) + 1 if terms is None else len(terms)
        counts = sparse.coo_array((np.asarray(values), (rows, columns)), shape=(len(documents), num_terms))
        return cls.from_counts(counts, terms, names=names, covariates=covariates, empty=empty)

    @property
    def covariates(self) -> pd.DataFrame:
        """One row a document, indexed by name; a copy, so that changing it leaves the corpus alone."""
        return self._covariates.copy()

    @property
    def num_documents(self) -> int:
        """Rows of `counts`, empty documents included."""
        return self.counts.shape[0]

    @property
    def num_terms(self) -> int:
        """Columns of `counts`, terms that never occur included."""
        return self.counts.shape[1]

    @property
    def num_tokens(self) -> int:
        """Sum of `counts`."""
        return int(self.lengths.sum())

    @property
    def lengths(self) -> np.ndarray:
        """Tokens in each document, int64 [documents]."""
        ends, lengths = self.counts.indptr, np.zeros(self.num_documents, np.int64)
        for first in range(0, self.num_documents, ROWS):  # NumPy and SciPy sum int32 by way of a copy as int64
            some = ends[first : first + ROWS + 1]
            filled = np.diff(some) > 0
            if filled.any():
                data = self.counts.data[some[0] : some[-1]]
                lengths[first : first + ROWS][filled] = np.add.reduceat(
                    data, (some[:-1] - some[0])[filled], dtype=np.int64
                )
        return lengths

    @property
    def fingerprints(self) -> np.ndarray:
        """A number for the words of each document, int32 [documents]: documents of the same words have the same."""
        each = _mixed((self.counts.indices.astype(np.uint64) << np.uint64(32)) + self.counts.data.astype(np.uint64))
        total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(each, dtype=np.uint64)])  # wraps, as it may
        return (_mixed(np.diff(total[self.counts.indptr])) >> np.uint64(33)).astype(np.int32)

    @property
    def pairs(self) -> Pairs:
        """The distinct (document, term) pairs with their counts, as stories read them."""
        from .pairs import distinct_pairs  # JAX takes a while to import, and who reads files need not wait for it

        return distinct_pairs(self.counts)

    def __len__(self) -> int:
        return self.num_documents

    def __repr__(self) -> str:
        sizes = f"{self.num_documents} documents, {self.num_terms} terms, {self.num_tokens} tokens"
        dropped = f", {self.num_dropped} empty rows dropped" if self.num_dropped else ""
        columns = list(self._covariates.columns)
        return f"Corpus({sizes}{dropped}" + (f", covariates {columns})" if columns else ")")

    def __getitem__(self, rows: Any) -> Corpus:
        """The documents at `rows`: an integer, a slice, integers (repeats allowed) or a boolean mask.

        The result is always a `Corpus`, over the same vocabulary, and holds at least one document.
        """
        if not isinstance(rows, slice | tuple):
            rows = np.asarray(rows)
            rows = rows.astype(np.intp) if rows.size == 0 and rows.dtype != bool else rows
        try:
            chosen = np.atleast_1d(np.arange(self.num_documents)[rows])
        except IndexError as error:
            raise IndexError(
                f"rows does not index {self.num_documents} documents ({error}): give an integer, a slice, "
                "a list of integers or a mask of one boolean a document"
            ) from None
        if chosen.ndim != 1:
            raise IndexError(f"rows picks an array of shape {chosen.shape}: give a flat list of documents")
        if not len(chosen):
            raise ValueError(f"rows selects none of the {self.num_documents} documents: select at least one")
        return replace(
            self,
            counts=self.counts[chosen],
            names=self.names[chosen],
            source_rows=self.source_rows[chosen],
            _covariates=self._covariates.iloc[chosen],
            num_dropped=0,
            texts=None if self.texts is None else self.texts[chosen],
            sentences=None if self.sentences is None else self.sentences.take(chosen),
        )

    def with_texts(self, texts: Iterable[str]) -> Corpus:
        """The same documents with their texts, to be read beside their topics."""
        found = check_texts(texts, "texts")
        if len(found) != self.num_documents:
            raise ValueError(f"texts has {len(found)} for {self.num_documents} documents: give one a document")
        kept = np.empty(len(found), object)
        kept[:] = found
        return replace(self, texts=kept)

    def tokens(self) -> tuple[np.ndarray, np.ndarray]:
        """Every occurrence of every term, as `(document [T], term [T])`, both int32.

        Documents come in order, the terms of a document in column order, repeats next to each other; where the
        order of words is kept, in that.
        """
        if self.sentences is not None:
            lengths = np.diff(self.sentences.ends)
            return np.repeat(np.arange(self.num_documents, dtype=np.int32), lengths), self.sentences.terms
        pairs_per_document = np.diff(self.counts.indptr)
        document = np.repeat(np.arange(self.num_documents, dtype=np.int32), pairs_per_document)
        repeats = self.counts.data
        return np.repeat(document, repeats), np.repeat(self.counts.indices.astype(np.int32), repeats)

    def with_vocabulary(self, vocabulary: Iterable[str]) -> Corpus:
        """The same documents over another vocabulary, as prediction needs them.

        Terms it does not know are dropped, terms new to this corpus get columns of zeros, and documents
        that become empty are kept, so that predictions line up with the documents asked for.
        """
        terms = check_vocabulary(vocabulary)
        column_of = pd.Index(terms).get_indexer(pd.Index(self.vocabulary))
        pairs = self.counts.tocoo()
        column = column_of[pairs.col]
        known = column >= 0
        counts = sparse.coo_array(
            (pairs.data[known], (pairs.row[known], column[known])), shape=(self.num_documents, len(terms))
        )
        sentences = None if self.sentences is None else self.sentences.renamed(column_of)
        return replace(self, counts=canonical_counts(counts), vocabulary=terms, sentences=sentences)


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """Whole numbers as others that look random (the last steps of SplitMix64)."""
    numbers = (numbers ^ numbers >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ numbers >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return numbers ^ numbers >> np.uint64(31)


def long_document(corpus: Corpus) -> str | None:
    """A sentence on a document that holds more than a tenth of all words, if there is one among at least twenty."""
    shares = corpus.lengths / max(corpus.num_tokens, 1)
    longest = int(np.argmax(shares))
    if len(corpus) < FEWEST or shares[longest] <= LONG:
        return None
    return (
        f"corpus holds document {corpus.names[longest]!r} with {shares[longest]:.0%} of all words, which may decide the "
        "topics alone; cut it into parts, or leave it out."
    )
