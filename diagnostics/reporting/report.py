"""The report: one HTML file that a colleague opens without anything installed, from verdict to how to reproduce it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from topiczoo.corpora import Corpus
from topiczoo.inference import Fit
from topiczoo.inference.programs.progress import tqdm
from topiczoo.inference.story.validation import check_seed

from ..convergence.diagnosis import Diagnosis, diagnose
from . import story_page
from .overview import overview, reasons
from .page import page
from .response_section import response
from .sections import Sections
from .selection_section import selection
from .topic_section import classes, map_of, topics

MOST_DOCUMENTS = 1000  # in the browser


def report(
    fit: Fit | Diagnosis, path: str | Path = "report.html", *, test: Corpus | None = None, y_test: Any = None,
    documents: int = 100, seed: int = 0, progress_bar: bool = True,
) -> Path:  # fmt: skip
    """Write what is known of a fit to one self-contained HTML file.

    Topics are aligned first, and have the numbers of ``align(fit)`` throughout.

    Parameters
    ----------
    fit
        A Fit, or what ``diagnose`` said of one, e.g. with thresholds of your own.
    path
        Where the file goes; one that is there is replaced once the new one is whole.
    test, y_test
        Held-out documents and their responses: they are scored, checked and browsed in place of the fitted ones.
    documents
        How many documents the browser holds, drawn at random; up to 1000.
    seed
        Of that sample and of the predictions.
    """
    check_seed(seed)
    diagnosis, given = (fit, fit.fit) if isinstance(fit, Diagnosis) else (None, fit)
    path = _checked(given, path, test, y_test, documents)
    y_test = given.response.encode(y_test)
    with tqdm(total=5, desc="report", disable=not progress_bar) as bar:

        def step(name: str) -> None:
            bar.set_postfix_str(name)
            bar.update()

        diagnosis = diagnosis or diagnose(given, seed=seed)
        step("diagnosis")
        found = Sections(diagnosis, test, y_test, documents, seed)
        step("predictions")
        made = map_of(found)
        sections = [
            reasons(diagnosis),
            story_page.section(found.fit),
            topics(found) if found.num_topics else None,
            classes(found),
            found.coefficients(),
            selection(found.fit, found.corpus, found.y, found.what),
            found.convergence(),
        ]
        step("convergence")
        sections += [response(found), found.scores()]
        step("scores")
        sections += [found.browser(), story_page.reproduction(found.fit)]
        top = overview(diagnosis, found, made)
        title = f"{given.story.name}: a topic model's report"
        subtitle = f"{given.engine}, {len(given.corpus)} documents"
        subtitle += f", {found.num_topics} topics" if found.num_topics else ""
        weight = float(given.info.get("response_weight") or 1)
        subtitle += "" if weight == 1 else f", response_weight={weight:g}"
        write(path, page(title, subtitle, top, [part for part in sections if part is not None], found.num_topics))
        step("written")
    return path


def _checked(fit: Any, path: str | Path, test: Any, y_test: Any, documents: Any) -> Path:
    if not isinstance(fit, Fit):
        raise TypeError(f"fit is a {type(fit).__name__}; give a Fit, as inference.gibbs or inference.load returns it.")
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(
            f"path {str(path)!r} is a folder; name a file in it, e.g. {str(path / 'report.html')!r}."
        )
    if not path.parent.is_dir():
        raise FileNotFoundError(f"path {str(path)!r} is in no existing folder; make {str(path.parent)!r} first.")
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"path {str(path)!r} is in a folder that cannot be written to; choose another.")
    if test is not None and not isinstance(test, Corpus):
        raise TypeError(f"test is a {type(test).__name__}; make a Corpus of it, e.g. Corpus.from_counts(counts).")
    if y_test is not None and test is None:
        raise ValueError("y_test was given without test; give the documents it belongs to.")
    if y_test is not None and fit.y is None:
        raise ValueError(
            f"y_test was given, but the story {fit.story.name!r} was fitted without a response; leave it out."
        )
    for part in y_test.values() if isinstance(y_test, dict) else [y_test]:
        if part is not None and test is not None and len(part) != len(test):
            raise ValueError(f"y_test has {len(part)} values for {len(test)} documents of test; give one for each.")
    if not isinstance(documents, int | np.integer) or not 0 <= documents <= MOST_DOCUMENTS:
        raise ValueError(f"documents is {documents!r}; give a whole number from 0 to {MOST_DOCUMENTS}.")
    return path


def write(path: Path, text: str) -> None:
    """The whole file or none of it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
