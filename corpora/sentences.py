"""Words in their order: which term stands where in a document, and in which of its sentences.

Counts forget both. A corpus keeps them on request, for stories in which words of a sentence have something in common.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

ENDS = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+|\n\s*\n")  # of a sentence or a paragraph


@dataclass(frozen=True, eq=False)
class Sentences:
    """The words of all documents one after the other."""

    terms: np.ndarray  # [tokens] int32
    numbers: np.ndarray  # [tokens] int32, the sentence of its document that a word stands in, never falling
    ends: np.ndarray  # [documents + 1] where the words of a document begin and end

    @classmethod
    def of(cls, documents: Sequence[Sequence[Sequence[int]]]) -> Sentences:
        """Documents as lists of sentences, sentences as lists of terms; below 0 a term that is left out."""
        terms = [np.fromiter((term for part in document for term in part), np.int32) for document in documents]
        numbers = [np.repeat(np.arange(len(document)), [len(part) for part in document]) for document in documents]
        return cls._joined(terms, numbers)

    @classmethod
    def _joined(cls, terms: list[np.ndarray], numbers: list[np.ndarray]) -> Sentences:
        known = [own >= 0 for own in terms]
        ends = np.cumsum([0, *(int(own.sum()) for own in known)])

        def joined(part: list[np.ndarray]) -> np.ndarray:
            kept = [own[which] for own, which in zip(part, known, strict=True)]
            return np.concatenate([np.zeros(0, np.int32), *kept]).astype(np.int32)

        return cls(joined(terms), joined(numbers), ends)

    def take(self, rows: np.ndarray) -> Sentences:
        """Those of some documents."""
        places = [slice(self.ends[row], self.ends[row + 1]) for row in rows]
        return self._joined([self.terms[own] for own in places], [self.numbers[own] for own in places])

    def renamed(self, column_of: np.ndarray) -> Sentences:
        """The same over another vocabulary: each term by its place there, below 0 where it has none."""
        terms = column_of[self.terms]
        before = np.concatenate([[0], np.cumsum(terms >= 0)])
        return Sentences(terms[terms >= 0].astype(np.int32), self.numbers[terms >= 0], before[self.ends])

    def with_terms(self, terms: np.ndarray) -> Sentences:
        """Other words in the same places."""
        return Sentences(np.asarray(terms, np.int32), self.numbers, self.ends)

    @property
    def begins(self) -> np.ndarray:
        """Whether a word is the first of its sentence, bool [tokens]."""
        begins = np.ones(len(self.terms), bool)
        begins[1:] = self.numbers[1:] != self.numbers[:-1]
        begins[self.ends[:-1][self.ends[:-1] < len(self.terms)]] = True
        return begins


def split(text: str) -> list[str]:
    """A text cut after full stops, exclamation and question marks, and between paragraphs."""
    return [part for part in ENDS.split(text) if part.strip()]
