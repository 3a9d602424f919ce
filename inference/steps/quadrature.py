"""Points and weights that stand for a normal predictor of given mean and covariance."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from ..kernels.small_matrices import cholesky


def sigma_points(mean: jax.Array, covariance: jax.Array, nodes: int) -> tuple[jax.Array, jax.Array]:
    """Points [Q, D, C] and the logarithms of their weights [Q].

    One predictor: Gauss-Hermite, x_q = m + t_q s. Several: the unscented points m and m +- sqrt(C + kappa) times
    a column of the covariance's root, with kappa = max(0, 3 - C), so that no weight is negative.

    The covariance vanishes at eta = 0, where a bare root has infinite slope: hence the 1e-10. It has rank < K: hence
    1e-5 of the mean variance, which float32 needs for the Cholesky root of a matrix not of full rank.
    """
    size = mean.shape[-1]
    if size == 1:
        at, hermite = np.polynomial.hermite_e.hermegauss(nodes)
        step = jnp.sqrt(covariance[..., 0] + 1e-10)
        return mean + jnp.asarray(at, mean.dtype)[:, None, None] * step, jnp.log(hermite / hermite.sum())
    kappa = max(0, 3 - size)
    jitter = 1e-10 + 1e-5 * jnp.trace(covariance, axis1=-2, axis2=-1) / size
    root = cholesky(covariance + jitter[:, None, None] * jnp.eye(size))
    steps = jnp.sqrt(size + kappa) * jnp.moveaxis(root, -1, 0)  # columns first, [C, D, C]
    centre = [mean[None]] if kappa else []
    weights = [kappa / (size + kappa)] * bool(kappa) + [0.5 / (size + kappa)] * 2 * size
    return jnp.concatenate([*centre, mean + steps, mean - steps]), jnp.log(jnp.asarray(weights))
