"""Topic models for text with responses: each generative story is written once and every engine takes it.

>>> from topiczoo import corpora, diagnostics, inference, models
>>> from topiczoo import LDA, SLDARegressor  # and other estimators for scikit-learn
"""

import gc
import importlib
import importlib.metadata
import os
import re

__version__ = importlib.metadata.version(__name__)

_SUBMODULES = ("corpora", "diagnostics", "distributed", "estimators", "inference", "models")
_ESTIMATORS = (
    "LDA", "MixtureOfCategoricals", "SLDARegressor", "SLDAClassifier", "SSTMRegressor", "SSTMClassifier",
    "MedLDARegressor", "MedLDAClassifier", "SAGEClassifier", "StoryRegressor", "StoryClassifier",
)  # fmt: skip

__all__ = ["__version__", *_SUBMODULES, *_ESTIMATORS]


def _threads_for_xla() -> None:
    """Ask XLA for more threads than there are cores, unless the user has said how many.

    A batch of small matrices (LAPACK) is shared out to XLA's threads. When each of them is inside such a batch, all wait for
    one to help them, and none is left: the program stands still for ever. One more than can ever run side by side keeps it
    going. Large products are shared out too, and are rounded otherwise by more threads: so there are as many on a
    machine with one host device as with eight. XLA reads this when the first array is made and never again, so it is set
    here, before anything in this package imports jax.
    """
    said = re.search(r"xla_force_host_platform_device_count=(\d+)", os.environ.get("XLA_FLAGS", ""))
    devices = int(said[1]) if said else int(os.environ.get("JAX_NUM_CPU_DEVICES") or 1)
    os.environ.setdefault("PJRT_NPROC", str(max(devices, os.cpu_count() or 1, 8) + 1))


_threads_for_xla()


def __getattr__(name: str):
    # Subpackages are imported at first use: `import topiczoo` alone must not wait for jax.
    if name in _ESTIMATORS:
        return getattr(__getattr__("estimators"), name)
    if name in _SUBMODULES:
        collecting = gc.isenabled()
        gc.disable()  # imports leave nothing to collect, and looking for it is a tenth of their time
        try:
            return importlib.import_module(f"{__name__}.{name}")
        finally:
            if collecting:
                gc.enable()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
