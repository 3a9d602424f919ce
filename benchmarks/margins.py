"""Max-margin topics on newsgroups: accuracy over the number of topics, support vectors and seconds (Zhu, Ahmed & Xing 2012).

    python benchmarks/margins.py --into FILE                          # parts in FILE are not run again
    python benchmarks/margins.py --task binary --methods vem,lda+svm --topics 5,20,60 --seeds 0,1 --into FILE
    python benchmarks/margins.py --from FILE [FILE ...] --write

binary: alt.atheism against talk.religion.misc. classes: all 20 groups. The paper's split into training and test posts; terms
of at least 2 training posts, scikit-learn's English stop words left out, as the paper leaves out a list of its own. A term's
count in a post is damped to its rounded square root for every method: a word that is said again says little new. The corpus
is not part of the project (--data FOLDER).

vem: MedLDA by variational EM with Crammer & Singer's loss (n-slack); "vem 1-slack" by cutting planes, "vem one against all"
with a hinge a class. gibbs: one against all. lda+svm: LDA by variational EM, then the same machine on its E[zbar]. words: a
linear SVM and naive Bayes on words. The weight of the loss and the priors are chosen on a fifth of the training posts,
anew for each seed, with the first number of topics asked for.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd
from measuring import Results, add_options, circumstances, frame, write_section
from responses import baselines
from scipy import sparse

PACKAGES = ("topiczoo", "jax", "numpyro", "scikit-learn")
PAIR = ("alt.atheism", "talk.religion.misc")
TOPICS = {"binary": (20, 5, 10, 40, 60, 200), "classes": (40, 20, 70, 110)}
COST = 16.0
CANDIDATES = ((4.0, 0.1, 0.05), (20.0, 0.5, 0.2))  # weight of the loss, alpha, gamma
VEM = {"num_iterations": 25, "e_iterations": 10}


def load(folder, task):
    """Corpus, labels, and the places of training and test posts with words."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    from topiczoo import corpora

    folder = Path(folder) / "newsgroups20"
    counts, table = sparse.load_npz(folder / "counts.npz").tocsr(), pd.read_csv(folder / "documents.csv")
    kept = table["group"].isin(PAIR).to_numpy() if task == "binary" else np.ones(len(table), bool)
    counts, table = counts[kept], table[kept]
    train = (table["split"] == "train").to_numpy()
    vocabulary = np.array((folder / "vocabulary.txt").read_text().split("\n")[: counts.shape[1]])
    used = np.asarray((counts[train] > 0).sum(0)).ravel() >= 2
    used &= ~np.isin(vocabulary, list(ENGLISH_STOP_WORDS))
    counts = counts[:, used]
    counts.data = np.round(np.sqrt(counts.data)).astype(counts.dtype)
    corpus = corpora.Corpus.from_counts(counts, vocabulary[used], empty="keep")
    words = corpus.lengths > 0
    return corpus, table["group"].to_numpy().astype(str), np.flatnonzero(train & words), np.flatnonzero(~train)


def machine(x, codes, classes, weight):
    """The margin's machine on features: coefficients [K, C] and the number of support vectors."""
    import jax.numpy as jnp

    from topiczoo.inference.margin_solvers import CRAMMER_SINGER, HINGES, n_slack, support_vectors

    loss = HINGES if classes == 2 else CRAMMER_SINGER
    parameters = {"weight": jnp.float32(weight), "cost": jnp.float32(COST)}
    found = n_slack(loss, x, codes, np.ones((x.shape[1], 1 if classes == 2 else classes)), parameters)
    return found.coefficients, support_vectors(loss, found.duals, codes, parameters)


def medlda(method, corpus, label, classes, train, test, topics, settings, seed):
    from topiczoo import inference, models

    weight, alpha, gamma = settings
    margin = "binary" if classes == 2 else "one_against_all" if method.endswith(("all", "gibbs")) else "classes"
    story = {"margin": margin, "weight": weight, "cost": COST, "alpha": alpha, "gamma": gamma, "num_topics": topics}
    story |= {"seed": seed, "progress_bar": False} | ({"outputs": classes} if classes > 2 else {})
    began = time.perf_counter()
    if method == "gibbs":
        fit = inference.gibbs(
            models.medlda, corpus[train], label[train], num_warmup=150, num_samples=50, num_chains=1, **story
        )
    else:
        slack = {"slack": "one"} if method.endswith("1-slack") else {}
        fit = inference.vem(models.medlda, corpus[train], label[train], **VEM, **slack, **story)
    trained = time.perf_counter()
    found = fit.predict(corpus[test], rule="posterior" if method == "gibbs" else "plug-in")
    return {
        "accuracy": float(np.mean(found.label == label[test])), "training": trained - began,
        "test": time.perf_counter() - trained, "support vectors": fit.info.get("support_vectors"),
    }  # fmt: skip


def lda_svm(corpus, label, classes, train, test, topics, settings, seed):
    from topiczoo import inference, models
    from topiczoo.inference.folding import Folding
    from topiczoo.inference.prediction import plug_in_topics

    weight, alpha, gamma = settings
    began = time.perf_counter()
    story = {"num_topics": topics, "alpha": alpha, "gamma": gamma}
    fit = inference.vem(models.lda, corpus[train], seed=seed, progress_bar=False, **VEM, **story)
    codes = np.unique(label, return_inverse=True)[1]
    x, seen = (np.asarray(plug_in_topics(f := Folding(fit, corpus[at]), f.means(0))[1]) for at in (train, test))
    coefficients, held = machine(x, codes[train], classes, weight)
    scores = seen @ coefficients
    guess = (scores[:, 0] > 0).astype(int) if classes == 2 else scores.argmax(1)
    seconds = time.perf_counter() - began
    return {"accuracy": float(np.mean(guess == codes[test])), "training": seconds, "support vectors": held}


def part(method, data, topics, seed, settings):
    corpus, label, train, test = data
    classes = len(np.unique(label))
    if method == "words":
        return {"settings": None, **baselines(corpus, label, train, test)}

    def run(kept, left, settings):
        arguments = corpus, label, classes, kept, left, topics, settings, seed
        return lda_svm(*arguments) if method == "lda+svm" else medlda(method, *arguments)

    if settings is None:
        order = np.random.default_rng(seed).permutation(train)
        aside, inner = order[: len(train) // 5], order[len(train) // 5 :]
        tried = {candidate: run(inner, aside, candidate)["accuracy"] for candidate in CANDIDATES}
        settings = max(tried, key=tried.get)
    return {"settings": settings, **run(train, test, tuple(settings))}


def table(found):
    lines = [
        "| task | method | topics | accuracy | weight, alpha, gamma | support vectors | training, s |",
        "|---|---|---|---|---|---|---|",
    ]
    words = found[found["method"] == "words"]
    for _, row in words.iterrows():
        for name in ("linear SVM", "naive Bayes"):
            lines.append(f"| {row['task']} | {name} on words | | {row[name]:.3f} | | | |")
    for (task, method, topics), rows in found[found["method"] != "words"].groupby(
        ["task", "method", "topics"], sort=False
    ):
        spread = f" ± {rows['accuracy'].std(ddof=1):.3f}" if len(rows) > 1 else ""
        held = "" if rows["support vectors"].isna().any() else f"{rows['support vectors'].mean():.0f}"
        chosen = "; ".join(sorted({", ".join(map("{:g}".format, settings)) for settings in rows["settings"]}))
        accuracy = f"{rows['accuracy'].mean():.3f}{spread} ({len(rows)})"
        seconds = f"{rows['training'].mean():.0f}"
        lines.append(f"| {task} | {method} | {topics} | {accuracy} | {chosen} | {held} | {seconds} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--task", default="binary", choices=list(TOPICS))
    parser.add_argument("--methods", default="words,vem,lda+svm,gibbs")
    parser.add_argument("--topics", default=None)
    parser.add_argument("--seeds", default="0,1,2,3,4")
    add_options(parser)
    arguments = parser.parse_args()
    if arguments.files:
        found = frame(arguments.files)
        made = "`python benchmarks/margins.py --task T --methods M --into FILE`"
        text = f"{made}, shown by {circumstances(__file__, PACKAGES)}"
        text += f"\n\n{table(found)}\n\nMean ± standard deviation (number of seeds)."
        print(text)
        if arguments.write:
            write_section("Max-margin topics on newsgroups", text)
        return
    data = load(arguments.data, arguments.task)
    topics = TOPICS[arguments.task] if arguments.topics is None else tuple(map(int, arguments.topics.split(",")))
    results = Results(arguments.into, ("task", "method", "topics", "seed"))
    for seed in map(int, arguments.seeds.split(",")):
        for method in arguments.methods.split(","):
            settings = None
            for number in topics if method != "words" else (0,):
                place = arguments.task, method, number, 0 if method == "words" else seed
                row = results.done().get(place)
                if row is None:
                    row = dict(zip(results.keys, place, strict=True)) | part(method, data, number, seed, settings)
                    results.add(row)
                settings = settings or row["settings"]


if __name__ == "__main__":
    main()
