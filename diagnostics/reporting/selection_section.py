"""The report's section on which topics count for the response, and what leaving the others out costs."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from topiczoo.inference.posterior.naming import topic_labels

from ..checks.response_checks import take
from ..drawing.chains import curve
from .page import Cell, Column, Section, drawing, fixed, note, table

LEAST_TOPICS = 10  # with fewer there is nothing to select
MOST_DOCUMENTS = 1000  # from which it is told
MOST_TOPICS = 60  # to weigh more against each other takes minutes
DROPPED = 3  # topics that do not count and are shown beside those that do


def selection(fit: Any, corpus: Any, y: Any, what: str) -> Section | None:
    """Relevant against irrelevant topics, and error against the number kept; None without coefficients to choose from."""
    if len(fit.coefficients) != 1 or y is None:
        return None
    site = fit.coefficients[0]
    number = fit.draws[site].shape[2]
    if fit.graph.dims[site][0] != "topic" or number < LEAST_TOPICS:
        return None
    if number > MOST_TOPICS:
        told = (
            f"More than {MOST_TOPICS} topics are not weighed against each other here: fit.select() does it, in minutes."
        )
        return Section("selection", "Which topics count", note(told))
    rng = np.random.default_rng(0)
    few, some = (np.sort(rng.permutation(len(each))[:MOST_DOCUMENTS]) for each in (fit.corpus, corpus))
    try:
        chosen = _of(fit, few).select("projection")
        errors = chosen.errors(corpus[some], take(y, some))
    except ValueError:  # a story whose topics cannot be folded in
        return None
    frame = chosen.frame(7)
    outputs = "output" in frame
    kept, dropped = frame[frame["kept"]], frame[~frame["kept"]]
    dropped = dropped.reindex(dropped["mean"].abs().sort_values().index)[:DROPPED]
    columns = [Column("Topic", True), *([Column("Output", True)] if outputs else []), Column("Counts", False)]
    columns += [Column("Coefficient", True), Column("Mean", True), Column("90% interval", True), Column("Terms", False)]
    rows = []
    places = {name: place for place, name in enumerate(topic_labels(fit, len(chosen.kept)))}
    for record in [*kept.to_dict("records"), *dropped.to_dict("records")]:
        row: list[Any] = [Cell(str(record["topic"]), places[record["topic"]])]
        row += [Cell(str(record["output"]), float(record["output"]))] if outputs else []
        span = Cell(f"{fixed(record['low']).text} to {fixed(record['high']).text}", float(record["low"]))
        row += ["yes" if record["kept"] else "no", fixed(record["coefficient"]), fixed(record["mean"]), span]
        rows.append([*row, record["terms"]])
    words = (
        f"{chosen.kept.sum()} of {chosen.kept.size} coefficients of chain {chosen.chain} are kept, by {chosen.rule}. "
        "No draw of a coefficient is exactly 0: this is a summary made after the fit; fit.select has other rules."
    )
    if len(few) < len(fit.corpus):
        words += f" It is told from {len(few)} documents, drawn at random."
    column = next(iter(errors.attrs))  # of the first response
    told = errors.attrs[column].capitalize()
    caption = f"{told} on {len(some)} {what} against the number of topics kept, all else at posterior means."
    mark = int(chosen.kept.sum(0).max())
    image = curve(errors["kept"], errors[column], "coefficients kept", "Error by topics kept.", mark)
    body = note(words) + table("selected", "Topics that count, and some that do not.", columns, rows)
    return Section("selection", "Which topics count", body + drawing(image, caption))


def _of(fit: Any, rows: np.ndarray) -> Any:
    """The fit as one of some of its documents: what is asked of it here is told from their words alone."""
    found = copy.copy(fit)
    found.corpus, found.response = fit.corpus[rows], fit.response.take(rows)
    return found
