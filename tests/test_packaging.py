"""The installed package: its names, what importing it costs and needs, and that nothing is left out of it."""

import importlib
import importlib.metadata
import os
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SUBPACKAGES = ["corpora", "diagnostics", "inference", "models"]
PACKAGE_FOLDERS = {name: ROOT / folder for name, folder in PYPROJECT["tool"]["setuptools"]["package-dir"].items()}


def python(code, cwd, **environment):
    """Run code in a fresh interpreter; a variable given as None is removed from its environment."""
    env = {k: v for k, v in {**os.environ, **environment}.items() if v is not None}
    return subprocess.run([sys.executable, "-c", code], cwd=cwd, env=env, capture_output=True, text=True, timeout=300)


def output_of(code, cwd, **environment):
    done = python(code, cwd, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


PRECISION = "; import jax; print(jax.config.jax_default_matmul_precision)"


def test_subpackages_import_from_anywhere(tmp_path):
    names = ", ".join(SUBPACKAGES)
    code = f"from topiczoo import {names}; print(*(m.__name__ + ' ' + m.__file__ for m in ({names})), sep='\\n')"
    *lines, precision = output_of(code + PRECISION, tmp_path, JAX_DEFAULT_MATMUL_PRECISION=None).splitlines()
    assert precision == "float32"  # matrices are multiplied in whole float32, unless the user says otherwise
    found = [line.split(" ", 1) for line in lines]
    assert [name for name, _ in found] == [f"topiczoo.{name}" for name in SUBPACKAGES]
    assert [Path(file).resolve() for _, file in found] == [ROOT / name / "__init__.py" for name in SUBPACKAGES]


def test_all_lists_what_there_is():
    import topiczoo

    for name in topiczoo.__all__:
        getattr(topiczoo, name)
    assert set(topiczoo.__all__) <= set(dir(topiczoo))
    assert set(SUBPACKAGES) <= set(topiczoo.__all__)
    with pytest.raises(AttributeError, match="no_such_name"):
        topiczoo.no_such_name  # noqa: B018


PLAIN = """
import importlib
for name in {names}:
    try:
        importlib.import_module(name)
    except ImportError as error:
        print(error)
"""


def test_plain_names_are_refused_at_the_root():
    said = output_of(PLAIN.format(names=SUBPACKAGES), ROOT).splitlines()
    assert len(said) == 4 and all(f"topiczoo.{name}" in line for name, line in zip(SUBPACKAGES, said, strict=True))


def test_importing_the_package_alone_imports_nothing_that_is_slow(tmp_path):
    slow = ["jax", "numpyro", "pandas", "scipy", "sklearn", "xarray", "matplotlib", "arviz_stats"]
    code = f"import sys, topiczoo; print([name for name in {slow} if name in sys.modules])"
    assert output_of(code, tmp_path) == "[]"


def test_no_plots_needed(tmp_path):
    # None in sys.modules makes an import fail as if the package were not installed.
    packages = ["arviz", "arviz_base", "arviz_stats", "arviz_plots", "matplotlib"]
    code = f"import sys; sys.modules.update(dict.fromkeys({packages})); "
    code += "import topiczoo.corpora, topiczoo.inference, topiczoo.models; print('imported')"
    found = output_of(code + PRECISION, tmp_path, JAX_DEFAULT_MATMUL_PRECISION="bfloat16").splitlines()
    assert found == ["imported", "bfloat16"]


DEVICES = "import topiczoo, jax; print(jax.local_device_count('cpu'))"


THREADS = "import os, topiczoo; print(os.environ['PJRT_NPROC'])"


def test_the_number_of_host_devices_is_the_users_and_xlas_threads_are_enough_for_it(tmp_path):
    forced = "--xla_force_host_platform_device_count={}"
    assert output_of(DEVICES, tmp_path, XLA_FLAGS=None, JAX_NUM_CPU_DEVICES=None) == "1"
    assert output_of(DEVICES, tmp_path, XLA_FLAGS=forced.format(3), JAX_NUM_CPU_DEVICES=None) == "3"
    threads = [output_of(THREADS, tmp_path, XLA_FLAGS=forced.format(n), PJRT_NPROC=None) for n in (1, 8, 99)]
    assert threads[0] == threads[1] == str(max(os.cpu_count(), 8) + 1)
    assert threads[2] == str(max(os.cpu_count(), 99) + 1)
    assert output_of(THREADS, tmp_path, XLA_FLAGS=None, PJRT_NPROC="5") == "5"


BATCHES = """
import topiczoo, jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, PartitionSpec

matrices = jnp.asarray(np.eye(20) + 0.01 * np.random.default_rng(0).normal(size=(2, 256, 20, 20)), jnp.float32)
mesh, split = Mesh(np.asarray(jax.devices()), ("shards",)), PartitionSpec("shards")

def solve(matrices):
    step = lambda i, x: jnp.linalg.solve(matrices[0], x) * 0.5 + 1.0
    return jax.lax.fori_loop(0, 3000, step, jnp.ones((256, 20, 1)))[None]

program = jax.jit(jax.shard_map(solve, mesh=mesh, in_specs=split, out_specs=split, check_vma=False))
print(sum(bool(np.isfinite(program(matrices)).all()) for _ in range(6)))
"""


@pytest.mark.slow
def test_devices_that_all_solve_batches_of_small_matrices_do_not_wait_for_each_other(tmp_path):
    flags = "--xla_force_host_platform_device_count=2"
    assert output_of(BATCHES, tmp_path, XLA_FLAGS=flags, PJRT_NPROC=None).strip() == "6"


def test_version_is_the_projects():
    import topiczoo

    # Another version here means the package was installed before the number changed: pip install -e . again.
    assert topiczoo.__version__ == importlib.metadata.version("topiczoo") == PYPROJECT["project"]["version"]


def test_command_is_there():
    (command,) = importlib.metadata.entry_points(group="console_scripts", name="topiczoo")
    assert callable(command.load())


def test_every_folder_of_code_is_listed():
    """Packages are listed by hand: a new folder of modules would work here and be missing from a wheel."""
    listed = set(PACKAGE_FOLDERS.values())
    assert set(PACKAGE_FOLDERS) == set(PYPROJECT["tool"]["setuptools"]["packages"])
    assert {file.parent for folder in listed for file in folder.rglob("*.py")} == listed


def test_every_data_file_is_listed():
    listed = PYPROJECT["tool"]["setuptools"].get("package-data", {})
    for package, folder in PACKAGE_FOLDERS.items():
        inner = [other for other in PACKAGE_FOLDERS.values() if folder in other.parents]
        found = [file for file in folder.rglob("*") if file.is_file() and not any(i in file.parents for i in inner)]
        files = [str(file.relative_to(folder)) for file in found]
        data = [file for file in files if not file.endswith((".py", ".pyc"))]
        assert [file for file in data if not any(fnmatch(file, pattern) for pattern in listed.get(package, []))] == []
