"""Topic models for text with responses: each generative story is written once and every engine takes it.

>>> from topiczoo import corpora, diagnostics, inference, models
"""

import importlib
import importlib.metadata
import os
import re

__version__ = importlib.metadata.version(__name__)

__all__ = ["__version__", "corpora", "diagnostics", "inference", "models"]

_SUBMODULES = frozenset({"corpora", "diagnostics", "inference", "models"})


def _one_host_device_per_core() -> None:
    """Ask XLA for as many CPU devices as there are cores, unless the user has already said how many.

    XLA runs the small steps of a sampler on one core. With one host device a core, each chain (or each
    shard of the documents) gets a device of its own and all cores are used. XLA reads the flag when the
    first array is made and never again, so it is set here, before anything in this package imports jax.

    XLA's threads are as many as the devices. When all of them are inside a batch of small matrices (LAPACK),
    each waits for a thread to help it, and none is left: the program stands still for ever. One more keeps a
    story with a batch of its own going (the engines' shards have none: ``inference.small_matrices``).
    """
    flag = "--xla_force_host_platform_device_count"
    flags = os.environ.get("XLA_FLAGS", "")
    said = re.search(flag.lstrip("-") + r"=(\d+)", flags)
    devices = int(said[1]) if said else int(os.environ.get("JAX_NUM_CPU_DEVICES") or os.cpu_count() or 1)
    if not said and "JAX_NUM_CPU_DEVICES" not in os.environ:
        os.environ["XLA_FLAGS"] = f"{flags} {flag}={devices}".strip()
    os.environ.setdefault("PJRT_NPROC", str(max(devices, os.cpu_count() or 1) + 1))


_one_host_device_per_core()


def __getattr__(name: str):
    # Subpackages are imported at first use: `import topiczoo` alone must not wait for jax.
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
