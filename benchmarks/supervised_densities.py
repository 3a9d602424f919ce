"""Supervised topic posteriors with proportions integrated and every assignment of topics summed out, written by hand.

Nothing here is of the package: a document of n words has K^n assignments, each a term of one sum,

    p(w_d, y_d | phi, eta, ...) = sum_z  p(z | alpha)  prod_n phi[z_n, w_dn]  p(y_d | zbar . eta, ...)

where p(z | alpha) is that of Polya's urn. What is left is continuous, and NUTS draws it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import log_sigmoid, log_softmax, logsumexp
from jax.scipy.special import gammaln, log_ndtr
from numpyro.infer import MCMC, NUTS
from supervised_data import Design

Values = dict[str, Any]
TINY = 1e-37
LOG_2_PI = float(np.log(2 * np.pi))


def parameters(design: Design) -> dict[str, tuple[tuple[int, ...], str]]:
    """What is unknown: shapes and kinds of numbers."""
    topics = design.num_topics
    found = {"phi": ((topics, design.num_terms), "simplex"), "eta": ((topics, *design.columns), "real")}
    if design.response in ("normal", "student_t"):
        found["sigma"] = (), "positive"
    if design.coefficients == "laplace" and "nu" not in design.numbers:
        found["nu"] = (), "positive"
    if design.covariate:
        found["slope"] = (), "real"
    if design.response == "ordered":
        found["cuts"] = (int(design.numbers["C"]) - 1,), "rising"
    if design.learned:
        found["alpha"] = (topics,), "positive"
    return found


def constrained(design: Design, free: Values) -> tuple[Values, jax.Array]:
    """Parameters from real numbers, and the log of the Jacobian.

    A row of phi is the softmax of as many numbers as terms. These have one more degree of freedom than phi, which no
    density reads: the logarithm of their exponentials' sum, made standard normal.
    """
    values, log_jacobian = {}, jnp.zeros(())
    for name, (_, kind) in parameters(design).items():
        x = free[name]
        if kind == "real":
            values[name] = x
        elif kind == "positive":
            values[name] = jnp.exp(x)
            log_jacobian += x.sum()
        elif kind == "rising":
            values[name] = jnp.cumsum(jnp.concatenate([x[:1], jnp.exp(x[1:])]))
            log_jacobian += x[1:].sum()
        else:
            values[name] = jnp.exp(log_softmax(x, -1))
            log_jacobian += log_softmax(x, -1).sum() - (logsumexp(x, -1) ** 2).sum() / 2
    return values, log_jacobian


def normal(x: jax.Array, mean: jax.Array | float, deviation: jax.Array | float) -> jax.Array:
    return -(((x - mean) / deviation) ** 2) / 2 - jnp.log(deviation) - LOG_2_PI / 2


def half_normal(x: jax.Array) -> jax.Array:
    return jnp.log(2.0) + normal(x, 0.0, 1.0)


def log_prior(design: Design, data: Values, values: Values) -> jax.Array:
    """log p(phi, eta, ...)."""
    gamma, phi = jnp.asarray(data["gamma"]), values["phi"]
    found = ((gamma - 1) * jnp.log(jnp.maximum(phi, TINY))).sum()
    found += design.num_topics * (gammaln(gamma.sum()) - gammaln(gamma).sum())
    if design.coefficients == "normal":
        found += normal(values["eta"], 0.0, data["scale"]).sum()
    else:
        nu = values.get("nu", data.get("nu"))
        found += (-jnp.abs(values["eta"]) / nu - jnp.log(2.0 * nu)).sum()
    if "nu" in values:  # inverse gamma, shape 2 and scale 1
        found += -3 * jnp.log(values["nu"]) - 1 / values["nu"]
    if "sigma" in values:
        found += half_normal(values["sigma"])
    if "slope" in values:
        found += normal(values["slope"], 0.0, data["scale"])
    if "cuts" in values:
        gaps = jnp.log(jnp.diff(values["cuts"]))
        found += normal(values["cuts"][0], 0.0, data["cut_scale"])
        found += (normal(gaps, 0.0, data["cut_scale"]) - gaps).sum()
    if "alpha" in values:
        found += (-values["alpha"] / data["alpha_mean"] - jnp.log(data["alpha_mean"])).sum()
    return found


def log_response(design: Design, data: Values, values: Values, x: jax.Array) -> jax.Array:
    """log p(y_d | x) where x is [documents, assignments] or, of classes, [documents, assignments, classes]."""
    y = jnp.asarray(data["y"])[:, None]
    if design.covariate:
        x = x + values["slope"] * jnp.asarray(data["x"])[:, None]
    if design.response == "normal":
        return normal(y, x, values["sigma"])
    if design.response == "student_t":
        df, sigma = data["df"], values["sigma"]
        constant = gammaln((df + 1) / 2) - gammaln(df / 2) - jnp.log(df * jnp.pi) / 2
        return constant - jnp.log(sigma) - (df + 1) / 2 * jnp.log1p(((y - x) / sigma) ** 2 / df)
    if design.response == "partial":
        weight, epsilon = data["weight"], data["epsilon"]
        return -weight * jnp.maximum(0.0, jnp.abs(y - x) - epsilon) - jnp.log(2 * epsilon + 2 / weight)
    if design.response == "poisson":
        return y * x - jnp.exp(x) - gammaln(y + 1.0)
    if design.response == "logit":
        return log_sigmoid((2 * y - 1) * x)
    if design.response == "probit":
        return log_ndtr((2.0 * y - 1) * x)
    if design.response == "softmax":
        return jnp.take_along_axis(log_softmax(x, -1), (y - 1)[..., None], -1)[..., 0]
    # ordered: s(a) - s(b) = s(a) s(-b) (1 - exp(b - a)), s the logistic function, b below a
    cuts, last = values["cuts"], len(values["cuts"])
    above, below = x - cuts[jnp.maximum(y - 2, 0)], x - cuts[jnp.minimum(y - 1, last - 1)]
    inner = (y > 1) & (y <= last)
    between = jnp.log(-jnp.expm1(jnp.where(inner, below - above, -1.0)))
    return (
        jnp.where(y > 1, log_sigmoid(above), 0.0)
        + jnp.where(y <= last, log_sigmoid(-below), 0.0)
        + jnp.where(inner, between, 0.0)
    )


class Assignments:
    """Every assignment of topics to a document's words.

    The topics of assignment a are the digits of a to base K: the first K^n assignments are those of the first n words.
    """

    def __init__(self, data: Values) -> None:
        document, topics = np.array(data["doc"]) - 1, np.arange(data["K"])
        self.lengths = np.bincount(document, minlength=data["M"])
        longest = self.lengths.max()
        there = np.arange(longest) < self.lengths[:, None]
        self.words = np.full(there.shape, data["V"])  # the term V is no word
        self.words[there] = np.array(data["w"]) - 1
        number = np.arange(data["K"] ** longest)
        taken = (number[:, None] // data["K"] ** np.arange(longest) % data["K"])[..., None] == topics
        self.taken = taken.astype(np.float32)  # [assignment, place, topic]
        self.counted = number < data["K"] ** self.lengths[:, None]  # [document, assignment]
        counts = (there[:, None, :, None] & taken).sum(2)
        self.counts = (counts[..., None] == np.arange(longest + 1)).astype(np.float32)  # [.., topic, how many]
        self.zbar = counts / self.lengths[:, None, None]


def log_marginal(design: Design, data: Values, values: Values) -> jax.Array:
    """log p(w_d, y_d | phi, eta, ...) of every document."""
    every = Assignments(data)
    log_phi = jnp.pad(jnp.log(jnp.maximum(values["phi"], TINY)), ((0, 0), (0, 1)))
    of_words = jnp.einsum("apk,kdp->da", every.taken, log_phi[:, every.words])
    alpha = jnp.asarray(values["alpha"] if design.learned else data["alpha"])
    rising = gammaln(alpha[:, None] + np.arange(every.counts.shape[-1])) - gammaln(alpha)[:, None]
    urn = jnp.einsum("dakn,kn->da", every.counts, rising)
    urn += (gammaln(alpha.sum()) - gammaln(alpha.sum() + every.lengths))[:, None]
    x = jnp.asarray(every.zbar, jnp.float32) @ values["eta"]
    terms = of_words + urn + log_response(design, data, values, x)
    return logsumexp(jnp.where(every.counted, terms, -jnp.inf), 1)


def potential(design: Design, data: Values) -> Callable[[Values], jax.Array]:
    """Minus the log-density of what NUTS moves."""

    def energy(free: Values) -> jax.Array:
        values, log_jacobian = constrained(design, free)
        return -(log_jacobian + log_prior(design, data, values) + log_marginal(design, data, values).sum())

    return energy


def by_nuts(
    design: Design, data: Values, *, seed: int, chains: int, draws: int, num_warmup: int, thinning: int
) -> Values:
    """Draws [chain, draw, ...] of the parameters, and how many transitions diverged."""
    rng = np.random.default_rng(seed)
    start = {
        name: jnp.asarray(rng.normal(0, 0.5, (chains, *shape)), jnp.float32)
        for name, (shape, _) in parameters(design).items()
    }
    kernel = NUTS(potential_fn=potential(design, data), target_accept_prob=0.9)
    settings = {"num_chains": chains, "chain_method": "vectorized", "progress_bar": False}
    sampler = MCMC(kernel, num_warmup=num_warmup, num_samples=draws // chains * thinning, thinning=thinning, **settings)
    sampler.run(jax.random.key(seed), init_params=start, extra_fields=("diverging",))
    free = sampler.get_samples(group_by_chain=True)
    values = jax.vmap(jax.vmap(lambda one: constrained(design, one)[0]))(free)
    found = {name: np.asarray(value) for name, value in values.items()}
    return found | {"diverging": int(sampler.get_extra_fields()["diverging"].sum())}


def numbered(name: str, *lengths: int) -> list[str]:
    """name[1], name[2], ... or name[1,1], ...; the name itself where there is nothing to number."""
    if not lengths:
        return [name]
    return [f"{name}[{','.join(str(i + 1) for i in index)}]" for index in np.ndindex(*lengths)]


def invariants(design: Design, data: Values, draws: Values) -> tuple[list[str], np.ndarray]:
    """Names of quantities that do not change when topics are renumbered, and their values [chain, draw, quantity].

    All are functions of the parameters alone. log_likelihood is log p(w, y | phi, eta, ...) of all documents.
    """
    one = jax.jit(jax.vmap(lambda values: log_marginal(design, data, values).sum()))
    values = {name: np.asarray(draws[name]) for name in parameters(design)}
    likelihood = np.stack([one({name: value[c] for name, value in values.items()}) for c in range(len(values["eta"]))])
    phi, eta = (values[name].astype(float) for name in ("phi", "eta"))
    squares, sums = (phi**2).sum(2), phi.sum(2)
    found = {
        "log_likelihood": likelihood, "phi_overlap": ((sums**2 - squares) / 2).sum(2), "phi_squared": squares,
        "eta_sum": eta.sum(2), "eta_squared": (eta**2).sum(2), "eta_product": (eta.sum(2) ** 2 - (eta**2).sum(2)) / 2,
        "eta_range": np.ptp(eta, axis=2), "eta_phi": np.einsum("...kv,...kc->...vc", phi, eta.reshape(*phi.shape[:3], -1)),
    }  # fmt: skip
    found["eta_phi"] = found["eta_phi"].reshape(*phi.shape[:2], data["V"], *design.columns)
    found |= {name: values[name].astype(float) for name in ("sigma", "slope", "cuts") if name in values}
    if "nu" in values:  # which has few moments
        found["log_nu"] = np.log(values["nu"].astype(float))
    if design.learned:
        alpha = values["alpha"].astype(float)
        found |= {
            "alpha_sum": alpha.sum(2),
            "alpha_squared": (alpha**2).sum(2),
            "eta_alpha": (alpha * eta).sum(2),
        }
    names = [each for name, value in found.items() for each in numbered(name, *value.shape[2:])]
    return names, np.concatenate([value.reshape(*value.shape[:2], -1) for value in found.values()], 2).astype(float)
