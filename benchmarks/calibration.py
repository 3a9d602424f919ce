"""What simulation-based calibration and Geweke's test say of every story and engine, as figures and a page.

    python benchmarks/calibration.py                 # writes benchmarks/calibration.md and benchmarks/figures/*.png
    python benchmarks/calibration.py --only poisson  # those whose name has it, put into the page

Exact engines must pass. What the approximate ones do is shown as it is.
"""

from __future__ import annotations

import argparse
import datetime
import inspect
import time
from pathlib import Path

import matplotlib
import numpy as np
from measuring import circumstances

from topiczoo import models
from topiczoo.corpora import Corpus
from topiczoo.diagnostics import calibrate, geweke
from topiczoo.inference import vem
from topiczoo.models.examples import EXAMPLES

HERE = Path(__file__).parent
ROWS = np.arange(6)
SHAPE = Corpus.from_counts(
    np.random.default_rng(0).poisson(1.2, (6, 5)) + np.eye(6, 5, dtype=int),
    covariates={"age": (ROWS - 2.5) / 2, "side": ROWS % 2, "first": ROWS % 3 > 0, "second": ROWS % 3 < 2},
)
SENTENCES = SHAPE.with_sentences(SHAPE.tokens()[1], np.concatenate([np.arange(n) // 2 for n in SHAPE.lengths]))
FLAT = {"num_topics": 2, "alpha": 1.0, "gamma": 1.0}
BACKGROUND = np.full(5, -np.log(5), np.float32)
SEEDS = np.eye(2, 5, dtype=bool) | np.eye(2, 5, 2, dtype=bool)
OF_WORDS = {  # stories without a response
    "ctm": {},
    "stm": {"prevalence": ["age"]},
    "dmr": {"prevalence": ["age"]},
    "stm_content": {"background": BACKGROUND, "content": "side", "levels": 2},
    "dtm": {"background": BACKGROUND, "period": "side", "periods": 2},
    "seeded_lda": {"seeds": SEEDS, "weight": 2.0},
    "keyatm": {"seeds": SEEDS, "gamma_seeds": 1.0},
    "labelled_lda": {"labels": ["first", "second"], "shared": 1, "leak": 0.2},
    "hdp": {"num_topics": 3},
    "htmm": {},
    "dp_mixture": {"num_topics": 3},
    "polylingual_lda": {"views": np.arange(5) % 2},
}
EXACT = [
    ("mixture", "gibbs", {}),
    ("lda", "gibbs", {}),
    ("lda", "gibbs", {"collapse": "topics"}),
    ("slda", "gibbs", {}),
    ("slda", "gibbs", {"collapse": "topics"}),
    ("slda_glm", "gibbs", {"response": "logit"}),
    ("slda_glm", "gibbs", {"response": "probit"}),
    ("slda_glm", "gibbs", {"response": "poisson"}),
    ("sstm", "gibbs", {}),
    ("sstm", "gibbs", {"response": "probit", "sigma": 0.5}),
    ("mixture", "nuts", {}),
    ("lda", "nuts", {}),
    ("htmm", "gibbs", {"response": "normal"}),
    ("slda_raters", "gibbs", {"raters": 2, "num_classes": 3}),
    ("sage_nb", "gibbs", {"background": BACKGROUND, "scale": 1.0, "outputs": 2}),
    ("sage_topics", "gibbs", {"background": BACKGROUND, "prior": "laplace", "scale": 1.0}),
    ("sage_facets", "gibbs", {"background": BACKGROUND, "prior": "laplace", "scale": 1.0, "outputs": 2}),
    *((story, engine, options) for engine in ("gibbs", "nuts") for story, options in OF_WORDS.items()),
]
# every so many draws one counts, so that they are nearly independent; 10 elsewhere
THINNING = {"hdp": 100, "sstm": 60, "dmr": 30, "ctm": 20, "stm": 20, "stm_content": 20, "dtm": 20}
APPROXIMATE = [
    ("slda", "nuts", {}),
    ("mixture", "svi", {}),
    ("lda", "svi", {}),
    ("slda", "svi", {}),
    ("lda", vem, {}),
    ("slda", vem, {}),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=400)
    parser.add_argument("--vem-simulations", type=int, default=100)
    parser.add_argument("--only", help="a part of a name, e.g. poisson: other sections of the page stay")
    parser.add_argument("--ranks-alone", action="store_true", help="with --only: no Geweke's test")
    arguments = parser.parse_args()
    matplotlib.use("agg")
    (HERE / "figures").mkdir(exist_ok=True)
    if arguments.only:
        for case in EXACT:
            if arguments.only in label_of(*case):
                lines = show(*case, arguments.simulations, with_geweke=not arguments.ranks_alone)
                print("\n".join(lines), flush=True)
                put(label_of(*case), lines)
        return
    lines = [
        "# Calibration",
        "",
        circumstances(__file__, ("jax", "numpyro")) + f" {datetime.date.today()}.",
        "",
        f"Corpora of {len(SHAPE)} documents with {SHAPE.lengths.min()} to {SHAPE.lengths.max()} words over "
        f"{SHAPE.num_terms} terms, two topics, flat Dirichlet priors. Each column of a figure is a quantity that does not "
        "depend on the numbering of topics: its ranks among 63 posterior draws (uniform if the engine is right), and the "
        "ECDF of ranks minus the diagonal with a band that holds 99% of uniform ones. Red: outside.",
        "",
        "## Engines that claim to be exact",
        "",
    ]
    for case in EXACT:
        lines += show(*case, arguments.simulations, with_geweke=True)
        print("\n".join(lines[-12:]), flush=True)
    lines += [
        "## Engines that approximate",
        "",
        "`nuts` with a response averages its density over nine sigma points. `svi` and `vem` take the posterior apart into "
        "independent pieces, and `vem` gives coefficients and noise as points: their intervals are too narrow (ranks pile "
        "up at both ends; spread above 1), which is what these figures are for.",
        "",
    ]
    for story, engine, options in APPROXIMATE:
        number = arguments.vem_simulations if callable(engine) else arguments.simulations
        lines += show(story, engine, options, number, with_geweke=False)
        print("\n".join(lines[-12:]), flush=True)
    (HERE / "calibration.md").write_text("\n".join(lines) + "\n")


def label_of(story: str, engine, options: dict) -> str:
    label = f"{story} by {getattr(engine, '__name__', engine)}"
    label += f", {options['collapse']} collapsed" if "collapse" in options else ""
    return label + (f", {options['response']}" if "response" in options else "")


def put(label: str, section: list[str]) -> None:
    """A section into the page, in the place of the old one or behind the last of the exact engines."""
    page = HERE / "calibration.md"
    approximate = "## Engines that approximate"
    first, second = page.read_text().split(approximate)
    stale = f"### {label}: "
    kept = [part for part in ("\n" + first).split("\n### ") if not f"### {part}".startswith(stale)]
    page.write_text(
        "\n### ".join(kept).lstrip("\n").rstrip("\n") + "\n\n" + "\n".join(section) + "\n" + approximate + second
    )


def show(story: str, engine, options: dict, number: int, *, with_geweke: bool) -> list[str]:
    """The section of one story and engine; its figure is written beside."""
    label = label_of(story, engine, options)
    function = getattr(models, story)
    takes = inspect.signature(function).parameters
    options = {**{name: value for name, value in FLAT.items() if name in takes}, **options}
    began, shape = time.perf_counter(), SENTENCES if EXAMPLES[story].sentences else SHAPE
    found = calibrate(
        function, shape, engine, num_simulations=number, thinning=THINNING.get(story, 10), progress_bar=False, **options
    )
    seconds = time.perf_counter() - began
    figure = HERE / "figures" / (label.replace(",", "").replace(" ", "_") + ".png")
    found.plot().savefig(figure, dpi=70)
    matplotlib.pyplot.close("all")
    lines = [
        f"### {label}: {'passes' if found.passes else 'fails'}",
        "",
        f"{number} simulations, {seconds:.0f} s, {datetime.date.today()}.",
        "",
        f"![ranks of {label}](figures/{figure.name})",
        "",
        table(found.table),
        "",
    ]
    if with_geweke:
        tested = geweke(function, shape, engine, progress_bar=False, num_chains=1000, **options)
        verdict = "passes" if tested["passes"].all() else "fails"
        lines += [f"Geweke's joint test, 1000 chains of 50 steps, {verdict}:", "", table(tested), ""]
    return lines


def table(frame) -> str:
    """A markdown table."""
    rows = [["quantity", *frame.columns], ["---"] * (1 + frame.shape[1])]
    rows += [
        [name, *(f"{v:.3g}" if isinstance(v, float) else str(v) for v in row)]
        for name, row in zip(frame.index, frame.values, strict=True)
    ]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


if __name__ == "__main__":
    main()
