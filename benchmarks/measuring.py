"""What the benchmarks share: a process for each part, the machine in words, and sections of results.md."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def run_part(script, name, **options):
    """What a script's part prints as JSON, run in a process of its own, so that memory and threads are its own."""
    flags = [word for option, value in options.items() for word in (f"--{option}", str(value))]
    command = [sys.executable, script, "--part", name, *flags]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(output.strip().split("\n")[-1])


def circumstances(script, packages):
    """The command, the machine and the versions, for the head of a table."""
    versions = ", ".join(f"{package} {importlib.metadata.version(package)}" for package in packages)
    command = " ".join(["python", f"benchmarks/{Path(script).name}", *sys.argv[1:]])
    return (
        f"`{command}` on {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}; {versions}."
    )


def write_section(title, text):
    """Put a section into results.md, in the place of an older one of the same title."""
    path = HERE / "results.md"
    sections = path.read_text().split("\n## ")
    kept = [section.rstrip("\n") for section in sections if not section.split("\n")[0].endswith(title)]
    path.write_text("\n\n## ".join([*kept, f"{datetime.date.today()}: {title}\n\n{text}"]) + "\n")
