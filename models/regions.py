"""How many regions coordinates fall into, and where: a Dirichlet-process mixture of normal distributions."""

from __future__ import annotations

import numpy as np

from .vocabulary.arguments import BadArgument

USED = 0.01  # a region holds at least this share of the places


def find_regions(places, number=None, *, most=30, concentration=1.0, seed=0):
    """Centres [regions, 2] of the regions that coordinates [documents, 2] fall into.

    Parameters
    ----------
    places
        Coordinates, e.g. latitude and longitude.
    number
        How many regions. None: as many as a Dirichlet-process mixture of normal distributions uses for at least 1% of the
        places each (scikit-learn's BayesianGaussianMixture, by variational inference, truncated at ``most``).
    concentration
        Of the Dirichlet process: larger numbers find more regions.
    """
    from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

    places = np.asarray(places, float)
    if places.ndim != 2 or not np.isfinite(places).all():
        raise BadArgument(f"places has shape {places.shape} or holds NaN; give finite coordinates, [documents, 2].")
    several = len(np.unique(places, axis=0))
    if (number or most) < 1 or (number or 1) > several:
        raise BadArgument(f"number is {number} and most is {most} for {several} different places; give 1 to {several}.")
    common = {
        "random_state": seed,
        "max_iter": 500,
        "covariance_type": "diag",
        "reg_covar": 1e-3 * places.var(0).mean(),
    }
    if number is not None:
        return GaussianMixture(number, **common).fit(places).means_
    process = {"weight_concentration_prior_type": "dirichlet_process", "weight_concentration_prior": concentration}
    found = BayesianGaussianMixture(n_components=min(most, several), **process, **common).fit(places)
    return found.means_[found.weights_ >= USED]
