"""No path of a machine in the project's text: the check that `make lint` runs finds one where there is one."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
spec = importlib.util.spec_from_file_location("ci_paths", ROOT / ".ci" / "paths.py")
paths = importlib.util.module_from_spec(spec)
spec.loader.exec_module(paths)


@pytest.mark.parametrize("before", ["", "see ", "--data ", "--data=", "'", "file `", "("])
@pytest.mark.parametrize("place", ["home/ann/corpus", "Users/ann", "work/data", "tmp/x", "mnt/d/reviews.csv"])
def test_a_path_of_a_machine_is_found(tmp_path, before, place):
    (tmp_path / "results.md").write_text(f"fine\n{before}/{place} is where it was\n")
    assert [line.split(" ")[0] for line in paths.found_in(tmp_path)] == ["results.md:2:"]


@pytest.mark.parametrize(
    "line", ["../shared/data/x", "benchmarks/data/x", "https://example.org/home/x", "a / b", "./tmp/x"]
)
def test_other_paths_are_left_alone(tmp_path, line):
    (tmp_path / "results.md").write_text(line + "\n")
    assert paths.found_in(tmp_path) == []
