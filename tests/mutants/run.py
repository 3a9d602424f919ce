"""Plants one mistake at a time in a copy of the project and runs the tests that must notice.

    python tests/mutants/run.py [--workers 2] [part of a name ...]

A mistake is a patch in this folder: what is wrong in a sentence, the tests that must fail, and the change as `git diff`
prints it. Line numbers do not matter, but the lines that a patch takes out must be found once in their file. A patch that no
longer applies is renewed, not dropped: make the same mistake in the new code and write `git diff` over the old change.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FOLDERS = ("models", "inference", "diagnostics", "corpora")  # of the package, beside topiczoo itself
BESIDE = ("tests", "tutorials", "benchmarks", "docs", "pyproject.toml", "README.md", "Makefile", "LICENSE")
NOTHING_RUN = 5  # pytest's word for it: all the tests named are slow ones
LIMIT = 240  # seconds: a mistake may leave a loop without an end, and then it is noticed


@dataclass
class Mutant:
    """A mistake to plant."""

    name: str
    what: str
    tests: list[str]
    changes: list[tuple[str, str, str]]  # file, the lines as they are, the lines with the mistake

    @classmethod
    def read(cls, path: Path) -> Mutant:
        head, *parts = re.split(r"^diff --git .*\n", path.read_text(), flags=re.MULTILINE)
        what = head.splitlines()[0]
        tests = re.findall(r"^caught by: (.+)$", head, flags=re.MULTILINE)
        changes = []
        for part in parts:
            file = re.search(r"^\+\+\+ b/(.+)$", part, flags=re.MULTILINE)
            assert file, f"{path.name} names no file"
            for hunk in re.split(r"^@@.*\n", part, flags=re.MULTILINE)[1:]:
                lines = [line or " " for line in hunk.splitlines()]
                old, new = ("".join(line[1:] + "\n" for line in lines if line[0] in " " + sign) for sign in "-+")
                changes.append((file[1], old, new))
        return cls(path.stem, what, tests, changes)

    def plant(self, root: Path) -> None:
        """Make the change in a copy of the project."""
        for file, old, new in self.changes:
            (root / file).write_text(changed((root / file).read_text(), old, new, f"{self.name}: {file}"))

    def check(self, root: Path = ROOT) -> None:
        """That the change can be made, makes a difference, and that its tests are there."""
        assert self.changes and self.tests and self.what, f"{self.name} lacks a sentence, a test or a change"
        for file, old, new in self.changes:
            assert changed((root / file).read_text(), old, new, f"{self.name}: {file}") and old != new
        for test in self.tests:
            file, _, function = test.partition("::")
            if function and f"def {function.split('[')[0]}(" not in (root / file).read_text():
                raise AssertionError(f"{self.name}: there is no test {test}")


def changed(text: str, old: str, new: str, where: str) -> str:
    """A text with some lines, which must be in it once, in the place of others."""
    if text.count(old) != 1:
        raise AssertionError(f"{where} has the lines to change {text.count(old)} times; renew the patch.")
    return text.replace(old, new)


def mutants(parts: list[str] | None = None) -> list[Mutant]:
    """All mistakes, or those whose name holds one of some texts."""
    found = [Mutant.read(path) for path in sorted(HERE.glob("*.patch"))]
    return [mutant for mutant in found if not parts or any(part in mutant.name for part in parts)]


def copy_project(to: Path) -> dict[str, str]:
    """The project's files in another folder, and the environment in which Python finds the package there."""
    ignored = shutil.ignore_patterns("__pycache__", "*.patch")
    package = to / "site" / "topiczoo"
    shutil.copytree(ROOT / "topiczoo", to / "topiczoo", ignore=ignored)
    package.mkdir(parents=True)
    for path in (to / "topiczoo").iterdir():
        (package / path.name).symlink_to(path)
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, to / folder, ignore=ignored)
        (package / folder).symlink_to(to / folder)
    for name in BESIDE:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, to / name, **({"ignore": ignored} if (ROOT / name).is_dir() else {}))
    cache = os.environ.get("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
    return {**os.environ, "PYTHONPATH": str(to / "site"), "JAX_COMPILATION_CACHE_DIR": cache}


def try_out(mutant: Mutant) -> tuple[str, str, float]:
    """Whether the mistake was caught, by which test or why not, and in how many seconds."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        environment = copy_project(root)
        mutant.plant(root)
        command = f"{sys.executable} -P -m pytest -x -q --no-header -p no:cacheprovider --tb=line".split()
        told: dict = {"cwd": root, "env": environment, "capture_output": True, "text": True, "timeout": LIMIT}
        try:
            run = subprocess.run([*command, "-m", "not slow", *mutant.tests], **told)
            if run.returncode in (0, NOTHING_RUN):
                slow = subprocess.run([*command, "-m", "slow", *mutant.tests], **told)
                run = run if slow.returncode == NOTHING_RUN else slow
        except subprocess.TimeoutExpired:
            return "caught", "no end within the limit", time.perf_counter() - started
    said, seconds = run.stdout + run.stderr, time.perf_counter() - started
    failed = re.search(r"^(?:FAILED|ERROR) (?:tests/)?(\S+)", said, flags=re.MULTILINE)
    if run.returncode == 1 and failed:
        return "caught", failed[1], seconds
    if run.returncode == 0:
        return "SURVIVED", ", ".join(mutant.tests), seconds
    return "BROKEN", said.strip().splitlines()[-1], seconds  # not a mistake that runs, or a test that is not there


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="parts of the names of mistakes to plant; by default all")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    chosen = mutants(options.names)
    for mutant in chosen:
        mutant.check()
    survived = 0
    with ThreadPoolExecutor(options.workers) as threads:
        for mutant, (verdict, by, seconds) in zip(chosen, threads.map(try_out, chosen), strict=True):
            print(f"{verdict:8}  {mutant.name:40}  {seconds:5.0f} s  {by}", flush=True)
            if verdict != "caught":
                print(f"          {mutant.what}")
                survived += 1
    print(f"{len(chosen) - survived} of {len(chosen)} caught")
    return bool(survived) or not chosen


if __name__ == "__main__":
    sys.exit(main())
