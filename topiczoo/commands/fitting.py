"""``topiczoo fit``, ``resume`` and ``compare``: stories and documents to posteriors."""

from __future__ import annotations

import argparse
import shlex
import time
from pathlib import Path
from typing import Any

from .arguments import check_output, find_story, read_settings
from .checkpoints import Remembered, checkpoints, forget, going_on, is_passing, remembered, to_resume
from .documents import check_responses, chosen_words, read_corpus, standardised
from .printing import print_classes, print_topics


def fit(options: argparse.Namespace) -> int:
    from topiczoo import inference

    began = time.perf_counter()
    check_output(options.out, options.force)
    check_responses(options)
    chosen_words(options)
    story, engine = find_story(options.story), getattr(inference, options.engine)
    settings = read_settings(options.set, story, engine, ["seed", "y", "checkpoint"])
    corpus, y, words = read_corpus(options, options.data)
    info = described(options, words)
    if options.standardise:
        y, info["standardised"] = standardised(y, options.y or options.responses)
    settings = with_corpus(settings, story, corpus)
    own = options.story if ":" in options.story else None
    with checkpoints(options, Remembered(options.out, info, own)) as kept:
        fit = engine(story, corpus, y, seed=options.seed, **kept, **settings)
    return finished(options, fit, options.out, info, own, began)


def resume(options: argparse.Namespace) -> int:
    from topiczoo import inference

    began = time.perf_counter()
    call = remembered(options.folder)
    check_output(call.out, force=True)
    with going_on(options, options.folder, options.story):
        fit = inference.resume(options.folder, find_story(options.story) if options.story else None)
    return finished(options, fit, call.out, call.info, options.story, began)


def finished(options: argparse.Namespace, fit: Any, out: str, info: dict, own: str | None, began: float) -> int:
    """Save a fit, and show it."""
    from topiczoo.inference.posterior.posterior import serving

    fit.info |= info
    folder, whole = fit.info.get("checkpoint"), "give the command again with --force for the whole"
    if folder is not None:
        whole = f"go on by {to_resume(folder, own)}"
    passing = folder is not None and is_passing(folder, out) and not fit.info.get("interrupted")
    if passing:
        del fit.info["checkpoint"]
    saved = fit.save(out)  # before anything is shown: that must not lose the fit
    if passing:
        forget(folder)
    judge = shlex.join(["topiczoo", "report", str(saved), *(["--story", own] if own else [])])
    chains, draws = next(iter({**fit.snapshots, **fit.draws}.values())).shape[:2]
    there = f"what there was by then (chains: {chains}, draws: {draws}) is saved to {saved}"
    options.kept = f"{there}; look at it by {judge}, or {whole}."
    if fit.info.get("interrupted"):
        raise KeyboardInterrupt
    (print_topics if fit.has_topics else print_classes)(fit)
    if why := serving(fit.info):
        print(why)
    print(f"saved to {saved} after {time.perf_counter() - began:.0f} s; to judge it: {judge}")
    print(f"or in Python: diagnostics.diagnose(inference.load({str(saved)!r}{', story' if own else ''}))")
    return 0


def described(options: argparse.Namespace, words: dict[str, Any]) -> dict[str, Any]:
    """What a fit remembers of its documents, for those that it predicts."""
    if not words:
        return {"format": "ldac"}
    return {"vectoriser": words, "text": options.text}


def with_corpus(settings: dict[str, Any], story: Any, corpus: Any) -> dict[str, Any]:
    """Settings with those that a story says are made from the corpus, unless they are given."""
    return {**{name: made(corpus) for name, made in getattr(story, "from_corpus", {}).items()}, **settings}


def compare(options: argparse.Namespace) -> int:
    from topiczoo import corpora, diagnostics, inference

    picture = Path(options.out).with_suffix(".png")
    if str(picture) == options.out:
        raise ValueError(f"OUT is {options.out!r}, where the picture goes; name another file, e.g. numbers.csv.")
    check_output(options.out, options.force)
    check_output(str(picture), options.force)
    topics = numbers_of_topics(options.topics)
    check_responses(options)
    chosen_words(options)
    story, engine = find_story(options.story), getattr(inference, options.engine)
    own = ["seed", "y", "topics", "by", "folds", "fits", "engine"]
    settings = read_settings(options.set, story, engine, own)
    corpus, y, _ = read_corpus(options, options.data)
    if options.standardise:
        y, _ = standardised(y, options.y or options.responses)
    found = diagnostics.compare_topics(
        story, corpus, y, topics, engine=options.engine, by=options.by, folds=options.folds, fits=options.fits,
        seed=options.seed, **with_corpus(settings, story, corpus),
    )  # fmt: skip
    corpora.write_csv(found.table, options.out)
    print(found.table.to_string(float_format=lambda value: f"{value:.4g}"))
    print(found.why)
    draw(found, picture)
    print(f"table written to {options.out}, picture to {picture}")
    return 0


def draw(found: Any, path: Path) -> None:
    """The picture of a comparison, drawn without a screen."""
    import matplotlib

    matplotlib.use("agg")
    found.plot().savefig(path, dpi=150)


def numbers_of_topics(said: str | None) -> Any:
    """The numbers of --topics, or a mapping where the argument is named."""
    if not said:
        raise ValueError("--topics is not given; name the numbers to try, such as --topics 5,10,20.")
    name, equals, numbers = said.rpartition("=")
    parts = [part.strip() for part in numbers.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise ValueError(f"--topics is {said!r}; give whole numbers from 1 on, such as 5,10,20.")
    if len(set(parts)) < 2:
        raise ValueError(f"--topics is {said!r}; give two numbers or more, such as 5,10,20.")
    values = [int(part) for part in parts]
    return {name: values} if equals else values
