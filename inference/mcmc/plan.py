"""The plan of the Gibbs engine: which block serves which sites, chosen by reading the story."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import biject_to
from numpyro.infer import NUTS, Gibbs, init_to_median, init_to_uniform
from numpyro.primitives import Messenger

from topiczoo.corpora.layouts import Documents

from ..blocks.augmented import AugmentedBlock
from ..blocks.block import Block, Few, few, registered_blocks
from ..blocks.chances import ChanceBlock
from ..blocks.concentrations import concentration_blocks
from ..blocks.conjugate import DirichletBlock, GaussianBlock, LabelBlock, ScaleBlock
from ..blocks.labels import ClassBlock
from ..blocks.local import LocalBlock
from ..blocks.log_linear import LogLinearBlock
from ..blocks.topics import CollapsedBlock, TopicBlock
from ..blocks.whitened import whitened
from ..programs.keeping import Unkeyed, frozen
from ..story.assignments import AssignmentHandler
from ..story.bound import BoundGraph
from ..story.classes import is_class, refuse_linked_classes
from ..story.response import Y
from ..story.tracing import base_distribution
from ..story.validation import Unserved
from .composite import Blocks

# in the order in which they are asked
BUILT_IN: tuple[type[Block], ...] = (
    DirichletBlock, GaussianBlock, AugmentedBlock, ScaleBlock, ChanceBlock, LogLinearBlock, LocalBlock,
)  # fmt: skip


class _Without(Messenger):
    """Leaves out densities of the story that NUTS does not need.

    Sites of the story only: NumPyro adds factors of its own, the Jacobians of its transforms.
    """

    def __init__(self, sites: set[str]) -> None:
        super().__init__(None)
        self.sites = sites

    def process_message(self, msg: dict) -> None:
        if msg["type"] == "sample" and msg["name"] in self.sites:
            msg["fn"] = msg["fn"].mask(False)


class _Model:
    """The story as the blocks share it: topics as one site, and only the densities that NUTS needs."""

    def __init__(self, graph: BoundGraph, by_nuts: Sequence[str]) -> None:
        self.graph = graph
        self.counted = graph.drives_words(by_nuts)
        self.not_needed = {*graph.latent, *graph.observed} - graph.children(by_nuts)

    def __call__(self, documents: Documents, y: Y) -> None:
        with _Centre(), AssignmentHandler(self.counted), _Without(self.not_needed):
            whitened(self.graph.story)(documents, y)


class _Centre(Messenger):
    """Dirichlet sites start at the prior's mean: they are drawn before anybody reads them; gammas are dear to compile."""

    def process_message(self, msg: dict) -> None:
        if (
            msg["type"] == "sample"
            and msg["value"] is None
            and isinstance(base_distribution(msg["fn"]), dist.Dirichlet)
        ):
            msg["value"] = jnp.broadcast_to(msg["fn"].mean, msg["fn"].shape())


class Plan:
    """Which block serves which sites, in the order in which they are drawn."""

    def __init__(self, graph: BoundGraph, blocks: list[Block], by_nuts: list[str]) -> None:
        self.graph, self.blocks, self.by_nuts = graph, blocks, by_nuts
        self.statistics = {}
        if by_nuts:
            self.statistics["diverging"] = f"block_states.{self._nuts_place}.diverging"
        if last := [block for block in blocks if isinstance(block, TopicBlock | CollapsedBlock | LabelBlock)][-1:]:
            last[0].records = True
            last[0].integrated = [block for block in blocks if isinstance(block, DirichletBlock)]
            place = len(blocks) - 1 + bool(by_nuts)
            self.statistics |= {name: f"block_states.{place}.statistics.{name}" for name in last[0].recorded}

    @property
    def _nuts_place(self) -> int:
        """NUTS comes before the discrete blocks, which are last."""
        return sum(not isinstance(block, TopicBlock | CollapsedBlock | LabelBlock) for block in self.blocks)

    @property
    def form(self) -> Hashable:
        """All that its kernel depends on but for documents and numbers of the story; None where that cannot be told."""
        try:
            return frozen((self.graph, self.blocks, self.by_nuts))
        except Unkeyed:
            return None

    def thin(self, thinning: int) -> None:
        """Of so many draws one is kept: the block that is drawn last spares the others what they do not need."""
        self.blocks[-1].thinning = thinning

    def average(self, unstored: Sequence[str]) -> None:
        """Of these sites draws are not stored: those that no block sums up are summed up by the one that is drawn last."""
        summed = {site for block in self.blocks if block.averages for site in block.sites}
        self.blocks[-1].averaged = tuple(site for site in unstored if site not in summed)

    def bare(self) -> Plan:
        """The same for programs that are kept."""
        return Plan(self.graph.bare(), [block.bare() for block in self.blocks], self.by_nuts)

    def model(self) -> Callable:
        """The story as NumPyro's kernels see it."""
        return _Model(self.graph, self.by_nuts)

    def kernel(self) -> Gibbs:
        """A fresh kernel: NumPyro's kernels keep what they learn at initialisation."""
        model = self.model()
        pairs: list[tuple[Any, Sequence[str]]] = []
        for block in self.blocks:
            fresh = block.wrap_model(lambda _: model)
            pairs.append((fresh, fresh.sites))
        if self.by_nuts:
            # of 20 numbers correlations that start at random make a matrix that is singular in float32
            correlated = any(issubclass(self.graph.family(site), dist.LKJ | dist.LKJCholesky) for site in self.by_nuts)
            start = init_to_median if correlated else init_to_uniform
            nuts = NUTS(model, find_heuristic_step_size=False, init_strategy=start)
            pairs.insert(self._nuts_place, (nuts, self.by_nuts))
        return Blocks(pairs)

    def constrain(self, state: Any) -> dict[str, Any]:
        """The sites that a state holds."""
        own = {site: biject_to(self.graph.latent[site].fn.support)(state.z[site]) for site in self.by_nuts}
        return own | {
            name: value for block in state.block_states if hasattr(block, "total") for name, value in block.z.items()
        }

    def describe(self) -> dict[str, str]:
        served = {site: block.label for block in self.blocks for site in block.sites}
        return {**served, **dict.fromkeys(self.by_nuts, "NUTS given the rest")}


def choose_blocks(graph: BoundGraph, *, draw_theta: bool = True, collapse: str = "proportions") -> Plan:
    """Find for every latent site the best block that serves it: one that a user has registered, or a built-in one."""
    small = few(graph)
    sites = [name for name in graph.latent if not (graph.theta_is_integrable() and name == graph.theta)]
    own = _served(graph, registered_blocks(), sites, small)
    taken = {site for block in own for site in block.sites}
    discrete = [name for name in sites if graph.latent[name].discrete and name not in taken]
    for name in discrete:
        if not is_class(graph, name):
            raise Unserved(
                graph,
                ["gibbs"],
                f"Nobody owns the discrete site {name!r} of the story {graph.story.name!r}: gibbs draws the topics of "
                "words, and discrete sites with one value a document, counted from 0",
            )
    if discrete:
        refuse_linked_classes(graph, discrete)
    if discrete and graph.has_sentences:
        raise Unserved(
            graph,
            ["gibbs"],
            f"The story {graph.story.name!r} has {discrete[0]!r}, a class of documents, above words that share the topic of "
            "their sentence; gibbs draws one or the other",
        )
    last: list[Block] = []
    above = concentration_blocks(graph, [name for name in sites if name not in taken], small, taken)
    if graph.has_words:
        graph.refuse_linked_documents()
        collapsed = graph.theta_is_integrable()
        # where a hyperparameter's conditional reads theta it must be a draw, stored or not
        integrated = any(graph.theta in block.integrated_out for block in above)
        is_read = collapsed and not integrated and graph.parents[graph.theta] != {graph.theta}
        last += [ClassBlock(graph, [name], collapsed) for name in discrete]
        last.append(_topic_block(graph, collapsed, collapse, draw_theta or is_read, is_read))
        taken |= set(last[-1].sites)
    else:
        last += [LabelBlock(graph, [name]) for name in discrete]
    taken |= {site for block in above for site in block.sites}
    continuous = [name for name in sites if not graph.latent[name].discrete and name not in taken]
    built_in = _served(graph, BUILT_IN, continuous, small)
    served = {site for block in built_in for site in block.sites}
    return Plan(graph, [*own, *above, *built_in, *last], [name for name in continuous if name not in served])


def _served(graph: BoundGraph, kinds: Sequence[type[Block]], sites: Sequence[str], few: Few) -> list[Block]:
    """Blocks of some kinds, the first asked first, for as many of the sites as they serve."""
    blocks: list[Block] = []
    for kind in kinds:
        found: list[Block] = []
        taken = {site for block in blocks for site in block.sites}
        for name in sites:
            if name in taken:
                continue
            for group in [*found, None] if kind.grouped else [None]:
                block = kind.recognise(graph, [*(group.sites if group else ()), name], few)
                if block is not None:
                    found = [*(other for other in found if other is not group), block]
                    break
        blocks += found
    return blocks


def _topic_block(graph: BoundGraph, collapsed: bool, collapse: str, draw_theta: bool, is_read: bool) -> Block:
    if collapse == "proportions":
        return TopicBlock(graph, collapsed, draw_theta, is_read)
    if collapse != "topics":
        raise ValueError(f"collapse is {collapse!r}; give 'proportions' or 'topics'.")
    if not (collapsed and graph.beta_is_integrable()) or graph.has_labels or graph.has_sentences:
        raise ValueError(
            f"collapse='topics' needs Dirichlet sites theta and beta that only the words of all documents read; the story "
            f"{graph.story.name!r} has others: use collapse='proportions'."
        )
    return CollapsedBlock(graph)


def reset_totals(state: Any) -> Any:
    """Start the running sums anew: warm-up does not count."""

    def reset(block: Any) -> Any:
        zeros = {name: np.zeros(value.shape, value.dtype) for name, value in block.total.items()}
        return block._replace(total=zeros, turn=jnp.zeros_like(block.turn))

    blocks = tuple(reset(block) if hasattr(block, "total") else block for block in state.block_states)
    return state._replace(block_states=blocks)


def totals(state: Any) -> dict[str, jax.Array]:
    """The running sums of the blocks."""
    return {
        name: value for block in state.block_states if hasattr(block, "total") for name, value in block.total.items()
    }
