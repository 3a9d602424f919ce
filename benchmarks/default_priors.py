"""Which alpha and gamma serve best where nobody has tuned them: held-out words of LDA, held-out responses of its kin.

    python benchmarks/default_priors.py --into FILE [--tasks words/bbc-news,slda/movie-reviews] [--seeds 0,1]
    python benchmarks/default_priors.py --from FILE --write

A task is a story and a corpus of ../shared/data. A seed draws documents to fit (some 250,000 tokens, at most 800 documents)
and half as many held out. Short fits: one chain of 60 and 40 sweeps, 20 topics. Words: perplexity by Chib's method at the
mean of topics and alpha. Numbers: predictive R^2. Classes: share of right predictions. Settings are alpha/gamma.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from measuring import Results, asked, circumstances, frame, show, table_of
from scipy import sparse

HERE = Path(__file__).resolve().parent
TITLE = "default priors"
PACKAGES = ("topiczoo", "jax", "numpyro")
TOPICS, TOKENS, DOCUMENTS = 20, 250_000, 800
SETTINGS = ("0.1/0.01", "0.1/0.05", "0.1/0.1", "0.1/learned", "learned/0.1", "learned/learned")
RESPONSES = {  # column of documents.csv
    "movie-reviews": "rating", "bbc-news": "category", "political-blogs": "rating", "geotext": "latitude",
}  # fmt: skip
TASKS = (
    *(f"words/{name}" for name in ("bbc-news", "movie-reviews", "political-blogs", "newsgroups20", "nips12", "geotext")),
    "slda/movie-reviews", "slda/geotext", "sstm/movie-reviews", "slda_glm/political-blogs", "slda_glm/bbc-news",
    "medlda/political-blogs", "medlda/bbc-news",
)  # fmt: skip


def load(folder, seed):
    """Documents to fit, documents held out, and their responses if there are any; terms that are fitted alone."""
    from topiczoo.corpora import Corpus

    counts = sparse.load_npz(folder / "counts.npz").tocsr()
    vocabulary = np.asarray((folder / "vocabulary.txt").read_text().split("\n")[: counts.shape[1]])
    lengths = np.asarray(counts.sum(1)).ravel()
    order = np.random.default_rng(seed).permutation(np.flatnonzero(lengths >= 10))
    number = int(min(DOCUMENTS, TOKENS / lengths[order].mean()))
    train, test = order[:number], order[number : number + number // 2]
    used = np.asarray((counts[train] > 0).sum(0)).ravel() > 1
    whole = Corpus.from_counts(counts[:, used], vocabulary[used], empty="keep")
    column = RESPONSES.get(folder.name)
    y = None if column is None else pd.read_csv(folder / "documents.csv")[column].to_numpy()
    return whole, train, test, y


def part(task, setting, seed, data):
    from topiczoo import inference, models
    from topiczoo.diagnostics.scoring.evidence import chib

    kind, name = task.split("/")
    whole, train, test, y = load(Path(data) / name, seed)
    alpha, gamma = (part if part == "learned" else float(part) for part in setting.split("/"))
    run = {"num_warmup": 60, "num_samples": 40, "num_chains": 1, "seed": seed, "progress_bar": False}
    run |= {"num_topics": TOPICS, "alpha": alpha, "gamma": gamma}
    if kind == "words":
        fit = inference.gibbs(models.lda, whole[train], **run)
        beta = np.asarray(fit.mean("beta"), float)
        alpha = fit.mean("alpha") if alpha == "learned" else alpha
        held = whole[test]
        found = chib(beta / beta.sum(1, keepdims=True), alpha, held, num_sweeps=10, num_burn=15, repeats=1, seed=1)
        score = float(np.exp(-found.log_likelihood.sum() / held.lengths.sum()))
    elif y.dtype.kind == "f" and len(np.unique(y)) > 4:
        y = (y - y[train].mean()) / y[train].std()
        fit = inference.gibbs(getattr(models, kind), whole[train], y[train], **run)
        mean = fit.predict(whole[test]).mean
        score = float(1 - np.mean((y[test] - mean) ** 2) / np.mean((y[test] - y[train].mean()) ** 2))
    else:
        classes, y = np.unique(y, return_inverse=True)
        run |= {"outputs": len(classes)}
        run |= {"response": "softmax", "scale": 6.0} if kind == "slda_glm" else {}
        fit = inference.gibbs(getattr(models, kind), whole[train], y[train], **run)
        score = float(np.mean(fit.predict(whole[test]).code == y[test]))
    means = {site: float(np.mean(fit.draws[site])) for site in ("alpha", "gamma") if site in fit.sites}
    return {"score": score, "documents": len(train), "tokens": int(whole[train].num_tokens), **means}


def table(rows):
    lines = []
    for task in rows["task"].unique():
        own = rows[rows["task"] == task]
        form = ".1f" if task.startswith("words") else ".3f"
        cells = [own[own["setting"] == setting]["score"].mean() for setting in SETTINGS]
        lines.append((task, [f"{cell:{form}}" if np.isfinite(cell) else "" for cell in cells]))
    return table_of("task, alpha/gamma", SETTINGS, lines)


def main():
    options = asked(__doc__, tasks=TASKS, settings=SETTINGS, seeds=(0,), data=str(HERE.parent.parent / "shared/data"))
    if options.files:
        rows = frame(options.files)
        text = f"`python benchmarks/default_priors.py --into FILE`, shown by {circumstances(__file__, PACKAGES)}\n\n"
        text += (
            f"{table(rows)}\n\nMeans over {rows['seed'].nunique()} draws of documents. words: perplexity of LDA, lower "
        )
        text += "is better; the others predictive R^2 or the share of right classes, higher is better."
        show(text, TITLE, options.write)
        return
    results = Results(options.into, ("task", "setting", "seed"))
    for seed in options.seeds:
        for task in options.tasks:
            for setting in options.settings:
                results.part((task, setting, seed), partial(part, task, setting, seed, options.data))


if __name__ == "__main__":
    main()
