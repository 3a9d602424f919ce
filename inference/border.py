"""What engines refuse at the door, each with one sentence that names the argument, the value and the mend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from topiczoo.corpora import Corpus
from topiczoo.models.distributions import NormalJeffreys

if TYPE_CHECKING:
    from .reading import Reading
    from .running import Story


def check_corpus(corpus: Any) -> None:
    """A corpus of documents that all have words."""
    if not isinstance(corpus, Corpus):
        raise TypeError(f"corpus is a {type(corpus).__name__}; make a Corpus of it, e.g. Corpus.from_counts(counts).")
    empty = np.flatnonzero(corpus.lengths == 0)
    if empty.size:
        raise ValueError(
            f"corpus has {empty.size} documents without words, the first is {corpus.names[empty[0]]!r}; leave them out: "
            "corpus[corpus.lengths > 0]."
        )


def check_covariates(corpus: Corpus, names: Any) -> None:
    """Covariates that the story is told to read have a value for every document."""
    columns = corpus.covariates
    for name in names if isinstance(names, list | tuple | np.ndarray) else ():
        if isinstance(name, str) and name in columns and columns[name].isna().any():
            row = int(np.argmax(columns[name].isna()))
            raise ValueError(
                f"covariates has {str(name)!r}, which is missing for document {str(corpus.names[row])!r}; "
                "fill it, or leave such documents out."
            )


def check_response(story: Story, corpus: Corpus, y: Any) -> Any:
    """y as float arrays with one row a document, NaN where unlabelled; some documents must be labelled."""
    if y is None:
        return None
    if not story.takes_y:
        raise TypeError(f"The story {story.name!r} takes no response; leave y out or use a story that has one.")
    parts = numeric_response(corpus, y)
    for name, values in _named(parts).items():
        if np.isnan(values).all():
            raise ValueError(f"{name} is NaN for every document; label some, or use a story without a response.")
    return parts


def numeric_response(corpus: Corpus, y: Any) -> Any:
    """y as float arrays with one row a document, or a dict of them."""
    read = {name: _numbers(name, part, corpus) for name, part in _named(y).items()}
    return dict(zip(y, read.values(), strict=True)) if isinstance(y, dict) else read["y"]


def _named(y: Any) -> dict[str, Any]:
    """The parts of y by the name that a sentence gives them."""
    return {f"y[{name!r}]": part for name, part in y.items()} if isinstance(y, dict) else {"y": y}


def _numbers(name: str, y: Any, corpus: Corpus) -> np.ndarray:
    try:
        values = pd.DataFrame(y).to_numpy(float) if np.ndim(y) == 2 else pd.Series(y).to_numpy(float, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} is not numeric ({error}); labels are for one response that is a class: code them as numbers, "
            "NaN where unlabelled."
        ) from error
    if len(values) != len(corpus):
        raise ValueError(f"{name} has {len(values)} values for {len(corpus)} documents; give one for each.")
    if np.isinf(values).any():
        raise ValueError(
            f"{name} is infinite at document {int(np.argmax(np.isinf(values)))}; give a finite number, or NaN."
        )
    return values.astype(np.float32)


def refuse_improper(reading: Reading, engine: str) -> None:
    """What draws from the posterior needs one: there is none under an improper prior that is infinite at 0."""
    for name, site in reading.latent.items():
        if isinstance(site.prior, NormalJeffreys):
            raise ValueError(
                f"{engine} cannot serve the site {name!r} of the story {reading.story.name!r}: the posterior is improper "
                "under its prior NormalJeffreys; give it a proper one, e.g. Laplace, or use vem."
            )


def check_share(**shares: Any) -> None:
    """Probabilities of intervals: between 0 and 1."""
    for name, value in shares.items():
        if not 0 < value < 1:
            raise ValueError(f"{name} is {value!r}; give a number between 0 and 1.")


def check_counts(**counts: Any) -> None:
    """Numbers of draws, chains, steps: whole, and at least 1 (warm-up may be 0); thinning divides the draws."""
    for name, value in counts.items():
        least = 0 if name in ("num_warmup", "num_burn") else 1
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
            raise ValueError(f"{name} is {value!r}; give a whole number of at least {least}.")
    if counts.get("num_samples", 0) % counts.get("thinning", 1):
        raise ValueError(
            f"thinning is {counts['thinning']}, which does not divide num_samples {counts['num_samples']}."
        )
