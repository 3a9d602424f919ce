"""The Gibbs engine: NumPyro's composite Gibbs kernel over blocks chosen by reading the story."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.infer import NUTS, Gibbs
from numpyro.primitives import Messenger

from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import documents

from ..posterior.posterior import Posterior
from ..story.assignments import AssignmentHandler
from ..story.bound import BoundGraph
from ..story.classes import check_labels, refuse_linked_classes
from ..story.reading import read
from ..story.tracing import base_distribution, circumstances
from ..story.unserved import Unserved, refuse_improper
from ..story.validation import check_counts, check_seed
from .augmented import AugmentedBlock
from .chains import Schedule, chunk_size, run_chains
from .conjugate import Block, DirichletBlock, GaussianBlock, LabelBlock, ScaleBlock, few
from .labels import ClassBlock
from .split import SplitGibbs
from .topics import CollapsedBlock, TopicBlock

BUDGET = 128 * 2**20  # bytes: a site whose draws would take more is kept as running means and fewer draws
MOST_DIVERGENT = 0.05  # share of a chain's draws that may diverge without a warning
CHUNK_TOKENS = 3_000_000  # token updates between two looks at a chain: about a second


def gibbs(
    story: str | Callable, corpus: Corpus, y: Any = None, *, seed: int = 0, num_warmup: int = 300, num_samples: int = 300,
    num_chains: int = 2, thinning: int = 1, keep: Sequence[str] | None = None, collapse: str = "proportions",
    progress_bar: bool = True, **arguments: Any,
) -> Posterior:  # fmt: skip
    """Draw from the posterior of a story by Gibbs sampling.

    Parameters
    ----------
    story
        A generative story, ``story(corpus, y=None, *, ...)``, or the name of one of the zoo.
    corpus, y
        Documents, and their responses where the story has them; NaN marks an unlabelled document.
    num_warmup, num_samples, num_chains, thinning
        As in NumPyro's MCMC.
    keep
        Sites whose every draw is kept. By default all sites whose draws fit 128 MB; of larger ones the posterior means
        and, for those that are not of documents, as many evenly spaced draws as fit.
    collapse
        ``"proportions"``: theta is integrated out of the topic sweep and beta is drawn, all documents side by side.
        ``"topics"``: the lecture's fully collapsed sampler, beta integrated out as well; one token at a time, for LDA-type
        stories of moderate size.
    arguments
        Keyword arguments of the story.

    Notes
    -----
    A site is drawn from its exact conditional where the story's density allows one (``fit.info["blocks"]`` says what
    served which site); every other continuous site is drawn by NUTS given the rest. Topics above a response are proposed by
    the words' part of their conditional and accepted by the response's.
    """
    check_seed(seed)
    check_counts(num_warmup=num_warmup, num_samples=num_samples, num_chains=num_chains, thinning=thinning)
    graph = read(story, corpus, y, arguments)
    refuse_improper(graph, "gibbs")
    check_labels(graph)
    large = _large_sites(graph, num_samples // thinning * num_chains, keep)
    data = documents(corpus, pairs=not graph.has_words, batches=graph.has_words), graph.response.on_device()
    plan = choose_blocks(graph, draw_theta=graph.theta not in large, collapse=collapse)

    snapshot = [site for site in large if graph.latent[site].document_axis is None]
    wanted = max(1, min(250, CHUNK_TOKENS // max(corpus.num_tokens, 1)))
    if snapshot:
        size = max(_draw_bytes(graph, site) for site in snapshot) * num_chains
        wanted = max(min(wanted, 10), -(-num_samples // max(BUDGET // size, 10)))
    # topics are never stored: what is asked of them later is drawn again from the rest
    discrete = ["z"] if graph.has_words else [name for name, site in graph.latent.items() if site.discrete]
    schedule = Schedule(
        num_warmup, num_samples, thinning, chunk_size(num_warmup, num_samples, thinning, wanted),
        unstored=[*large, *discrete], snapshot=snapshot, statistics=plan.statistics,
    )  # fmt: skip
    kernel, topics = plan.kernel(), plan.blocks[-1]
    shared = data[0].batches is not None and len(data[0].batches.terms) > 1 and isinstance(topics, TopicBlock)
    drawn = run_chains(
        SplitGibbs(kernel, num_chains) if shared else kernel, data, seed=seed, num_chains=num_chains,
        schedule=schedule, constrain=plan.constrain,
        reset=reset_totals, means=totals, progress_bar=progress_bar,
    )  # fmt: skip
    _warn_of_divergences(drawn.statistics)
    return Posterior.of(
        graph, drawn.draws, engine="gibbs", means=drawn.means, statistics=drawn.statistics,
        snapshots=drawn.snapshots, snapshot_index=drawn.snapshot_index,
        info={
            "seed": seed, "num_warmup": num_warmup, "thinning": thinning, "blocks": plan.describe(),
            "interrupted": drawn.interrupted, "as_means": sorted(large), **circumstances(),
        },
    )  # fmt: skip


def _warn_of_divergences(statistics: dict[str, np.ndarray]) -> None:
    """A chain whose topics settle after the warm-up can leave NUTS with steps that no longer fit, and stand still."""
    shares = statistics["diverging"].mean(1) if "diverging" in statistics else np.zeros(1)
    if shares.max() > MOST_DIVERGENT:
        warnings.warn(
            f"{shares.max():.0%} of the draws of chain {shares.argmax()} diverged: do not rely on what NUTS draws there; "
            "give a longer num_warmup, or look at the priors.",
            stacklevel=4,
        )


def _draw_bytes(graph: BoundGraph, site: str) -> int:
    latent = graph.latent[site]
    rows = 1 if latent.document_axis is None else len(graph.corpus) / latent.shape[latent.document_axis]
    return int(4 * rows * np.prod(latent.shape, initial=1))


def _large_sites(graph: BoundGraph, num_draws: int, keep: Sequence[str] | None) -> list[str]:
    unknown = set(keep or ()) - set(graph.latent)
    if unknown:
        raise ValueError(
            f"keep names {sorted(unknown)}, which are no sites of the story; it has {sorted(graph.latent)}."
        )
    return [
        site for site in graph.latent
        if (keep is None or site not in keep) and _draw_bytes(graph, site) * num_draws > BUDGET
    ]  # fmt: skip


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

    def __call__(self, corpus: Any, y: Any) -> None:
        with _Centre(), AssignmentHandler(self.counted), _Without(self.not_needed):
            self.graph.story(corpus, y)


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
            pairs.insert(self._nuts_place, (NUTS(model, find_heuristic_step_size=False), self.by_nuts))
        return Gibbs(pairs)

    def constrain(self, state: Any) -> dict[str, Any]:
        """Sites of the exact blocks; NUTS's are looked at in the draws."""
        return {
            name: value for block in state.block_states if hasattr(block, "total") for name, value in block.z.items()
        }

    def describe(self) -> dict[str, str]:
        served = {site: block.label for block in self.blocks for site in block.sites}
        return {**served, **dict.fromkeys(self.by_nuts, "NUTS given the rest")}


def choose_blocks(graph: BoundGraph, *, draw_theta: bool = True, collapse: str = "proportions") -> Plan:
    """Find for every latent site the best block that serves it exactly."""
    small = few(graph)
    continuous = [name for name, site in graph.latent.items() if not site.discrete]
    discrete = [name for name, site in graph.latent.items() if site.discrete]
    last: list[Block] = []
    for name in discrete:
        if not LabelBlock.recognise(graph, name):
            raise Unserved(
                graph,
                ["gibbs"],
                f"Nobody owns the discrete site {name!r} of the story {graph.story.name!r}: gibbs draws the topics of "
                "words, and discrete sites with one value a document, counted from 0",
            )
    if discrete:
        refuse_linked_classes(graph, discrete)
    if graph.has_words:
        graph.refuse_linked_documents()
        collapsed = graph.theta_is_integrable()
        if collapsed:
            continuous.remove(graph.theta)
            # a hyperparameter's conditional reads theta: then it must be a draw, stored or not
            draw_theta = draw_theta or graph.parents[graph.theta] != {graph.theta}
        last += [ClassBlock(None, graph, [name], collapsed) for name in discrete]
        last.append(_topic_block(graph, collapsed, collapse, draw_theta))
        continuous = [name for name in continuous if name not in last[-1].sites]
    else:
        last += [LabelBlock(None, graph, [name]) for name in discrete]
    blocks: list[Block] = [
        DirichletBlock(None, graph, [n]) for n in continuous if DirichletBlock.recognise(graph, n, small)
    ]
    rest = [name for name in continuous if not any(name in block.sites for block in blocks)]
    for kind in (GaussianBlock, AugmentedBlock):
        groups: list[list[str]] = []
        for name in rest:
            for group in [*groups, []]:
                if kind.recognise(graph, [*group, name], small):
                    groups = [*(g for g in groups if g != group), [*group, name]]
                    break
        blocks += [kind(None, graph, group) for group in groups]
        rest = [name for name in rest if not any(name in group for group in groups)]
    powers = {name: ScaleBlock.recognise(graph, name, small) for name in rest}
    blocks += [ScaleBlock(None, graph, [name], power) for name, power in powers.items() if power]
    by_nuts = [name for name in rest if not powers[name]]
    return Plan(graph, [*blocks, *last], by_nuts)


def _topic_block(graph: BoundGraph, collapsed: bool, collapse: str, draw_theta: bool) -> Block:
    if collapse == "proportions":
        return TopicBlock(None, graph, collapsed, draw_theta)
    if collapse != "topics":
        raise ValueError(f"collapse is {collapse!r}; give 'proportions' or 'topics'.")
    if not (collapsed and graph.beta_is_integrable()) or graph.has_labels:
        raise ValueError(
            f"collapse='topics' needs Dirichlet sites theta and beta that only the words of all documents read; the story "
            f"{graph.story.name!r} has others: use collapse='proportions'."
        )
    return CollapsedBlock(None, graph)


def reset_totals(state: Any) -> Any:
    """Start the running sums anew: warm-up does not count."""
    blocks = tuple(
        block._replace(total=jax.tree.map(jnp.zeros_like, block.total)) if hasattr(block, "total") else block
        for block in state.block_states
    )
    return state._replace(block_states=blocks)


def totals(state: Any) -> dict[str, jax.Array]:
    """The running sums of the blocks."""
    return {
        name: value for block in state.block_states if hasattr(block, "total") for name, value in block.total.items()
    }
