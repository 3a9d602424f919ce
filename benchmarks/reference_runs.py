"""Draws of label-invariant quantities of posteriordb's LDA posteriors: summation, tempering, tomotopy, and the engines."""

from __future__ import annotations

import json
import os
import zipfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from exact_lda import Exact
from label_invariants import exact_means, invariants
from tempering import Ladder, Words, placed

from topiczoo import inference
from topiczoo.corpora import Corpus

# which data belong to which posterior, the number of topics, and lda.stan's alpha and beta
POSTERIORS = {
    "three_docs1200-ldaK2": (2, 1.0), "three_men1-ldaK2": (2, 1.0), "three_men2-ldaK2": (2, 1.0),
    "three_men3-ldaK2": (2, 1.0), "prideprejudice_chapter-ldaK5": (5, 0.1), "prideprejudice_paragraph-ldaK5": (5, 0.1),
}  # fmt: skip


class Run(NamedTuple):
    """Draws [chain, draw, quantity] of one method, and what it says of itself."""

    draws: np.ndarray
    told: dict[str, Any]


def load(folder: Path, posterior: str) -> Words:
    """The corpus of a posterior, from posteriordb's file of its data."""
    num_topics, prior = POSTERIORS[posterior]
    path = folder / f"{posterior.rsplit('-', 1)[0]}.json.zip"
    with zipfile.ZipFile(path) as archive:
        data = json.loads(archive.read(archive.namelist()[0]))
    flat = (np.array(data["doc"]) - 1) * data["V"] + np.array(data["w"]) - 1
    pairs, number = np.unique(flat, return_counts=True)
    return Words(pairs // data["V"], pairs % data["V"], number, data["M"], data["V"], num_topics, prior, prior)


def corpus_of(words: Words) -> Corpus:
    """The same corpus for the engines."""
    counts = np.zeros((words.num_documents, words.num_terms), int)
    counts[words.document, words.term] = words.number
    return Corpus.from_counts(counts)


def by_summation(words: Words, *, seed: int, draws: int) -> Run:
    """Independent draws, and means without error of all quantities that have a closed form given the counts."""
    exact, (_, values) = Exact(words), invariants(words)
    found = np.array([values(*draw) for draw in exact.draws(draws, seed)])
    told = {"log_evidence": exact.log_evidence, "exact_means": exact.means(exact_means(words))}
    return Run(found.reshape(10, -1, found.shape[1]), told)


def by_tempering(
    words: Words, *, seed: int, temperatures: int, tuning: list[int], ladders: int, draws: int, thinning: int
) -> Run:
    """The coldest draws of several ladders, each from topics by chance."""
    values, found = invariants(words)[1], []
    told: dict[str, Any] = {"arrivals_from_the_hot_end": [], "barrier": [], "log_evidence": [], "log_joint": []}
    taus = np.linspace(0, 1, temperatures) ** 0.5
    for number in range(ladders):
        ladder = Ladder(words, taus, np.random.default_rng([seed, number]))
        for sweeps in tuning:
            for _ in range(sweeps):
                ladder.sweep()
            taus = placed(ladder.taus, ladder.rejected / ladder.sweeps, temperatures)
            ladder.place(taus)
        kept, joints = [], []
        for _ in range(draws // ladders):
            for _ in range(thinning):
                ladder.sweep()
            kept.append(values(*ladder.coldest()))
            joints.append(ladder.log_joint)
        found.append(kept)
        told["arrivals_from_the_hot_end"].append(ladder.arrivals)
        told["barrier"].append(round(float((ladder.rejected / ladder.sweeps).sum()), 2))
        told["log_evidence"].append(round(ladder.log_evidence, 2))
        told["log_joint"].append(round(float(np.mean(joints)), 2))
    return Run(np.array(found), told)


def by_engine(
    words: Words, *, engine: str, seed: int, chains: int, draws: int, thinning: int = 1, starts: int = 1, **options: Any
) -> Run:
    """Draws of one of the package's engines. With ``starts``, each chain is the best of so many.

    The best is the one with the highest log-likelihood, in the mean over the first tenth of its draws, which are left out.
    """
    values, each = invariants(words)[1], draws // chains
    first = each // 10 if starts > 1 else 0
    arguments = {"num_topics": words.num_topics, "alpha": words.alpha, "gamma": words.gamma, "seed": seed, **options}
    if engine in ("gibbs", "nuts"):
        arguments |= {"num_chains": chains * starts, "num_samples": (each + first) * thinning, "thinning": thinning}
    else:
        arguments["num_draws"] = draws
    if engine == "gibbs":
        arguments["keep"] = ["theta", "beta"]
    fit = getattr(inference, engine)("lda", corpus_of(words), progress_bar=False, **arguments)
    found = np.array([
        [values(theta, phi) for theta, phi in zip(*parts, strict=True)]
        for parts in zip(fit.draws["theta"].astype(float), fit.draws["beta"].astype(float), strict=True)
    ])  # fmt: skip
    groups = found.reshape(-1, starts, *found.shape[1:])
    heights = groups[:, :, : max(first, 1), 0].mean(2)
    best = heights.argmax(1)
    told = {"log_likelihood_of_starts": np.round(heights, 1).tolist()} if starts > 1 else {}
    return Run(groups[np.arange(len(groups)), best, first:], told)


def by_tomotopy(words: Words, *, seed: int, chains: int, draws: int, thinning: int, num_warmup: int) -> Run:
    """Draws of tomotopy's collapsed sampler, token after token, from topics by chance; theta and phi given the topics."""
    each = [(words, seed + number, draws // chains, thinning, num_warmup) for number in range(chains)]
    with ProcessPoolExecutor() as processes:
        return Run(np.array(list(processes.map(_chain_of_tomotopy, *zip(*each, strict=True)))), {})


def _chain_of_tomotopy(words: Words, seed: int, draws: int, thinning: int, num_warmup: int) -> np.ndarray:
    import tomotopy  # a peer: where it is not asked for it need not be installed

    values, rng = invariants(words)[1], np.random.default_rng(seed)
    model = tomotopy.LDAModel(k=words.num_topics, alpha=words.alpha, eta=words.gamma, seed=seed)
    model.optim_interval = 0  # alpha stays
    for d in range(words.num_documents):
        own = np.flatnonzero(words.document == d)
        model.add_doc([str(v) for v in np.repeat(words.term[own], words.number[own])])
    model.train(0)
    term = np.array([int(name) for name in model.used_vocabs])  # it has numbers of its own
    document = np.repeat(np.arange(words.num_documents), [len(doc.words) for doc in model.docs])
    word = term[np.concatenate([np.array(doc.words) for doc in model.docs])]
    found = []
    for sweeps in [num_warmup + thinning, *[thinning] * (draws - 1)]:
        model.train(sweeps, workers=1, parallel=tomotopy.ParallelScheme.NONE, show_progress=False)
        topic = np.concatenate([np.array(doc.topics) for doc in model.docs])
        in_document = np.full((words.num_documents, words.num_topics), words.alpha)
        in_topic = np.full((words.num_topics, words.num_terms), words.gamma)
        np.add.at(in_document, (document, topic), 1)
        np.add.at(in_topic, (topic, word), 1)
        theta, phi = (part / part.sum(1, keepdims=True) for part in map(rng.standard_gamma, (in_document, in_topic)))
        found.append(values(theta, phi))
    assert len(word) == words.number.sum() and np.allclose(model.alpha, words.alpha)
    return np.array(found)


METHODS = {"summation": by_summation, "tempering": by_tempering, "tomotopy": by_tomotopy, "engine": by_engine}


def kept(into: Path | None, posterior: str, method: str, words: Words, settings: dict[str, Any]) -> Run:
    """A run as a file has it, if it was made with the same settings; else made, timed and kept."""
    path = into and into / f"{posterior}.{settings.get('engine', method)}.npz"
    if path and path.exists():
        with np.load(path) as file:
            run = Run(file["draws"], json.loads(str(file["told"])))
        if run.told["settings"] == settings:
            return run
    began = sum(os.times()[:4])
    run = METHODS[method](words, **settings)
    run.told.update(method=method, settings=settings, cpu_seconds=round(sum(os.times()[:4]) - began))
    if path:
        into.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path, draws=run.draws, told=json.dumps(run.told))
    return run
