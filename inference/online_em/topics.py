"""Topics as online variational EM holds them: lambda, of which a minibatch moves all a little and its own terms the most.

    lambda <- (1 - rho) lambda + rho lambda_hat,  lambda_hat = prior + D/B n      (Hoffman, Blei & Bach 2010)

lambda is kept as prior + size * counts. A step makes ``size`` smaller and adds to the rows of its own terms alone, so that
it costs no more with a large vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import digamma

SMALLEST = 1e-30  # of size, below which the counts take it up


class OnlineTopics(NamedTuple):
    """lambda [V, K], terms first."""

    prior: np.ndarray  # [V, K]
    counts: np.ndarray  # [V, K], which steps change in place
    size: float
    totals: np.ndarray  # [K], sums of lambda over terms

    @classmethod
    def start(cls, prior: np.ndarray, concentration: np.ndarray) -> OnlineTopics:
        """From lambda [K, V] and its prior."""
        prior = np.ascontiguousarray(prior.T)
        return cls(prior, np.ascontiguousarray(concentration.T) - prior, 1.0, concentration.sum(1))

    def log_mean(self, terms: np.ndarray) -> np.ndarray:
        """E[log beta] of some terms, [K, terms]."""
        concentration = self.prior[terms] + self.size * self.counts[terms]
        return (digamma(concentration) - digamma(self.totals)).T

    def step(self, terms: np.ndarray, expected: np.ndarray, rho: float, scale: float) -> OnlineTopics:
        """After a minibatch whose expected counts of its terms are ``expected`` [K, terms]."""
        size, counts = (1 - rho) * self.size, self.counts
        if size < SMALLEST:
            counts *= size
            size = 1.0
        counts[terms] += (rho * scale / size) * expected.T
        sums = self.prior.sum(0)
        totals = sums + (1 - rho) * (self.totals - sums) + rho * scale * expected.sum(1)
        return self._replace(counts=counts, size=size, totals=totals)

    def concentration(self) -> np.ndarray:
        """lambda, [K, V]."""
        return (self.prior + self.size * self.counts).T
