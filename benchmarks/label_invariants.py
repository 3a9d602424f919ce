"""Quantities of latent Dirichlet allocation that do not change when topics are renumbered, and how well draws tell them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from arviz_stats.base import array_stats
from exact_lda import Counts
from tempering import Words

FEW = 20  # documents up to which each has quantities of its own
Draw = tuple[np.ndarray, np.ndarray]  # theta [document, topic] and phi [topic, term]


def probed(words: Words) -> list[tuple[int, int]]:
    """Pairs whose p(term | document) is looked at: all of nine or fewer, else the six with most words."""
    if words.num_documents * words.num_terms <= 9:
        return [(d, v) for d in range(words.num_documents) for v in range(words.num_terms)]
    most = np.argsort(-words.number, kind="stable")[:6]
    return [(int(words.document[p]), int(words.term[p])) for p in most]


def overlaps(words: Words) -> list[tuple[int, int]]:
    """Pairs of documents whose proportions are compared: each with the next, where documents are few."""
    return [(d, d + 1) for d in range(words.num_documents - 1)] if words.num_documents <= FEW else []


def invariants(words: Words) -> tuple[list[str], Callable[[np.ndarray, np.ndarray], np.ndarray]]:
    """Names of quantities, and a function from theta and phi to their values.

    usage_k is the share of the corpus' words that theta gives topic k. Documents and terms are numbered from 1, as in Stan.
    """
    shares = words.sums[0] @ words.number / words.number.sum()
    each = range(words.num_documents) if words.num_documents <= FEW else range(0)
    compared, seen = overlaps(words), probed(words)
    names = ["log_likelihood", "usage_entropy", "usage_squared", "usage_largest", "theta_squared"]
    names += ["phi_squared", "phi_overlap", "phi_entropy"]
    names += [f"theta_squared[{d + 1}]" for d in each]
    names += [f"theta_overlap[{d + 1},{e + 1}]" for d, e in compared]
    names += [f"probability[{d + 1},{v + 1}]" for d, v in seen]

    def values(theta: np.ndarray, phi: np.ndarray) -> np.ndarray:
        usage = shares @ theta
        squared = (theta**2).sum(1)
        likelihood = np.zeros(len(words.number))
        for k in range(words.num_topics):
            likelihood += theta[words.document, k] * phi[k, words.term]
        phi_squared, products = (phi**2).sum(1), phi @ phi.T
        entropies = -(phi * np.log(np.maximum(phi, 1e-300))).sum(1)
        return np.array([
            words.number @ np.log(likelihood), -usage @ np.log(usage), usage @ usage, usage.max(), shares @ squared,
            usage @ phi_squared, (products.sum() - np.trace(products)) / 2, usage @ entropies,
            *squared[: len(each)], *(theta[d] @ theta[e] for d, e in compared), *(theta[d] @ phi[:, v] for d, v in seen),
        ])  # fmt: skip

    return names, values


def exact_means(words: Words) -> dict[str, Callable[[Counts], np.ndarray]]:
    """Means given the counts of :mod:`exact_lda`, of the quantities that have one in closed form."""
    shares = words.sums[0] @ words.number / words.number.sum()
    documents, terms, topics = range(words.num_documents), range(words.num_terms), range(2)

    def squared(d: int) -> Callable[[Counts], np.ndarray]:
        return lambda c: sum(c.theta_squared(words, d, k) for k in topics)

    def overlap(d: int, e: int) -> Callable[[Counts], np.ndarray]:
        return lambda c: sum(c.theta(words, d, k) * c.theta(words, e, k) for k in topics)

    def both(d: int, e: int) -> Callable[[Counts], np.ndarray]:
        return squared(d) if d == e else overlap(d, e)

    def probability(d: int, v: int) -> Callable[[Counts], np.ndarray]:
        return lambda c: sum(c.theta(words, d, k) * c.phi(words, k, v) for k in topics)

    def phi_squared(c: Counts) -> np.ndarray:
        usage = [sum(shares[d] * c.theta(words, d, k) for d in documents) for k in topics]
        return sum(usage[k] * sum(c.phi_squared(words, k, v) for v in terms) for k in topics)

    found = {
        "usage_squared": lambda c: sum(shares[d] * shares[e] * both(d, e)(c) for d in documents for e in documents),
        "theta_squared": lambda c: sum(shares[d] * squared(d)(c) for d in documents),
        "phi_squared": phi_squared,
        "phi_overlap": lambda c: sum(c.phi(words, 0, v) * c.phi(words, 1, v) for v in terms),
    }
    found |= {f"theta_squared[{d + 1}]": squared(d) for d in documents if words.num_documents <= FEW}
    found |= {f"theta_overlap[{d + 1},{e + 1}]": overlap(d, e) for d, e in overlaps(words)}
    return found | {f"probability[{d + 1},{v + 1}]": probability(d, v) for d, v in probed(words)}


def summary(draws: np.ndarray) -> dict[str, list[float]]:
    """Of draws [chain, draw, quantity]: means, standard deviations, their errors, and what posteriordb checks."""
    found: dict[str, list[float]] = {}
    for values in np.moveaxis(draws, 2, 0):
        centred = values - values.mean(1, keepdims=True)
        lag_1 = (centred[:, 1:] * centred[:, :-1]).sum() / (centred**2).sum()
        row = {
            "mean": values.mean(), "mcse_mean": array_stats.mcse(values, method="mean"), "sd": values.std(ddof=1),
            "mcse_sd": array_stats.mcse(values, method="sd"), "r_hat": array_stats.rhat(values),
            "effective_sample_size_bulk": array_stats.ess(values, method="bulk"),
            "effective_sample_size_tail": array_stats.ess(values, method="tail", prob=(0.05, 0.95)),
            "lag_1": lag_1,
        }  # fmt: skip
        for name, value in row.items():
            found.setdefault(name, []).append(float(value))
    return found
