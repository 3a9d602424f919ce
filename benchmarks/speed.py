"""Speed and quality of normal supervised LDA beside tomotopy's, on the film reviews of Pang & Lee (2005).

    make bench                                             # expects the corpus in ../shared/data/movie-reviews
    .venv/bin/python benchmarks/speed.py --data FOLDER     # counts.npz, vocabulary.txt, documents.csv with a rating

The corpus is not part of the project. Every part runs in a process of its own, one after the other, on the same data and
machine; ratios above 1 are in topiczoo's favour. --write puts the table into benchmarks/results.md. benchmarks/gpu.py
measures the same corpus on a GPU.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import waiting
from measuring import circumstances, run_part, show, write_section
from scipy import sparse

TOPICS, ALPHA, GAMMA = 50, 0.1, 0.05
HERE = Path(__file__).resolve().parent


def load(folder: str):
    counts = sparse.load_npz(Path(folder) / "counts.npz").tocsr()
    vocabulary = (Path(folder) / "vocabulary.txt").read_text().split("\n")[: counts.shape[1]]
    return counts, vocabulary, pd.read_csv(Path(folder) / "documents.csv")["rating"].to_numpy()


def first_fold(counts, rating):
    """First of five shuffled folds; ratings in standard units of the training part."""
    from sklearn.model_selection import KFold

    train, test = next(KFold(5, shuffle=True, random_state=0).split(rating))
    return train, test, (rating - rating[train].mean()) / rating[train].std()


def predictive_r2(y, predicted):
    return float(1 - np.sum((y - predicted) ** 2) / np.sum((y - y.mean()) ** 2))


def peak_gib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def tomotopy_model(counts, vocabulary, y, **options):
    import tomotopy

    model = tomotopy.SLDAModel(k=TOPICS, vars=["l"], seed=1, **options)
    for words, response in zip(words_of(counts, vocabulary), y, strict=True):
        model.add_doc(words, y=[float(response)])
    model.train(0)
    return model


def tomotopy_predictions(model, counts, vocabulary):
    documents = [model.make_doc(words, y=[float("nan")]) for words in words_of(counts, vocabulary)]
    model.infer(documents, iterations=100, workers=2)
    return np.asarray([model.estimate(document)[0] for document in documents])


def words_of(counts, vocabulary):
    """The words of each document, as tomotopy is given them."""
    for row in range(counts.shape[0]):
        part = slice(counts.indptr[row], counts.indptr[row + 1])
        yield [vocabulary[w] for w in np.repeat(counts.indices[part], counts.data[part].astype(int))]


def part_tomotopy_speed(folder, sweeps):
    counts, vocabulary, rating = load(folder)
    model = tomotopy_model(counts, vocabulary, (rating - rating.mean()) / rating.std(), alpha=ALPHA, eta=GAMMA)
    model.train(20, workers=2)
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        model.train(sweeps, workers=2)
        seconds.append((time.perf_counter() - began) / sweeps)
    return {"seconds a sweep": min(seconds)}


def part_topiczoo_speed(folder, sweeps):
    """A chain alone, all cores: whole Gibbs iterations (topics, coefficients, noise, assignments) and sweeps alone."""
    import jax
    import jax.numpy as jnp

    from topiczoo import corpora, models
    from topiczoo.corpora.layouts import documents
    from topiczoo.inference.kernels.sharding import by_threads
    from topiczoo.inference.kernels.sweep import assembled, sweep_shards
    from topiczoo.inference.mcmc import chains
    from topiczoo.inference.mcmc import engine as gibbs_engine
    from topiczoo.inference.mcmc.split import SplitGibbs
    from topiczoo.inference.story.reading import read
    from topiczoo.inference.story.sweeping import StorySupervision, given

    counts, vocabulary, rating = load(folder)
    corpus = corpora.Corpus.from_counts(counts, vocabulary)
    y = (rating - rating.mean()) / rating.std()
    began = time.perf_counter()
    graph = read(models.slda, corpus, y, {"num_topics": TOPICS, "alpha": ALPHA, "gamma": GAMMA})
    data = documents(corpus, batches=True), jnp.asarray(graph.y)
    plan = gibbs_engine.choose_blocks(graph, draw_theta=False)
    schedule = chains.Schedule(20, sweeps, chunk=1, unstored=["beta", "theta", "z"])
    chain = chains.Chains(SplitGibbs(plan.kernel(), 1), jnp.stack([jax.random.key(0)]), data, schedule)

    def advance(steps):
        chain.states, _, _ = chain.advance(steps)

    advance(1)
    first = time.perf_counter() - began
    seconds = []
    for _ in range(20):
        advance(1)
    for _ in range(3):
        began = time.perf_counter()
        for _ in range(sweeps):
            advance(1)
        seconds.append((time.perf_counter() - began) / sweeps)

    (state,), blocks = chain.states, data[0].batches
    values, z = {name: value for name, value in state.z.items() if name != "z"}, state.z["z"]
    told = jax.jit(lambda key, data, values: given(key, graph, *data, values, True))
    shards = jax.jit(
        lambda between, told, z, blocks: sweep_shards(StorySupervision(graph), True, told, z, blocks, between)
    )
    tables = jax.jit(lambda swept, blocks: assembled(swept, blocks, True, corpus.num_terms))

    def step(key, z):
        return tables(by_threads(shards, blocks, told(key, data, values), z, blocks), blocks)

    z = jax.block_until_ready(step(jax.random.key(1), z))
    alone = []
    for i in range(3):
        began = time.perf_counter()
        for j in range(sweeps):
            z = step(jax.random.key(100 * i + j), z)
        jax.block_until_ready(z)
        alone.append((time.perf_counter() - began) / sweeps)
    return {
        "seconds an iteration": min(seconds), "seconds a sweep": min(alone), "seconds to the first sweep": first,
        "padding": data[0].batches.padding,
    }  # fmt: skip


def part_import(folder, sweeps):
    timed = "import time; t = time.perf_counter(); {}; print(time.perf_counter() - t)"
    bare, code = timed.format("import topiczoo"), timed.format("from topiczoo import models, inference, corpora")
    return {
        "import topiczoo": min(float(subprocess.check_output([sys.executable, "-c", bare])) for _ in range(3)),
        "with models, inference, corpora": min(
            float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(3)
        ),
    }


def part_topiczoo_quality(folder, sweeps):
    from topiczoo import corpora, inference, models

    counts, vocabulary, rating = load(folder)
    train, test, y = first_fold(counts, rating)
    corpus = corpora.Corpus.from_counts(counts, vocabulary)
    began = time.perf_counter()
    fit = inference.gibbs(
        models.slda, corpus[train], y[train], num_topics=TOPICS, alpha=ALPHA, gamma=GAMMA,
        num_warmup=sweeps, num_samples=sweeps, num_chains=2, seed=0,
    )  # fmt: skip
    fitted = time.perf_counter() - began
    memory = peak_gib()
    began = time.perf_counter()
    prediction = fit.predict(corpus[test])
    low, high = prediction.interval(0.9).T
    chains = [predictive_r2(y[test], part.mean(0)) for part in prediction.expected]
    return {
        "predictive R^2": predictive_r2(y[test], prediction.mean), "R^2 of each chain": chains,
        "90% interval covers": float(np.mean((low < y[test]) & (y[test] < high))),
        "seconds to fit": fitted, "seconds to predict": time.perf_counter() - began, "peak GiB of the fit": memory,
    }  # fmt: skip


def part_tomotopy_quality(folder, sweeps):
    """With its own defaults, as many sweeps as the chains here have warm-up and draws."""
    counts, vocabulary, rating = load(folder)
    train, test, y = first_fold(counts, rating)
    began = time.perf_counter()
    model = tomotopy_model(counts[train], vocabulary, y[train])
    model.train(2 * sweeps, workers=2)
    predicted = tomotopy_predictions(model, counts[test], vocabulary)
    return {"predictive R^2": predictive_r2(y[test], predicted), "seconds": time.perf_counter() - began}


def part_ridge_quality(folder, sweeps):
    from sklearn.linear_model import RidgeCV

    counts, _, rating = load(folder)
    train, test, y = first_fold(counts, rating)
    words = np.log1p(counts.toarray().astype(np.float32))
    ridge = RidgeCV(np.logspace(1, 5, 9)).fit(words[train], y[train])
    return {"predictive R^2": predictive_r2(y[test], ridge.predict(words[test]))}


def table(results):
    lines = ["| part | measure | value |", "|---|---|---|"]
    for part, measures in results.items():
        for name, value in measures.items():
            shown = (
                ", ".join(f"{v:.3f}" for v in value)
                if isinstance(value, list)
                else f"{value:.3f}"
                if isinstance(value, float)
                else value
            )
            lines.append(f"| {part} | {name} | {shown} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=str(HERE.parent.parent / "shared/data/movie-reviews"))
    parser.add_argument("--sweeps", type=int, default=300, help="warm-up sweeps, and draws, of the quality runs")
    parser.add_argument("--speed-sweeps", type=int, default=20)
    parser.add_argument("--only", choices=["speed", "quality", "waiting"])
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/results.md")
    options = parser.parse_args()
    if options.part == "waiting":
        print(json.dumps(waiting.part()))
        return
    if options.only == "waiting":
        text = f"{circumstances(__file__, ('topiczoo', 'jax', 'numpyro'))}\n\n{waiting.measure(__file__)}"
        show(text, f"waiting, {waiting.DOCUMENTS} reviews, K={waiting.TOPICS}", options.write)
        return
    if not Path(options.data, "counts.npz").is_file():
        sys.exit(f"{options.data!r} holds no counts.npz; give the corpus' folder with --data.")
    if options.part:
        print(json.dumps(globals()[f"part_{options.part}"](options.data, options.sweeps)))
        return
    results = {}
    if options.only != "quality":
        for name in ("import", "tomotopy_speed", "topiczoo_speed"):
            results[name] = run_part(__file__, name, data=options.data, sweeps=options.speed_sweeps)
            print(name, results[name], flush=True)
        theirs, ours = results["tomotopy_speed"], results["topiczoo_speed"]
        results["ratio"] = {
            "sweep alone, tomotopy / topiczoo": theirs["seconds a sweep"] / ours["seconds a sweep"],
            "whole iteration, tomotopy / topiczoo": theirs["seconds a sweep"] / ours["seconds an iteration"],
        }
        print("ratio", results["ratio"], flush=True)
    if options.only != "speed":
        for name in ("ridge_quality", "topiczoo_quality", "tomotopy_quality"):
            results[name] = run_part(__file__, name, data=options.data, sweeps=options.sweeps)
            print(name, results[name], flush=True)
    text = table(results)
    print(text)
    if options.write:
        packages = ("topiczoo", "jax", "numpyro", "tomotopy", "scikit-learn")
        title = f"film reviews, K={TOPICS}, alpha {ALPHA}, gamma {GAMMA}" + (
            f", {options.only}" if options.only else ""
        )
        write_section(title, f"{circumstances(__file__, packages)}\n\n{text}")


if __name__ == "__main__":
    main()
