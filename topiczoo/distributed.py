"""Several processes, on one machine or many, that make one fit.

>>> from topiczoo import distributed
>>> distributed.initialize()  # before anything else, in every process; docs/machines.md has the lines that start them
"""

from __future__ import annotations

from typing import Any

import jax

from .inference.programs.processes import ProcessGone, is_first

__all__ = ["ProcessGone", "initialize", "is_first"]

HEARTBEAT = 30  # seconds after which a process that is not heard of has ended


def initialize(
    coordinator_address: str | None = None, num_processes: int | None = None, process_id: int | None = None, **options: Any
) -> None:  # fmt: skip
    """Join the processes of a run; to be called once in each, before anything is computed.

    Afterwards the same call of ``inference.gibbs`` in every process is one run, whose draws do not depend on how many
    processes there are. Each process returns the whole fit; the first writes files and moves the bar.

    Parameters
    ----------
    coordinator_address
        Host and port of process 0, ``"node1:1234"``; any free port. Under Slurm, Open MPI and Kubernetes (a Job with
        indexed completion) JAX finds this and what follows by itself; else the variable ``JAX_COORDINATOR_ADDRESS`` serves.
    num_processes, process_id
        How many processes there are, and which this one is, from 0.
    options
        Others of ``jax.distributed.initialize``. ``heartbeat_timeout_seconds`` is 30 here: a process that is not heard of
        for so long has ended, and the others end with a sentence.
    """
    jax.config.update("jax_cpu_collectives_implementation", "gloo")  # of processes without a GPU
    try:
        jax.distributed.initialize(
            coordinator_address, num_processes, process_id, **{"heartbeat_timeout_seconds": HEARTBEAT} | options
        )
    except ValueError as error:
        raise ValueError(
            f"The processes of this run cannot be found ({error}); give coordinator_address='HOST:PORT', num_processes and "
            "process_id, or start them by Slurm, Open MPI or Kubernetes."
        ) from error
