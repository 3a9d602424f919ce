"""The command line: ``topiczoo demo | models | fit | predict | report | check``."""

from __future__ import annotations

import argparse
import ast
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def main(arguments: list[str] | None = None) -> int:
    """Run a command; what is wrong with its input is said in one sentence, with exit status 2."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        return options.run(options)
    except (ValueError, TypeError, OSError, ImportError) as error:
        print(f"topiczoo {options.command}: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "topiczoo", description="Topic models for text with responses, as editable stories."
    )
    commands = parser.add_subparsers(dest="command", required=True)

    demo = commands.add_parser("demo", help="fit supervised LDA to simulated restaurant reviews and look at it")
    demo.add_argument("--out", default="demo-fit.nc", help="where the fit is saved; the report goes beside it")
    demo.add_argument("--seed", type=int, default=0)
    demo.set_defaults(run=_demo)

    commands.add_parser("models", help="list the stories that come with the zoo").set_defaults(run=_models)

    fit = commands.add_parser("fit", help="fit a story to a CSV file")
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

    predict = commands.add_parser("predict", help="predict the responses of a CSV file's texts")
    predict.add_argument("fit", help="a saved fit")
    predict.add_argument("csv")
    predict.add_argument("out", help="where predictions are written (CSV)")
    predict.add_argument("--text", default="text", help="column of texts")
    predict.add_argument("--story", help="file.py:function, where the fit's story is not one of the zoo")
    predict.add_argument("--interval", type=float, default=0.9)
    predict.set_defaults(run=_predict)

    report = commands.add_parser("report", help="write what is known of a fit to one HTML file")
    report.add_argument("fit", help="a saved fit")
    report.add_argument("--out", default="report.html", help="where the report goes")
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


def find_story(name: str) -> Callable:
    """A story by its name in the zoo, or as file.py:function."""
    from topiczoo import models

    if ":" not in name:
        if name not in stories():
            raise ValueError(
                f"{name!r} is no story of the zoo; there are {', '.join(stories())}, or give file.py:function."
            )
        return getattr(models, name)
    path, _, function = name.rpartition(":")
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path!r} is no file; give a story as file.py:function.")
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not callable(getattr(module, function, None)):
        raise ValueError(f"{path!r} has no function {function!r}; name the story in it.")
    return getattr(module, function)


def stories() -> list[str]:
    """Names of the zoo's stories."""
    from topiczoo.models.catalogue import stories

    return list(stories())


def _settings(pairs: list[str]) -> dict[str, Any]:
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"--set {pair!r} has no '='; write --set name=value.")
        try:
            settings[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            settings[name] = value
    return settings


def _models(options: argparse.Namespace) -> int:
    from topiczoo import models

    for name in stories():
        story = getattr(models, name)
        own = [p for p in inspect.signature(story).parameters.values() if p.kind is p.KEYWORD_ONLY]
        print(f"{name}\n    {(inspect.getdoc(story) or name).splitlines()[0]}")
        print("    " + ", ".join(p.name if p.default is p.empty else f"{p.name}={p.default}" for p in own))
    return 0


def _fit(options: argparse.Namespace) -> int:
    import numpy as np

    from topiczoo import corpora, inference, models

    story = find_story(options.story)
    words = {
        "min_df": options.min_df,
        "stop_words": None if options.stop_words == "none" else options.stop_words,
    }
    data = corpora.read_csv(options.csv, options.text, y=options.y, empty="drop", **words)
    corpus, y = data if options.y else (data, None)
    print(f"{corpus!r}")
    info: dict[str, Any] = {"vectoriser": words}
    if options.standardise and y is not None:
        if not np.issubdtype(y.dtype, np.number):
            raise ValueError(f"--standardise needs numbers, and the column {options.y!r} holds labels; leave it out.")
        mean, deviation = info["standardised"] = [float(np.nanmean(y)), float(np.nanstd(y)) or 1.0]
        y = (y - mean) / deviation
    settings = _settings(options.set)
    if "background" in inspect.signature(story).parameters:
        settings.setdefault("background", models.background(corpus))
    fit = getattr(inference, options.engine)(story, corpus, y, seed=options.seed, **settings)
    fit.info |= info
    saved = fit.save(options.out)  # before anything is shown: that must not lose the fit
    (print_topics if fit.has_topics else print_classes)(fit)
    print(f"saved to {saved}")
    return 0


def _predict(options: argparse.Namespace) -> int:
    from topiczoo import corpora, inference

    fit = inference.load(options.fit, find_story(options.story) if options.story else None)
    corpus = corpora.read_csv(options.csv, options.text, empty="keep")
    prediction = fit.predict(corpus, progress_bar=True)
    frame = prediction.frame(options.interval)
    if "standardised" in fit.info:
        shift, scale = fit.info["standardised"]
        frame = frame * scale + shift
    frame.to_csv(options.out)
    print(f"{len(frame)} predictions written to {options.out}")
    return 0


def _report(options: argparse.Namespace) -> int:
    from topiczoo import corpora, diagnostics, inference

    if options.y and not options.test:
        raise ValueError("--y names a column of the held-out file; give that file with --test.")
    fit = inference.load(options.fit, find_story(options.story) if options.story else None)
    test, y = None, None
    if options.test:
        data = corpora.read_csv(options.test, options.text, y=options.y, empty="keep")
        test, y = data if options.y else (data, None)
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
    table = inference.check(story, corpus, *response, **{"num_topics": 3, **_settings(options.set)})
    print(table.to_string(index=False))
    return 0 if table["passes"].all() else 1


def print_topics(fit: Any, n: int = 8) -> None:
    """The topics of the first chain, by coefficient where there is one."""
    frame = fit.topics(n)
    coefficient = next((column for column in frame.columns[5:] if f"{column}_low" in frame), None)
    table = frame.groupby("topic").agg(terms=("term", " ".join))
    if coefficient:
        first = frame.drop_duplicates("topic").set_index("topic")
        columns = first[[coefficient, f"{coefficient}_low", f"{coefficient}_high"]].to_numpy()
        table.insert(0, coefficient, [f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]" for mean, low, high in columns])
        table = table.loc[first[coefficient].sort_values().index]
    print(table.rename_axis(f"topic (chain {frame['chain'].iloc[0]})").to_string())


def print_classes(fit: Any, n: int = 8) -> None:
    """What each class of a story without topics says more than others, by the first chain."""
    for site, dims in fit.story.dims.items():
        if dims != (None, "term") or site not in fit.sites:
            continue
        leading = fit.deviations(site, n)
        if "label" in leading:
            print(leading.groupby("label", sort=False).agg(terms=("term", " ".join)).to_string())


def _demo(options: argparse.Namespace) -> int:
    from .demo import demo

    return demo(options.out, options.seed)


if __name__ == "__main__":
    sys.exit(main())
