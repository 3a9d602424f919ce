"""Is a topic the same in every document? Mimno & Blei's (2011) check of the words.

The story says that given its topic a word does not depend on its document. Over the tokens of topic k, with counts
N(w, d, k), the mutual information of word and document

    MI_k = sum_w N(w, k)/N(k) IMI_kw,    IMI_kw = H(D | k) - H(D | w, k),

is then what chance alone makes of it. H(D | w, k) is the entropy of the documents in which the topic uses the word: the
instantaneous mutual information IMI_kw is large for a word that stays within few of the topic's documents.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import xlogy

from topiczoo.corpora import Corpus
from topiczoo.inference import token_topics

if TYPE_CHECKING:
    from topiczoo.inference import Fit

THRESHOLD = 3.0  # a topic deviates if its mutual information is so many standard deviations above the replicated


@dataclass(frozen=True, repr=False)
class WordCheck:
    """Observed and replicated mutual information of word and document.

    ``deviation`` is (observed - mean of replicated) / standard deviation of replicated; ``p`` the share of replications
    that are no smaller than what was observed.
    """

    topics: pd.DataFrame  # topic: tokens, observed, replicated, deviation, p
    terms: pd.DataFrame  # topic, term, count, observed, replicated, deviation, p; each topic's leading terms

    @property
    def deviating(self) -> list[int]:
        """Topics whose words depend on the document."""
        return list(self.topics.index[self.topics["deviation"] > THRESHOLD])

    def __repr__(self) -> str:
        worst = self.topics["deviation"].idxmax()
        return (
            f"WordCheck: {len(self.deviating)} of {len(self.topics)} topics use words differently from document to "
            f"document; the most, topic {worst}, by {self.topics.loc[worst, 'deviation']:.1f} standard deviations"
        )


def check_words(
    fit: Fit, corpus: Corpus | None = None, *, n: int = 10, chain: int = 0, most_draws: int = 10, replications: int = 10,
    seed: int = 0,
) -> WordCheck:  # fmt: skip
    """Compare the mutual information of word and document within each topic with that of replicated words.

    At each of ``most_draws`` posterior draws the topics of all tokens are drawn given the words; then, as in the paper,
    the words of each topic are permuted over its tokens ``replications`` times. Documents, topics and how often a topic
    uses a word stay as they are, so nothing but the dependence in question can differ.

    Parameters
    ----------
    corpus
        By default the documents of the fit.
    n
        So many of each topic's most used terms are reported one by one.
    chain
        Topics of different chains are different topics: those of this one are checked.
    """
    for name, value, least in (("n", n, 1), ("most_draws", most_draws, 1), ("replications", replications, 2)):
        if value < least:
            raise ValueError(f"{name} is {value!r}; give a whole number of at least {least}.")
    corpus = fit.corpus if corpus is None else corpus
    tokens = token_topics(fit, corpus, chain=chain, most_draws=most_draws, seed=seed)
    rng = np.random.default_rng(seed)
    used = _used(tokens.topics, tokens.term, tokens.num_topics)
    shape = used.terms.shape
    topics, terms, counts = _Comparison(shape[:1]), _Comparison(shape), np.zeros(shape)
    for topic in tokens.topics:
        order = np.argsort(topic, kind="stable")
        topic, document, term = topic[order].astype(np.int64), tokens.document[order], tokens.term[order]
        term = used.number(topic, term)
        observed = mutual_information(topic, document, term, shape)
        # topics are sorted, so that this permutes words within each
        permuted = (term[np.lexsort((rng.random(len(term)), topic))] for _ in range(replications))
        replicated = [mutual_information(topic, document, words, shape) for words in permuted]
        topics.add(observed[0], np.stack([part[0] for part in replicated]))
        terms.add(observed[1], np.stack([part[1] for part in replicated]))
        counts += np.bincount(topic * shape[1] + term, minlength=counts.size).reshape(shape) / len(tokens.topics)
    frame = topics.frame()
    frame.insert(0, "tokens", counts.sum(1))
    leading = np.argsort(-counts, axis=1, kind="stable")[:, :n]
    rows = (np.arange(shape[0])[:, None] * shape[1] + leading).ravel()
    one_by_one = terms.frame().iloc[rows].reset_index(drop=True)
    one_by_one.insert(0, "topic", np.repeat(np.arange(shape[0]), leading.shape[1]))
    one_by_one.insert(1, "term", fit.vocabulary[used.terms.ravel()[rows]])
    one_by_one.insert(2, "count", counts.ravel()[rows])
    return WordCheck(frame.rename_axis("topic"), one_by_one[one_by_one["count"] > 0].reset_index(drop=True))


class _Used(NamedTuple):
    """Terms that each topic uses in any draw, numbered within it: many fewer than the vocabulary has."""

    codes: np.ndarray  # topic and term in one number, sorted
    numbers: np.ndarray  # of a term within its topic
    terms: np.ndarray  # behind each number, [topics, numbers]; 0 beyond the last of a topic
    num_terms: int

    def number(self, topic: np.ndarray, term: np.ndarray) -> np.ndarray:
        """The numbers of tokens' terms within their topics."""
        return self.numbers[np.searchsorted(self.codes, topic * self.num_terms + term)]


def _used(topics: np.ndarray, term: np.ndarray, num_topics: int) -> _Used:
    num_terms = int(term.max(initial=0)) + 1
    codes = np.unique(np.concatenate([np.unique(topic.astype(np.int64) * num_terms + term) for topic in topics]))
    own = codes // num_terms
    numbers = np.arange(len(codes)) - np.searchsorted(own, np.arange(num_topics))[own]
    terms = np.zeros((num_topics, int(numbers.max(initial=0)) + 1), int)
    terms[own, numbers] = codes % num_terms
    return _Used(codes, numbers, terms, num_terms)


def mutual_information(
    topic: np.ndarray, document: np.ndarray, term: np.ndarray, shape: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """MI_k [topics] and IMI_kw [topics, terms] of tokens; 0 where a topic has none.

    With S(counts) = sum of N log N, an entropy is H = log N - S / N.
    """
    num_topics, num_terms = shape
    num_documents = int(document.max()) + 1
    pair, per_pair = np.unique(topic * num_documents + document, return_counts=True)
    triple, per_triple = np.unique((topic * num_terms + term) * num_documents + document, return_counts=True)

    def by(place: np.ndarray, weight: np.ndarray, size: int) -> np.ndarray:
        return np.bincount(place, weight, size)

    in_topic = np.bincount(topic, minlength=num_topics)
    documents = _entropy(in_topic, by(pair // num_documents, xlogy(per_pair, per_pair), num_topics))
    of_term = by(triple // num_documents, per_triple, num_topics * num_terms).reshape(shape)
    within = by(triple // num_documents, xlogy(per_triple, per_triple), num_topics * num_terms).reshape(shape)
    instantaneous = np.where(of_term > 0, documents[:, None] - _entropy(of_term, within), 0.0)
    return (of_term * instantaneous).sum(1) / np.maximum(in_topic, 1), instantaneous


def _entropy(number: np.ndarray, sum_n_log_n: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(number, 1)) - sum_n_log_n / np.maximum(number, 1)


class _Comparison:
    """Means over draws of an observed quantity and of its replications; the spread is that within a draw."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.observed, self.replicated, self.variance, self.p = (np.zeros(shape) for _ in range(4))
        self.draws = 0

    def add(self, observed: np.ndarray, replicated: np.ndarray) -> None:
        self.draws += 1
        now = observed, replicated.mean(0), replicated.var(0, ddof=1), (replicated >= observed).mean(0)
        for mean, value in zip((self.observed, self.replicated, self.variance, self.p), now, strict=True):
            mean += (value - mean) / self.draws

    def frame(self) -> pd.DataFrame:
        certain = self.variance < 1e-20  # a term used once, say: no permutation changes anything
        deviation = (self.observed - self.replicated) / np.sqrt(np.where(certain, 1.0, self.variance))
        columns = {"observed": self.observed, "replicated": self.replicated}
        columns |= {"deviation": np.where(certain, 0.0, deviation), "p": self.p}
        return pd.DataFrame({name: value.ravel() for name, value in columns.items()})
