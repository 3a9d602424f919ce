"""Every tutorial runs, and the notebook kept beside it is what its source gives."""

import importlib.util
import re
from pathlib import Path

import nbformat
import pytest

TUTORIALS = Path(__file__).resolve().parents[1] / "tutorials"


def load_build():
    spec = importlib.util.spec_from_file_location("tutorials_build", TUTORIALS / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build = load_build()
each_source = pytest.mark.parametrize("source", build.sources(), ids=lambda source: source.stem)


def cells(notebook):
    return [(cell.cell_type, cell.source) for cell in notebook.cells]


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]


SWEEPS = re.compile(r"""(num_(?:warmup|samples)"?[:=] ?)(\d+)""")


@pytest.mark.slow
@each_source
def test_tutorial_runs(source, tmp_path):
    """With a quarter of the sweeps: that every cell works. What they give is in the notebook, made with all of them."""
    notebook = build.read(source)
    for cell in code_cells(notebook):
        cell.source = SWEEPS.sub(lambda found: f"{found[1]}{int(found[2]) // 4}", cell.source)
    build.execute(notebook, tmp_path)
    assert all(cell.execution_count for cell in code_cells(notebook))


@each_source
def test_notebook_is_its_source_executed(source):
    kept = source.with_suffix(".ipynb")
    assert kept.exists(), "make tutorials writes it"
    notebook = nbformat.read(kept, as_version=4)
    nbformat.validate(notebook)
    assert cells(notebook) == cells(build.read(source)), "the source has changed: make tutorials"
    executed = code_cells(notebook)
    assert [cell.execution_count for cell in executed] == list(range(1, len(executed) + 1))
    outputs = [output for cell in executed for output in cell.outputs]
    assert outputs
    assert not [output for output in outputs if output.output_type == "error"]


def test_no_notebook_without_a_source():
    assert {file.stem for file in TUTORIALS.glob("*.ipynb")} <= {source.stem for source in build.sources()}


EXAMPLE = """# %% [markdown]
# # A title

# %%
import pathlib

pathlib.Path("left.txt").write_text("here")

# %%
1 + {value}
"""


def test_building_a_notebook(tmp_path):
    source = tmp_path / "example.py"
    source.write_text(EXAMPLE.format(value=1))
    notebook = build.execute(build.read(source), tmp_path)
    nbformat.validate(notebook)
    assert [cell.cell_type for cell in notebook.cells] == ["markdown", "code", "code"]
    assert notebook.cells[-1].outputs[0].data["text/plain"] == "2"
    assert (tmp_path / "left.txt").read_text() == "here"
    assert build.execute(build.read(source), tmp_path) == notebook


def test_an_error_in_a_cell_is_raised(tmp_path):
    source = tmp_path / "example.py"
    source.write_text(EXAMPLE.format(value="None"))
    with pytest.raises(Exception, match="TypeError"):
        build.execute(build.read(source), tmp_path)
