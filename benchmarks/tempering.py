"""Parallel tempering of latent Dirichlet allocation, in plain NumPy: it shares no code with the package's engines.

Words and topics are tempered at once. With n_dk words of document d and n_kv words of term v in topic k,

    p_tau(z, theta, phi) ~ p(theta) p(phi) prod_n (theta_{d_n z_n} phi_{z_n w_n})^tau,

so that a sweep draws theta_d ~ Dir(alpha + tau n_d), phi_k ~ Dir(gamma + tau n_k) and every z_n ~ (theta phi)^tau, all words
of one term in one document at once. At tau = 1 that is the posterior; at tau = 0 every topic is drawn by itself.

In a ladder neighbours change places by the density of z alone, theta and phi integrated out, in turns
of even and odd pairs, and temperatures are placed so that all pairs reject alike (Syed, Bouchard-Cote, Deligiannidis &
Doucet 2022). A walker that comes from the hot end to the cold one has forgotten which mode it was in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array
from scipy.special import gammaln


@dataclass(frozen=True)
class Words:
    """A corpus as pairs of a document and a term, with the number of topics and the priors of lda.stan."""

    document: np.ndarray  # of each pair, from 0
    term: np.ndarray  # of each pair, from 0
    number: np.ndarray  # of tokens of each pair
    num_documents: int
    num_terms: int
    num_topics: int
    alpha: float
    gamma: float

    @property
    def log_assignments(self) -> float:
        """The logarithm of K^N."""
        return float(self.number.sum() * np.log(self.num_topics))

    @cached_property
    def sums(self) -> tuple[csr_array, csr_array]:
        """Matrices that sum pairs to documents, and to terms."""
        pairs = np.arange(len(self.number))
        ones = np.ones(len(pairs), int)
        return (
            csr_array((ones, (self.document, pairs)), (self.num_documents, len(pairs))),
            csr_array((ones, (self.term, pairs)), (self.num_terms, len(pairs))),
        )

    def count(self, topics: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """n_dk [document, state, topic] and n_vk [term, state, topic] of topics [pair, state, topic]."""
        flat = topics.reshape(len(topics), -1)
        return tuple((matrix @ flat).reshape(-1, *topics.shape[1:]) for matrix in self.sums)


def log_density(words: Words, taus: np.ndarray, of_documents: np.ndarray, of_terms: np.ndarray) -> np.ndarray:
    """log p_tau(z) of each state, theta and phi integrated out; at tau = 0 it is 0 for each of K^N assignments."""

    def integrated(prior: float, numbers: np.ndarray, axis: int) -> np.ndarray:
        """The logarithm of Dirichlet-multinomials along an axis, summed over all others but the states."""
        taus_here, whole = taus[:, None], numbers.shape[axis] * prior
        of_each = (gammaln(prior + taus_here * numbers) - gammaln(prior)).sum((0, 2))
        totals = gammaln(whole) - gammaln(whole + taus_here * numbers.sum(axis, keepdims=True))
        return of_each + totals.sum((0, 2))

    return integrated(words.alpha, of_documents, 2) + integrated(words.gamma, of_terms, 0)


def draw_parameters(
    rng: np.random.Generator, words: Words, taus: np.ndarray, of_documents: np.ndarray, of_terms: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Draws of theta [document, state, topic] and phi [term, state, topic] given the topics."""
    theta = rng.standard_gamma(words.alpha + taus[:, None] * of_documents)
    phi = rng.standard_gamma(words.gamma + taus[:, None] * of_terms)
    return theta / theta.sum(2, keepdims=True), phi / phi.sum(0)


def draw_topics(
    rng: np.random.Generator, words: Words, taus: np.ndarray, theta: np.ndarray, phi: np.ndarray
) -> np.ndarray:
    """How many words of each pair have which topic, given theta and phi: [pair, state, topic]."""
    shares = (theta ** taus[:, None])[words.document]
    shares *= (phi ** taus[:, None])[words.term]
    shares /= shares.sum(2, keepdims=True)
    return rng.multinomial(words.number[:, None], shares)


def start(rng: np.random.Generator, words: Words, states: int) -> np.ndarray:
    """Topics by chance."""
    K = words.num_topics
    return rng.multinomial(words.number[:, None], np.full((len(words.number), states, K), 1 / K))


@dataclass
class Ladder:
    """One ladder of temperatures, hottest (0) first and coldest (1) last, and what it has met on its way."""

    words: Words
    taus: np.ndarray
    rng: np.random.Generator
    topics: np.ndarray = field(init=False)  # [pair, temperature, topic]
    rejected: np.ndarray = field(init=False)  # of each pair of temperatures, summed over sweeps
    steps: np.ndarray = field(init=False)  # log of the sum over sweeps of p_{next tau}(z) / p_tau(z)
    sweeps: int = 0
    arrivals: int = 0  # at the cold end, of walkers that come from the hot one
    log_joint: float = 0.0  # of the coldest topics and the words

    def __post_init__(self) -> None:
        self.topics = start(self.rng, self.words, len(self.taus))
        self.from_hot = np.zeros(len(self.taus), bool)
        self.place(self.taus)

    def place(self, taus: np.ndarray) -> None:
        """Go on from the same topics at other temperatures, and forget what was met."""
        self.taus = taus
        self.rejected, self.steps = np.zeros(len(taus) - 1), np.full(len(taus) - 1, -np.inf)
        self.sweeps = self.arrivals = 0
        self.numbers = self.words.count(self.topics)

    def sweep(self) -> None:
        """Draw all topics, then change neighbours."""
        parameters = draw_parameters(self.rng, self.words, self.taus, *self.numbers)
        self.topics = draw_topics(self.rng, self.words, self.taus, *parameters)
        self.numbers = self.words.count(self.topics)
        here = log_density(self.words, self.taus, *self.numbers)
        colder = log_density(self.words, self.taus[1:], *(part[:, :-1] for part in self.numbers))
        hotter = log_density(self.words, self.taus[:-1], *(part[:, 1:] for part in self.numbers))
        ratio = colder - here[:-1] + hotter - here[1:]
        change = np.log(self.rng.random(len(ratio))) < ratio
        change[1 - self.sweeps % 2 :: 2] = False
        partner = np.arange(len(here)) + np.append(change, False) - np.insert(change, 0, False)
        self.topics = self.topics[:, partner]
        self.numbers = [part[:, partner] for part in self.numbers]
        self.log_joint = colder[-1] if change[-1] else here[-1]
        self.from_hot = self.from_hot[partner]
        self.from_hot[0] = True
        self.arrivals += int(self.from_hot[-1])
        self.from_hot[-1] = False
        self.rejected += 1 - np.exp(np.minimum(ratio, 0))
        self.steps = np.logaddexp(self.steps, colder - here[:-1])
        self.sweeps += 1

    def coldest(self) -> tuple[np.ndarray, np.ndarray]:
        """A draw of theta [document, topic] and phi [topic, term] from the posterior."""
        theta, phi = draw_parameters(self.rng, self.words, self.taus[-1:], *(part[:, -1:] for part in self.numbers))
        return theta[:, 0], phi[:, 0].T

    @property
    def log_evidence(self) -> float:
        """log p(w) by stepping stones, upwards from the K^N assignments at tau = 0."""
        return float(self.words.log_assignments + (self.steps - np.log(self.sweeps)).sum())


def placed(taus: np.ndarray, rejected: np.ndarray, number: int) -> np.ndarray:
    """Temperatures between which the barrier, the sum of the pairs' rejections, is the same everywhere."""
    barrier = np.append(0, np.cumsum(rejected + 1e-3))
    new = np.interp(np.linspace(0, barrier[-1], number), barrier, taus)
    new[0], new[-1] = 0.0, 1.0
    return new
