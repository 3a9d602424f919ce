"""What engines refuse at the door, each with one sentence that names the argument, the value and the fix."""

from __future__ import annotations

import math
import os
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from topiczoo.corpora import Corpus
from topiczoo.corpora.corpus import long_document
from topiczoo.models.distributions import NormalJeffreys

if TYPE_CHECKING:
    from .graph import StoryGraph
    from .tracing import Story

FIXES = {  # of what could be taken for numbers, by NumPy's kind of dtype
    "M": "dates; give numbers, e.g. days since the first",
    "m": "durations; give numbers, e.g. days",
    "c": "complex numbers; give real ones, e.g. their real parts",
}
MOST_MEMORY = 0.5  # share of the machine's that one site may take
LARGEST_SEED = 2**32 - 1  # JAX's keys have 32 bits of it


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
    if sentence := long_document(corpus):
        warnings.warn(sentence, stacklevel=4)


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


def in_order(corpus: Corpus, y: Any) -> Any:
    """y in the order of the documents where its index names them in another, refused where it names some of them.

    Row numbers name nothing: a frame that was filtered or shuffled before its texts became a corpus still has them. So a
    corpus whose documents are but numbered takes y row by row, and so does one that has none of the index' labels.
    """
    if isinstance(y, dict):
        return {name: in_order(corpus, part) for name, part in y.items()}
    if not isinstance(y, pd.Series | pd.DataFrame) or len(y) != len(corpus):
        return y
    if y.index.nlevels > 1 or not y.index.is_unique:
        return y
    labels, names = pd.Index(y.index.astype(str)), pd.Index(corpus.names)
    if labels.equals(names) or names.equals(pd.RangeIndex(len(names)).astype(str)):
        return y
    known = labels.isin(names)
    if known.all() and names.is_unique:
        return y.iloc[labels.get_indexer(names)]
    if known.any() and not pd.api.types.is_integer_dtype(y.index.dtype):
        raise ValueError(
            f"y has {labels[~known][0]!r} in its index, which is no name of a document, beside others that are; give one "
            "row a document under its name, or y.to_numpy() for rows in the documents' order."
        )
    return y


def numeric_response(corpus: Corpus, y: Any) -> Any:
    """y as float arrays with one row a document, or a dict of them."""
    read = {name: _numbers(name, part, corpus) for name, part in _named(y).items()}
    return dict(zip(y, read.values(), strict=True)) if isinstance(y, dict) else read["y"]


def _named(y: Any) -> dict[str, Any]:
    """The parts of y by the name that a sentence gives them."""
    return {f"y[{name!r}]": part for name, part in y.items()} if isinstance(y, dict) else {"y": y}


def _numbers(name: str, y: Any, corpus: Corpus) -> np.ndarray:
    table = pd.DataFrame(y) if np.ndim(y) == 2 else pd.Series(y)
    for dtype in table.dtypes if np.ndim(y) == 2 else [table.dtype]:
        if dtype.kind in FIXES:
            raise ValueError(f"{name} holds {FIXES[dtype.kind]}.")
    try:
        values = table.to_numpy(float, na_value=np.nan)
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


def refuse_improper(graph: StoryGraph, engine: str) -> None:
    """What draws from the posterior needs one: there is none under an improper prior that is infinite at 0."""
    from .advice import unserved

    for name, site in graph.latent.items():
        if isinstance(site.prior, NormalJeffreys):
            raise unserved(
                graph,
                [engine],
                f"{engine} cannot serve the site {name!r} of the story {graph.story.name!r}: the posterior is improper "
                "under its prior NormalJeffreys",
                "give it a proper one, e.g. Laplace",
            )


def refuse_too_large(graph: StoryGraph) -> None:
    """No site may take more than half of the memory, before any is asked for."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else np.inf
    for name, site in graph.latent.items():
        shape = list(site.shape)
        if site.document_axis is not None:
            shape[site.document_axis] = len(graph.corpus)
        size = 4 * math.prod(shape)
        if size <= MOST_MEMORY * memory:
            continue
        whole = [what for what, value in graph.story.arguments.items() if isinstance(value, int) and value in shape]
        raise ValueError(
            f"The site {name!r} of the story {graph.story.name!r} has the shape {tuple(shape)}, {size / 2**30:,.1f} GiB, "
            f"and this machine has {memory / 2**30:,.1f} GiB of memory; give a smaller {(whole or ['model'])[0]}."
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


def check_draws(most_draws: Any, num_burn: Any) -> None:
    """Draws to work at, all of them or some that an engine chooses if None; sweeps before each."""
    check_counts(num_burn=num_burn, **({} if most_draws is None else {"most_draws": most_draws}))


def check_seed(seed: Any) -> None:
    """A whole number that NumPy's generators and JAX's keys both take, each differently for each."""
    whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
    if not (whole and 0 <= seed <= LARGEST_SEED):
        raise ValueError(f"seed is {seed!r}; give a whole number from 0 to {LARGEST_SEED}.")


def check_numbers(*, zero: bool = False, most: float = np.inf, or_a: str = "", **numbers: Any) -> None:
    """Numbers above 0, or with ``zero`` not below it, and below ``most``."""
    for name, value in numbers.items():
        number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
        if number and (0 <= value if zero else 0 < value) and value < most:
            continue
        wanted = "a number of at least 0" if zero else "a positive number"
        raise ValueError(
            f"{name} is {value!r}; give {f'a number between 0 and {most:g}' if most < np.inf else wanted}{or_a}."
        )
