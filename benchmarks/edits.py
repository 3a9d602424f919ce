"""Stories as users edit them: what is drawn how, whether it is right, whether it predicts, and which engines serve it.

    python benchmarks/edits.py --into FILE [--stories walk,trials] [--engines gibbs,svi,vem]
    python benchmarks/edits.py --from FILE --write

Each story of edited_stories.py is drawn from its own priors on 150 documents of 20 to 60 words, fitted to 110 of them and
asked for the responses of the others: gibbs, two chains of 400 + 400; svi and vem with their defaults. Printed: blocks of
gibbs beside those of topics and words, whether every conditional passes the ratio test (inference.check, eight documents),
whether a report could be written, and for each engine the correlation of predictions with the responses, the largest there
can be being that of the true parameters; or the site that an engine cannot serve. No engine knows any of these stories.
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

import edited_stories
import numpy as np
from measuring import of_every, table_of

TITLE = "stories as users edit them"
PACKAGES = ("topiczoo", "jax", "numpyro")
DOCUMENTS, FITTED, TERMS = 150, 110, 60
ENGINES = ("gibbs", "svi", "vem")
RUN = {"gibbs": {"num_warmup": 400, "num_samples": 400, "num_chains": 2}, "svi": {}, "vem": {}}
NAMES = tuple(story.__name__ for story in edited_stories.STORIES)


def documents():
    from topiczoo.corpora import Corpus

    rng = np.random.default_rng(3)
    counts = np.stack([rng.multinomial(n, np.full(TERMS, 1 / TERMS)) for n in rng.integers(20, 60, DOCUMENTS)])
    covariates = {"x": rng.normal(size=DOCUMENTS), "group": rng.integers(0, 5, DOCUMENTS)}
    return Corpus.from_counts(counts, covariates=covariates)


def part(name, engine):
    from topiczoo import diagnostics, inference

    story = getattr(edited_stories, name)
    corpus, y = inference.simulate(story, documents(), seed=1)
    row = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            fit = getattr(inference, engine)(story, corpus[:FITTED], y[:FITTED], progress_bar=False, **RUN[engine])
        except ValueError as refused:
            return {"refused": str(refused)}
        found = fit.predict(corpus[FITTED:])
        row["correlation"] = float(np.corrcoef(np.ravel(found.mean), np.ravel(y[FITTED:]))[0, 1])
        if engine == "gibbs":
            # responses of the first eight documents have to be possible in themselves: no class without a document
            rows = (
                np.concatenate([np.unique(y, return_index=True)[1][:5], np.arange(8)]) if y.ndim == 1 else np.arange(8)
            )
            row["passes"] = bool(inference.check(story, corpus[rows], y[rows])["passes"].all())
            row["blocks"] = fit.info["blocks"]
            with tempfile.TemporaryDirectory() as folder:
                page = diagnostics.report(fit, Path(folder) / "report.html", progress_bar=False)
                row["report"] = page.stat().st_size
    return row


def table(rows):
    lines = []
    for name, own in rows.groupby("story", sort=False):
        of = {row["engine"]: row for row in own.to_dict("records")}
        gibbs = of["gibbs"]
        usual = ("beta", "theta", "z")
        blocks = "; ".join(f"{site}: {block}" for site, block in gibbs["blocks"].items() if site not in usual)
        cells = [blocks, "yes" if gibbs["passes"] else "**no**", "yes" if gibbs["report"] > 10_000 else "**no**"]
        for engine in ENGINES:
            told = of.get(engine, {})
            refused = isinstance(told.get("refused"), str)
            cells.append("refused" if refused else f"{told['correlation']:.2f}" if told else "–")
        lines.append((name, cells))
    heads = ("blocks of gibbs beside topics and words", "check", "report", *(f"r, {engine}" for engine in ENGINES))
    return table_of("story", heads, lines)


if __name__ == "__main__":
    of_every(("story", "engine"), part, table, __doc__, __file__, PACKAGES, TITLE, stories=NAMES, engines=ENGINES)
