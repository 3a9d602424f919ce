"""What the benchmarks share: a process for each part, files of results, the machine in words, sections of results.md."""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

HERE = Path(__file__).resolve().parent


def run_part(script, name, **options):
    """What a script's part prints as JSON, run in a process of its own, so that memory and threads are its own."""
    flags = [word for option, value in options.items() for word in (f"--{option}", str(value))]
    command = [sys.executable, script, "--part", name, *flags]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(output.strip().split("\n")[-1])


class Results:
    """Rows of results in a file, one JSON object a line, so that a run goes on where an earlier one ended.

    ``keys`` name what tells one part from another. Without a file rows are only printed.
    """

    def __init__(self, path, keys):
        self.path, self.keys = path, keys

    def done(self):
        """The rows there are, by their keys; read anew, since another process may write to the file."""
        if self.path is None or not self.path.exists():
            return {}
        rows = map(json.loads, self.path.read_text().splitlines())
        return {tuple(row[key] for key in self.keys): row for row in rows}

    def part(self, place, make):
        """The row at a place: as it is there, or else made, timed and added."""
        row = self.done().get(place)
        if row is None:
            began = time.perf_counter()
            row = dict(zip(self.keys, place, strict=True)) | make()
            row["seconds"] = time.perf_counter() - began
            self.add(row)
        return row

    def add(self, row):
        print(json.dumps(row)[:300], flush=True)
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(json.dumps(row) + "\n")


def cell(values, form=".3f", spread=True):
    """Mean ± standard deviation (number), empty where there is nothing."""
    values = [float(value) for value in values if value is not None and value == value]
    if not values:
        return ""
    around = f" ± {statistics.stdev(values):{form}}" if spread and len(values) > 1 else ""
    return f"{statistics.fmean(values):{form}}{around} ({len(values)})"


def table_of(title, heads, rows):
    """A table: rows are pairs of a name and its cells, padded to the right; rows without anything are left out."""
    lines = [f"| {title} | " + " | ".join(heads) + " |", "|---|" + "---|" * len(heads)]
    for name, cells in rows:
        if any(cells):
            lines.append(f"| {name} | " + " | ".join([*cells, *[""] * (len(heads) - len(cells))]) + " |")
    return "\n".join(lines)


def show(text, title, write):
    """Print a section, and put it into results.md where that is asked for."""
    print(text)
    if write:
        write_section(title, text)


def frame(paths):
    """The rows of several files."""
    return pd.DataFrame([json.loads(line) for path in paths for line in path.read_text().splitlines()])


def add_options(parser):
    """The options of every benchmark that runs part by part."""
    parser.add_argument("--into", type=Path, help="where results go, one line each; what is there is not run again")
    parser.add_argument("--from", dest="files", nargs="*", type=Path, help="show results of earlier runs")
    parser.add_argument("--write", action="store_true", help="put what is shown into results.md")


def asked(doc, **choices):
    """The arguments of a benchmark: lists where the default is one, and the options of every benchmark."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in choices.items():
        if isinstance(default, bool):
            parser.add_argument(f"--{name}", action="store_true")
        elif isinstance(default, str):
            parser.add_argument(f"--{name}", default=default)
        else:
            kind = type(default[0])
            parser.add_argument(
                f"--{name}", default=list(default), type=lambda text, kind=kind: list(map(kind, text.split(",")))
            )
    add_options(parser)
    return parser.parse_args()


def parsed(parser):
    """The arguments, with an option more: to sweep in C++."""
    parser.add_argument("--compiled", action="store_true", help="sweep by inference.compile_sweep")
    options = parser.parse_args()
    if options.compiled:
        from topiczoo import inference

        inference.compile_sweep()
    return options


def cosines(one, other):
    """Of the rows of one array with those of another, [..., rows, rows]."""
    one, other = (part / np.linalg.norm(part, axis=-1, keepdims=True) for part in (one, other))
    return one @ np.swapaxes(other, -1, -2)


def matched(one, other):
    """For each topic of one the topic of the other that it is matched with, and their cosines."""
    from scipy.optimize import linear_sum_assignment

    found = cosines(one, other)
    rows, columns = linear_sum_assignment(-found)
    return columns, found[rows, columns]


def of_every(keys, part, table, doc, script, packages, title, **choices):
    """A benchmark of every combination of its choices: ``part`` of each is a row, told apart by ``keys``; or, of the rows of
    earlier runs, the table."""
    options = asked(doc, **choices)
    if options.files:
        text = f"`python benchmarks/{Path(script).name} --into FILE`, shown by {circumstances(script, packages)}\n\n"
        show(text + table(frame(options.files)), title, options.write)
        return
    results = Results(options.into, keys)
    for place in itertools.product(*(getattr(options, name) for name in choices)):
        results.part(place, partial(part, *place))


def shown(arguments, script, packages, table, title, repeats):
    """Whether results of earlier runs are asked for: then they are shown."""
    if not arguments.files:
        return False
    text = f"`python benchmarks/{Path(script).name} --into FILE`, shown by {circumstances(script, packages)}"
    text += f"\n\n{table(frame(arguments.files))}\n\nMean ± standard deviation (number of {repeats})."
    show(text, title, arguments.write)
    return True


def largest_fall(fit):
    """Of the bound in an iteration, as a share of itself; None where there is no bound."""
    bound = fit.info.get("bound", ())
    falls = [(before - after) / abs(after) for before, after in itertools.pairwise(bound)]
    return max(0.0, *map(float, falls)) if falls else None


def circumstances(script, packages):
    """The command, the machine and the versions, for the head of a table."""
    versions = ", ".join(f"{package} {importlib.metadata.version(package)}" for package in packages)
    # folders of this machine say nothing to a reader: they are told from the project's own
    project = Path(__file__).resolve().parents[1]
    told = [os.path.relpath(word, project) if os.path.isabs(word) else word for word in sys.argv[1:]]
    command = " ".join(["python", f"benchmarks/{Path(script).name}", *told])
    return (
        f"`{command}` on {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}; {versions}."
    )


def write_section(title, text):
    """Put a section into results.md, in the place of an older one of the same title."""
    path = HERE / "results.md"
    sections = path.read_text().split("\n## ")
    kept = [section.rstrip("\n") for section in sections if not section.split("\n")[0].endswith(title)]
    path.write_text("\n\n## ".join([*kept, f"{datetime.date.today()}: {title}\n\n{text}"]) + "\n")
