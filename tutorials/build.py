"""Execute the tutorials and write each notebook, with its outputs, beside its source.

    python tutorials/build.py               # all of them
    python tutorials/build.py first.py      # one

A tutorial's source is a Python file in jupytext's percent format; its notebook is never edited by hand. The list
in README.md is their order.
"""

import argparse
import re
import sys
import tempfile
from pathlib import Path

import jupytext
import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parent
SECONDS_PER_CELL = 900


def listed() -> dict[str, str]:
    """Titles of the tutorials by the name of their source, in the order of README.md."""
    lines = re.findall(r"^\d+\. \[(.+?)\]\((\w+)\.ipynb\)", (HERE / "README.md").read_text(), flags=re.MULTILINE)
    return {name: title for title, name in lines}


def sources() -> list[Path]:
    """All sources, in the order of README.md."""
    order = list(listed())
    files = [file for file in HERE.glob("*.py") if file.name != Path(__file__).name]
    return sorted(files, key=lambda file: (order.index(file.stem) if file.stem in order else len(order), file.name))


def read(source: Path) -> nbformat.NotebookNode:
    """The source's cells as a notebook without outputs, the same at each reading."""
    notebook = jupytext.read(source, fmt="py:percent")
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for i, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{i}"  # random by default: every build would differ
    return notebook


def execute(notebook: nbformat.NotebookNode, folder: Path) -> nbformat.NotebookNode:
    """Run every cell in order, in folder, by this Python; an error in a cell is raised."""
    metadata = notebook.metadata.copy()
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=SECONDS_PER_CELL,
        record_timing=False,
        resources={"metadata": {"path": str(folder)}},
    )
    # No folders to search: "python3" is then this Python's own kernel, whatever the user has registered.
    client.create_kernel_manager().kernel_spec_manager = KernelSpecManager(kernel_dirs=[])
    client.execute()
    notebook.metadata = metadata  # the kernel adds its exact version
    return notebook


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Execute the tutorials and write their notebooks.")
    parser.add_argument("source", nargs="*", type=Path, help="sources to build (default: all)")
    chosen = parser.parse_args(arguments).source
    for source in [HERE / file.name for file in chosen] or sources():
        print(f"{source.name} ...", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            notebook = execute(read(source), Path(folder))
        nbformat.write(notebook, source.with_suffix(".ipynb"))


if __name__ == "__main__":
    sys.exit(main())
