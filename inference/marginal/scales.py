"""Scales drawn given documents that are held out, where NUTS draws all else under a weight of the response."""

from __future__ import annotations

from collections.abc import Callable

import jax

from ..blocks.slices import SliceBlock
from ..story.tracing import Data, Values
from .model import Marginal


class HeldOutScales(SliceBlock):
    """One scale, with topics summed out of the responses that it is drawn given."""

    def __init__(self, marginal: Marginal, site: str) -> None:
        super().__init__(marginal.graph, [site])
        self.marginal, self._model = marginal, marginal

    def log_density(self, values: Values, data: Data) -> Callable[[dict], jax.Array]:
        density = self.marginal.scale_density(*data, values)
        others = {name: values[name] for name in self.marginal.scales}
        return lambda new: density({**others, **new})
