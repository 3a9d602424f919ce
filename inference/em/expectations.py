"""What the forms of variational EM share: Dirichlet algebra, reading a site's prior, and saying no.

A form (see :mod:`.engine`) is a family of stories whose expectations are known in closed form. Corpus-wide quantities
are computed here in float64 on the host: the bound is a difference of large sums.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy.special import digamma, gammaln, polygamma

from topiczoo.corpora.layouts import documents

from ..story.bound import BoundGraph
from ..story.tracing import ZbarHandler, base_distribution, run
from ..story.unserved import Unserved

SMOOTHING = 1e-20  # expected tokens added to each term under maximum likelihood: log 0 would end the bound
SMALLEST_ALPHA = 1e-3  # an unused topic's alpha would run to 0, where float32 loses digamma


@dataclass(frozen=True)
class Settings:
    """How to estimate: the keyword arguments of ``vem`` that its forms read."""

    topics: str = "dirichlet"
    point: str = "map"
    estimate_alpha: bool = False
    e_tolerance: float = 1e-4
    e_iterations: int = 100
    start: str = "response"
    expectation: str = "sigma points"
    slack: str = "n"
    guarded: bool = True
    start_variance: float | None = None


@dataclass(frozen=True)
class Marginals:
    """The approximate posterior, site by site: what is drawn, and what is one value."""

    dirichlet: dict[str, np.ndarray] = field(default_factory=dict)  # concentrations
    categorical: dict[str, np.ndarray] = field(default_factory=dict)  # probabilities, [..., categories]
    point: dict[str, np.ndarray] = field(default_factory=dict)
    normal: dict[str, tuple[np.ndarray, np.ndarray]] = field(
        default_factory=dict
    )  # mean and variance, both as the site


def refuse(graph: BoundGraph, site: str, why: str) -> NoReturn:
    """Say which site stands in the way, and what would work."""
    raise Unserved(graph, ["vem"], f"vem cannot serve the site {site!r} of the story {graph.story.name!r}: {why}")


def coefficients_site(graph: BoundGraph, response: str) -> str:
    """The site whose value is the eta of the story's first ``zbar @ eta``."""
    answer = ZbarHandler(lambda theta: theta)
    trace = run(graph.story, graph.few_documents, graph.few_y, graph.few_values, answer)
    for name in graph.latent:
        if trace[name]["value"] is answer.coefficients[0]:
            return name
    refuse(graph, response, "the eta of its zbar @ eta is computed, not a site itself")


def require_dirichlet(graph: BoundGraph, name: str) -> None:
    """The site is a Dirichlet whose concentration depends on no other site."""
    site = graph.latent[name]
    if not isinstance(site.prior, dist.Dirichlet):
        refuse(graph, name, f"it is {type(site.prior).__name__} where a Dirichlet is needed")
    if above := sorted(graph.parents[name] - {name}):
        refuse(graph, above[0], f"it is a latent parameter of the prior of {name!r}")


def concentrations(graph: BoundGraph, names: list[str]) -> dict[str, np.ndarray]:
    """The prior concentrations of Dirichlet sites as the story gives them, in the shape of the sites' values."""

    @jax.jit
    def look(corpus: Any, y: Any) -> dict[str, jax.Array]:
        trace = run(graph.story, corpus, y, {}, ZbarHandler(lambda theta: theta))
        for name, site in trace.items():
            if site["type"] == "sample" and site["scale"] is not None:
                refuse(graph, name, "its density is scaled")
        return {
            name: jnp.broadcast_to(base_distribution(trace[name]["fn"]).concentration, jnp.shape(trace[name]["value"]))
            for name in names
        }

    found = look(documents(graph.corpus, pairs=True), jax.tree.map(jnp.asarray, graph.y))
    return {name: np.asarray(value, np.float64) for name, value in found.items()}


def impossible(classes: np.ndarray, known: np.ndarray | None) -> np.ndarray | float:
    """What is known of a latent class as a logarithm, [classes, documents]: minus infinity where it is another one."""
    if known is None:
        return 0.0
    return np.where(np.isnan(known) | np.equal.outer(classes, known), 0.0, -np.inf)


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


@dataclass(frozen=True)
class DirichletSite:
    """A Dirichlet site of the whole corpus (topics, shares) and how it is estimated.

    Its state is ``counts`` plus the prior's concentration (``mle`` False: the variational Dirichlet of Hoffman et
    al. 2010) or plus next to nothing (``mle`` True: the maximum-likelihood estimate is the state, normalised).
    """

    name: str
    prior: np.ndarray
    mle: bool

    @property
    def names(self) -> set[str]:
        return {self.name}

    def start(self, rng: np.random.Generator, counts: np.ndarray | float = 0.0) -> np.ndarray:
        """Expected counts on top of uniform ones with 10% of noise: exactly equal topics would never separate."""
        return counts + rng.gamma(100.0, 0.01, self.prior.shape)

    def update(self, counts: np.ndarray, state: Any = None) -> np.ndarray:
        """The maximiser of the bound, whatever the state was: equation 8 for ``mle``, else what conjugacy gives."""
        return counts + (SMOOTHING if self.mle else self.prior)

    def log_mean(self, state: np.ndarray) -> np.ndarray:
        """E[log x], or log x at the estimate."""
        return np.log(state / state.sum(-1, keepdims=True)) if self.mle else expected_log(state)

    def point(self, state: np.ndarray) -> jax.Array:
        """exp(E[log x]), in float32."""
        floor = np.log(np.finfo(np.float32).tiny)
        return jnp.asarray(np.exp(np.maximum(self.log_mean(state), floor)), jnp.float32)

    def bound(self, state: np.ndarray) -> float:
        """E[log p(x)] + H(q(x)); nothing for an estimate."""
        if self.mle:
            return 0.0
        return float(dirichlet_bound(self.prior, state).sum())

    def put(self, state: np.ndarray, marginals: Marginals) -> None:
        """File the site where its kind belongs."""
        if self.mle:
            marginals.point[self.name] = state / state.sum(-1, keepdims=True)
        else:
            marginals.dirichlet[self.name] = state


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
