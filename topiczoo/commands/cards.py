"""``topiczoo models --card``: what there is to know of a story before it is fitted."""

from __future__ import annotations

import argparse
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from .arguments import check_output, find_story, read_settings
from .fitting import with_corpus

SIZE: dict[str, Any] = {"documents": 200, "terms": 300, "words": 0.2, "most_topics": 20}  # on which a sweep is timed


def card(options: argparse.Namespace) -> int:
    """Print the card of a story, or write it where --out says."""
    from topiczoo.diagnostics.reporting import card as made
    from topiczoo.inference import check as engine
    from topiczoo.inference.story.reading import read
    from topiczoo.models.examples import EXAMPLES, example

    if options.out:
        check_output(options.out, options.force)
    story = find_story(options.card)
    about = EXAMPLES.get(options.card)

    def on(most_topics: int = 0, **size: Any) -> Any:
        corpus, y, given = example(story if about is None else options.card, **size)
        given |= {name: most_topics for name in given if name == "num_topics" and most_topics}
        settings = {**given, **read_settings(options.set, story, engine)}
        return read(story, corpus, y, with_corpus(settings, story, corpus))

    cost = "" if options.quick else made.cost_of_a_sweep(on(**SIZE))
    text = made.card(
        on(), about.title if about else "", about.cite if about else "", published(options.card), cost,
        pictures=bool(options.out),
    )  # fmt: skip
    if options.out:
        Path(options.out).write_text(text, encoding="utf-8")
        print(f"card of {options.card} written to {options.out}")
    else:
        print(text, end="")
    return 0


def published(name: str) -> dict[str, list[str]]:
    """What benchmarks/calibration.md says of a story of the zoo, by engine."""
    told = json.loads(files("topiczoo.models").joinpath("verdicts.json").read_text(encoding="utf-8"))
    return told.get(name, {})
