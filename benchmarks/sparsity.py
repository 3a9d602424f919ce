"""Few topics for a response: error against the number of coefficients kept, as in figures 2 to 4 of Wang, Li & Lin.

    python benchmarks/sparsity.py --into FILE                       # parts in FILE are not run again
    python benchmarks/sparsity.py --task bbc --topics 50 --seeds 0,1 --into FILE
    python benchmarks/sparsity.py --from FILE [FILE ...] --write

bbc: entertainment and sport against politics, technology and business, half of the articles for training, half for testing.
ratings: film reviews (Pang & Lee 2005), ratings in standard units. The corpora are not part of the project (--data FOLDER).

Three methods: sstm; dense, the same story with normal coefficients; and the pipeline, LDA by Gibbs sampling followed by an
L1 penalty (logistic regression, lasso) on the documents' topics. sstm and dense are cut down by fit.select("projection"),
the pipeline by its penalty, which runs down until more coefficients are not 0. All have an intercept beside the
coefficients counted; sstm without one is shown as well. Each method runs two chains, and for each number of coefficients
the chain counts whose coefficients predict the training half best (as fit.select does). sstm's and the
pipeline's priors are chosen among the same candidates on a fifth of the training half, each by its own error at 10% and 15%
sparsity (60% for ratings), anew for each seed, with the first number of topics asked for and, of news, once more with 100
topics, which take longer to settle; for news shorter chains do for the choice. dense takes what sstm chose.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from measuring import Results, add_options, circumstances, frame, show
from scipy import sparse

PACKAGES = ("topiczoo", "jax", "numpyro", "scikit-learn")
METHODS = ("sstm", "pipeline", "dense")
TOPICS = {"bbc": (50, 10, 30, 100), "ratings": (50, 20, 100)}
DENSE_TOPICS = {"bbc": (50,), "ratings": (50, 20, 100)}
CHAINS = 2
SPARSITY = {"bbc": (0.1, 0.15), "ratings": (0.6,)}
PRIORS = {  # candidates: alpha, gamma, and the response's sigma (sstm and dense)
    "bbc": ((0.1, 1.0, 0.05), (0.1, 0.5, 0.02)),
    "ratings": ((0.1, 0.05, None), (0.1, 0.5, None)),
}
SWEEPS = {"bbc": (80, 20), "ratings": (300, 60)}  # warmup and kept, of each chain
ANEW = {"bbc": {100: (140, 30)}, "ratings": {}}  # numbers of topics with priors and sweeps of their own
CHOOSING = {"bbc": (45, 15), "ratings": (300, 60)}  # the same where priors are chosen
COLUMNS = ("errors", "errors without intercept")


def load(folder, task):
    """Corpus and response."""
    from topiczoo.corpora import Corpus

    folder = Path(folder) / {"bbc": "bbc-news", "ratings": "movie-reviews"}[task]
    counts = sparse.load_npz(folder / "counts.npz").tocsr()
    vocabulary = np.array((folder / "vocabulary.txt").read_text().split("\n")[: counts.shape[1]])
    table = pd.read_csv(folder / "documents.csv")
    if task == "bbc":
        y = table["category"].isin(["entertainment", "sport"]).to_numpy().astype(float)
    else:
        y = table["rating"].to_numpy(float)
    return Corpus.from_counts(counts, vocabulary), y


def fit_supervised(method, corpus, y, task, topics, prior, seed, sweeps):
    from topiczoo import inference, models

    alpha, gamma, sigma = prior
    settings = {"nu": 0.05} if method == "sstm" and task == "bbc" else {}
    settings |= {"prior": "dense"} if method == "dense" else {}
    return inference.gibbs(
        models.sstm, corpus, y, response="probit" if task == "bbc" else "normal", num_topics=topics, alpha=alpha,
        gamma=gamma, sigma=sigma, num_warmup=sweeps[0], num_samples=sweeps[1], num_chains=CHAINS, seed=seed,
        progress_bar=False, **settings,
    )  # fmt: skip


def mean_topics(fit, corpora):
    """E[zbar] of each corpus at each chain's means, without a look at responses."""
    from topiczoo.inference.predictive.fold_in import FoldIn
    from topiczoo.inference.predictive.predicting import plug_in_topics

    folds = [FoldIn(fit, corpus, chains=[0]) for corpus in corpora]
    for chain in range(CHAINS):
        yield chain, [np.asarray(plug_in_topics(fold, fold.means(chain))[1], float) for fold in folds]


def wrong(predictor, y, task):
    """Of predictors [sizes, documents]."""
    return np.mean((predictor > 0) != y if task == "bbc" else (predictor - y) ** 2, axis=1)


def best_in_training(found):
    """Of pairs (errors in training, errors in the test), one a chain, by size the test's error of the best in training."""
    training, test = np.array(found).swapaxes(0, 1)
    return test[training.argmin(0), np.arange(test.shape[1])].tolist()


def errors_of_story(method, train, test, task, topics, prior, seed, sweeps, columns):
    """Error by number kept, with an intercept and without, as far as asked for."""
    fit = fit_supervised(method, *train, task, topics, prior, seed, sweeps)
    found = {name: [] for name in columns}
    for chain, zbar in mean_topics(fit, (train[0], test[0])):
        for name in found:
            path = fit.select("projection", keep=1, intercept=name == "errors", chain=chain).path
            found[name].append([wrong(path @ z.T, y, task) for z, (_, y) in zip(zbar, (train, test), strict=True)])
    return {name: best_in_training(pairs) for name, pairs in found.items()}


def errors_of_pipeline(train, test, task, topics, prior, seed, sweeps):
    """LDA, then an L1 penalty that is relaxed step by step; of each number of coefficients the weakest penalty counts."""
    from sklearn.linear_model import Lasso, LogisticRegression

    from topiczoo import inference, models

    alpha, gamma, _ = prior
    fit = inference.gibbs(
        models.lda, train[0], num_topics=topics, alpha=alpha, gamma=gamma, num_warmup=sweeps[0], num_samples=sweeps[1],
        num_chains=CHAINS, seed=seed, progress_bar=False,
    )  # fmt: skip
    found = []
    for _, zbar in mean_topics(fit, (train[0], test[0])):
        scale = zbar[0].std(0) + 1e-3
        path = np.full((2, topics + 1), np.nan)
        model = Lasso(warm_start=True)
        if task == "bbc":
            model = LogisticRegression(l1_ratio=1.0, solver="saga", max_iter=2000, tol=1e-3, warm_start=True)
        for strength in np.geomspace(1e-3, 1e3, 60):
            model.set_params(**({"C": strength} if task == "bbc" else {"alpha": 0.3 / strength}))
            model.fit(zbar[0] / scale, train[1])
            kept = int((np.ravel(model.coef_) != 0).sum())
            for row, (z, (_, y)) in enumerate(zip(zbar, (train, test), strict=True)):
                guess = model.predict(z / scale)
                path[row, kept] = np.mean(guess != y) if task == "bbc" else np.mean((guess - y) ** 2)
        # at most s coefficients: a number the path skips has the error of the next smaller one
        found.append(pd.DataFrame(path).ffill(axis=1).bfill(axis=1).to_numpy())
    return {"errors": best_in_training(found)}


def part(method, data, task, topics, seed, chosen):
    corpus, y = data
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[: len(y) // 2], order[len(y) // 2 :]
    if task == "ratings":
        y = (y - y[train].mean()) / y[train].std()
    inner, aside = train[len(train) // 5 :], train[: len(train) // 5]

    def run(kept, left, prior, sweeps, columns=COLUMNS):
        what = (corpus[kept], y[kept]), (corpus[left], y[left]), task, topics, prior, seed, sweeps
        return errors_of_pipeline(*what) if method == "pipeline" else errors_of_story(method, *what, columns)

    tried = {}
    if chosen is None:
        sizes = [int(share * topics + 1e-9) for share in SPARSITY[task]]
        for prior in PRIORS[task]:
            errors = np.array(run(inner, aside, prior, CHOOSING[task], COLUMNS[:1])["errors"])
            tried[prior] = errors[sizes].mean(), errors[1 : sizes[-1] + 1].mean()  # ties by all sizes
        chosen = min(tried, key=tried.get)
    sweeps = ANEW[task].get(topics, SWEEPS[task])
    return {"prior": chosen, "tried": list(tried.items()), **run(train, test, tuple(chosen), sweeps)}


def table(found: pd.DataFrame, task: str) -> str:
    found = found[found["task"] == task]
    lines = ["| method | topics | " + " | ".join(f"{s:.0%} kept" for s in SPARSITY[task]) + " | all kept |"]
    lines.append("|---|---|" + "---|" * (len(SPARSITY[task]) + 1))

    def cell(values):
        values = np.asarray(values, float)
        return f"{values.mean():.4f} ± {values.std(ddof=1) if len(values) > 1 else 0:.4f} ({len(values)})"

    for topics in sorted(found["topics"].unique()):
        for method, column in (
            ("sstm", "errors"), ("sstm", "errors without intercept"), ("dense", "errors"), ("pipeline", "errors"),
        ):  # fmt: skip
            rows = found[(found["method"] == method) & (found["topics"] == topics)]
            if len(rows):
                name = method + (", no intercept" if "without" in column else "")
                cells = [cell([errors[int(s * topics + 1e-9)] for errors in rows[column]]) for s in SPARSITY[task]]
                lines.append(
                    f"| {name} | {topics} | {' | '.join(cells)} | {cell([errors[-1] for errors in rows[column]])} |"
                )
    return "\n".join(lines)


def curve(found: pd.DataFrame, task: str) -> str:
    """Mean error by number kept, as in figure 3."""
    found = found[found["task"] == task]
    kept = (1, 2, 3, 4, 5, 6, 7, 10, 15, 30, 50, 100)
    lines = ["| method | topics | kept: " + " | ".join(map(str, kept)) + " |", "|---|---|" + "---|" * len(kept)]
    for topics in sorted(found["topics"].unique()):
        for method in METHODS:
            rows = found[(found["method"] == method) & (found["topics"] == topics)]
            if len(rows):
                means = np.mean(rows["errors"].tolist(), axis=0)
                cells = [f"{means[k]:.4f}" if k <= topics else "" for k in kept]
                lines.append(f"| {method} | {topics} | {' | '.join(cells)} |")
    return "\n".join(lines)


def chosen_by_sstm(done, task, own, seed):
    """The prior of a row that shares it, None where there is none."""
    for (of_task, method, topics, of_seed), row in done.items():
        shared = own is None and topics not in ANEW[task]
        if (of_task, method, of_seed) == (task, "sstm", seed) and (topics == own or shared):
            return row["prior"]
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--task", default="bbc", choices=list(TOPICS))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--topics", default=None)
    parser.add_argument("--seeds", default="0,1,2,3,4")
    add_options(parser)
    arguments = parser.parse_args()
    task = arguments.task
    if arguments.files:
        found = frame(arguments.files)
        made = f"`python benchmarks/sparsity.py --task {task} --topics K --seeds S --into FILE`, a process a core, shown by "
        text = f"{made}{circumstances(__file__, PACKAGES)}\n\n{table(found, task)}\n\n{curve(found, task)}\n\n"
        text += "Mean ± standard deviation (number of seeds); each with the coefficients kept and an intercept."
        show(text, {"bbc": "Few topics for news", "ratings": "Few topics for ratings"}[task], arguments.write)
        return
    data = load(arguments.data, task)
    topics = TOPICS[task] if arguments.topics is None else tuple(map(int, arguments.topics.split(",")))
    results = Results(arguments.into, ("task", "method", "topics", "seed"))
    for seed in map(int, arguments.seeds.split(",")):
        for method in arguments.methods.split(","):
            chosen = {}  # by whether it is for a number of topics with priors of its own
            for number in topics if method != "dense" else [k for k in topics if k in DENSE_TOPICS[task]]:
                own = number if number in ANEW[task] else None
                if method == "dense":
                    chosen[own] = chosen_by_sstm(results.done(), task, own, seed)
                what = method, data, task, number, seed, chosen.get(own)
                row = results.part((task, method, number, seed), lambda what=what: part(*what))
                chosen[own] = tuple(row["prior"])


if __name__ == "__main__":
    main()
