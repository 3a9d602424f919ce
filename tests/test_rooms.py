"""The house: which room may know which, no circles, and no engine that knows a model."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

from topiczoo.models.catalogue import stories

ROOT = Path(__file__).resolve().parents[1]
# a room may import those of lower rank, and its own; arrays know no story, and engines do not know each other
RANK = {
    "corpora.files": -1, "corpora": 0, "models.vocabulary": 0, "models.structured": 0.5, "models": 1,
    "inference.programs": 2,
    "inference.native": 2.2, "inference.samplers": 2.5, "inference.kernels": 3, "inference.steps": 3.2, "inference.gpu": 3.5,
    "inference.story": 4, "inference.streams": 4.5, "inference.posterior": 5, "inference.lasting": 5.5,
    "inference.blocks": 6, "inference.mcmc": 7,
    "inference.em": 8, "inference.marginal": 8, "inference.predictive": 8, "inference.online_em": 8.5,
    "inference": 9, "diagnostics.convergence": 10, "diagnostics.scoring": 10,
    "diagnostics.checks": 11, "diagnostics.plotting": 12, "diagnostics.drawing": 12.5, "diagnostics.reporting": 13,
    "diagnostics": 14, "topiczoo.commands": 15, "topiczoo.estimators": 15, "topiczoo": 16,
}  # fmt: skip
MOST_FILES = 14


@functools.cache
def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name, without the first part."""
    found = {}
    for folder in ("corpora", "models", "inference", "diagnostics", "topiczoo"):
        for path in (ROOT / folder).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name: str, path: Path) -> list[tuple[str, bool]]:
    """The modules of the package that a module imports, and whether within a function."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found = []
    for node, inside in imports_of(ast.parse(path.read_text())):
        if node.level:
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1])
            start = f"{base}.{node.module}" if node.module else base
        elif (node.module or "").startswith("topiczoo."):
            start = node.module.removeprefix("topiczoo.")
        else:
            continue
        for alias in node.names:
            whole = f"{start}.{alias.name}"
            found.append((whole if whole in modules() else start, inside))
    return found


def imports_of(node: ast.AST, inside: bool = False) -> list[tuple[ast.ImportFrom, bool]]:
    """What a tree imports from modules, and whether within a function; no statement is within an expression."""
    if isinstance(node, ast.ImportFrom):
        return [(node, inside)]
    inside |= isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    below = (child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr))
    return [found for child in below for found in imports_of(child, inside)]


@functools.cache
def graph() -> dict[str, list[tuple[str, bool]]]:
    """What every module imports: found out when a test asks, not when tests are collected."""
    return {name: imports(name, path) for name, path in modules().items()}


def room(module: str) -> str:
    parts = module.split(".")
    inner = ".".join(parts[:2])
    return inner if inner in RANK else parts[0]


@pytest.mark.parametrize("module", sorted(modules()))
def test_a_module_imports_only_from_rooms_below_its_own(module):
    for other, _ in graph()[module]:
        own, its = room(module), room(other)
        assert own == its or RANK[its] < RANK[own], f"{module} imports {other}"


def test_there_is_no_circle():
    done: set[str] = set()

    def follow(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, f"a circle: {' -> '.join((*path[path.index(module) :], module))}"
        if module not in done:
            for other, _ in graph()[module]:
                if other != module and other in graph():
                    follow(other, (*path, module))
            done.add(module)

    for module in graph():
        follow(module, ())


def test_nothing_of_the_package_is_imported_within_a_function():
    """But for the catalogue, which lists what its own package exports, for JAX, which readers of files do without, and for
    the command line, whose --help must not wait for either."""
    late = {(module, other) for module, found in graph().items() for other, inside in found if inside}
    late = {(module, other) for module, other in late if not room(module).startswith("topiczoo")}
    assert late <= {("models.catalogue", "models"), ("corpora.corpus", "corpora.pairs")}, late


def test_programs_are_compiled_in_one_way():
    """What the compiler is told is in one place, and handed on where a program was found on the disk; the GPU's trial of a
    kernel compiles nothing that runs."""
    own = {"inference/programs/compiling.py", "inference/programs/lowered.py", "inference/gpu/choosing.py"}
    found = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "inference").rglob("*.py")
        if re.search(r"(?<!`)jax\.jit\b", path.read_text())
    }
    assert found == own


def test_no_room_is_crowded():
    crowd: dict[str, int] = {}
    for module, path in modules().items():
        if path.name != "__init__.py":
            crowd[room(module)] = crowd.get(room(module), 0) + 1
    assert max(crowd.values()) <= MOST_FILES, crowd


# words that are arguments of stories and have a meaning of their own here: of run information, of roles, of the graph, and
# of the corpus, and as parameters of distributions
OWN_WORDS = {"alpha", "response", "num_topics", "scale", "prior", "margin", "weight", "cost", "epsilon", "covariates"}
OWN_WORDS |= {"labels"}  # of a document, in a class above its words


def test_no_engine_diagnostic_or_command_knows_a_model_or_an_argument_of_one():
    """No text in the code beyond docstrings and sentences is the name of a story of the zoo or of one of its arguments."""
    import inspect

    names = set(stories())
    for story in stories().values():
        names |= {p.name for p in inspect.signature(story).parameters.values() if p.kind is p.KEYWORD_ONLY}
    names -= OWN_WORDS
    folders = [
        *(ROOT / "inference").rglob("*.py"),
        *(ROOT / "diagnostics").rglob("*.py"),
        ROOT / "topiczoo/command_line.py",
        *(ROOT / "topiczoo/commands").glob("*.py"),
    ]
    for path in folders:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert node.value not in names, f"{path.relative_to(ROOT)}:{node.lineno} knows {node.value!r}"
