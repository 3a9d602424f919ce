"""What additive components cost: seconds of a fit over the number of terms, and memory of many topics with interactions.

    python benchmarks/additive_speed.py --into FILE                    # parts in FILE are not run again
    python benchmarks/additive_speed.py --from FILE [FILE ...] --write

classes: naive Bayes of 20 classes on 4000 simulated documents of 150 words over 5,000 to 60,000 terms, 100 Newton steps, the
second fit of a process (the first compiles). facets: 100 topics, 2 labels and their interactions over 60,000 terms, 1000
documents, two iterations; the most memory that the process has held, each part in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
from measuring import Results, add_options, circumstances, frame, run_part, show, table_of

PACKAGES = ("topiczoo", "jax", "numpyro")
TERMS = (5_000, 10_000, 20_000, 40_000, 60_000)
LENGTH = 150


def simulated(num_documents, num_terms, num_labels, seed=0):
    """Documents of words by rank, a power law, each label with some terms of its own."""
    from scipy import sparse

    from topiczoo import corpora

    rng = np.random.default_rng(seed)
    share = 1 / (10 + np.arange(num_terms))
    y = rng.integers(0, num_labels, num_documents)
    term = rng.choice(num_terms, (num_documents, LENGTH), p=share / share.sum())
    own = rng.random((num_documents, LENGTH)) < 0.2
    term = np.where(own, (term * num_labels + y[:, None]) % num_terms, term)
    document = np.repeat(np.arange(num_documents), LENGTH)
    shape = num_documents, num_terms
    counts = sparse.csr_matrix((np.ones(document.size, int), (document, term.ravel())), shape)
    return corpora.Corpus.from_counts(counts), y


def classes(num_terms):
    from topiczoo import inference, models

    corpus, y = simulated(4000, num_terms, 20)
    story = {"background": models.background(corpus), "outputs": 20, "progress_bar": False, "num_iterations": 1}
    for _ in range(2):
        began = time.perf_counter()
        fit = inference.vem(models.sage_nb, corpus, y, **story)
        took = time.perf_counter() - began
    return {"took": took, "in EM": fit.info["seconds"], "zeros": models.share_of_zeros(fit.means["deviation"])}


def facets(num_terms):
    from topiczoo import inference, models

    corpus, y = simulated(1000, num_terms, 2)
    story = {"background": models.background(corpus), "outputs": 2, "num_topics": 100, "num_draws": 1}
    began = time.perf_counter()
    fit = inference.vem(models.sage_facets, corpus, y, num_iterations=2, progress_bar=False, **story)
    took = time.perf_counter() - began
    with tempfile.TemporaryDirectory() as folder:
        saved = fit.save(Path(folder) / "fit.nc").stat().st_size
    return {
        "took": took, "megabytes saved": saved / 2**20, "in EM": fit.info["seconds"],
        "zeros": models.share_of_zeros(fit.means["joint_deviation"]),
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }  # fmt: skip


def table(found):
    def shown(value, form):
        return f"{value:{form}}" if value > 0 else ""

    rows = []
    for _, row in found.sort_values(["method", "terms"]).iterrows():
        told = {
            "seconds": shown(row["took"], ".2f"), "in EM": shown(row["in EM"], ".2f"),
            "microseconds in EM a term": shown(1e6 * row["in EM"] / row["terms"], ".0f"),
            "zeros": shown(row["zeros"], ".3f"), "gigabytes at most": shown(row["gigabytes"], ".1f"),
            "megabytes saved": shown(row["megabytes saved"], ".1f"),
        }  # fmt: skip
        rows.append((f"{row['method']}, {row['terms']} terms", list(told.values())))
    return table_of("fit", list(told), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("classes", "facets"), help="run one, in this process")
    parser.add_argument("--terms", type=int, default=TERMS[-1])
    add_options(parser)
    arguments = parser.parse_args()
    if arguments.part:
        print(json.dumps({"classes": classes, "facets": facets}[arguments.part](arguments.terms)))
        return
    if arguments.files:
        text = f"`python benchmarks/additive_speed.py --into FILE`, shown by {circumstances(__file__, PACKAGES)}"
        show(f"{text}\n\n{table(frame(arguments.files))}", "What additive components cost", arguments.write)
        return
    results = Results(arguments.into, ("method", "terms"))
    for place in [*(("classes", terms) for terms in TERMS), ("facets", TERMS[-1])]:
        results.part(place, lambda p=place: run_part(__file__, p[0], terms=p[1]))


if __name__ == "__main__":
    main()
