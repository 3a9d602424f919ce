"""Held-out perplexity of LDA beside scikit-learn's and tomotopy's fits, all scored by the same two estimators.

    .venv/bin/python benchmarks/held_out.py --write        # expects the corpus in ../shared/data/nips12
    .venv/bin/python benchmarks/held_out.py --data FOLDER --topics 10 20

A fifth of the documents is held out. Each package fits the rest with its own default priors, topiczoo with learned ones as
well; its topics and alpha are then scored on the held-out documents by left-to-right particles and by Chib's method
(topiczoo.diagnostics.evidence), with Monte Carlo errors from repeats. topiczoo's fit is scored twice: by its mean topics and
mean alpha, one set as the others have, and averaged over posterior draws, which is what diagnostics.perplexity reports.
Every fit runs in a process of its own. With --write the table replaces this benchmark's section of benchmarks/results.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
from measuring import circumstances, run_part, write_section
from scipy import sparse

HERE = Path(__file__).resolve().parent
TITLE = "held-out perplexity"
LEFT_TO_RIGHT = {"particles": 10, "resample_tokens": 5}
CHIB = {"num_sweeps": 10, "num_burn": 15}
REPEATS, DRAWS = 2, 4
FITS = ("topiczoo", "learned", "alpha", "sklearn", "tomotopy")


def load(folder):
    """The training and held-out fifth of a corpus; terms that training never uses are left out for everyone."""
    from topiczoo.corpora import Corpus

    counts = sparse.load_npz(Path(folder) / "counts.npz").tocsr()
    vocabulary = np.asarray((Path(folder) / "vocabulary.txt").read_text().split("\n")[: counts.shape[1]])
    order = np.random.default_rng(0).permutation(counts.shape[0])
    test, train = np.split(order, [counts.shape[0] // 5])
    used = np.asarray(counts[train].sum(0)).ravel() > 0
    whole = Corpus.from_counts(counts[:, used], vocabulary[used], empty="keep")
    return whole[train], whole[test]


def score(beta, alpha, test):
    """Perplexity and its error by both estimators."""
    from topiczoo.diagnostics.scoring.evidence import chib, left_to_right
    from topiczoo.diagnostics.scoring.held_out import HeldOut

    out = {}
    for method, settings in ((left_to_right, LEFT_TO_RIGHT), (chib, CHIB)):
        found = method(beta, alpha, test, repeats=REPEATS, seed=1, **settings)
        held_out = HeldOut(method.__name__, test.names, test.lengths, found.repeats[None])
        out[method.__name__] = held_out.perplexity, held_out.perplexity_error
    return out


def part_topiczoo(train, test, topics, sweeps, label="topiczoo gibbs", **priors):
    from topiczoo import inference, models
    from topiczoo.diagnostics.scoring.held_out import perplexity

    began = time.perf_counter()
    fit = inference.gibbs(
        models.lda, train, num_topics=topics, num_warmup=sweeps, num_samples=sweeps // 2, thinning=sweeps // 20,
        num_chains=1, seed=0, progress_bar=False, **priors,
    )  # fmt: skip
    seconds = time.perf_counter() - began
    beta = fit.mean("beta")
    averaged = {}
    for method, settings in (("left_to_right", LEFT_TO_RIGHT), ("chib", CHIB)):
        found = perplexity(fit, test, method, most_draws=DRAWS, seed=1, **settings)
        averaged[method] = found.perplexity, found.perplexity_error
    alpha = fit.mean("alpha") if "alpha" in fit.sites else fit.story.defaults["alpha"]
    means = {"alpha": float(np.mean(alpha)), "gamma": float(fit.mean("gamma"))} if "gamma" in fit.sites else {}
    return {
        f"{label}, {DRAWS} draws": {"seconds": seconds, **averaged},
        f"{label}, mean topics": {"seconds": seconds, **score(beta / beta.sum(1, keepdims=True), alpha, test), **means},
    }


def part_learned(train, test, topics, sweeps):
    return part_topiczoo(train, test, topics, sweeps, "topiczoo gibbs, learned", alpha="learned", gamma="learned")


def part_alpha(train, test, topics, sweeps):
    """Topics smoother than the training part asks for: its gamma falls with K, and held-out documents have other terms."""
    label = "topiczoo gibbs, learned alpha, gamma 0.1"
    return part_topiczoo(train, test, topics, sweeps, label, alpha="learned", gamma=0.1)


def part_sklearn(train, test, topics, sweeps):
    from sklearn.decomposition import LatentDirichletAllocation

    began = time.perf_counter()
    model = LatentDirichletAllocation(topics, learning_method="online", random_state=0, n_jobs=1).fit(train.counts)
    seconds = time.perf_counter() - began
    beta = model.components_ / model.components_.sum(1, keepdims=True)
    return {"scikit-learn, online": {"seconds": seconds, **score(beta, 1 / topics, test)}}


def part_tomotopy(train, test, topics, sweeps):
    import tomotopy

    began = time.perf_counter()
    model = tomotopy.LDAModel(k=topics, seed=1)
    _, term = train.tokens()
    for words in np.split(train.vocabulary[term], np.cumsum(train.lengths)[:-1]):
        model.add_doc(list(words))
    model.train(sweeps + sweeps // 2, workers=2)
    seconds = time.perf_counter() - began
    column = {word: i for i, word in enumerate(model.used_vocabs)}
    beta = np.stack([model.get_topic_word_dist(k) for k in range(topics)])
    beta = beta[:, [column[word] for word in train.vocabulary]]
    return {"tomotopy": {"seconds": seconds, **score(beta / beta.sum(1, keepdims=True), model.alpha, test)}}


def table(results):
    lines = ["| K | fit | left-to-right | Chib | seconds to fit |", "|---|---|---|---|---|"]
    for topics, fits in results.items():
        for name, row in fits.items():
            shown = [f"{row[m][0]:.1f} ± {row[m][1]:.1f}" for m in ("left_to_right", "chib")]
            lines.append(f"| {topics} | {name} | {shown[0]} | {shown[1]} | {row['seconds']:.0f} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=str(HERE.parent.parent / "shared/data/nips12"))
    parser.add_argument("--topics", type=int, nargs="+", default=[10, 20, 50])
    parser.add_argument("--sweeps", type=int, default=200, help="warm-up sweeps; half as many follow")
    parser.add_argument("--fits", nargs="+", default=list(FITS), choices=FITS, help="which fits to make")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/results.md")
    options = parser.parse_args()
    if not Path(options.data, "counts.npz").is_file():
        sys.exit(f"{options.data!r} holds no counts.npz; give the corpus' folder with --data.")
    if options.part:
        train, test = load(options.data)
        print(json.dumps(globals()[f"part_{options.part}"](train, test, options.topics[0], options.sweeps)))
        return
    results = {}
    for topics in options.topics:
        results[topics] = {}
        for name in options.fits:
            found = run_part(__file__, name, data=options.data, sweeps=options.sweeps, topics=topics)
            results[topics] |= found
            print(topics, found, flush=True)
    text = table(results)
    print(text)
    if options.write:
        train, test = load(options.data)
        packages = ("topiczoo", "jax", "numpyro", "scikit-learn", "tomotopy")
        about = (
            f"{circumstances(__file__, packages)}\n\n"
            f"{Path(options.data).name}: {len(train)} documents to fit, {len(test)} held out ({test.num_tokens} tokens, "
            f"{test.num_terms} terms). Perplexity a word, lower is better, ± Monte Carlo error. Default priors: "
            "topiczoo alpha 0.1, gamma 0.01, or learned; scikit-learn 1/K and 1/K, online, 10 passes; tomotopy alpha "
            f"from 0.1 optimised, eta 0.01. Sweeps: topiczoo {options.sweeps} and {options.sweeps // 2} with every "
            f"{options.sweeps // 20}th kept, tomotopy {options.sweeps + options.sweeps // 2}. Left-to-right: "
            f"{_shown(LEFT_TO_RIGHT)}; Chib: {_shown(CHIB)}; {REPEATS} repeats, or {DRAWS} posterior draws."
        )
        write_section(TITLE, f"{about}\n\n{text}")


def _shown(settings):
    return ", ".join(f"{value} {name.replace('_', ' ').removeprefix('num ')}" for name, value in settings.items())


if __name__ == "__main__":
    main()
