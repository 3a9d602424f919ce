"""What engines refuse at the door, each with one sentence that names the argument, the value and the fix."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from topiczoo.corpora import Corpus
from topiczoo.corpora.corpus import long_document
from topiczoo.models.vocabulary.distributions import NormalJeffreys

from .bound import BoundGraph

LARGEST_SEED = 2**32 - 1  # JAX's keys have 32 bits of it


def check_corpus(corpus: object) -> None:
    """A corpus of documents that all have words."""
    if not isinstance(corpus, Corpus):
        raise TypeError(f"corpus is a {type(corpus).__name__}; make a Corpus of it, e.g. Corpus.from_counts(counts).")
    empty = np.flatnonzero(corpus.lengths == 0)
    if empty.size:
        raise ValueError(
            f"corpus has {empty.size} documents without words, the first is {corpus.names[empty[0]]!r}; leave them out: "
            "corpus[corpus.lengths > 0]."
        )
    if sentence := long_document(corpus):
        warnings.warn(sentence, stacklevel=5)


def check_share(**shares: Any) -> None:
    """Probabilities of intervals: between 0 and 1."""
    for name, value in shares.items():
        if not 0 < value < 1:
            raise ValueError(f"{name} is {value!r}; give a number between 0 and 1.")


def check_counts(**counts: Any) -> None:
    """Numbers of draws, chains, steps: whole, and at least 1 (warm-up may be 0); thinning divides the draws."""
    for name, value in counts.items():
        least = 0 if name in ("num_warmup", "num_burn") else 1
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
            raise ValueError(f"{name} is {value!r}; give a whole number of at least {least}.")
    if counts.get("num_samples", 0) % counts.get("thinning", 1):
        raise ValueError(
            f"thinning is {counts['thinning']}, which does not divide num_samples {counts['num_samples']}."
        )


def check_draws(most_draws: Any, num_burn: Any) -> None:
    """Draws to work at, all of them or some that an engine chooses if None; sweeps before each."""
    check_counts(num_burn=num_burn, **({} if most_draws is None else {"most_draws": most_draws}))


def check_seed(seed: Any) -> None:
    """A whole number that NumPy's generators and JAX's keys both take, each differently for each."""
    whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
    if not (whole and 0 <= seed <= LARGEST_SEED):
        raise ValueError(f"seed is {seed!r}; give a whole number from 0 to {LARGEST_SEED}.")


def check_numbers(*, zero: bool = False, most: float = np.inf, or_a: str = "", **numbers: Any) -> None:
    """Numbers above 0, or with ``zero`` not below it, and below ``most``."""
    for name, value in numbers.items():
        number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
        if number and (0 <= value if zero else 0 < value) and value < most:
            continue
        wanted = "a number of at least 0" if zero else "a positive number"
        raise ValueError(
            f"{name} is {value!r}; give {f'a number between 0 and {most:g}' if most < np.inf else wanted}{or_a}."
        )


class Unserved(ValueError):
    """A story that an engine cannot serve: why, and what helps without another engine.

    The public functions add which engines would take the story; engines do not know each other.
    """

    def __init__(self, graph: BoundGraph, engines: Sequence[str], why: str, fix: str = "") -> None:
        super().__init__(f"{why}; {fix}." if fix else f"{why}.")
        self.graph, self.engines, self.why, self.fix = graph, tuple(engines), why, fix


def is_improper(graph: BoundGraph) -> bool:
    """Whether the prior of a site is improper."""
    return any(isinstance(site.prior, NormalJeffreys) for site in graph.latent.values())


def refuse_improper(graph: BoundGraph, engine: str) -> None:
    """What draws from the posterior needs one: there is none under an improper prior that is infinite at 0."""
    for name, site in graph.latent.items():
        if isinstance(site.prior, NormalJeffreys):
            raise Unserved(
                graph, [engine],
                f"{engine} cannot serve the site {name!r} of the story {graph.story.name!r}: the posterior is improper "
                "under its prior NormalJeffreys",
                "give it a proper one, e.g. Laplace",
            )  # fmt: skip
