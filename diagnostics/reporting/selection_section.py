"""The report's section on which topics count for the response, and what leaving the others out costs."""

from __future__ import annotations

from typing import Any

from topiczoo.inference.posterior.naming import topic_labels

from . import figures
from .page import Cell, Column, Section, fixed, note, picture, table

LEAST_TOPICS = 10  # with fewer there is nothing to select
DROPPED = 3  # topics that do not count and are shown beside those that do


def selection(fit: Any, corpus: Any, y: Any, what: str) -> Section | None:
    """Relevant against irrelevant topics, and error against the number kept; None without coefficients to choose from."""
    if len(fit.coefficients) != 1 or y is None or fit.draws[fit.coefficients[0]].shape[2] < LEAST_TOPICS:
        return None
    try:
        chosen = fit.select("projection")
        errors = chosen.errors(corpus, y)
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
    image = figures.line(
        errors["kept"], errors["error"], "coefficients kept", errors.attrs["error"], mark=int(chosen.kept.sum(0).max())
    )
    caption = f"Error on the {what} against the number of topics kept, all else at posterior means."
    body = note(words) + table("selected", "Topics that count, and some that do not.", columns, rows)
    return Section("selection", "Which topics count", body + picture(image, "Error by topics kept.", caption))
