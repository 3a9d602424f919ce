"""The exact posterior of latent Dirichlet allocation with two topics on a corpus of few pairs, by summation.

Words of one term in one document are alike, so what counts is how many of them have the first topic: x_p of n_p words of
pair p. With theta and phi integrated out,

    p(x, w) = prod_p C(n_p, x_p)  prod_d B(alpha + n_d) / B(alpha)  prod_k B(gamma + n_k) / B(gamma)

with n_d the two numbers of document d and n_k those of the terms in topic k. Every x is summed: the last two pairs as one
array, all others in a loop. Arrays are as small as what they depend on, and NumPy's broadcasting does the rest.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln
from tempering import Words

NEGLIGIBLE = 1e-16  # share of the sum below which the terms of a loop's turn are left out of means


def log_sum(terms: np.ndarray) -> float:
    """log sum exp, in place."""
    most = terms.max()
    terms -= most
    return float(most + np.log(np.exp(terms, out=terms).sum()))


@dataclass
class Counts:
    """Numbers of words in each topic, [.., ..] or smaller, for some x of the last two pairs and every other x given."""

    of_documents: list[list[np.ndarray]]  # n_dk: documents, topics
    of_topics: list[list[np.ndarray]]  # n_kv: topics, terms
    first: np.ndarray  # n_k of the first topic
    whole: int

    def size(self, k: int) -> np.ndarray:
        """n_k."""
        return self.whole - self.first if k else self.first

    def theta(self, words: Words, d: int, k: int) -> np.ndarray:
        """E[theta_dk | x]."""
        total = 2 * words.alpha + sum(self.of_documents[d])
        return (words.alpha + self.of_documents[d][k]) / total

    def theta_squared(self, words: Words, d: int, k: int) -> np.ndarray:
        """E[theta_dk^2 | x]."""
        total = 2 * words.alpha + sum(self.of_documents[d])
        return self.theta(words, d, k) * (words.alpha + self.of_documents[d][k] + 1) / (total + 1)

    def phi(self, words: Words, k: int, v: int) -> np.ndarray:
        """E[phi_kv | x]."""
        return (words.gamma + self.of_topics[k][v]) / (words.num_terms * words.gamma + self.size(k))

    def phi_squared(self, words: Words, k: int, v: int) -> np.ndarray:
        """E[phi_kv^2 | x]."""
        total = words.num_terms * words.gamma + self.size(k) + 1
        return self.phi(words, k, v) * (words.gamma + self.of_topics[k][v] + 1) / total


class Exact:
    """The sum over all x, turn by turn; ``log_evidence`` is log p(w)."""

    def __init__(self, words: Words) -> None:
        if words.num_topics != 2 or len(words.number) < 2:
            raise ValueError(
                f"words have {words.num_topics} topics and {len(words.number)} pairs of a document and a term; give two "
                "topics and two pairs or more."
            )
        self.words = words
        whole = int(words.number.sum())
        self.log_factorials = gammaln(np.arange(whole + 1) + 1.0)
        self.of_theta = gammaln(words.alpha + np.arange(whole + 1)) - gammaln(words.alpha)
        self.of_phi = gammaln(words.gamma + np.arange(whole + 1)) - gammaln(words.gamma)
        prior = words.num_terms * words.gamma
        of_size = gammaln(prior) - gammaln(prior + np.arange(whole + 1))
        self.of_sizes = of_size + of_size[::-1]  # of both topics, by the first one's
        lengths = words.sums[0] @ words.number
        self.constant = float((gammaln(2 * words.alpha) - gammaln(2 * words.alpha + lengths)).sum())
        self.turns = list(itertools.product(*(range(n + 1) for n in words.number[:-2])))
        self.log_masses = np.array([log_sum(self.log_terms(turn)) for turn in self.turns])
        self.log_evidence = log_sum(self.log_masses.copy())

    def splits(self, turn: tuple[int, ...]) -> list[np.ndarray]:
        """x of every pair: numbers of the others, a column and a row of the last two."""
        column, row = (np.arange(n + 1) for n in self.words.number[-2:])
        return [*(np.array([[x]]) for x in turn), column[:, None], row[None]]

    def counts(self, turn: tuple[int, ...]) -> Counts:
        """The numbers of words in each topic."""
        words, zero = self.words, np.zeros((1, 1), int)
        of_documents = [[zero, zero] for _ in range(words.num_documents)]
        of_topics = [[zero] * words.num_terms, [zero] * words.num_terms]
        pairs = zip(words.document, words.term, words.number, self.splits(turn), strict=True)
        for d, v, number, x in pairs:
            for k, part in enumerate((x, number - x)):
                of_documents[d][k] = of_documents[d][k] + part
                of_topics[k][v] = of_topics[k][v] + part
        return Counts(of_documents, of_topics, sum(self.splits(turn)), int(words.number.sum()))

    def log_terms(self, turn: tuple[int, ...]) -> np.ndarray:
        """log p(x, w) of every x of the last two pairs."""
        counts, ways = self.counts(turn), self.log_factorials
        parts = [np.array([[self.constant]])]
        for number, x in zip(self.words.number, self.splits(turn), strict=True):
            parts.append(ways[number] - ways[x] - ways[number - x])
        parts += [self.of_theta[part] for part in itertools.chain(*counts.of_documents)]
        parts += [self.of_phi[part] for part in itertools.chain(*counts.of_topics)]
        of_shapes: dict[tuple[int, ...], np.ndarray] = {}  # what is small is summed while it is small
        for part in parts:
            of_shapes[part.shape] = of_shapes.get(part.shape, 0.0) + part
        total = self.of_sizes.take(counts.first)
        for part in of_shapes.values():
            total += part
        return total

    def means(self, functions: dict[str, Callable[[Counts], np.ndarray]]) -> dict[str, float]:
        """Posterior means of quantities whose means given x are known."""
        found = dict.fromkeys(functions, 0.0)
        weight = 0.0
        for turn in self._weighty():
            shares = np.exp(self.log_terms(turn) - self.log_evidence)
            weight += shares.sum()
            counts = self.counts(turn)
            for name, function in functions.items():
                found[name] += float((shares * function(counts)).sum())
        return {name: value / weight for name, value in found.items()}

    def _weighty(self) -> Iterator[tuple[int, ...]]:
        least = self.log_evidence + np.log(NEGLIGIBLE / len(self.turns))
        return (turn for turn, mass in zip(self.turns, self.log_masses, strict=True) if mass > least)

    def draws(self, number: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Independent draws of theta [document, topic] and phi [topic, term], in an order by chance."""
        words, rng = self.words, np.random.default_rng(seed)
        shares = np.exp(self.log_masses - self.log_evidence)
        found = []
        turns, repeats = np.unique(rng.choice(len(shares), number, p=shares / shares.sum()), return_counts=True)
        for turn, repeat in zip(turns, repeats, strict=True):
            terms = np.exp(self.log_terms(self.turns[turn]) - self.log_masses[turn])
            cells = rng.choice(terms.size, repeat, p=terms.ravel() / terms.sum())
            for c, r in zip(*np.unravel_index(cells, terms.shape), strict=True):
                found.append([*self.turns[turn], c, r])
        for x in rng.permutation(np.array(found)):
            topics = np.stack([x, words.number - x], -1)[:, None]
            of_documents, of_terms = (part[:, 0] for part in words.count(topics))
            theta = rng.standard_gamma(words.alpha + of_documents)
            phi = rng.standard_gamma(words.gamma + of_terms.T)
            yield theta / theta.sum(1, keepdims=True), phi / phi.sum(1, keepdims=True)
