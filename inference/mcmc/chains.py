"""Running chains with NumPyro's MCMC, a chunk of draws at a time.

Chains are independent: each has its own key, so that its draws do not depend on how many run beside it, and threads share
them out. Between chunks the bar moves, draws are checked for NaN, large sites are copied, and Ctrl-C ends the run with what
was drawn.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer import MCMC

from ..kernels.sharding import WORKERS
from ..programs.keeping import keep, shapes
from ..programs.progress import tqdm
from ..story.tracing import Values, traced


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


class Progress(NamedTuple):
    """How far chains have come. It is replaced as a whole: wherever a run is cut short, its parts belong together."""

    states: list[Any]  # of each chain; on an accelerator one, of all chains side by side
    collected: tuple[tuple[dict, dict], ...] = ()  # draws and fields of each chunk, [chains, draws, ...]
    copied: tuple[dict, ...] = ()  # large sites at the end of each chunk
    done: int = 0


class Programs:
    """A kernel, what it has learnt at initialisation, and its compiled programs: all for data of the same shapes."""

    def __init__(self, kernel: Any, num_warmup: int) -> None:
        self.kernel = kernel
        # a core does best with one chain after the other; an accelerator with all of them side by side
        self.together = jax.default_backend() != "cpu"
        self.start = self.of_chains(lambda key, data: kernel.init(key, num_warmup, None, data, {}))
        self.advance: dict[Hashable, Callable] = {}

    def of_chains(self, one_chain: Callable) -> Any:
        return jax.jit(traced(jax.vmap(one_chain, (0, None)) if self.together else one_chain))


class Chains:
    """Chains that advance together: one program, compiled once, that a thread runs for each chain."""

    def __init__(
        self, kernel: Any, keys: jax.Array, data: tuple, schedule: Schedule, begin: Callable | None = None,
        form: Hashable = None,
    ) -> None:  # fmt: skip
        """``begin``, of the chains' keys and states, gives states to start from; kernels of one ``form`` share programs."""
        self.data, self.schedule = data, schedule

        def make() -> Programs:
            return Programs(kernel, schedule.num_warmup)

        key = Programs, form, schedule.num_warmup, shapes(data), jax.default_backend()
        self.programs = make() if form is None else keep(key, make)
        self.kernel, self.together = self.programs.kernel, self.programs.together
        self.stored = (*(f"~z.{site}" for site in schedule.unstored), *schedule.statistics.values())
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*already stores a value")
            start = self.programs.start
            self.states = [start(keys, data)] if self.together else [start(key, data) for key in keys]
            if begin is not None:
                with ThreadPoolExecutor(1) as beside:  # chains find their start while the next program is compiled
                    beside.submit(self._ready, max(min(schedule.chunk, schedule.num_warmup or schedule.num_samples), 1))
                    self.states = begin(keys, self.states)

    def advance(self, steps: int) -> tuple[list[Any], dict, dict]:
        """The states some steps later, and the draws and fields on the way, each [chains, draws, ...]."""
        program = self._ready(steps)
        with ThreadPoolExecutor(min(len(self.states), WORKERS)) as threads:
            found = list(threads.map(lambda state: jax.block_until_ready(program(state, self.data)), self.states))
        states = [state for state, _, _ in found]
        draws, fields = (
            jax.tree.map(np.asarray, found[0][part])
            if self.together
            else jax.tree.map(lambda *leaves: np.stack(leaves), *(one[part] for one in found))
            for part in (1, 2)
        )
        return states, draws, fields

    def _ready(self, steps: int) -> Callable:
        """The program for so many steps, compiled if it is not yet."""
        state, known = self.states[0], self.programs.advance
        key = steps, min(self.schedule.thinning, steps), self.stored, shapes(state)
        if key not in known:
            known[key] = self._program(steps, state)
        return known[key]

    def _program(self, steps: int, state: Any) -> Callable:
        schedule = self.schedule
        if hasattr(self.kernel, "program"):
            fields = tuple(schedule.statistics.values())
            return self.kernel.program(
                steps, min(schedule.thinning, steps), schedule.unstored, fields, state, self.data
            )
        settings = {"num_warmup": schedule.num_warmup, "num_samples": steps, "thinning": min(schedule.thinning, steps)}
        advance = partial(_advance_one, self.kernel, settings, self.stored)
        return self.programs.of_chains(advance).lower(state, self.data).compile()

    def of_states(self, read: Callable[[Any], dict], states: list[Any]) -> dict[str, np.ndarray]:
        """What ``read`` finds in the state of every chain, [chains, ...]."""
        found = [jax.tree.map(np.asarray, read(state)) for state in states]
        return found[0] if self.together else {name: np.stack([one[name] for one in found]) for name in found[0]}


def _advance_one(kernel: Any, settings: dict, stored: Sequence[str], state: Any, data: tuple) -> tuple[Any, dict, dict]:
    mcmc = MCMC(kernel, **settings, progress_bar=False)
    mcmc.post_warmup_state = state
    mcmc.run(state.rng_key, *data, extra_fields=stored)
    return mcmc.last_state, mcmc.get_samples(), mcmc.get_extra_fields()


def run_chains(
    kernel: Any, data: tuple, *, seed: int, num_chains: int, schedule: Schedule,
    constrain: Callable[[Any], dict], reset: Callable[[Any], Any], means: Callable[[Any], dict], progress_bar: bool,
    begin: Callable | None = None, form: Hashable = None,
) -> Drawn:  # fmt: skip
    """Warm up and draw. ``constrain`` gives a state's sites, ``reset`` clears running sums, ``means`` reads them, ``begin``
    says where chains start. A kernel with a ``form``, all that it depends on beside the data, is compiled once."""
    keys = jnp.stack([jax.random.fold_in(jax.random.key(seed), chain) for chain in range(num_chains)])
    interrupted = False
    with tqdm(total=schedule.num_warmup + schedule.num_samples, disable=not progress_bar, unit="draw") as bar:
        bar.set_description("compiling")
        chains = Chains(kernel, keys, data, schedule, begin, form)
        progress = Progress(chains.states)
        try:
            for phase, length in (("warmup", schedule.num_warmup), ("sample", schedule.num_samples)):
                if phase == "sample":
                    chains.states = [reset(state) for state in chains.states]
                for first in range(0, length, schedule.chunk):
                    steps = min(schedule.chunk, length - first)
                    states, draws, fields = chains.advance(steps)
                    for state in states:
                        _refuse_nan({**constrain(state), **draws}, f"{phase} draw {first + steps}")
                    if phase == "sample":
                        copied = chains.of_states(lambda s: {n: constrain(s)[n] for n in schedule.snapshot}, states)
                        progress = Progress(
                            states,
                            (*progress.collected, (draws, fields)),
                            (*progress.copied, copied),
                            progress.done + steps,
                        )
                    chains.states = states
                    bar.set_description(phase)
                    bar.update(steps)
        except KeyboardInterrupt:
            if not progress.done:
                raise
            interrupted = True
    draws, fields = (_joined([step[part] for step in progress.collected]) for part in (0, 1))
    every = max(1, schedule.chunk // schedule.thinning)
    return Drawn(
        draws=draws,
        snapshots={site: np.stack([copy[site] for copy in progress.copied], 1) for site in schedule.snapshot},
        snapshot_index=(np.arange(len(progress.copied)) + 1) * every - 1,
        means={name: total / progress.done for name, total in chains.of_states(means, progress.states).items()},
        statistics={name: fields[key] for name, key in schedule.statistics.items()},
        interrupted=interrupted,
    )


def _refuse_nan(values: Values, where: str) -> None:
    for name, value in values.items():
        for leaf in jax.tree.leaves(value):
            if jnp.issubdtype(leaf.dtype, jnp.floating) and np.isnan(np.asarray(leaf)).any():
                raise FloatingPointError(
                    f"The site {name!r} became NaN at {where}; check the scale of y and the priors, or try another seed."
                )


def _joined(parts: list[dict]) -> dict[str, np.ndarray]:
    """Chunks end to end along the axis of draws."""
    return {name: np.concatenate([part[name] for part in parts], 1) for name in parts[0]}
