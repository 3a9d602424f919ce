"""The pointwise log-likelihood of the response beside the posterior, where ArviZ looks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from topiczoo.corpora import Corpus
from topiczoo.inference.predictive.pointwise import draw_index, pointwise

if TYPE_CHECKING:
    import xarray

    from topiczoo.inference import Fit


def with_log_likelihood(
    fit: Fit, corpus: Corpus | None = None, y: Any = None, *, most_draws: int = 100, **settings: Any
) -> xarray.DataTree:
    """The fit's posterior with the groups ``log_likelihood`` and ``observed_data``, for ArviZ's ``loo`` and ``compare``.

    log p(y_d | w_d, phi_s) is as in :func:`inference.log_likelihood`, which takes the settings; by default for the
    documents and responses of the fit. So ``loo`` leaves out a document's response; its words still inform the topics.
    Unlabelled documents are left out. The posterior holds the same draws, and of the sites those without an axis of
    documents or terms, off which ArviZ can read in good time how far the draws depend on each other.
    """
    import xarray as xr

    corpus, y = fit.corpus if corpus is None else corpus, fit.y if y is None else y
    if y is None:
        raise ValueError(f"y is missing, and the story {fit.story.name!r} was fitted without; give the responses.")
    found = pointwise(fit, corpus, y, most_draws=most_draws, **settings)
    index = draw_index(fit, most_draws)
    logs, observed = {}, {}
    for name, values in found.log_likelihood.items():
        labelled = np.flatnonzero(~np.isnan(values).any((0, 1)))
        # responses that are missing in different places cannot share an axis
        dim = "document" if len(found.log_likelihood) == 1 else f"{name}_document"
        names = {dim: corpus.names[labelled]}
        sample = {"chain": np.arange(len(values)), "draw": index}
        logs[name] = xr.DataArray(values[..., labelled], {**sample, **names}, ("chain", "draw", dim))
        parts = [f"{name}_{i}" for i in range(found.observed[name].ndim - 1)]
        observed[name] = xr.DataArray(found.observed[name][labelled], names, (dim, *parts))
    tree = xr.DataTree.from_dict({
        "posterior": _small(fit.posterior["posterior"].to_dataset().isel(draw=index)),
        "log_likelihood": xr.Dataset(logs),
        "observed_data": xr.Dataset(observed),
    })  # fmt: skip
    if "sample_stats" in fit.posterior.children:
        tree["sample_stats"] = xr.DataTree(fit.posterior["sample_stats"].to_dataset().isel(draw=index))
    tree.attrs = dict(fit.posterior.attrs)
    return tree


def _small(posterior: xarray.Dataset) -> xarray.Dataset:
    """Without the sites of documents and terms, if others are there."""
    large = [name for name, site in posterior.data_vars.items() if {"document", "term"} & set(site.dims)]
    if len(large) == len(posterior.data_vars):
        return posterior
    kept = posterior.drop_vars(large)
    return kept.drop_dims([dim for dim in ("document", "term") if dim in kept.dims])
