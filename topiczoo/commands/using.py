"""What is asked of a saved fit: ``topiczoo predict``, ``report`` and ``topics``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .arguments import aside, check_output, find_story
from .documents import read_new, stream_of
from .printing import leading_of_classes, print_classes, print_topics

PARQUET = (".parquet", ".pq")


def load_fit(options: argparse.Namespace) -> Any:
    """The fit, with the story that is named for it."""
    from topiczoo import inference

    try:
        return inference.load(options.fit, find_story(options.story) if options.story else None)
    except ValueError as error:
        said = str(error).replace("pass it: load(path, story=...)", "give it by --story file.py:function")
        raise ValueError(said) from None


def predict(options: argparse.Namespace) -> int:
    from topiczoo import corpora

    check_output(options.out, options.force, stream=True)
    if not 0 < options.interval < 1:
        raise ValueError(f"--interval is {options.interval}; give a number between 0 and 1.")
    fit = load_fit(options)
    if is_stream(options):
        return predict_stream(options, fit)
    with aside(options.out):
        corpus, _ = read_new(options, options.data, fit)
    if not fit.response.parts:
        frame = proportions(fit, corpus, options.seed)
    else:
        prediction = fit.predict(corpus, seed=options.seed, progress_bar=True)
        frame = table_of(prediction, options.interval)
    if "standardised" in fit.info:
        shift, scale = fit.info["standardised"]
        frame = frame * scale + shift
    if options.id:
        frame = frame.rename_axis(options.id)  # so that it can be joined to the file it came from
    corpora.write_csv(frame, options.out, raw=options.raw)
    with aside(options.out):
        print(f"{len(frame)} predictions written to {options.out}")
    return 0


def is_stream(options: argparse.Namespace) -> bool:
    """Whether documents are read and written batch by batch: Parquet on both sides."""
    written, pattern = Path(options.out).suffix.lower() in PARQUET, not Path(options.data).exists()
    pattern = pattern and any(sign in options.data for sign in "*?[")
    if pattern and not written:
        raise ValueError(f"DATA is {options.data!r}, a pattern of Parquet files; let OUT end in .parquet as well.")
    if written and not (pattern or Path(options.data).suffix.lower() in PARQUET or Path(options.data).is_dir()):
        raise ValueError(f"OUT is {options.out!r}, which is written from Parquet files alone; let it end in .csv.")
    return written


def predict_stream(options: argparse.Namespace, fit: Any) -> int:
    """Predictions, or proportions where there is no response, from Parquet to Parquet."""
    from topiczoo.inference.filing import predictions_of, proportions_of, write

    stream, seed = stream_of(options, options.data, fit), {"seed": options.seed}
    told = predictions_of(fit, options.interval, **seed) if fit.response else proportions_of(fit, **seed)
    shift, scale = fit.info.get("standardised", (None, None))
    path = write(options.out, stream, told if scale is None else lambda corpus: told(corpus) * scale + shift)
    print(f"{stream.num_documents} predictions written to {path}")
    return 0


def table_of(prediction: Any, interval: float) -> Any:
    """A row a document; of several responses the columns of each have its name before them."""
    if not isinstance(prediction, dict):
        return prediction.frame(interval)
    import pandas as pd

    frames = [part.frame(interval).add_prefix(f"{name}: ") for name, part in prediction.items()]
    return pd.concat(frames, axis=1)


def proportions(fit: Any, corpus: Any, seed: int) -> Any:
    """Expected topic proportions of new documents, by the first chain, where there is no response to predict."""
    import pandas as pd

    shares = fit.transform(corpus, seed=seed, progress_bar=True)
    columns = [f"topic {number}" for number in range(shares.shape[1])]
    return pd.DataFrame(shares, pd.Index(corpus.names, name="document"), columns)


def report(options: argparse.Namespace) -> int:
    from topiczoo import diagnostics

    if (options.y or options.responses) and not options.test:
        raise ValueError("--y names a column of the held-out file; give that file with --test.")
    check_output(options.out, options.force)
    fit = load_fit(options)
    test, y = read_new(options, options.test, fit, keep_texts=True) if options.test else (None, None)
    if y is not None and fit.classes is None:
        if y.dtype.kind not in "fiu":
            raise ValueError(f"The column {options.y!r} holds labels; code them as numbers, as they were for the fit.")
        shift, scale = fit.info.get("standardised", (0.0, 1.0))
        y = (y - shift) / scale
    diagnosis = diagnostics.diagnose(fit, seed=options.seed)
    path = diagnostics.report(
        diagnosis, options.out, test=test, y_test=y, documents=options.documents, seed=options.seed
    )
    print(f"{diagnosis.verdict}\nreport written to {path}")
    return 0


def topics(options: argparse.Namespace) -> int:
    from topiczoo import corpora

    if options.out:
        check_output(options.out, options.force, stream=True)
    if options.n < 1:
        raise ValueError(f"--n is {options.n}; give a number of terms from 1 on.")
    fit = load_fit(options)
    chains = next(iter({**fit.snapshots, **fit.draws}.values())).shape[0]
    if not 0 <= options.chain < chains:
        raise ValueError(f"--chain is {options.chain}; the fit has chains 0 to {chains - 1}.")
    if not options.out:
        if fit.has_topics:
            print_topics(fit, options.n, options.chain, options.by)
        else:
            print_classes(fit, options.n, options.chain)
        return 0
    table = (
        fit.topics(options.n, by=options.by, chain=options.chain)
        if fit.has_topics
        else leading_of_classes(fit, options.n, options.chain)
    )
    corpora.write_csv(table.set_index(table.columns[0]), options.out)
    what = "topics" if fit.has_topics else "classes"
    with aside(options.out):
        print(f"{table['topic' if fit.has_topics else 'label'].nunique()} {what} written to {options.out}")
    return 0
