"""Where authors write from: a latent region generates words and coordinates (Eisenstein, Ahmed & Xing 2011, table 1).

    python benchmarks/additive_geo.py --into FILE                          # parts in FILE are not run again
    python benchmarks/additive_geo.py --methods sage --topics 1,5 --regions 0,12 --seeds 0 --into FILE
    python benchmarks/additive_geo.py --from FILE [FILE ...] --write

GeoText's authors: of the published parts `dev` is for training and `test` for testing. The paper trains on a third part,
which is not available and larger than both, so its figures (median 501 km, mean 845 km) are not to be compared. With
--validate four fifths of `dev` are for training and the rest for testing: numbers of topics and regions were chosen so. The
corpus is not part of the project (--data FOLDER).

sage: topics, regions and their interactions under the Jeffreys prior, by variational EM with alpha fitted; 0 regions: as
many as a Dirichlet-process mixture finds in the coordinates. A place is told as the mean of its posterior, and as the draw
that has the least mean distance to all draws. ridge: a text regression, coordinates on log(1 + count) of words, its
penalty by leave-one-out; "mean place": of the training authors.
"""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import numpy as np
import pandas as pd
from additive import zeros_of
from measuring import Results, asked, cell, largest_fall, shown, table_of
from scipy import sparse

PACKAGES = ("topiczoo", "jax", "numpyro", "scikit-learn")
VEM = {"estimate_alpha": True, "num_iterations": 60, "e_iterations": 10, "num_draws": 1}
EARTH = 6371.0
WIDE = 1.0  # degrees


def load(folder, validate, seed):
    """Corpus, coordinates [documents, 2] and the places of training and test authors."""
    from topiczoo import corpora

    folder = Path(folder) / "geotext"
    table = pd.read_csv(folder / "documents.csv")
    corpus = corpora.Corpus.from_counts(sparse.load_npz(folder / "counts.npz").tocsr(), empty="keep")
    places, dev = table[["latitude", "longitude"]].to_numpy(), np.flatnonzero(table["split"] == "dev")
    if not validate:
        return corpus, places, dev, np.flatnonzero(table["split"] == "test")
    order = np.random.default_rng(seed).permutation(dev)
    return corpus, places, order[len(dev) // 5 :], order[: len(dev) // 5]


def kilometres(first, second):
    """Great-circle distance of latitudes and longitudes in degrees."""
    (a, b), (c, d) = (np.moveaxis(np.radians(part), -1, 0) for part in (first, second))
    half = np.sin((c - a) / 2) ** 2 + np.cos(a) * np.cos(c) * np.sin((d - b) / 2) ** 2
    return 2 * EARTH * np.arcsin(np.sqrt(half))


def nearest_draw(draws):
    """The draw [documents, 2] of each document that has the least mean distance to its other draws [draws, documents, 2]."""
    cost = np.stack([kilometres(draw, draws).mean(0) for draw in draws])  # [draws, documents]
    return draws[cost.argmin(0), np.arange(draws.shape[1])]


def errors(told, places, name=""):
    away = kilometres(told, places)
    return {f"median{name}": float(np.median(away)), f"mean{name}": float(away.mean())}


def sage(data, topics, regions, seed):
    from topiczoo import inference, models

    corpus, places, train, test = data
    began = time.perf_counter()
    centres = models.find_regions(places[train], regions or None, seed=seed)
    story = {"background": models.background(corpus[train]), "centres": centres, "num_topics": topics, "wide": WIDE}
    fit = inference.vem(models.sage_geo, corpus[train], places[train], seed=seed, progress_bar=False, **VEM, **story)
    trained = time.perf_counter()
    told = fit.predict(corpus[test], rule="plug-in")
    return {
        **errors(told.mean, places[test]), **errors(nearest_draw(told.draws), places[test], ", nearest draw"),
        "found": len(centres), "training": trained - began, "test": time.perf_counter() - trained,
        "largest fall": largest_fall(fit), **zeros_of(fit),
    }  # fmt: skip


def ridge(data):
    from sklearn.linear_model import RidgeCV

    corpus, places, train, test = data
    x = np.log1p(corpus.counts.toarray())
    machine = RidgeCV(np.logspace(0, 5, 11)).fit(x[train], places[train])
    return {**errors(machine.predict(x[test]), places[test]), "penalty": float(machine.alpha_)}


def mean_place(data):
    _, places, train, test = data
    return errors(np.broadcast_to(places[train].mean(0), places[test].shape), places[test])


def table(found):
    """Methods down, errors across."""
    columns = {
        "median": ".0f", "mean": ".0f", "median, nearest draw": ".0f", "mean, nearest draw": ".0f", "found": ".1f",
        "zeros topic": ".3f", "zeros label": ".3f", "zeros joint": ".3f", "training": ".0f",
    }  # fmt: skip
    rows = []
    for (method, topics, regions, validate), part in found.groupby(["method", "topics", "regions", "validate"]):
        name = f"SAGE, K = {topics}, {regions or 'found'} regions" if method == "sage" else method
        name += ", authors of dev set aside" if validate else ""
        rows.append((name, [cell(part.get(column, ()), form) for column, form in columns.items()]))
    return table_of("kilometres", list(columns), rows)


def main() -> None:
    choices = {"topics": (1, 5, 10), "regions": (0,), "seeds": range(3), "validate": False}
    arguments = asked(__doc__, data="../shared/data", methods=("mean place", "ridge", "sage"), **choices)
    if shown(arguments, __file__, PACKAGES, table, "Where authors write from", "starts"):
        return
    results = Results(arguments.into, ("method", "topics", "regions", "validate", "seed"))
    for seed in arguments.seeds:
        data = load(arguments.data, arguments.validate, seed)
        for method, task in (("mean place", mean_place), ("ridge", ridge)):
            if method in arguments.methods:
                results.part((method, 0, 0, arguments.validate, seed), lambda t=task, d=data: t(d))
        for topics, regions in itertools.product(arguments.topics, arguments.regions):
            if "sage" in arguments.methods:
                place, task = ("sage", topics, regions, arguments.validate, seed), (data, topics, regions, seed)
                results.part(place, lambda task=task: sage(*task))


if __name__ == "__main__":
    main()
