"""Max-margin topics on newsgroups: accuracy over the number of topics, support vectors and seconds (Zhu, Ahmed & Xing 2012).

    python benchmarks/margins.py --into FILE                          # parts in FILE are not run again
    python benchmarks/margins.py --task binary --methods vem,lda+svm --topics 5,20,60 --seeds 0,1 --into FILE
    python benchmarks/margins.py --from FILE [FILE ...] --write

binary: alt.atheism against talk.religion.misc. classes: all 20 groups. The paper's split into training and test posts; terms
of at least 2 training posts, scikit-learn's English stop words left out, as the paper leaves out a list of its own. A term's
count in a post is damped to its rounded square root for topic models: a word that is said again says little new. The corpus
is not part of the project (--data FOLDER).

vem: MedLDA by variational EM with Crammer & Singer's loss (n-slack); "vem 1-slack" by cutting planes, "vem one against all"
with a hinge a class. gibbs: one against all, several chains; "gibbs unlabelled" reads the words of the test posts as well.
slda: supervised LDA with a softmax (two classes: logistic) response, by variational EM. disclda: DiscLDA by variational EM,
classes by Bayes' rule. lda+svm: LDA by variational EM, then MedLDA's machine on its E[zbar]. words: a linear SVM (once by
self-training, which reads the words of the test posts) and naive Bayes on words. The weight of the loss and the priors are
chosen on the last fifth of each group's training posts, anew for each seed (test posts are later than training posts, and a
fifth taken by chance shares its threads with the rest); with two classes anew for each number of topics, with twenty by the
first number asked for; for gibbs they are written below.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd
from measuring import Results, add_options, cell, circumstances, frame, largest_fall, show, table_of
from responses import baselines, fitted_svm, tf_idf
from scipy import sparse

PACKAGES = ("topiczoo", "jax", "numpyro", "scikit-learn")
PAIR = ("alt.atheism", "talk.religion.misc")
TOPICS = {"binary": (20, 5, 10, 40, 60, 200), "classes": (20, 40, 70, 110)}
COST = 16.0
CANDIDATES = {  # weight of the loss, alpha, gamma
    "binary": ((5.0, 1.0, 0.05), (20.0, 0.5, 0.1), (5.0, 0.5, 0.3), (5.0, 1.0, 1.0)),
    "classes": ((5.0, 1.0, 0.1), (5.0, 1.0, 0.05), (20.0, 0.5, 0.1)),
}
VEM = {"num_iterations": 25, "e_iterations": 10, "num_starts": 1}
GIBBS = {"num_warmup": 140, "num_samples": 30, "num_chains": 8}
GIBBS_SETTINGS = {  # by the number of topics, or the nearest; results.md says how found: a choice anew takes hours
    "binary": {
        5: (5.0, 0.5, 0.05), 10: (5.0, 0.5, 0.05), 20: (5.0, 0.5, 0.05), 40: (20.0, 0.5, 0.3), 60: (5.0, 0.5, 0.3),
    },
    "classes": {20: (5.0, 1.0, 0.05), 40: (5.0, 0.5, 0.05), 70: (5.0, 0.3, 0.05), 110: (5.0, 0.2, 0.05)},
}  # fmt: skip
SELF_TAUGHT = "linear SVM, tf-idf, test posts read without groups"
WORDS = ("linear SVM", "linear SVM, tf-idf", SELF_TAUGHT, "naive Bayes", "naive Bayes, damped counts")
UNLABELLED = "gibbs unlabelled"
SAMPLED = ("gibbs", UNLABELLED)
METHODS = {
    "vem one against all": "MedLDA, vem, one against all", "vem": "MedLDA, vem", "vem 1-slack": "MedLDA, vem, 1-slack",
    "gibbs": "MedLDA, gibbs", UNLABELLED: "MedLDA, gibbs, test posts read without groups", "slda": "sLDA",
    "disclda": "DiscLDA", "lda+svm": "LDA + SVM",
}  # fmt: skip


def load(folder, task, damped=True):
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
    if damped:
        counts.data = np.round(np.sqrt(counts.data)).astype(counts.dtype)
    corpus = corpora.Corpus.from_counts(counts, vocabulary[used], empty="keep")
    words = corpus.lengths > 0
    return corpus, table["group"].to_numpy().astype(str), np.flatnonzero(train & words), np.flatnonzero(~train)


def machine(x, codes, classes, weight):
    """The margin's machine on features: coefficients [K, C] and the number of support vectors."""
    import jax.numpy as jnp

    from topiczoo.inference.steps.support_vectors import CRAMMER_SINGER, HINGES, n_slack, support_vectors

    loss = HINGES if classes == 2 else CRAMMER_SINGER
    parameters = {"weight": jnp.float32(weight), "cost": jnp.float32(COST)}
    found = n_slack(loss, x, codes, np.ones((x.shape[1], 1 if classes == 2 else classes)), parameters)
    return found.coefficients, support_vectors(loss, found.duals, codes, parameters)


def of_a_topic(alpha, classes, topics):
    """With two classes alpha is that of 20 topics, and as much in all for other numbers: 200 topics would drown a post."""
    return alpha * 20 / topics if classes == 2 else alpha


def arguments_of(method, classes, topics, settings):
    """The story, its arguments and the engine of a supervised method."""
    from topiczoo import inference, models

    weight, alpha, gamma = settings
    common = {"num_topics": topics, "alpha": of_a_topic(alpha, classes, topics), "gamma": gamma}
    several = {"outputs": classes} if classes > 2 else {}
    if method == "slda":
        return (
            models.slda_glm,
            {"response": "softmax" if classes > 2 else "logit", **several, **common},
            inference.vem,
            VEM,
        )
    if method == "disclda":
        own = max(1, topics // (2 * classes))  # topics of a class: half of all, as far as they go round
        shared = topics - own * classes
        return models.disclda, {"outputs": classes, "shared": shared, **common}, inference.vem, VEM
    one_a_class = method in SAMPLED or method.endswith("against all")
    margin = "binary" if classes == 2 else "one_against_all" if one_a_class else "classes"
    story = {"margin": margin, "weight": weight, "cost": COST, **several, **common}
    if method in SAMPLED:
        return models.medlda, story, inference.gibbs, GIBBS
    return models.medlda, story, inference.vem, VEM | ({"slack": "one"} if method.endswith("1-slack") else {})


def supervised(method, corpus, label, classes, train, test, topics, settings, seed):
    story, arguments, engine, steps = arguments_of(method, classes, topics, settings)
    read, known = train, label.astype(object)
    if method == UNLABELLED:
        read, known[test] = np.sort(np.concatenate([train, test[corpus.lengths[test] > 0]])), None
    began = time.perf_counter()
    fit = engine(story, corpus[read], known[read], **steps, **arguments, seed=seed, progress_bar=False)
    trained = time.perf_counter()
    found = fit.predict(corpus[test], rule="posterior" if method in SAMPLED else "plug-in")
    row = {
        "accuracy": float(np.mean(found.label == label[test])), "training": trained - began,
        "test": time.perf_counter() - trained, "support vectors": fit.info.get("support_vectors"),
        "largest fall": largest_fall(fit),
    }  # fmt: skip
    return row | ({} if method in (*SAMPLED, "disclda") else {"entropy": spread_of(fit, corpus[test])})


def spread_of(fit, corpus):
    """Mean entropy of E[theta] of documents, given their words."""
    from topiczoo.inference.predictive.fold_in import FoldIn
    from topiczoo.inference.predictive.predicting import plug_in_topics

    fold = FoldIn(fit, corpus)
    theta = np.asarray(plug_in_topics(fold, fold.means(0))[0], float)
    return float(-(theta * np.log(theta)).sum(1).mean())


def lda_svm(corpus, label, classes, train, test, topics, settings, seed):
    from topiczoo import inference, models
    from topiczoo.inference.predictive.fold_in import FoldIn
    from topiczoo.inference.predictive.predicting import plug_in_topics

    weight, alpha, gamma = settings
    story = {"num_topics": topics, "alpha": of_a_topic(alpha, classes, topics), "gamma": gamma}
    began = time.perf_counter()
    fit = inference.vem(models.lda, corpus[train], seed=seed, progress_bar=False, **VEM, **story)
    codes = np.unique(label, return_inverse=True)[1]
    fold = FoldIn(fit, corpus[train])
    coefficients, held = machine(np.asarray(plug_in_topics(fold, fold.means(0))[1]), codes[train], classes, weight)
    trained = time.perf_counter()
    fold = FoldIn(fit, corpus[test])
    scores = np.asarray(plug_in_topics(fold, fold.means(0))[1]) @ coefficients
    guess = (scores[:, 0] > 0).astype(int) if classes == 2 else scores.argmax(1)
    return {
        "accuracy": float(np.mean(guess == codes[test])), "training": trained - began,
        "test": time.perf_counter() - trained, "support vectors": held, "entropy": spread_of(fit, corpus[test]),
    }  # fmt: skip


def words(folder, task):
    """What needs no topics: machines on counts as they are, naive Bayes on both."""
    raw, damped = (load(folder, task, damped) for damped in (False, True))
    return {
        "settings": None, **baselines(*raw), SELF_TAUGHT: self_taught(*raw),
        "naive Bayes, damped counts": baselines(*damped)["naive Bayes"],
    }  # fmt: skip


def self_taught(corpus, label, train, test):
    """Accuracy of a machine on tf-idf that teaches itself the groups of test posts it is sure of, again and again."""
    from sklearn.base import clone
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.semi_supervised import SelfTrainingClassifier

    read, codes = np.concatenate([train, test]), np.unique(label, return_inverse=True)[1]
    features = tf_idf(corpus.counts, read)
    chosen = clone(fitted_svm(features[train], codes[train]).best_estimator_)
    known = np.concatenate([codes[train], np.full(len(test), -1)])
    model = SelfTrainingClassifier(CalibratedClassifierCV(chosen, cv=5))
    return float(np.mean(model.fit(features[read], known).predict(features[test]) == codes[test]))


def last_fifth(label, train):
    """Training posts without the last fifth of each group, and that fifth."""
    groups = (train[label[train] == group] for group in np.unique(label))
    aside = np.concatenate([group[-(len(group) // 5) :] for group in groups])
    return np.setdiff1d(train, aside), aside


def part(method, data, topics, seed, settings):
    corpus, label, train, test = data
    classes = len(np.unique(label))

    def run(kept, left, settings):
        arguments = corpus, label, classes, kept, left, topics, settings, seed
        return lda_svm(*arguments) if method == "lda+svm" else supervised(method, *arguments)

    task = "binary" if classes == 2 else "classes"
    if settings is None and method in SAMPLED:
        known = GIBBS_SETTINGS[task]
        settings = known[min(known, key=lambda number: abs(number - topics))]
    if settings is None:
        inner, aside = last_fifth(label, train)
        tried = {candidate: run(inner, aside, candidate)["accuracy"] for candidate in CANDIDATES[task]}
        settings = max(tried, key=tried.get)
    return {"settings": settings, **run(train, test, tuple(settings))}


def table(found, task):
    """Methods down, numbers of topics across: accuracy, then one table for each of what else was measured."""
    found = found[found["task"] == task]
    topics = sorted(found.loc[found["topics"] > 0, "topics"].unique())

    def part(column, form, title, more=()):
        rows = []
        for method, name in METHODS.items():
            parts = [found[(found["method"] == method) & (found["topics"] == k)] for k in topics]
            rows.append((name, [cell(part.get(column, ()), form, spread=form == ".3f") for part in parts]))
        return table_of(title, [f"K = {k}" for k in topics], [*rows, *more])

    words = [row for _, row in found[found["method"] == "words"].iterrows()]
    on_words = [(f"words: {kind}", [f"{row[kind]:.3f}"]) for row in words for kind in WORDS]
    columns = (
        ("support vectors", ".0f", "support vectors"), ("entropy", ".3f", "entropy of proportions"),
        ("largest fall", ".1e", "largest fall of the objective in an iteration, of itself"),
        ("training", ".0f", "training, seconds"), ("test", ".0f", "test posts, seconds"),
    )  # fmt: skip
    return "\n\n".join([part("accuracy", ".3f", "accuracy", on_words), *(part(*column) for column in columns)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--task", default="binary", choices=list(TOPICS))
    parser.add_argument("--methods", default="words,vem,lda+svm,gibbs")
    parser.add_argument("--topics", default=None)
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--settings", default=None, help="weight,alpha,gamma: no choice among candidates")
    parser.add_argument("--aside", action="store_true", help="the last fifth of the training posts for the test posts")
    add_options(parser)
    arguments = parser.parse_args()
    if arguments.files:
        found = frame(arguments.files)
        made = "`python benchmarks/margins.py --task T --methods M --into FILE`"
        text = f"{made}, shown by {circumstances(__file__, PACKAGES)}"
        text += f"\n\n{table(found, arguments.task)}\n\nMean ± standard deviation (number of seeds)."
        title = {"binary": "two newsgroups", "classes": "twenty newsgroups"}[arguments.task]
        show(text, f"Max-margin topics, {title}", arguments.write)
        return
    corpus, label, train, test = load(arguments.data, arguments.task)
    data = corpus, label, *(last_fifth(label, train) if arguments.aside else (train, test))
    topics = TOPICS[arguments.task] if arguments.topics is None else tuple(map(int, arguments.topics.split(",")))
    results = Results(arguments.into, ("task", "method", "topics", "seed"))
    for seed in map(int, arguments.seeds.split(",")):
        for method in arguments.methods.split(","):
            settings = tuple(map(float, arguments.settings.split(","))) if arguments.settings else None
            for number in topics if method != "words" else (0,):
                place = arguments.task, method, number, 0 if method == "words" else seed
                task = (words, arguments.data, arguments.task)
                if method != "words":
                    task = (part, method, data, number, seed, settings)
                row = results.part(place, lambda task=task: task[0](*task[1:]))
                if arguments.task == "classes" and method not in SAMPLED:  # those have settings for each number
                    settings = settings or row["settings"]


if __name__ == "__main__":
    main()
