"""The command line: ``topiczoo demo | models | fit | predict | report | check``.

Exit status: 0 fine, 1 a check failed, 2 bad input, 130 interrupted; the last two say why in one sentence.
"""

from __future__ import annotations

import argparse
import inspect
import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import __version__
from .arguments import check_output, find_story, read_settings
from .printing import print_classes, print_topics

MISTAKES = (ValueError, TypeError, KeyError, FloatingPointError, OSError, ImportError)


def main(arguments: list[str] | None = None) -> int:
    """Run a command; what is wrong with its input, and what an interruption left, is said in one sentence."""
    options = _parser().parse_args(arguments)
    options.kept = None  # what there is of the result should the command be interrupted
    try:
        return options.run(options)
    except KeyboardInterrupt:
        sentence = options.kept or "nothing was kept; give the command again to start over."
        print(f"topiczoo {options.command}: interrupted; {sentence}", file=sys.stderr)
        return 130
    except MISTAKES as error:
        print(f"topiczoo {options.command}: {_sentence(error)}", file=sys.stderr)
        return 2


def _sentence(error: Exception) -> str:
    """What an error says, in one line; Python puts a KeyError's into quotes."""
    said = str(error)
    if isinstance(error, KeyError):
        bare = str(error.args[0]) if error.args else ""
        said = bare if " " in bare else f"{said} is asked for and is not there; look how it is spelt."
    return " ".join(said.split()) or type(error).__name__


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "topiczoo", description="Topic models for text with responses, as editable stories."
    )
    parser.add_argument("--version", action="version", version=f"topiczoo {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    writing = argparse.ArgumentParser(add_help=False)
    writing.add_argument("--force", action="store_true", help="replace results that are there")

    demo = commands.add_parser(
        "demo", help="fit supervised LDA to simulated restaurant reviews and look at it", parents=[writing]
    )
    demo.add_argument(
        "--out", default="demo-fit.nc", help="where the fit is saved (demo-fit.nc); the report goes beside it (.html)"
    )
    demo.add_argument("--seed", type=int, default=0)
    demo.set_defaults(run=_demo)

    commands.add_parser("models", help="list the stories that come with the zoo").set_defaults(run=_models)

    fit = commands.add_parser(
        "fit", help="fit a story to a CSV file", parents=[writing],
        description="Fit a story to a CSV file. The fit goes to OUT, one netCDF file with the documents in it; its topics "
        "are printed. From there 'topiczoo report OUT' writes an HTML page and 'topiczoo predict OUT' a CSV file.",
    )  # fmt: skip
    fit.add_argument("story", help="a story of the zoo, or file.py:function")
    fit.add_argument("csv")
    fit.add_argument("out", help="where the fit is saved (netCDF)")
    fit.add_argument("--text", default="text", help="column of texts")
    fit.add_argument("--y", help="column of responses")
    fit.add_argument(
        "--standardise", action="store_true", help="fit y in standard units; predictions come back in its own"
    )
    fit.add_argument("--engine", default="gibbs", choices=["gibbs", "nuts", "svi", "vem"])
    fit.add_argument("--seed", type=int, default=0)
    fit.add_argument("--min-df", type=int, default=2, help="leave out terms of fewer documents")
    fit.add_argument("--stop-words", default="english", choices=["english", "none"])
    fit.add_argument("--set", action="append", default=[], metavar="NAME=VALUE",
                     help="an argument of the story or the engine, e.g. --set num_topics=10; may be repeated")  # fmt: skip
    fit.set_defaults(run=_fit)

    predict = commands.add_parser("predict", help="predict the responses of a CSV file's texts", parents=[writing])
    predict.add_argument("fit", help="a saved fit")
    predict.add_argument("csv")
    predict.add_argument("out", help="where predictions are written (CSV)")
    predict.add_argument("--text", default="text", help="column of texts")
    predict.add_argument("--story", help="file.py:function, where the fit's story is not one of the zoo")
    predict.add_argument("--interval", type=float, default=0.9)
    predict.add_argument(
        "--raw", action="store_true", help="leave texts that a spreadsheet would take for formulas as they are"
    )
    predict.set_defaults(run=_predict)

    report = commands.add_parser("report", help="write what is known of a fit to one HTML file", parents=[writing])
    report.add_argument("fit", help="a saved fit")
    report.add_argument("--out", default="report.html", help="where the report goes (report.html)")
    report.add_argument("--test", metavar="CSV", help="held-out documents, to be scored and browsed")
    report.add_argument("--text", default="text", help="column of texts in the held-out file")
    report.add_argument("--y", help="column of responses in the held-out file, in the data's own units")
    report.add_argument("--story", help="file.py:function, where the fit's story is not one of the zoo")
    report.add_argument("--documents", type=int, default=100, help="how many documents can be browsed")
    report.add_argument("--seed", type=int, default=0)
    report.set_defaults(run=_report)

    check = commands.add_parser("check", help="test every block the Gibbs engine would use on a story")
    check.add_argument("story", help="a story of the zoo, or file.py:function")
    check.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="an argument of the story")
    check.set_defaults(run=_check)
    return parser


def _models(options: argparse.Namespace) -> int:
    from topiczoo.models.catalogue import stories

    for name, story in stories().items():
        own = [p for p in inspect.signature(story).parameters.values() if p.kind is p.KEYWORD_ONLY]
        print(f"{name}\n    {(inspect.getdoc(story) or name).splitlines()[0]}")
        print("    " + ", ".join(p.name if p.default is p.empty else f"{p.name}={p.default}" for p in own))
    return 0


def _print_rows(rows: int, reasons: Mapping[str, Any]) -> None:
    """How many rows were read, and for each reason how many of them count for less."""
    told = [f"{number} {reason}" for reason, number in reasons.items() if number]
    print(f"{rows} rows read: {'; '.join(told) or 'all of them count'}")


def _unlabelled(y: Any) -> int:
    import pandas as pd

    return 0 if y is None else int(pd.isna(y).sum())


def _fit(options: argparse.Namespace) -> int:
    import numpy as np

    from topiczoo import corpora, inference
    from topiczoo.inference.posterior.posterior import serving

    began = time.perf_counter()
    check_output(options.out, options.force)
    if options.standardise and not options.y:
        raise ValueError("--standardise is of use with --y only; name the column of responses, or leave it out.")
    story, engine = find_story(options.story), getattr(inference, options.engine)
    settings = read_settings(options.set, story, engine, ["seed", "y"])
    words = {
        "min_df": options.min_df,
        "stop_words": None if options.stop_words == "none" else options.stop_words,
    }
    data = corpora.read_csv(options.csv, options.text, y=options.y, empty="drop", **words)
    corpus, y = data if options.y else (data, None)
    reasons = {"left out, without a word of the vocabulary": corpus.num_dropped, "unlabelled": _unlabelled(y)}
    _print_rows(len(corpus) + corpus.num_dropped, reasons)
    print(f"{corpus!r}")
    info: dict[str, Any] = {"vectoriser": words}
    if options.standardise and y is not None:
        if not np.issubdtype(y.dtype, np.number):
            raise ValueError(f"--standardise needs numbers, and the column {options.y!r} holds labels; leave it out.")
        mean, deviation = info["standardised"] = [float(np.nanmean(y)), float(np.nanstd(y)) or 1.0]
        y = (y - mean) / deviation
    for name, made_of in getattr(story, "from_corpus", {}).items():  # a story may say which of its arguments do
        settings.setdefault(name, made_of(corpus))
    fit = engine(story, corpus, y, seed=options.seed, **settings)
    fit.info |= info
    saved = fit.save(options.out)  # before anything is shown: that must not lose the fit
    own = options.story if ":" in options.story else None
    judge = shlex.join(["topiczoo", "report", str(saved), *(["--story", own] if own else [])])
    chains, draws = next(iter({**fit.snapshots, **fit.draws}.values())).shape[:2]
    options.kept = (
        f"what there was by then (chains: {chains}, draws: {draws}) is saved to {saved}; look at it by {judge}, or give the "
        "command again with --force for the whole."
    )
    if fit.info.get("interrupted"):
        raise KeyboardInterrupt
    (print_topics if fit.has_topics else print_classes)(fit)
    if why := serving(fit.info):
        print(why)
    print(f"saved to {saved} after {time.perf_counter() - began:.0f} s; to judge it: {judge}")
    print(f"or in Python: diagnostics.diagnose(inference.load({str(saved)!r}{', story' if own else ''}))")
    return 0


def _read_new(csv: str, text: str, y: str | None, fit: Any) -> tuple[Any, Any]:
    """New documents in the words of a fit, and their responses."""
    from topiczoo import corpora

    data: Any = corpora.read_csv(csv, text, y=y, empty="keep", vocabulary=fit.vocabulary)
    corpus, responses = data if y else (data, None)
    unknown = int((corpus.lengths == 0).sum())
    if unknown == len(corpus):
        raise ValueError(
            f"{csv!r} has no document with a word that the fit knows, in {unknown} rows of column {text!r}; give texts of "
            "the kind that was fitted."
        )
    _print_rows(len(corpus), {"without a word that the fit knows": unknown, "unlabelled": _unlabelled(responses)})
    return corpus, responses


def _predict(options: argparse.Namespace) -> int:
    from topiczoo import corpora, inference

    check_output(options.out, options.force, stream=True)
    if not 0 < options.interval < 1:
        raise ValueError(f"--interval is {options.interval}; give a number between 0 and 1.")
    fit = inference.load(options.fit, find_story(options.story) if options.story else None)
    if fit.response.several:
        raise ValueError(
            f"the fit has several responses ({', '.join(fit.response.parts)}); predict them in Python, by fit.predict."
        )
    corpus, _ = _read_new(options.csv, options.text, None, fit)
    prediction = fit.predict(corpus, progress_bar=True)
    frame = prediction.frame(options.interval)
    if "standardised" in fit.info:
        shift, scale = fit.info["standardised"]
        frame = frame * scale + shift
    corpora.write_csv(frame, options.out, raw=options.raw)
    print(f"{len(frame)} predictions written to {options.out}")
    return 0


def _report(options: argparse.Namespace) -> int:
    from topiczoo import diagnostics, inference

    if options.y and not options.test:
        raise ValueError("--y names a column of the held-out file; give that file with --test.")
    check_output(options.out, options.force)
    fit = inference.load(options.fit, find_story(options.story) if options.story else None)
    test, y = _read_new(options.test, options.text, options.y, fit) if options.test else (None, None)
    if y is not None and fit.classes is None:
        if y.dtype.kind not in "fiu":
            raise ValueError(f"The column {options.y!r} holds labels; code them as numbers, as they were for the fit.")
        shift, scale = fit.info.get("standardised", (0.0, 1.0))
        y = (y - shift) / scale
    path = diagnostics.report(fit, options.out, test=test, y_test=y, documents=options.documents, seed=options.seed)
    print(f"report written to {path}")
    return 0


def _check(options: argparse.Namespace) -> int:
    from topiczoo import corpora, inference

    corpus, y = corpora.load_reviews(num_documents=60)
    story = find_story(options.story)
    response = ((y - y.mean()) / y.std(),) if "y" in inspect.signature(story).parameters else ()
    settings = read_settings(options.set, story, inference.check)
    table = inference.check(story, corpus, *response, **settings)
    print(table.to_string(index=False))
    return 0 if table["passes"].all() else 1


def _demo(options: argparse.Namespace) -> int:
    from .demo import demo

    page = Path(options.out).with_suffix(".html")
    if str(page) == options.out:
        raise ValueError(
            f"--out is {options.out!r}, where the report goes; name another file for the fit, e.g. fit.nc."
        )
    check_output(options.out, options.force)
    check_output(str(page), options.force)
    return demo(options.out, options.seed)


if __name__ == "__main__":
    sys.exit(main())
