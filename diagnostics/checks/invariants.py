"""Numbers that do not change when topics are renumbered: what calibration ranks and Geweke's test compares.

A bare element of beta or eta would not do: the posterior does not know which topic is the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from topiczoo.inference.story.graph import StoryGraph

Quantities = Callable[[Mapping[str, jax.Array], Any, Any], dict[str, jax.Array]]


def invariants(graph: StoryGraph) -> Quantities:
    """A function of (values, documents, y) for a story of this graph.

    * a site without topics: its elements, up to three, and the sum of squares of larger ones;
    * a factor of a covariance of topics: the sum of the covariance;
    * a site with topics: its sum of squares, its largest number, of beta the sum of the first term's probabilities, of
      theta the sum of squares in the first document;
    * proportions with coefficients: sum_k theta_1k eta_k for the first document, and how these means go with y;
    * the words' log-likelihood with topics summed out, sum_dn log sum_k theta_dk beta_kw.

    The last two read the data: the more a quantity does, the more a wrong sampler shows in it (Modrak et al. 2023).
    """
    theta, beta, dims = graph.theta, graph.topics, graph.dims

    def evaluate(values: Mapping[str, jax.Array], documents: Any, y: Any) -> dict[str, jax.Array]:
        found: dict[str, jax.Array] = {}
        for name, axes in dims.items():
            if name not in values or jnp.issubdtype(values[name].dtype, jnp.integer):
                continue
            value = values[name]
            if "topic" not in axes:
                flat = value.ravel()
                found |= {f"{name}{[i] if axes else ''}": flat[i] for i in range(min(3, flat.size))}
                if flat.size > 3:
                    found[f"sum of {name}^2"] = (flat**2).sum()
                continue
            if axes == ("topic", "topic"):  # a factor of a covariance: the rows of one of correlations have length 1
                found[f"sum of {name} {name}'"] = (value.sum(0) ** 2).sum()
                continue
            found[f"sum of {name}^2"] = (value**2).sum()
            if axes == ("topic",):
                found[f"largest of {name}"] = value.max()
                if theta in values:
                    mean = values[theta] @ value
                    found[f"theta[0] . {name}"] = mean[0]
                    if y is not None and jnp.shape(y) == mean.shape:
                        found[f"sum of (y - theta . {name})^2"] = ((y - mean) ** 2).sum()
                        found[f"sum of y (theta . {name})"] = (y * mean).sum()
            elif name == beta:
                found[f"sum of {name}[:, 0]"] = value[:, 0].sum()
            elif name == theta:
                found[f"sum of {name}[0]^2"] = (value[0] ** 2).sum()
        if theta in values and beta in values:
            document, term = documents.tokens()
            mix = (values[theta][document] * values[beta].T[term]).sum(-1)
            found["log p(w | theta, beta)"] = jnp.log(jnp.maximum(mix, 1e-30)).sum()
        return found

    return evaluate
