"""Supervised LDA beyond the sweep: variational EM beside scikit-learn's, prediction of many documents, classes of posts.

    python benchmarks/responses.py --only vem --write          # expects ../shared/data/movie-reviews (--data FOLDER)
    python benchmarks/responses.py --only prediction,draws --write   # simulated documents; random numbers
    python benchmarks/responses.py --only binary,classes,classes_vem --write   # expects newsgroups20 in the same place

Every part runs in a process of its own. The corpora are not part of the project.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import pandas as pd
from measuring import circumstances, run_part, write_section
from scipy import sparse
from speed import load

PACKAGES = ("topiczoo", "jax", "numpyro", "scikit-learn")
INNER = (10, 20, 100)


def part_vem(folder):
    """Seconds an EM iteration takes, K = 50, with a fixed number of inner updates and no tolerance."""
    import jax
    from sklearn.decomposition import LatentDirichletAllocation

    from topiczoo import corpora, models
    from topiczoo.inference.em.components import Settings
    from topiczoo.inference.em.model import EMModel
    from topiczoo.inference.story.reading import read

    counts, vocabulary, rating = load(folder)
    corpus = corpora.Corpus.from_counts(counts, vocabulary)
    y = (rating - rating.mean()) / rating.std()

    def ours(story, y, inner, order="parallel"):
        settings = Settings(e_tolerance=0.0, e_iterations=inner, order=order)
        model = EMModel(read(story, corpus, y, {"num_topics": 50, "gamma": 0.05}), settings)
        state, seconds = model.start(np.random.default_rng(0)), []
        for _ in range(4):
            began = time.perf_counter()
            state = model.e_step(state, True)
            model.bound(state)
            state = model.m_step(state, True)
            jax.block_until_ready([leaf for leaf in jax.tree.leaves(state) if isinstance(leaf, jax.Array)])
            seconds.append(time.perf_counter() - began)
        return min(seconds[1:])

    def theirs(inner):
        def fit(iterations):
            model = LatentDirichletAllocation(
                50, learning_method="batch", n_jobs=2, max_iter=iterations, max_doc_update_iter=inner, mean_change_tol=0.0,
                doc_topic_prior=0.1, topic_word_prior=0.05, random_state=0,
            )  # fmt: skip
            began = time.perf_counter()
            model.fit(counts)
            return time.perf_counter() - began

        return min((fit(7) - fit(2)) / 5 for _ in range(2))

    found = {}
    for inner in INNER:
        found[f"scikit-learn, LDA, {inner} inner updates"] = theirs(inner)
        found[f"topiczoo, LDA, {inner} inner updates"] = ours(models.lda, None, inner)
        found[f"topiczoo, sLDA, parallel, {inner} inner updates"] = ours(models.slda, y, inner)
    found["topiczoo, sLDA, sequential, 10 inner updates"] = ours(models.slda, y, 10, "sequential")
    return found


def part_prediction(folder):
    """10,000 documents of 300 words from a story with 50 topics; a fit of two chains at the truth."""
    from topiczoo import corpora, models
    from topiczoo.inference import Fit
    from topiczoo.inference.story.reader import bind
    from topiczoo.inference.story.response import Response
    from topiczoo.inference.story.tracing import Story

    rng = np.random.default_rng(0)
    num_topics, num_terms, num_documents, length = 50, 5000, 10_000, 300
    beta = rng.dirichlet(np.full(num_terms, 0.05), num_topics).astype(np.float32)
    theta = rng.dirichlet(np.full(num_topics, 0.1), num_documents)
    z = (theta.cumsum(1)[:, None, :] < rng.random((num_documents, length, 1))).sum(-1)
    words = np.zeros_like(z)
    for k, ends in enumerate(beta.cumsum(1)):
        here = z == k
        words[here] = np.minimum(np.searchsorted(ends, rng.random(here.sum())), num_terms - 1)
    document = np.repeat(np.arange(num_documents), length)
    counts = sparse.csr_array((np.ones(z.size, int), (document, words.ravel())), shape=(num_documents, num_terms))
    corpus = corpora.Corpus.from_counts(counts)
    story = Story(models.slda, {"num_topics": num_topics})
    eta = rng.normal(size=num_topics).astype(np.float32)
    draws = {
        "beta": np.broadcast_to(beta, (2, 100, *beta.shape)), "eta": np.broadcast_to(eta, (2, 100, num_topics)),
        "sigma": np.full((2, 100), 0.5, np.float32),
    }  # fmt: skip
    graph = bind(story, corpus[:10], Response({"y": np.arange(10.0, dtype=np.float32)}))
    fit = Fit.of(graph, draws, engine="gibbs")
    began = time.perf_counter()
    prediction = fit.predict(corpus)
    seconds = time.perf_counter() - began
    truth = np.take(eta, z).mean(1)
    return {
        "seconds": seconds, "draws of each response": len(prediction.draws),
        "R^2 of E[y] against the true eta . zbar": float(1 - np.mean((prediction.mean - truth) ** 2) / truth.var()),
    }  # fmt: skip


def posts(folder, groups=None):
    """Training and test posts, terms of at least 5 training posts, labels."""
    from topiczoo import corpora

    folder = Path(folder).parent / "newsgroups20"
    counts = sparse.load_npz(folder / "counts.npz").tocsr()
    table = pd.read_csv(folder / "documents.csv")
    label = table["group"]
    kept = np.ones(len(table), bool) if groups is None else label.isin(groups).to_numpy()
    counts, table, label = counts[kept], table[kept], label[kept].to_numpy().astype(str)
    train = (table["split"] == "train").to_numpy()
    widespread = np.asarray((counts[train] > 0).sum(0)).ravel() >= 5
    vocabulary = np.array((folder / "vocabulary.txt").read_text().split("\n")[: len(widespread)])
    corpus = corpora.Corpus.from_counts(counts[:, widespread], vocabulary[widespread])
    return corpus, label, np.flatnonzero(train), np.flatnonzero(~train)


def fitted_svm(features, label):
    """A linear machine, its strength chosen by five-fold cross-validation."""
    from sklearn.model_selection import GridSearchCV
    from sklearn.svm import LinearSVC

    return GridSearchCV(LinearSVC(), {"C": [0.1, 0.3, 1.0, 10.0]}, cv=5).fit(features, label)


def linear_svm(features, label, train, test):
    """Accuracy of that machine."""
    model = fitted_svm(features[train], label[train])
    return float(np.mean(model.predict(features[test]) == label[test]))


def tf_idf(counts, train):
    """Weights of terms, rare ones told by the training documents."""
    from sklearn.feature_extraction.text import TfidfTransformer

    return TfidfTransformer(sublinear_tf=True).fit(counts[train]).transform(counts)


def baselines(corpus, label, train, test):
    """Linear SVM on square roots of counts at unit length and on tf-idf, multinomial naive Bayes on counts."""
    from sklearn.model_selection import GridSearchCV
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.preprocessing import normalize

    bayes = GridSearchCV(MultinomialNB(), {"alpha": [0.01, 0.1, 1.0]}, cv=5).fit(corpus.counts[train], label[train])
    return {
        "linear SVM": linear_svm(normalize(corpus.counts.astype(float).sqrt()), label, train, test),
        "linear SVM, tf-idf": linear_svm(tf_idf(corpus.counts, train), label, train, test),
        "naive Bayes": float(np.mean(bayes.predict(corpus.counts[test]) == label[test])),
    }


def part_binary(folder):
    """alt.atheism against talk.religion.misc, accuracy on the test posts."""
    from topiczoo import inference, models

    corpus, label, train, test = posts(folder, ["alt.atheism", "talk.religion.misc"])
    found = baselines(corpus, label, train, test)
    found["majority"] = float(pd.Series(label[test]).value_counts(normalize=True).max())
    for topics in (10, 20, 40):
        for response in ("logit", "probit"):
            fit = inference.gibbs(
                models.slda_glm, corpus[train], label[train], response=response, num_topics=topics, alpha=0.1, gamma=0.05,
                num_warmup=200, num_samples=100, progress_bar=False,
            )  # fmt: skip
            found[f"gibbs, {response}, K = {topics}"] = float(np.mean(fit.predict(corpus[test]).label == label[test]))
        fit = inference.vem(
            models.slda_glm, corpus[train], label[train], response="logit", num_topics=topics, alpha=0.1, gamma=0.05,
            num_iterations=60, progress_bar=False,
        )  # fmt: skip
        found[f"vem, logit, K = {topics}"] = float(np.mean(fit.predict(corpus[test]).label == label[test]))
    return found


def classes_by(engine, folder, **steps):
    """20 groups, softmax response, 40 topics: seconds of the fit, accuracy on the test posts by both rules."""
    from topiczoo import inference, models

    corpus, label, train, test = posts(folder)
    began = time.perf_counter()
    fit = getattr(inference, engine)(
        models.slda_glm, corpus[train], label[train], response="softmax", outputs=20, num_topics=40, alpha=0.1, gamma=0.05,
        scale=6.0, progress_bar=False, **steps,
    )  # fmt: skip
    found = {f"{engine}: seconds": time.perf_counter() - began}
    for rule, options in (("", {"most_draws": 30}), (", plug-in rule", {"rule": "plug-in"})):
        found[engine + rule] = float(np.mean(fit.predict(corpus[test], **options).label == label[test]))
    return found


def part_classes(folder):
    found = baselines(*posts(folder))
    return found | classes_by("gibbs", folder, num_warmup=120, num_samples=30, num_chains=2)


def part_classes_vem(folder):
    return classes_by("vem", folder, num_iterations=15, e_iterations=10)


def part_draws(folder):
    """Millions of inverse Gaussians a second, five million side by side."""
    import jax
    import jax.numpy as jnp

    from topiczoo.models.vocabulary.distributions import InverseGaussian

    draw = jax.jit(lambda key: InverseGaussian(jnp.full(5_000_000, 2.0), 3.0).sample(key))
    draw(jax.random.key(0)).block_until_ready()
    began = time.perf_counter()
    for seed in range(4):
        draw(jax.random.key(seed)).block_until_ready()
    return {"million draws a second": 20 / (time.perf_counter() - began)}


PARTS = {
    "draws": part_draws,
    "vem": part_vem,
    "prediction": part_prediction,
    "binary": part_binary,
    "classes": part_classes,
    "classes_vem": part_classes_vem,
}
TITLES = {
    "draws": "Draws from the inverse Gaussian",
    "vem": "An iteration of variational EM on film reviews, K = 50", "prediction": "Prediction of 10,000 documents",
    "binary": "Two newsgroups, accuracy", "classes": "Twenty newsgroups, accuracy",
    "classes_vem": "Twenty newsgroups by vem, accuracy",
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="../shared/data/movie-reviews")
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    if arguments.part:
        print(json.dumps(PARTS[arguments.part](arguments.data)))
        return
    for name in arguments.only.split(","):
        found = run_part(__file__, name, data=arguments.data)
        rows = "\n".join(f"| {what} | {value:.3f} |" for what, value in found.items())
        text = f"{circumstances(__file__, PACKAGES)}\n\n| | |\n|---|---|\n{rows}"
        print(f"## {TITLES[name]}\n\n{text}\n")
        if arguments.write:
            write_section(TITLES[name], text)


if __name__ == "__main__":
    main()
