"""Every tutorial runs, and the notebook kept beside it is what its source gives."""

import ast
import contextlib
import importlib.util
import linecache
import re
from pathlib import Path
from unittest import mock

import matplotlib.pyplot as plt
import nbformat
import pytest

from topiczoo.inference import registered_blocks

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


LENGTHS = re.compile(r"""(num_(?:warmup|samples|steps|simulations)"?[:=] ?)(\d+)""")


def run_cells(notebook, called):
    """Run the cells in this process, as a kernel would; how many values were shown.

    A kernel for each tutorial would import everything and compile every small operation anew.
    """
    space, shown = {"__name__": "__main__"}, 0
    for i, cell in enumerate(code_cells(notebook)):
        file = f"<{called}, cell {i}>"
        linecache.cache[file] = len(cell.source), None, cell.source.splitlines(keepends=True), file
        *statements, last = ast.parse(cell.source, file).body
        if not isinstance(last, ast.Expr):
            statements, last = [*statements, last], None
        exec(compile(ast.Module(statements, []), file, "exec"), space)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), file, "eval"), space)
            shown += value is not None
            getattr(value, "_repr_html_", value.__repr__)()
    return shown


def shorter(found):
    """A tenth, but not less than six."""
    number = int(found[2])
    return f"{found[1]}{max(number // 10, min(number, 6))}"


@pytest.mark.slow
@each_source
def test_tutorial_runs(source, tmp_path):
    """With a tenth of the sweeps, steps and simulations: every cell works. What all of them give is in the notebook."""
    notebook = build.read(source)
    for cell in code_cells(notebook):
        cell.source = LENGTHS.sub(shorter, cell.source)
    with contextlib.chdir(tmp_path), mock.patch.object(plt, "show", lambda: plt.close("all")):
        assert run_cells(notebook, source.stem)
    assert not registered_blocks(), "a tutorial takes back the blocks that it has registered"
    plt.close("all")


def test_cells_run_as_in_a_kernel(tmp_path):
    source = tmp_path / "example.py"
    source.write_text(EXAMPLE.format(value=1))
    with contextlib.chdir(tmp_path):
        assert run_cells(build.read(source), "example") == 2  # what write_text returns is shown, too
    assert (tmp_path / "left.txt").read_text() == "here"
    source.write_text(EXAMPLE.format(value="None"))
    with pytest.raises(TypeError), contextlib.chdir(tmp_path):
        run_cells(build.read(source), "example")


def test_the_list_of_tutorials_is_whole_and_names_them_by_their_titles():
    titles = {source.stem: build.read(source).cells[0].source.splitlines()[0] for source in build.sources()}
    assert {name: f"# {title}" for name, title in build.listed().items()} == titles
    assert list(build.listed()) == [source.stem for source in build.sources()]


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
