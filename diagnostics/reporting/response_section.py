"""The report's section on the response: does what the story predicts look like what was observed?"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..checks.response_checks import CLASS, coverage, kind, labelled, observed_parts, take, to_tree
from ..drawing.responses import calibration, distribution, of_class, pit, scatter
from .page import Cell, Column, Section, drawing, fixed, note, pictures, table
from .sections import Sections, some

MOST_COLUMNS = 6  # of responses, or classes of one, that are drawn
CAPTIONS = (
    "Observed and predicted, with 90% intervals.",
    "Share of responses up to a number: observed (line), and 90% of predicted corpora (band).",
    "Calibration: the line stays inside the band (99%) if responses fall where they were predicted.",
    "Central intervals: above zero they are too wide, below it too narrow.",
)


def first_picture(found: Sections) -> str | None:
    """Observed against predicted: the one picture for the top of the page, None where there is none."""
    parts = _parts(found)
    if not parts:
        return None
    name, draw = next(iter(_first(found, parts).items()))
    return drawing(draw, _first_caption(found, parts, name))


def _parts(found: Sections) -> dict[str, tuple[Any, np.ndarray]]:
    """Predictions of documents all of whose responses are known, and these; nothing where there are none."""
    if found.y is None or found.prediction is None:
        return {}
    places = labelled(take(found.y, found.rows))
    if not len(places):
        return {}
    both = observed_parts(some(found.prediction, places), take(found.y, found.rows[places]))
    return {name: (part, values) for name, (part, values) in both.items() if values is not None}


def _numbers(found: Sections, parts: dict[str, tuple[Any, np.ndarray]]) -> dict[str, tuple[np.ndarray, ...]]:
    """Columns of numbers in the data's own units: observed, mean, low, high [documents] and draws [draw, documents]."""
    shift, unit = found.fit.info.get("standardised", (0.0, 1.0))
    columns: dict[str, tuple[np.ndarray, ...]] = {}
    for name, (part, values) in parts.items():
        if kind(part) == CLASS:
            continue
        number = len(values)
        shapes = [values, part.mean, *np.moveaxis(part.interval(0.9), -1, 0)]
        observed, mean, low, high = (np.asarray(each, float).reshape(number, -1) * unit + shift for each in shapes)
        draws = np.asarray(part.draws, float).reshape(len(part.draws), number, -1) * unit + shift
        for column in range(mean.shape[1]):
            label = name if mean.shape[1] == 1 else f"{name}[{column}]"
            own = (each[:, column] for each in (observed, mean, low, high))
            columns[label] = *own, draws[..., column]
    return columns


def _classes(parts: dict[str, tuple[Any, np.ndarray]]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Classes with whether documents are of them, and their predicted probabilities; of two the second."""
    found = {}
    for name, (part, values) in parts.items():
        if kind(part) != CLASS:
            continue
        number, several = len(values), np.shape(part.probabilities)[-1]
        names = np.arange(several) if part.classes is None else part.classes
        chances = part.probabilities.reshape(number, -1, several)  # of classes side by side, each column
        for column, own in enumerate(values.reshape(number, -1).T):
            label = name if chances.shape[1] == 1 else f"{name}[{column}]"
            for code in range(several) if several > 2 else range(1, several):
                found[f"{label} = {names[code]}"] = own == code, chances[:, column, code]
    return found


def _first(found: Sections, parts: dict[str, tuple[Any, np.ndarray]]) -> dict[str, str]:
    """The first picture of the first response, by its name."""
    for name, (observed, mean, low, high, _) in _numbers(found, parts).items():
        return {name: scatter(name, observed, mean, low, high)}
    classes = _classes(parts)
    common = max(classes, key=lambda name: classes[name][0].sum())
    return {common: of_class(common, *classes[common])}


def _first_caption(found: Sections, parts: dict[str, tuple[Any, np.ndarray]], name: str) -> str:
    numbers = _numbers(found, parts)
    if name not in numbers:
        accuracy = [float(np.mean(part.code == values)) for part, values in parts.values() if kind(part) == CLASS]
        return f"{accuracy[0]:.0%} of {found.what} have the class that was predicted; shown is {name}."
    observed, mean, low, high, _ = numbers[name]
    spread = np.sum((observed - observed.mean()) ** 2)
    told = f"R² {1 - np.sum((observed - mean) ** 2) / spread:.2f}; " if spread > 0 else ""
    inside = np.mean((low <= observed) & (observed <= high))
    return f"{name}: {told}{inside:.0%} of {len(observed)} {found.what} lie inside their 90% interval (lines)."


def response(found: Sections) -> Section | None:
    """Distribution, calibration and coverage of each response."""
    if found.fit.y is None:
        return None
    title, anchor = "Predictive checks", "checks-of-response"
    if found.y is None:
        told = "The held-out documents came without responses: nothing to check against."
        return Section(anchor, title, note(told))
    if found.prediction is None:
        return Section(anchor, title, note(f"No predictions. {found.no_prediction}"))
    parts = _parts(found)
    if not parts:
        return Section(anchor, title, note("None of these documents has a response: nothing to check against."))
    numbers, classes = _numbers(found, parts), _classes(parts)
    number = len(next(iter(parts.values()))[1])
    body = note(f"{number} {found.what}, told from their words alone." + _seen(found) + found.too_narrow())
    for name, (observed, mean, low, high, draws) in list(numbers.items())[:MOST_COLUMNS]:
        places = pit(observed, draws)
        drawn = (
            scatter(name, observed, mean, low, high), distribution(name, observed, draws), calibration(name, places),
            calibration(name, places, coverage=True),
        )  # fmt: skip
        body += pictures(*(drawing(svg, told, name) for svg, told in zip(drawn, CAPTIONS, strict=True)))
    curves = [drawing(of_class(name, *each), "", name) for name, each in list(classes.items())[:MOST_COLUMNS]]
    if curves:
        told = (
            "Documents of like predicted probability together, and how many of them are of the class (90% intervals)."
        )
        body += note(f"{told} Calibrated probabilities lie on the diagonal; grey is how often each was predicted.")
        body += pictures(*curves)
    most = max(len(numbers), len(classes))
    if most > MOST_COLUMNS:
        body += note(f"The first {MOST_COLUMNS} of {most} are drawn.")
    return Section(anchor, title, body + _coverage(found, parts))


def _seen(found: Sections) -> str:
    """A sentence where documents checked are documents fitted."""
    return " The fit has seen their responses: held-out documents (test=...) say more." if found.test is None else ""


def _coverage(found: Sections, parts: dict[str, tuple[Any, np.ndarray]]) -> str:
    predictions = {name: part for name, (part, _) in parts.items()}
    y = {name: values for name, (_, values) in parts.items()}
    number = len(next(iter(y.values())))
    frame = coverage(to_tree(predictions, y, np.arange(number)))
    if not len(frame):
        return ""
    columns = [Column("Response"), Column("Interval", True), Column("Covered", True), Column("Error", True),
               Column("Outcome")]  # fmt: skip
    rows = []
    for record in frame.to_dict("records"):
        near = abs(record["covered"] - record["level"]) <= 3 * record["error"] + 1e-9
        word = Cell("as it should", 1, "good") if near else Cell("off", 0, "bad")
        rows.append(
            [record["response"], *(fixed(100 * record[key], 1, "%") for key in ("level", "covered", "error")), word]
        )
    caption = f"Share of {frame['documents'].iloc[0]} {found.what} inside their central predictive interval"
    return table("coverage", f"{caption} (off: more than three standard errors away)", columns, rows)
