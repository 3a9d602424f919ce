"""When does a margin on topics beat a machine on words? The three settings of section 5.2.3 of Zhu, Ahmed & Xing (2012).

    python benchmarks/margin_simulations.py --settings 1,2 --seeds 0,1 --into FILE   # parts in FILE are not run again
    python benchmarks/margin_simulations.py --from FILE [FILE ...] --write

Documents of LDA with alpha = 1, 500 terms, topics of normalised uniform numbers, Poisson(L) words. 1: 40 topics; the class
follows from the topics' shares alone. 2: 150 topics; the class follows from shares and words, words counting for more.
3: as 2, but the shares' coefficients are 150 times as large. The paper draws coefficients from N(0, 0.1); in setting 1 that
is a logit of deviation 0.07, and not even the truth tells one class from the other. "1, distinct" is a setting 1 where
something can be told: coefficients 40 times as large, topics drawn from Dirichlet(0.1), since topics of uniform numbers
are so alike that words tell little of their shares.

The paper does not say how many documents there are: 1,000 for training here, and 1,000 for testing. medlda: by variational
EM; svm: a linear machine on the counts; both: it on MedLDA's topics and the counts side by side, as in the paper, shares
taken times the number of topics so that they are of the size of counts; svm, C = 1: without a choice of its strength; known:
the better class where topics and coefficients are known and only the shares are inferred from the words; truth: where the
shares are known too; majority: the larger class for all. MedLDA's number of topics (few, or the true one) and weight are
chosen on a fifth of the training documents, the machines' strength by five-fold cross-validation.
"""

from __future__ import annotations

import argparse

import numpy as np
from measuring import Results, add_options, cell, circumstances, frame, show, table_of
from scipy import sparse

PACKAGES = ("topiczoo", "jax", "numpyro", "scikit-learn")
LENGTHS = {
    "1": (25, 50, 150, 300, 500), "1, distinct": (25, 50, 150, 300, 500),
    "2": (50, 100, 150, 200, 250), "3": (50, 100, 150, 200, 250, 300, 350),
}  # fmt: skip
METHODS = ("medlda", "svm", "both", "svm, C = 1", "known", "truth", "majority")
NUMBER, TERMS = 1000, 500
FEW = 4
WEIGHTS = (1.0, 10.0, 100.0)  # of the loss, with few topics; the one in the middle with the true number
STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)


def simulate(setting, length, seed):
    """Counts, classes, and the logits they are drawn by; training documents come first."""
    rng = np.random.default_rng([seed, length, *map(ord, setting)])
    topics = 40 if setting.startswith("1") else 150
    beta = rng.gamma(0.1, 1.0, (topics, TERMS)) if setting == "1, distinct" else rng.random((topics, TERMS))
    beta /= beta.sum(1, keepdims=True)
    theta = rng.dirichlet(np.ones(topics), 2 * NUMBER)
    lengths = np.maximum(rng.poisson(length, 2 * NUMBER), 1)
    counts = np.stack([rng.multinomial(n, share) for n, share in zip(lengths, theta @ beta, strict=True)])
    of_topics = rng.normal(0, np.sqrt(0.1), topics) * (1 if setting in ("1", "2") else topics)
    of_words = rng.normal(0, np.sqrt(0.1), TERMS) * (not setting.startswith("1"))
    logits = theta @ of_topics + counts @ of_words
    y = (rng.random(2 * NUMBER) < 1 / (1 + np.exp(-logits))).astype(int)
    return counts, y, (beta, of_topics, of_words, logits)


def told_by(counts, truth):
    """Logits where topics and coefficients are known and shares are inferred."""
    from topiczoo import corpora
    from topiczoo.corpora.layouts import documents
    from topiczoo.inference.steps.words import fold_in

    beta, of_topics, of_words, _ = truth
    gamma, _ = fold_in(beta.astype(np.float32), 1.0, documents(corpora.Corpus.from_counts(counts), pairs=True))
    gamma = np.asarray(gamma, float)
    return gamma / gamma.sum(1, keepdims=True) @ of_topics + counts @ of_words


def machine():
    """A linear machine on words, of scikit-learn's own strength."""
    from sklearn.svm import LinearSVC

    return LinearSVC(loss="hinge", max_iter=20_000)


def best_machine(features, y, train, test):
    """Accuracy of a linear machine, its strength chosen by five-fold cross-validation."""
    from sklearn.model_selection import GridSearchCV

    search = GridSearchCV(machine(), {"C": STRENGTHS}, cv=5)
    return float(search.fit(features[train], y[train]).score(features[test], y[test]))


def part(setting, length, seed):
    """Accuracy of every method."""
    from topiczoo import corpora, inference, models
    from topiczoo.inference.predictive.fold_in import FoldIn
    from topiczoo.inference.predictive.predicting import plug_in_topics

    counts, y, truth = simulate(setting, length, seed)
    topics = len(truth[0])
    corpus = corpora.Corpus.from_counts(counts)
    train, test = np.arange(NUMBER), np.arange(NUMBER, 2 * NUMBER)
    aside, inner = train[: NUMBER // 5], train[NUMBER // 5 :]

    def fit(at, number, weight):
        return inference.vem(
            models.medlda, corpus[at], y[at], margin="binary", weight=weight, cost=16.0, alpha=1.0, gamma=0.1,
            num_topics=number, num_iterations=25, e_iterations=10, num_starts=1, seed=seed, progress_bar=False,
        )  # fmt: skip

    def right(fitted, at):
        return float(np.mean(fitted.predict(corpus[at], rule="plug-in").mean.round() == y[at]))

    candidates = [*((FEW, weight) for weight in WEIGHTS), (topics, WEIGHTS[1])]
    tried = {candidate: right(fit(inner, *candidate), aside) for candidate in candidates}
    number, weight = max(tried, key=tried.get)
    fitted = fit(train, number, weight)
    fold = FoldIn(fitted, corpus)
    shares = np.asarray(plug_in_topics(fold, fold.means(0))[1])
    words = sparse.csr_matrix(counts.astype(float))
    return {
        "medlda": right(fitted, test), "svm": best_machine(words, y, train, test),
        "both": best_machine(sparse.hstack([words, number * shares]).tocsr(), y, train, test),
        "svm, C = 1": float(machine().fit(words[train], y[train]).score(words[test], y[test])),
        "known": float(np.mean((told_by(counts, truth)[test] > 0) == y[test])),
        "truth": float(np.mean((truth[-1][test] > 0) == y[test])), "topics": number, "weight": weight,
        "majority": float(max(np.mean(y[test]), 1 - np.mean(y[test]))),
    }  # fmt: skip


def table(found):
    """A table a setting, methods down and lengths across."""
    tables = []
    for setting, lengths in LENGTHS.items():
        own = found[found["setting"] == setting]
        rows = [(method, [cell(own.loc[own["length"] == n, method]) for n in lengths]) for method in METHODS]
        if len(own):
            tables.append(table_of(f"setting {setting}", [f"L = {n}" for n in lengths], rows))
    return "\n\n".join(tables)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", default="/".join(LENGTHS), help="separated by /")
    parser.add_argument("--seeds", default="0,1,2,3,4")
    add_options(parser)
    arguments = parser.parse_args()
    if arguments.files:
        made = (
            "`python benchmarks/margin_simulations.py --settings S --seeds R --into FILE`, a process a core, shown by "
        )
        text = f"{made}{circumstances(__file__, PACKAGES)}\n\n{table(frame(arguments.files))}\n\n"
        text += "Accuracy, mean ± standard deviation (number of seeds)."
        show(text, "Max-margin topics, simulated documents", arguments.write)
        return
    results = Results(arguments.into, ("setting", "length", "seed"))
    for seed in map(int, arguments.seeds.split(",")):
        for setting in arguments.settings.split("/"):
            for length in LENGTHS[setting]:
                place = setting, length, seed
                results.part(place, lambda place=place: part(*place))


if __name__ == "__main__":
    main()
