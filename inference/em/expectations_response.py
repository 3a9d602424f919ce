"""A story's normal response, as variational EM needs it: read from the story, then estimated.

The response is N(zbar @ eta + offset_d, scale_d^2). The engine takes offset and scale from the story itself, so the
story may add what it likes to the mean and weight documents as it likes, as long as topics do not enter there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import biject_to
from scipy.optimize import minimize_scalar

from topiczoo.corpora.layouts import documents

from ..story.bound import BoundGraph
from ..story.graph import ZBAR
from ..story.tracing import ZbarHandler, base_distribution, log_prob, run
from .expectations import coefficients_site, refuse


class Look(NamedTuple):
    """The response's site, evaluated at given values and a given predictor."""

    location: jax.Array  # [D]
    scale: jax.Array  # [D]
    value: jax.Array  # [D], NaN where unlabelled
    counts: jax.Array  # [D] bool, False where the density is masked


class NormalResponse:
    """The one site below zbar, its coefficients eta, and the site ("spread") that sets its scale, if any."""

    def __init__(self, graph: BoundGraph, point: str) -> None:
        self.graph, self.map = graph, point == "map"
        self.name = self._one_site()
        self._check_family()
        self.eta = coefficients_site(graph, self.name)
        self.spread = self._spread_site()
        self.sites = {self.name, self.eta} | ({self.spread} if self.spread else set())
        self._check_location()
        self._data = documents(graph.corpus), jax.tree.map(jnp.asarray, graph.y)

        zeros = jnp.zeros(len(graph.corpus))
        values = {name: graph.few_values[name] for name in self.sites & set(graph.latent)}
        look = self._look(*self._data, values, zeros)
        value = np.asarray(look.value, np.float64)
        self.labelled = ~np.isnan(value) & np.asarray(look.counts)
        self.target = np.where(self.labelled, value - np.asarray(look.location, np.float64), 0.0)
        self.prior_mean, self.prior_precision = self._eta_prior()
        self._scale: Callable = jax.jit(self._scale_and_prior)

    # what the story says

    def _one_site(self) -> str:
        graph = self.graph
        for name in graph.response_sites:
            if name in graph.latent:
                refuse(graph, name, "it is latent and depends on zbar")
        if len(graph.response_sites) > 1:
            refuse(graph, graph.response_sites[1], f"it is a second response beside {graph.response_sites[0]!r}")
        name = graph.response_sites[0]
        if not graph.linear or len(graph.predictor_shapes) != 1:
            refuse(graph, name, "it uses zbar otherwise than through one zbar @ eta")
        if graph.predictor_shapes != ((),):
            shape = ["K", *graph.predictor_shapes[0]]
            refuse(graph, name, f"its eta has shape [{', '.join(map(str, shape))}] where [K] is needed")
        return name

    def _check_family(self) -> None:
        if not issubclass(family := self.graph.family(self.name), dist.Normal):
            refuse(
                self.graph,
                self.name,
                f"its distribution is {family.__name__} where a Normal is needed (order='parallel' serves it)",
            )

    def _spread_site(self) -> str | None:
        graph = self.graph
        others = sorted(graph.parents[self.name] - {self.eta, ZBAR, self.name})
        for name in (self.eta, *others):
            if above := sorted(graph.parents[name] - {name}):
                refuse(graph, above[0], f"it is a latent parameter of the prior of {name!r}")
        if not others:
            return None
        for name in others:
            if graph.latent[name].shape != () or graph.latent[name].discrete:
                refuse(graph, name, f"{self.name!r} reads it and it is no single number")
            if not np.allclose(self._few(self._another(name)).location, self._few().location, rtol=1e-4):
                refuse(graph, name, f"it enters the mean of {self.name!r}")
        if len(others) > 1:
            refuse(graph, others[1], f"it is a second site in the scale of {self.name!r}")
        return others[0]

    def _check_location(self) -> None:
        """The predictor enters the mean with slope 1, and nothing else; eta enters through it alone."""
        at_zero, step = self._few(), jnp.asarray([0.7, -1.3, 2.1])
        moved = self._few(predictor=step)
        same_scale = np.allclose(moved.scale, at_zero.scale, rtol=1e-4)
        if not same_scale or not np.allclose(moved.location - at_zero.location, step, rtol=1e-3, atol=1e-4):
            refuse(self.graph, self.name, "its mean is not zbar @ eta plus something free of topics")
        moved = self._few(self._another(self.eta))
        if not (np.allclose(moved.location, at_zero.location) and np.allclose(moved.scale, at_zero.scale)):
            refuse(self.graph, self.eta, f"{self.name!r} reads it otherwise than through zbar @ eta")

    def _another(self, name: str) -> dict[str, jax.Array]:
        """A value of the site other than the graph's."""
        value, bijection = self.graph.few_values[name], biject_to(self.graph.latent[name].fn.support)
        return {name: bijection(bijection.inv(value) + jnp.linspace(0.3, 0.9, value.size).reshape(value.shape))}

    def _few(self, values: Mapping[str, jax.Array] | None = None, predictor: jax.Array | None = None) -> Look:
        """The response on the graph's few documents."""
        graph = self.graph
        predictor = jnp.zeros(3) if predictor is None else predictor
        return self._look(graph.few_documents, graph.few_y, {**graph.few_values, **(values or {})}, predictor)

    def _look(self, corpus: Any, y: Any, values: Any, predictor: jax.Array) -> Look:
        def look(corpus: Any, y: Any, values: Any, predictor: jax.Array) -> Look:
            trace = run(self.graph.story, corpus, y, values, ZbarHandler(lambda theta: theta, [predictor]))
            fn, counts = trace[self.name]["fn"], True
            while (base := getattr(fn, "base_dist", None)) is not None:
                counts = counts & fn._mask if isinstance(fn, dist.MaskedDistribution) else counts
                fn = base
            if jnp.shape(trace[self.name]["value"]) != predictor.shape:
                refuse(self.graph, self.name, "it has more than one number a document")
            parts = fn.loc, fn.scale, trace[self.name]["value"], counts
            return Look(*(jnp.broadcast_to(part, predictor.shape) for part in parts))

        return jax.jit(look)(corpus, y, values, predictor)

    def _eta_prior(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and precision [K] of eta's normal prior; precision 0 where maximum likelihood is asked for."""
        shape = self.graph.latent[self.eta].shape
        if not self.map:
            return np.zeros(shape), np.zeros(shape)
        prior = base_distribution(self.graph.latent[self.eta].fn)
        if not isinstance(prior, dist.Normal):
            refuse(
                self.graph, self.eta, f"its prior is {type(prior).__name__} where a Normal is needed (point='mle' "
                "leaves priors out)",
            )  # fmt: skip
        mean, scale = (np.broadcast_to(np.asarray(part, np.float64), shape) for part in (prior.loc, prior.scale))
        return mean, scale**-2

    def _scale_and_prior(self, spread: jax.Array, corpus: Any, y: Any) -> tuple[jax.Array, jax.Array]:
        values = {self.spread: spread} if self.spread else {}
        zeros = jnp.zeros(corpus.num_documents)
        trace = run(self.graph.story, corpus, y, values, ZbarHandler(lambda theta: theta, [zeros]))
        prior = log_prob(trace[self.spread]) if self.spread else jnp.zeros(())
        return jnp.broadcast_to(base_distribution(trace[self.name]["fn"]).scale, zeros.shape), prior

    # what the E-step and the M-step ask

    def scale(self, spread: float) -> tuple[np.ndarray, float]:
        """The documents' scales [D] and the log-prior of the spread."""
        scale, prior = self._scale(jnp.asarray(spread, jnp.float32), *self._data)
        return np.asarray(scale, np.float64), float(prior)

    def precision(self, spread: float) -> np.ndarray:
        """1 / scale_d^2, and 0 for unlabelled documents."""
        return np.where(self.labelled, self.scale(spread)[0] ** -2, 0.0)

    def coefficients(self, gram: np.ndarray, moment: np.ndarray) -> np.ndarray:
        """(10), from E[A'A] and E[A]'y with documents weighted by their precision, and eta's prior."""
        prior = self.prior_precision
        return np.linalg.lstsq(gram + np.diag(prior), moment + prior * self.prior_mean, rcond=None)[0]

    def spread_given(self, residual: np.ndarray, spread: float, prior: bool | None = None) -> float:
        """(11): the best spread given E[(y_d - mean_d)^2], found in one dimension; with its prior unless mle."""
        if self.spread is None:
            return spread
        bijection = biject_to(self.graph.latent[self.spread].fn.support)
        with_prior = self.map if prior is None else prior

        def loss(u: float) -> float:
            scale, log_prior = self.scale(float(bijection(u)))
            terms = np.log(scale) + 0.5 * residual / scale**2
            value = terms[self.labelled].sum() - (log_prior if with_prior else 0.0)
            return float(value) if np.isfinite(value) else np.inf

        start = float(bijection.inv(jnp.asarray(spread, jnp.float32)))
        found = minimize_scalar(loss, bounds=(start - 4, start + 4), method="bounded", options={"xatol": 1e-7})
        return float(bijection(found.x)) if found.fun < loss(start) else spread

    def first_spread(self) -> float:
        """The spread at which the scale is the response's sample deviation."""
        if self.spread is None:
            return 0.0
        spread = float(self.graph.few_values[self.spread])
        residual = (self.target - self.target[self.labelled].mean()) ** 2
        for _ in range(5):  # each looks a factor of about 50 further
            spread = self.spread_given(residual, spread, prior=False)
        return spread

    def log_prior(self, eta: np.ndarray, spread: float) -> float:
        """log p(eta) + log p(spread): what the bound gains under point="map"."""
        if not self.map:
            return 0.0
        precision = self.prior_precision
        normal = 0.5 * np.log(precision / (2 * np.pi)) - 0.5 * precision * (eta - self.prior_mean) ** 2
        return float(normal.sum()) + self.scale(spread)[1]

    def points(self, eta: np.ndarray, spread: float) -> dict[str, np.ndarray]:
        """The estimates by site name."""
        values = {self.eta: eta} | ({self.spread: np.asarray(spread)} if self.spread else {})
        return {name: np.asarray(value) for name, value in values.items()}
