"""Running chains with NumPyro's MCMC, a chunk of draws at a time.

Chains are independent: each has its own key, so that its draws do not depend on how many run beside it, and threads share
them out. Between chunks the bar moves, draws are checked for NaN, large sites are copied, checkpoints are written, and
Ctrl-C ends the run with what was drawn.
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
from ..lasting.checkpoint import Chunk, Kept, Nowhere
from ..programs.compiling import jitted
from ..programs.keeping import keep, shapes
from ..programs.processes import is_first
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
    warmed: int = 0  # draws of the warm-up
    done: int = 0  # draws that count
    chunks: tuple[Chunk, ...] = ()  # what is kept of these, "group/name": [chains, draws, ...]

    @classmethod
    def of(cls, kept: Kept | None, states: list[Any]) -> Progress:
        """Where chains were when a checkpoint was written, or at their start."""
        if kept is None:
            return cls(states)
        return cls(kept.state(states), kept.counts["warmed"], kept.counts["done"], kept.chunks)

    def told(self, entire: Callable) -> tuple[list[Any], dict[str, int], tuple[Chunk, ...]]:
        """The same for a checkpoint, of states that are ``entire``, where processes have parts of them."""
        return list(map(entire, self.states)), {"warmed": self.warmed, "done": self.done}, self.chunks

    def group(self, name: str) -> dict[str, np.ndarray]:
        """All draws of a group, chunks end to end."""
        names = [key for key in self.chunks[0] if key.startswith(f"{name}/")]
        return {key.partition("/")[2]: np.concatenate([chunk[key] for chunk in self.chunks], 1) for key in names}


def together() -> bool:
    """Whether all chains are one state. An accelerator does best with them side by side; a core, and processes that share
    out the sweep of each, with one after the other."""
    return jax.default_backend() != "cpu" and jax.process_count() == 1


class Programs:
    """A kernel, what it has learnt at initialisation, and its compiled programs: all for data of the same shapes."""

    def __init__(self, kernel: Any, num_warmup: int, form: Hashable = None) -> None:
        self.kernel, self.num_warmup, self.form, self.learnt = kernel, num_warmup, form, False
        self.together = together() and not getattr(kernel, "alone", False)
        start = self.of_chains(self.first, "start", once=True)
        self.start = kernel.started(start) if hasattr(kernel, "started") else start
        self.advance: dict[Hashable, Callable] = {}

    def first(self, key: jax.Array, data: tuple) -> Any:
        """A chain's state at its start."""
        self.learnt = True
        return self.kernel.init(key, self.num_warmup, None, data, {})

    def learn(self, data: tuple) -> None:
        """Have the kernel initialised, where the program that does it has not been traced but was found on the disk."""
        if not self.learnt:
            jax.eval_shape(traced(self.first), jax.random.key(0), data)

    def of_chains(self, one_chain: Callable, *told: Hashable, once: bool = False) -> Any:
        """Compiled; ``told``: what tells the function from others of the kernel."""
        whole = traced(jax.vmap(one_chain, (0, None)) if self.together else one_chain)
        return jitted(whole, once=once, form=None if self.form is None else (self.form, *told))


class Chains:
    """Chains that advance together: one program, compiled once, that a thread runs for each chain."""

    def __init__(
        self, kernel: Any, keys: jax.Array, data: tuple, schedule: Schedule, begin: Callable | None = None,
        form: Hashable = None,
    ) -> None:  # fmt: skip
        """``begin``, of the chains' keys and states, gives states to start from; kernels of one ``form`` share programs."""
        self.data, self.schedule = data, schedule

        key = None if form is None else (Programs, form, schedule.num_warmup, shapes(data), together())

        def make() -> Programs:
            return Programs(kernel, schedule.num_warmup, key)

        self.programs = make() if key is None else keep(key, make)
        self.kernel, self.together = self.programs.kernel, self.programs.together
        self.stored = (*(f"~z.{site}" for site in schedule.unstored), *schedule.statistics.values())
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*already stores a value")
            start, steps = self.programs.start, max(min(schedule.chunk, schedule.num_warmup or schedule.num_samples), 1)
            with ThreadPoolExecutor(1) as beside:  # chains find their start while the next program is compiled
                like = None if self.together or hasattr(kernel, "program") else start.like(next(iter(keys)), data)
                if like is not None:
                    beside.submit(self._ready, steps, like)
                self.states = [start(keys, data)] if self.together else [start(key, data) for key in keys]
                if begin is not None:
                    if like is None:
                        beside.submit(self._ready, steps)
                    self.states = begin(keys, self.states)

    def advance(self, steps: int) -> tuple[list[Any], dict, dict]:
        """The states some steps later, and the draws and fields on the way, each [chains, draws, ...]."""
        program = self._ready(steps)
        # processes must wait for each other in the same order, chain after chain
        alone = jax.process_count() > 1 or getattr(self.kernel, "alone", False)
        beside = 1 if alone else min(len(self.states), WORKERS)
        with ThreadPoolExecutor(beside) as threads:
            found = list(threads.map(lambda state: jax.block_until_ready(program(state, self.data)), self.states))
        states = [state for state, _, _ in found]
        draws, fields = (
            jax.tree.map(np.asarray, found[0][part])
            if self.together
            else jax.tree.map(lambda *leaves: np.stack(leaves), *(one[part] for one in found))
            for part in (1, 2)
        )
        return states, draws, fields

    def _ready(self, steps: int, state: Any = None) -> Callable:
        """The program for so many steps, compiled if it is not yet, of a state like this one, or like those there are."""
        state, known = self.states[0] if state is None else state, self.programs.advance
        key = steps, min(self.schedule.thinning, steps), self.stored, shapes(state)
        if key not in known:
            known[key] = self._program(steps, state)
        return known[key]

    def _program(self, steps: int, state: Any) -> Callable:
        schedule = self.schedule
        if hasattr(self.kernel, "program"):
            self.programs.learn(self.data)
            fields = tuple(schedule.statistics.values())
            return self.kernel.program(
                steps, min(schedule.thinning, steps), schedule.unstored, fields, state, self.data
            )
        settings = {"num_warmup": schedule.num_warmup, "num_samples": steps, "thinning": min(schedule.thinning, steps)}

        def advance(state: Any, data: tuple) -> tuple[Any, dict, dict]:
            self.programs.learn(data)
            return _advance_one(self.kernel, settings, self.stored, state, data)

        told = tuple(settings.items()), self.stored
        return self.programs.of_chains(advance, *told).ready(state, self.data)

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
    begin: Callable | None = None, form: Hashable = None, lasting: Nowhere | None = None,
) -> Drawn:  # fmt: skip
    """Warm up and draw. ``constrain`` gives a state's sites, ``reset`` clears running sums, ``means`` reads them, ``begin``
    says where chains start. A kernel with a ``form``, all that it depends on beside the data, is compiled once.
    ``lasting`` has the checkpoint to go on from, if there is one, and is told how far chains are."""
    keys = jnp.stack([jax.random.fold_in(jax.random.key(seed), chain) for chain in range(num_chains)])
    interrupted, lasting = False, lasting or Nowhere()
    entire = getattr(kernel, "entire", lambda state: state)
    num_samples = schedule.num_samples + lasting.more
    with tqdm(total=schedule.num_warmup + num_samples, disable=not (progress_bar and is_first()), unit="draw") as bar:
        bar.set_description("compiling")
        chains = Chains(kernel, keys, data, schedule, begin if lasting.kept is None else None, form)
        progress = Progress.of(lasting.kept, chains.states)
        chains.states = progress.states
        if lasting.kept is not None:
            bar.update(progress.warmed + progress.done)
        try:
            with lasting.watching():
                while progress.warmed < schedule.num_warmup or progress.done < num_samples:
                    phase, first, length = "warmup", progress.warmed, schedule.num_warmup
                    if first == length:
                        phase, first, length = "sample", progress.done, num_samples
                        chains.states = chains.states if first else [reset(state) for state in chains.states]
                    last = min(first + schedule.chunk, length)
                    states, draws, fields = chains.advance(last - first)
                    for state in states:
                        _refuse_nan({**constrain(state), **draws}, f"{phase} draw {last}")
                    if phase == "warmup":
                        progress = Progress(states, last)
                    else:
                        copied = chains.of_states(lambda s: {n: constrain(s)[n] for n in schedule.snapshot}, states)
                        chunk = _chunk(draws, fields, copied, last // schedule.thinning - 1)
                        progress = Progress(states, progress.warmed, last, (*progress.chunks, chunk))
                    chains.states = states
                    bar.set_description(phase)
                    bar.update(last - first)
                    lasting.look(partial(progress.told, entire), last=progress.done == num_samples)
        except KeyboardInterrupt:
            if not progress.done:
                raise
            interrupted = True
    fields, snapshots = progress.group("field"), progress.group("copy")
    index = progress.group("at").get("draw", np.zeros((1, 0), int))[0]
    return Drawn(
        draws=progress.group("draw"),
        snapshots={site: snapshots[site] for site in schedule.snapshot},
        snapshot_index=index,
        means={name: total / progress.done for name, total in chains.of_states(means, progress.states).items()},
        statistics={name: fields[key] for name, key in schedule.statistics.items()},
        interrupted=interrupted,
    )


def _chunk(draws: dict, fields: dict, copied: dict, last: int) -> Chunk:
    """What is kept of a chunk: its draws, fields of its states, and large sites at its end, which is the draw ``last``."""
    groups = {"draw": draws, "field": fields, "copy": {name: value[:, None] for name, value in copied.items()}}
    found = {f"{group}/{name}": value for group, part in groups.items() for name, value in part.items()}
    return found | {"at/draw": np.array([[last]])}


def _refuse_nan(values: Values, where: str) -> None:
    for name, value in values.items():
        for leaf in jax.tree.leaves(value):
            if jnp.issubdtype(leaf.dtype, jnp.floating) and np.isnan(np.asarray(leaf)).any():
                raise FloatingPointError(
                    f"The site {name!r} became NaN at {where}; check the scale of y and the priors, or try another seed."
                )
