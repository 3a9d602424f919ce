"""The command line as its pages show it: the page on it and the example of every --help, run with small settings."""

from __future__ import annotations

import itertools
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_command_line import OWN

from topiczoo import __version__, inference
from topiczoo.command_line import RUNS, main
from topiczoo.commands.parser import build_parser

PAGE = (Path(__file__).resolve().parents[1] / "docs/command_line.md").read_text()
SHORT = ["--set", "num_topics=2", "--set", "num_warmup=10", "--set", "num_samples=10", "--set", "num_chains=1"]
# what makes a command short; where an option is given twice the last one counts
SMALL = {
    "fit": SHORT, "compare": ["--engine", "vem", "--set", "num_iterations=3", "--topics", "2,3"],
    "simulate": ["--set", "num_topics=2"], "report": ["--documents", "5"],
}  # fmt: skip


def run(line: str, *more: str) -> int:
    """A line of the shell, in process where it is one of ours."""
    if not line.startswith("topiczoo "):
        return subprocess.run(["bash", "-c", line], check=False).returncode
    arguments = shlex.split(line)[1:]
    return main([*arguments, *SMALL.get(arguments[0], []), *more])


def blocks(kind: str) -> list[str]:
    """The page's blocks of a language, but for those that it says are not run."""
    return re.findall(rf"(?<!-->\n)```{kind}\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.fixture(scope="module")
def worked(tmp_path_factory):
    """A folder in which every command of the page has been given, and what they printed."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "run.toml").write_text(blocks("toml")[0])
    (folder / "story.py").write_text(OWN.replace("def own", "def story"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for line in "".join(blocks("sh")).splitlines():
            assert run(line) == 0, line
    return folder


@pytest.mark.slow
@pytest.mark.longest
def test_the_page_takes_a_file_to_topics_predictions_a_report_and_a_choice(worked):
    new, predictions = pd.read_csv(worked / "new.csv"), pd.read_csv(worked / "predictions.csv")
    assert predictions["id"].tolist() == new["id"].tolist() == list(range(120, 150))
    assert (predictions["low"] < predictions["high"]).all()
    topics = pd.read_csv(worked / "topics.csv")
    assert topics.groupby("topic")["term"].nunique().tolist() == [10, 10] and "eta_low" in topics
    numbers = pd.read_csv(worked / "numbers.csv")
    assert numbers["num_topics"].tolist() == [2, 3] and np.isfinite(numbers["response"]).all()
    assert (worked / "numbers.png").read_bytes().startswith(b"\x89PNG")
    assert "<html" in (worked / "report.html").read_text()


@pytest.mark.slow
@pytest.mark.longest
def test_a_file_of_options_is_as_if_they_were_given(worked):
    fit = inference.load(worked / "fit.nc")
    told = fit.story.arguments
    assert (told["num_topics"], told["alpha"]) == (2, 0.2)  # the command line wins over the file
    assert fit.info["vectoriser"]["min_df"] == 3 and "standardised" in fit.info and fit.info["seed"] == 3


def examples() -> dict[str, str]:
    """What each --help ends with."""
    return {
        name: re.search(r"^example:\n  (topiczoo .+)\n\Z", command.format_help(), flags=re.MULTILINE)[1]
        for name, command in build_parser(__version__, RUNS)[1].items()
    }


def test_every_command_has_an_example_of_itself():
    assert set(examples()) == set(RUNS) == {
        "demo", "models", "simulate", "fit", "resume", "compare", "topics", "predict", "report", "check",
    }  # fmt: skip
    assert all(shlex.split(line)[1] == name for name, line in examples().items())


def test_help_waits_for_nothing_that_is_slow(tmp_path):
    slow = ["jax", "numpyro", "pandas", "scipy", "sklearn", "matplotlib", "tqdm"]
    code = "import sys\nfrom topiczoo.command_line import main\ntry:\n    main(['fit', '--help'])\nexcept SystemExit:\n    "
    code += f"print([name for name in {slow} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("line", [*"".join(blocks("sh")).splitlines(), *examples().values()])
def test_a_command_that_is_shown_is_understood(tmp_path, monkeypatch, line):
    """It comes to the function that does it, with its options; what these do is tested beside."""
    (tmp_path / "run.toml").write_text(blocks("toml")[0])
    monkeypatch.chdir(tmp_path)
    if not line.startswith("topiczoo "):
        return
    given = []
    words = shlex.split(line)[1:]
    monkeypatch.setitem(RUNS, words[0], lambda options: given.append(options) or 0)
    assert main(words) == 0
    for option, value in itertools.pairwise(words):
        if option.startswith("--") and not value.startswith("--") and option not in ("--set", "--y", "--standardise"):
            assert str(getattr(given[0], option[2:].replace("-", "_"))) in (value, f"{value}.0")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(RUNS) - {"demo", "resume"}))
def test_the_example_of_a_command_works(worked, monkeypatch, name):
    """On the page's files, whose fits have been made; resume has a test of its own, for it needs one that was cut short."""
    monkeypatch.chdir(worked)
    assert run(examples()[name], *([] if name in ("models", "check") else ["--force"])) == 0


@pytest.mark.longest
def test_the_example_of_the_demonstration_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    short = {"num_topics": 2, "num_warmup": 10, "num_samples": 40, "thinning": 4, "num_chains": 2}
    monkeypatch.setattr("topiczoo.demo.SETTINGS", short)
    assert run(examples()["demo"]) == 0
    assert (tmp_path / "demo.html").exists()
