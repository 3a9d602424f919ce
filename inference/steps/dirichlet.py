"""Dirichlet algebra in float64, and the alpha that fits documents best."""

from __future__ import annotations

import numpy as np
from scipy.special import digamma, gammaln, polygamma

SMALLEST_ALPHA = 1e-3  # an unused topic's alpha would run to 0, where float32 loses digamma


def expected_log(concentration: np.ndarray) -> np.ndarray:
    """E[log x] under Dirichlet(concentration)."""
    return digamma(concentration) - digamma(concentration.sum(-1, keepdims=True))


def log_normaliser(concentration: np.ndarray) -> np.ndarray:
    """log B(concentration), the Dirichlet's normaliser."""
    return gammaln(concentration).sum(-1) - gammaln(concentration.sum(-1))


def dirichlet_bound(prior: np.ndarray, posterior: np.ndarray) -> np.ndarray:
    """E[log p(x)] + H(q(x)) for Dirichlet p and q: minus the divergence of q from p."""
    gap = ((prior - posterior) * expected_log(posterior)).sum(-1)
    return gap + log_normaliser(posterior) - log_normaliser(prior)


def fit_alpha(alpha: np.ndarray, expected_logs: np.ndarray, num_iterations: int = 100) -> np.ndarray:
    """The alpha [K] that maximises sum_d E[log p(theta_d | alpha)], from E[log theta_d] of shape [D, K].

    Newton's method in O(K) steps (Blei, Ng & Jordan 2003, appendix A.2; Minka 2000): the Hessian is a diagonal plus
    a constant. Steps are halved until the objective rises; topics held at the smallest alpha stand aside. One topic alone
    has no alpha to find.
    """
    if len(alpha) == 1:
        return alpha
    num_documents, mean_log = len(expected_logs), expected_logs.mean(0)

    def objective(alpha: np.ndarray) -> float:
        return float(alpha @ mean_log - log_normaliser(alpha))

    alpha = np.maximum(alpha, SMALLEST_ALPHA)
    value = objective(alpha)
    for _ in range(num_iterations):
        gradient = digamma(alpha.sum()) - digamma(alpha) + mean_log
        free = (alpha > SMALLEST_ALPHA) | (gradient > 0)
        # Hessian: diag(h) + c; its inverse times the gradient is (gradient - b) / h
        h, c = -polygamma(1, alpha), polygamma(1, alpha.sum())
        b = (gradient / h)[free].sum() / (1 / c + (1 / h)[free].sum())
        step = np.where(free, -(gradient - b) / h, 0.0)
        size = 1.0
        while size > 1e-8:
            proposal = np.maximum(alpha + size * step, SMALLEST_ALPHA)
            if (new := objective(proposal)) > value:
                break
            size /= 2
        else:
            break
        gain, alpha, value = new - value, proposal, new
        if num_documents * gain < 1e-6 * abs(num_documents * value):
            break
    return alpha
