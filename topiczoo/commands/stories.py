"""What is asked of a story before it is fitted: ``topiczoo models``, ``check`` and ``simulate``."""

from __future__ import annotations

import argparse
import inspect
from typing import Any

from .arguments import check_output, find_story, read_settings
from .cards import card
from .documents import check_responses, chosen_words, read_corpus, standardised
from .fitting import with_corpus


def models(options: argparse.Namespace) -> int:
    from topiczoo.models.catalogue import stories

    if options.card:
        return card(options)
    if options.set or options.out or options.quick:
        raise ValueError("--set, --out and --quick are of a card; name its story, --card slda say.")
    for name, story in stories().items():
        own = [p for p in inspect.signature(story).parameters.values() if p.kind is p.KEYWORD_ONLY]
        print(f"{name}\n    {(inspect.getdoc(story) or name).splitlines()[0]}")
        print("    " + ", ".join(p.name if p.default is p.empty else f"{p.name}={p.default}" for p in own))
    return 0


def check(options: argparse.Namespace) -> int:
    from topiczoo import corpora, inference

    check_responses(options)
    chosen_words(options)
    story = find_story(options.story)
    settings = read_settings(options.set, story, inference.check, ["seed", "y"])
    if options.data is None:
        if options.y or options.responses:
            raise ValueError("--y names a column of your documents; give these as well, as DATA.")
        corpus, stars = corpora.load_reviews(num_documents=60)
        response: Any = (stars - stars.mean()) / stars.std() if "y" in inspect.signature(story).parameters else None
    else:
        corpus, response, _ = read_corpus(options, options.data)
        if options.standardise:
            response, _ = standardised(response, options.y or options.responses)
    given = () if response is None else (response,)
    table = inference.check(story, corpus, *given, seed=options.seed, **with_corpus(settings, story, corpus))
    print(table.to_string(index=False))
    return 0 if table["passes"].all() else 1


def simulate(options: argparse.Namespace) -> int:
    import pandas as pd

    from topiczoo import corpora, inference

    check_output(options.out, options.force)
    chosen_words(options)
    sizes = {"documents": options.documents, "length": options.length, "terms": options.terms}
    if options.like and (given := [f"--{name}" for name, value in sizes.items() if value is not None]):
        raise ValueError(f"{given[0]} and --like are both given; the documents of --like have it, so leave it out.")
    for name, value in sizes.items():
        if value is not None and not value >= 1:
            raise ValueError(f"--{name} is {value}; give a number from 1 on.")
    story = find_story(options.story)
    settings = read_settings(options.set, story, inference.simulate, ["seed"])
    corpus = read_corpus(options, options.like)[0] if options.like else _placeholder(options)
    drawn, y = inference.simulate(story, corpus, seed=options.seed, **with_corpus(settings, story, corpus))
    document, term = drawn.tokens()
    words = pd.Series(drawn.vocabulary[term]).groupby(document).agg(" ".join)
    frame = pd.DataFrame({"text": words.to_numpy()}, index=pd.Index(drawn.names, name=options.id or "id"))
    for name, column in drawn.covariates.items():
        frame[name] = column.to_numpy()
    for name, values in (y if isinstance(y, dict) else {} if y is None else {options.column: y}).items():
        for column, part in _columns(name, values):
            frame[column] = part
    corpora.write_csv(frame, options.out)
    print(
        f"{drawn!r}\nwritten to {options.out}, columns {', '.join([str(frame.index.name), *map(str, frame.columns)])}"
    )
    return 0


def _columns(name: str, values: Any) -> list[tuple[str, Any]]:
    """A response as columns: whole numbers without a point, several outputs one by one."""
    whole = bool((values == values.round()).all())
    values = values.astype(int) if whole else values
    return [(name, values)] if values.ndim == 1 else [(f"{name}{i}", values[:, i]) for i in range(values.shape[1])]


def _placeholder(options: argparse.Namespace) -> Any:
    """A corpus of the sizes that are asked for: its words are replaced by those that are drawn."""
    import numpy as np

    from topiczoo import corpora

    rng = np.random.default_rng(options.seed)
    documents, length, terms = options.documents or 100, options.length or 50, options.terms or 200
    lengths = np.maximum(rng.poisson(length, documents), 1)
    counts = rng.multinomial(lengths, np.full(terms, 1 / terms))
    digits = len(str(terms - 1))
    return corpora.Corpus.from_counts(counts, [f"term{number:0{digits}d}" for number in range(terms)])
