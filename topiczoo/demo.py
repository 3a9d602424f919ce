"""The demonstration: supervised LDA on simulated restaurant reviews, from text to a judged prediction and a report."""

from __future__ import annotations

import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np

from .commands.printing import print_topics

# priors are the story's own; as many draws as make R-hat of usages and of the log joint density 1.01 or less
SETTINGS: dict[str, Any] = {"num_topics": 10, "num_warmup": 300, "num_samples": 4000, "thinning": 4, "num_chains": 4}


def parts(number: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The reviews that are fitted, and 200 that are not."""
    rows = np.random.default_rng(seed).permutation(number)
    return rows[200:], rows[:200]


def demo(out: str, seed: int = 0) -> int:
    """Fit, show the topics, predict unseen reviews beside two baselines, ask whether to trust it, save, report."""
    from sklearn.linear_model import RidgeCV

    from topiczoo import corpora, diagnostics, inference, models

    began = time.perf_counter()
    corpus, stars, aspects = corpora.load_reviews(seed=seed, return_aspects=True)
    print(f"{corpus!r}\n")
    print(f"  {stars[0]:.1f} stars: {aspects['text'].iloc[0]}\n")
    train, test = parts(len(corpus), seed)
    mean, scale = stars[train].mean(), stars[train].std()
    y = (stars - mean) / scale

    try:
        inference.compile_sweep()
    except RuntimeError as error:
        print(f"The sweep is XLA's own, at half the speed: {error}")
    print("Fitting models.slda by inference.gibbs, four chains:")
    fit = inference.gibbs(models.slda, corpus[train], y[train], seed=seed, **SETTINGS)
    if fit.info["interrupted"]:
        raise KeyboardInterrupt  # half a demonstration shows nothing
    for site, block in fit.info["blocks"].items():
        print(f"  {site:6s} by {block}")
    fit.info["standardised"] = float(mean), float(scale)  # the report shows stars
    fit = diagnostics.align(fit)
    print("\nTopics of the first chain, coefficient with 90% interval (standard units):")
    print_topics(fit)

    prediction = fit.predict(corpus[test], seed=seed)
    ridge = RidgeCV(np.logspace(-2, 4, 25)).fit(np.log1p(corpus[train].counts.toarray()), y[train])
    predicted = {
        "mean of the training reviews": np.zeros(len(test)),
        "ridge regression on log word counts": ridge.predict(np.log1p(corpus[test].counts.toarray())),
        "slda, averaged over the posterior": prediction.mean,
    }
    print(f"\nPredictive R^2 on {len(test)} unseen reviews:")
    for name, values in predicted.items():
        print(f"  {1 - np.sum((y[test] - values) ** 2) / np.sum((y[test] - y[test].mean()) ** 2):6.3f}  {name}")
    low, high = prediction.interval(0.9).T
    print(f"  {np.mean((low < y[test]) & (y[test] < high)):6.1%}  of them inside their 90% predictive interval")

    print("\nCan this posterior be trusted?")
    diagnosis = diagnostics.diagnose(fit, seed=seed)
    print(textwrap.indent(diagnosis.verdict, "  ") + "\n")
    page = diagnostics.report(diagnosis, Path(out).with_suffix(".html"), seed=seed)
    print(
        f"\nSaved to {fit.save(out)}; read it back with topiczoo.inference.load. {time.perf_counter() - began:.0f} s in all."
    )
    print(f"The report: {page.resolve()}")
    return 0
