"""Topics, sides and both: the side of two unseen blogs from the other four (Eisenstein, Ahmed & Xing 2011, figure 6).

    python benchmarks/additive_facets.py --into FILE                          # parts in FILE are not run again
    python benchmarks/additive_facets.py --methods facets --topics 10,30 --pairs 0,1 --seeds 0 --into FILE
    python benchmarks/additive_facets.py --from FILE [FILE ...] --write

A pair of blogs, one of each side, is left out: (first, first), (second, second), (third, third) of each side by name, so
that each blog is left out once. The corpus is a sample of 5000 posts and 2632 terms of the paper's 20,827 and 8284, and
is not part of the project (--data FOLDER).

facets: topics, sides and their interactions, deviations under the Jeffreys prior, by variational EM with alpha fitted; the
side of a post by Bayes' rule. "no joint": the same without interactions. words: a linear SVM on
tf-idf, Dirichlet-multinomial naive Bayes with its precision fitted, and sage_nb. A guess at the larger side of a pair is
given as "majority". Zeros are deviations below 0.001.
"""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import numpy as np
import pandas as pd
from additive import dirichlet, sage, zeros_of
from measuring import Results, asked, cell, largest_fall, shown, table_of
from scipy import sparse

PACKAGES = ("topiczoo", "jax", "numpyro", "scikit-learn")
FACETS = ("topic", "label", "joint")
METHODS = {"facets": "SAGE, topics and sides", "no joint": "SAGE without interactions"}
WORDS = ("linear SVM, tf-idf", "Dirichlet-multinomial", "SAGE, sides alone", "majority")
VEM = {"estimate_alpha": True, "num_iterations": 100, "num_draws": 1}


def load(folder):
    """Corpus, codes of the sides, and the three pairs of blogs as masks of posts."""
    from topiczoo import corpora

    folder = Path(folder) / "political-blogs"
    table = pd.read_csv(folder / "documents.csv")
    corpus = corpora.Corpus.from_counts(sparse.load_npz(folder / "counts.npz").tocsr(), empty="keep")
    sides, codes = np.unique(table["rating"], return_inverse=True)
    blogs = [sorted(table.loc[table["rating"] == side, "blog"].unique()) for side in sides]
    return corpus, codes, [table["blog"].isin(pair).to_numpy() for pair in zip(*blogs, strict=True)]


def facets(method, data, pair, topics, seed):
    from topiczoo import inference, models

    corpus, codes, left_out = data
    train, test = np.flatnonzero(~left_out[pair]), np.flatnonzero(left_out[pair])
    arguments = {"background": models.background(corpus[train]), "outputs": 2, "num_topics": topics}
    arguments["interactions"] = method != "no joint"
    began = time.perf_counter()
    fit = inference.vem(
        models.sage_facets, corpus[train], codes[train], seed=seed, progress_bar=False, **VEM, **arguments
    )
    trained = time.perf_counter()
    guess = fit.predict(corpus[test], rule="plug-in").probabilities.argmax(1)
    return {
        "accuracy": float(np.mean(guess == codes[test])), "training": trained - began, "bound": fit.info["bound"][-1],
        "test": time.perf_counter() - trained, "iterations": len(fit.info["bound"]) - 1, **zeros_of(fit),
        "largest fall": largest_fall(fit),
    }  # fmt: skip


def words(data, pair):
    """What needs no topics."""
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.svm import LinearSVC

    corpus, codes, left_out = data
    train, test = np.flatnonzero(~left_out[pair]), np.flatnonzero(left_out[pair])
    weigh = TfidfTransformer(sublinear_tf=True).fit(corpus.counts[train])
    machine = LinearSVC().fit(weigh.transform(corpus.counts[train]), codes[train])
    return {
        "linear SVM, tf-idf": float(machine.score(weigh.transform(corpus.counts[test]), codes[test])),
        "Dirichlet-multinomial": dirichlet(corpus, codes, train, test)["accuracy"],
        "SAGE, sides alone": sage("jeffreys", corpus, codes, train, test, 1.0)["accuracy"],
        "majority": float(np.bincount(codes[test]).max() / len(test)),
    }


def table(found):
    """Methods down, numbers of topics across."""
    topics = sorted(found.loc[found["topics"] > 0, "topics"].unique())

    def part(column, form, title, more=()):
        rows = []
        for method, name in METHODS.items():
            parts = [found[(found["method"] == method) & (found["topics"] == k)] for k in topics]
            rows.append((name, [cell(part.get(column, ()), form) for part in parts]))
        return table_of(title, [f"K = {k}" for k in topics], [*rows, *more])

    on_words = found[found["method"] == "words"]
    more = [(f"words: {kind}", [cell(on_words[kind], ".3f")]) for kind in WORDS if kind in on_words]
    parts = [part("accuracy", ".3f", "accuracy", more)]
    pairs = found[(found["method"] == "facets")].pivot_table(index="pair", columns="topics", values="accuracy")
    rows = [
        (f"pair {pair}", [f"{value:.3f}" for value in row] + [f"{on_words.set_index('pair')[k][pair]:.3f}" for k in WORDS])
        for pair, row in pairs.iterrows()
    ]  # fmt: skip
    parts.append(table_of("SAGE, pair by pair", [f"K = {k}" for k in pairs.columns] + list(WORDS), rows))
    columns = [(f"zeros {facet}", ".3f", f"zeros of {facet} deviations") for facet in FACETS]
    columns += [
        ("largest fall", ".1e", "largest fall of the bound, of itself"),
        ("training", ".0f", "training, seconds"),
    ]
    return "\n\n".join(parts + [part(*column) for column in columns])


def main() -> None:
    choices = {"topics": (10, 20, 30, 50), "pairs": range(3), "seeds": range(5)}
    arguments = asked(__doc__, data="../shared/data", methods=("words", *METHODS), **choices)
    if shown(arguments, __file__, PACKAGES, table, "Topics and sides of blogs", "runs: pairs and starts"):
        return
    data = load(arguments.data)
    results = Results(arguments.into, ("method", "pair", "topics", "seed"))
    for pair in arguments.pairs if "words" in arguments.methods else ():
        results.part(("words", pair, 0, 0), lambda p=pair: words(data, p))
    methods = [method for method in arguments.methods if method != "words"]
    for seed, topics, pair, method in itertools.product(arguments.seeds, arguments.topics, arguments.pairs, methods):
        task = method, data, pair, topics, seed
        results.part((method, pair, topics, seed), lambda task=task: facets(*task))


if __name__ == "__main__":
    main()
