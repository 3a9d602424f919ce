"""NumPyro's composite kernel, without what blocks that keep nothing of each other do not need."""

from __future__ import annotations

from typing import Any

import jax
from numpyro.infer import Gibbs
from numpyro.infer.gibbs import with_conditioning

from ..blocks.block import Block


class Blocks(Gibbs):
    """Blocks drawn one after the other.

    NumPyro's compares all values with those before, topics of all words among them, so that a kernel like NUTS is told
    of every change; that takes time and a copy of all values. Without such a kernel it is left out: draws are the same.
    """

    def _sample_one(self, state: Any, model_args: tuple, model_kwargs: dict | None) -> Any:
        if any(getattr(type(kernel), "refresh", None) is not Block.refresh for kernel in self._kernels):
            return super()._sample_one(state, model_args, model_kwargs)
        own = [block.z for block in state.block_states]
        states = []
        for place, kernel in enumerate(self._kernels):
            others = {name: value for z in own[:place] + own[place + 1 :] for name, value in z.items()}
            given = with_conditioning(model_kwargs, others)
            states.append(kernel.sample(state.block_states[place], model_args, given))
            own[place] = states[-1].z
        rng_key, _ = jax.random.split(state.rng_key)
        return state._replace(z=self._merge_z(states), block_states=tuple(states), rng_key=rng_key)
