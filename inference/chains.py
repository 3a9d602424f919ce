"""Running chains with NumPyro's MCMC, a chunk of draws at a time.

Chains are independent: each has its own key, so that its draws do not depend on how many run beside it, and host devices
share them out. Between chunks the bar moves, draws are checked
for NaN, large sites are copied, and Ctrl-C ends the run with what was drawn.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpyro.infer import MCMC
from tqdm.auto import tqdm

from .running import traced


@dataclass
class Drawn:
    """What a run of chains leaves. Arrays have leading axes [chain, draw]."""

    draws: dict[str, np.ndarray]
    snapshots: dict[str, np.ndarray]  # large sites, at some draws
    snapshot_index: np.ndarray  # which draws those are
    means: dict[str, np.ndarray]  # [chain, ...]
    statistics: dict[str, np.ndarray]
    interrupted: bool = False


@dataclass
class Schedule:
    """How many draws, in chunks of what size, and what is kept of them."""

    num_warmup: int
    num_samples: int
    thinning: int = 1
    chunk: int = 1
    unstored: Sequence[str] = ()  # sites not stored at each draw
    snapshot: Sequence[str] = ()  # those of them that are copied at the end of a chunk
    statistics: dict[str, str] = field(default_factory=dict)  # name: field of the kernel's state


def chunk_size(num_warmup: int, num_samples: int, thinning: int, wanted: int) -> int:
    """A chunk that divides warm-up and draws alike, so that one compiled program serves; near ``wanted``."""
    common = math.gcd(num_warmup, num_samples) or num_samples
    sizes = [size for size in range(1, common + 1) if common % size == 0 and size % thinning == 0]
    fitting = [size for size in sizes if size <= max(wanted, thinning)]
    return max(fitting, default=max(thinning, min(sizes, default=num_samples)))


class Chains:
    """Chains that advance together: one program, compiled once, with each device running its share of them."""

    def __init__(
        self, kernel: Any, keys: jax.Array, data: tuple, devices: Sequence[Any] | Mesh, schedule: Schedule
    ) -> None:
        self.kernel, self.data, self.schedule = kernel, data, schedule
        self.inside = devices if isinstance(devices, Mesh) else None  # the mesh that the kernel itself uses
        self.mesh = None if isinstance(devices, Mesh) else self._mesh(len(keys), devices)
        self.stored = (*(f"~z.{site}" for site in schedule.unstored), *schedule.statistics.values())
        self.programs: dict[int, Callable] = {}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*already stores a value")
            self.states = self._on_devices(
                lambda key, data: kernel.init(key, schedule.num_warmup, None, data, {})
            )(keys, data)  # fmt: skip

    @staticmethod
    def _mesh(num_chains: int, devices: Sequence[Any]) -> Mesh | None:
        """As many devices as divide the chains evenly."""
        used = max(n for n in range(1, len(devices) + 1) if num_chains % n == 0)
        return Mesh(np.asarray(devices[:used]), ("chains",)) if used > 1 else None

    def _on_devices(self, one_chain: Callable) -> Callable:
        # a core does best with one chain after the other; an accelerator with all of them side by side
        each = jax.lax.map if jax.default_backend() == "cpu" else lambda one, states: jax.vmap(one)(states)

        @traced
        def in_turn(states: Any, data: tuple) -> Any:
            return each(lambda state: one_chain(state, data), states)

        if self.inside is not None:
            # the state stays whole: left to itself it would come back split, and the next step be compiled anew
            return jax.jit(in_turn, out_shardings=NamedSharding(self.inside, PartitionSpec()))
        if self.mesh is None:
            return jax.jit(in_turn)
        split, whole = PartitionSpec("chains"), PartitionSpec()
        spread = jax.shard_map(in_turn, mesh=self.mesh, in_specs=(split, whole), out_specs=split, check_vma=False)
        return jax.jit(spread)

    def advance(self, steps: int) -> tuple[dict, dict]:
        """Some steps of every chain: their draws and statistics, each [chains, draws, ...]."""
        if steps not in self.programs:
            self.programs[steps] = self._on_devices(partial(self._advance_one, steps))
        self.states, draws, fields = self.programs[steps](self.states, self.data)
        return draws, fields

    def _advance_one(self, steps: int, state: Any, data: tuple) -> tuple[Any, dict, dict]:
        schedule = self.schedule
        mcmc = MCMC(
            self.kernel, num_warmup=schedule.num_warmup, num_samples=steps,
            thinning=min(schedule.thinning, steps), progress_bar=False,
        )  # fmt: skip
        mcmc.post_warmup_state = state
        mcmc.run(state.rng_key, *data, extra_fields=self.stored)
        return mcmc.last_state, mcmc.get_samples(), mcmc.get_extra_fields()


def run_chains(
    kernel: Any, data: tuple, *, seed: int, num_chains: int, schedule: Schedule,
    constrain: Callable[[Any], dict], reset: Callable[[Any], Any], means: Callable[[Any], dict],
    devices: Sequence[Any] | Mesh, progress_bar: bool,
) -> Drawn:  # fmt: skip
    """Warm up and draw. ``constrain`` gives a state's sites, ``reset`` clears running sums, ``means`` reads them.

    Chains are shared out to ``devices``; a mesh in their place says that the kernel spreads its own work over it.
    """
    keys = jnp.stack([jax.random.fold_in(jax.random.key(seed), chain) for chain in range(num_chains)])
    collected: list[tuple[dict, dict]] = []
    copied: list[dict] = []
    done, interrupted = 0, False
    with tqdm(total=schedule.num_warmup + schedule.num_samples, disable=not progress_bar, unit="draw") as bar:
        bar.set_description("compiling")
        chains = Chains(kernel, keys, data, devices, schedule)
        try:
            for phase, length in (("warmup", schedule.num_warmup), ("sample", schedule.num_samples)):
                if phase == "sample":
                    chains.states = reset(chains.states)
                for first in range(0, length, schedule.chunk):
                    steps = min(schedule.chunk, length - first)
                    part = jax.tree.map(np.asarray, chains.advance(steps))
                    values = constrain(chains.states)
                    _refuse_nan({**values, **part[0]}, f"{phase} draw {first + steps}")
                    if phase == "sample":
                        collected.append(part)
                        copied.append({site: np.asarray(values[site]) for site in schedule.snapshot})
                        done += steps
                    bar.set_description(phase)
                    bar.update(steps)
        except KeyboardInterrupt:
            if not done:
                raise
            interrupted = True
    draws, fields = (_joined([step[part] for step in collected]) for part in (0, 1))
    return Drawn(
        draws=draws,
        snapshots={site: np.stack([copy[site] for copy in copied], 1) for site in schedule.snapshot},
        snapshot_index=(np.arange(len(copied)) + 1) * max(1, schedule.chunk // schedule.thinning) - 1,
        means={name: np.asarray(total) / done for name, total in means(chains.states).items()},
        statistics={name: fields[key] for name, key in schedule.statistics.items()},
        interrupted=interrupted,
    )


def _refuse_nan(values: dict, where: str) -> None:
    for name, value in values.items():
        for leaf in jax.tree.leaves(value):
            if jnp.issubdtype(leaf.dtype, jnp.floating) and bool(jnp.isnan(leaf).any()):
                raise FloatingPointError(
                    f"The site {name!r} became NaN at {where}; check the scale of y and the priors, or try another seed."
                )


def _joined(parts: list[dict]) -> dict[str, np.ndarray]:
    """Chunks end to end along the axis of draws."""
    return {name: np.concatenate([part[name] for part in parts], 1) for name in parts[0]}
