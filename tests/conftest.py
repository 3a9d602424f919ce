"""What every test needs: JAX on two CPU devices, compiled programs kept, no second copy of a module."""

import gc
import os
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Set before jax is first imported; subprocesses and notebook kernels inherit it.
# Two devices: enough for chains in parallel and for sharded documents, and the same on every machine.
# Most of a test is compiling and its data are tiny: plain machine code is ready in half the time.
FLAGS = ["--xla_force_host_platform_device_count=2", "--xla_backend_optimization_level=0"]
if version("jax").startswith("0.10."):  # XLA stops at a flag it does not know
    FLAGS += ["--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1"]
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", " ".join(FLAGS))
os.environ.setdefault("TOPICZOO_NATIVE", "off")  # tests of XLA's sweep must not find the other, which a user has built
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")  # what is written must be worth it

from topiczoo.inference.programs.keeping import forget  # noqa: E402

gc.set_threshold(
    200_000, 50, 100
)  # tracing makes so many small objects that looking for circles takes a twentieth of all


@pytest.fixture(scope="session")
def folder_of_the_library(tmp_path_factory):
    """Where the C++ kernels are built once for all tests of them."""
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session", autouse=True)
def one_copy_of_each_module():
    """The folder models is topiczoo.models: imported under its plain name it would be a second copy."""
    yield
    copies = {"corpora", "diagnostics", "inference", "models"} & sys.modules.keys()
    assert not copies, f"imported under their plain names: {sorted(copies)}"


@pytest.fixture(autouse=True)
def no_program_from_before_a_patch(request):
    """Programs that are kept do not know that a test has changed a limit or a function."""
    patched = "monkeypatch" in request.fixturenames
    if patched:
        request.getfixturevalue("monkeypatch")  # set up first, so that it is undone last
        forget()
    yield
    if patched:
        forget()


# by how long they take, as far as it matters: what is dear at the end keeps one worker waiting for the other
FIRST = (
    "test_tutorials", "test_log_linear", "test_waiting", "test_starts", "test_exact_prediction", "test_topic_draws",
    "test_vem_composed", "test_svi", "test_weighed_engines", "test_learned_priors", "test_vem_responses", "test_vem_margin",
    "test_structured_stories", "test_gpu_sweep", "test_block_draws", "test_ratio", "test_augmented_draws", "test_vem",
    "test_augmentation", "test_lasting", "test_supervised_references", "test_fit", "test_online", "test_marginal",
    "test_enumeration",
)  # fmt: skip
LAST = ("test_mutants", "test_text", "test_corpora", "test_readers", "test_judged_numbers", "test_topic_quality")


def pytest_collection_modifyitems(items):
    """The dearest files first, the cheapest last."""
    order = {**{name: place - len(FIRST) for place, name in enumerate(FIRST)}, **dict.fromkeys(LAST, 1)}
    items.sort(key=lambda item: order.get(item.path.stem, 0))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """What a test buys, for the table of the slowest: its own first sentence, or its file's."""
    report = yield
    said = (getattr(item, "function", None) and item.function.__doc__) or item.module.__doc__ or ""
    report.user_properties.append(("buys", " ".join(said.strip().split("\n\n")[0].split())))
    return report


def pytest_terminal_summary(terminalreporter):
    """The ten slowest tests with what each buys; a fixture's time counts for the first test that asks for it."""
    seconds, buys = {}, {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if hasattr(report, "duration") and hasattr(report, "user_properties"):
                seconds[report.nodeid] = seconds.get(report.nodeid, 0.0) + report.duration
                buys[report.nodeid] = dict(report.user_properties).get("buys", "")
    if sum(seconds.values()) < 60:
        return
    terminalreporter.section("ten slowest tests, and what each buys")
    for nodeid in sorted(seconds, key=seconds.__getitem__, reverse=True)[:10]:
        terminalreporter.write_line(f"{seconds[nodeid]:6.1f} s  {nodeid.removeprefix('tests/')}")
        terminalreporter.write_line(f"          {buys[nodeid][:160]}")
    terminalreporter.write_line(f"{sum(seconds.values()):6.0f} s  all {len(seconds)} tests together")
