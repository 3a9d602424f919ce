"""The Gibbs engine: NumPyro's composite Gibbs kernel over blocks chosen by reading the story."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from topiczoo.corpora import Corpus

from ..blocks.topics import TopicBlock
from ..lasting.checkpoint import Checkpoint, opened
from ..native.build import COMPILED
from ..posterior.posterior import Posterior
from ..programs.processes import agree
from ..story.bound import BoundGraph
from ..story.classes import check_labels
from ..story.reading import read
from ..story.tracing import Data, circumstances
from ..story.validation import check_counts, check_seed, refuse_improper
from .chains import Schedule, chunk_size, run_chains
from .class_starts import start_classes
from .plan import choose_blocks, reset_totals, totals
from .split import SplitGibbs
from .starts import check_start, choose_start, start_topics
from .streamed import StreamedGibbs, passes_over, streamed_start
from .weighing import hold_out, with_weight

BUDGET = 128 * 2**20  # bytes: a site whose draws would take more is kept as running means and fewer draws
MOST_DIVERGENT = 0.05  # share of a chain's draws that may diverge without a warning
CHUNK_TOKENS = 3_000_000  # token updates between two looks at a chain: about a second
CHUNK_TOKENS_OF_KERNELS = 1_000_000_000
ANOTHER = "Processes of one run were asked for different ones; make the same call in each, on the same documents."


def gibbs(
    story: str | Callable, corpus: Corpus, y: Any = None, *, seed: int = 0, num_warmup: int = 300, num_samples: int = 300,
    num_chains: int = 2, thinning: int = 1, keep: Sequence[str] | None = None, collapse: str = "proportions",
    start: str | None = None, response_weight: float = 1.0, checkpoint: str | Path | Checkpoint | None = None,
    shards: str | Path | None = None, progress_bar: bool = True, **arguments: Any,
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
    start
        Where each chain starts. ``"merged"``: twice as many topics, found from words alone, merged two by two until as many
        are left, in at most twenty steps with a thirtieth of the warm-up's sweeps after each, which count double; chains
        then find the mass of the posterior far more often. Documents with one topic each are merged in the same way. A
        corpus of fewer than 1,000 words, 5,000 where there is a response, starts at random. ``"seeded"``: every word drawn
        given the topics, or the proportions, that the story expects before it has seen any; the default where these differ,
        by seeds, keywords or labels say. ``"random"``: every word in a topic at random; the default where the response has
        another weight than 1, since chains that differ predict better together.
    response_weight
        The power of the response's likelihood. 1 is the posterior. Hundreds of words outvote one response: above 1, 10 say,
        topics serve predictions, and the mean of many short chains predicts best. A tenth of the documents, 200 at the most,
        are held out: scales such as sigma, which would fall to 0 with topics that follow the response, are drawn given
        them, and predictions are calibrated by them (docs/weights.md). Choose it by cross-validation, with
        ``grid_search(gibbs, ..., {"response_weight": [1, 3, 10, 30]})``.
    checkpoint
        A folder for checkpoints, about one a minute: ``inference.resume(folder)``, or the same call again, goes on from the
        last one, and ends with what a run without a break gives, to the last bit (docs/lasting.md).
    shards
        A folder for the tokens of a corpus that is large: each sweep reads them from there, and neither they nor theta are
        held in memory; draws are the same. For stories whose theta is a Dirichlet that only words read (docs/scale.md).
    arguments
        Keyword arguments of the story.

    Notes
    -----
    A site is drawn from its exact conditional where the story's density allows one (``fit.info["blocks"]`` says what
    served which site). Numbers above the Dirichlet priors of theta and beta are drawn by slice sampling with these
    integrated out. Other continuous sites that every document has for itself are drawn for all documents at once, by
    short Hamiltonian trajectories (:mod:`..blocks.local`), and what is left by NUTS given the rest. Topics above a response
    are proposed by the words' part of their conditional and accepted by the response's.
    """
    check_seed(seed)
    check_counts(num_warmup=num_warmup, num_samples=num_samples, num_chains=num_chains, thinning=thinning)
    check_start(start)
    graph = read(story, corpus, y, arguments)
    refuse_improper(graph, "gibbs")
    check_labels(graph)
    weighed = with_weight(graph, response_weight)
    large = _large_sites(graph, num_samples // thinning * num_chains, keep)
    number = jax.process_count()
    agree(
        (repr(graph.story.name), seed, num_warmup, num_samples, num_chains, corpus.counts.shape, corpus.num_tokens),
        ANOTHER,
    )
    if shards is not None and graph.theta in (keep or ()):
        raise ValueError(f"keep names {graph.theta!r}, which shards= never holds; leave it out, or do without shards.")
    large += [graph.theta] if shards is not None and graph.theta not in large else []
    plan = choose_blocks(weighed, draw_theta=graph.theta not in large, collapse=collapse)
    passes = None
    if shards is None:
        laid_out = graph.documents(pairs=not graph.has_words, batches=graph.has_words, processes=number)
    else:
        passes = passes_over(shards, graph, plan.blocks[-1])
        laid_out = replace(graph.documents(), batches=passes.batches)
    data = Data(laid_out, graph.response.on_device())
    plan, data = hold_out(plan, data)
    plan.thin(thinning)
    plan.average(large)
    start, expected = choose_start(start, graph, is_weighed=weighed is not graph)
    if not graph.has_words:
        begin = start_classes(start, graph, num_warmup)
    elif passes is None:
        begin = start_topics(start, expected, graph, data, num_warmup)
    else:
        begin = None if start == "random" else streamed_start(graph, expected, passes, num_warmup)

    snapshot = [site for site in large if graph.latent[site].document_axis is None]
    by_kernel = isinstance(plan.blocks[-1], TopicBlock) and not plan.blocks[-1].no_kernel
    tokens = CHUNK_TOKENS_OF_KERNELS if by_kernel else CHUNK_TOKENS
    wanted = max(1, min(250, tokens // max(corpus.num_tokens, 1)))
    if snapshot:
        size = max(_draw_bytes(graph, site) for site in snapshot) * num_chains
        wanted = max(min(wanted, 10), -(-num_samples // max(BUDGET // size, 10)))
    # topics are never stored: what is asked of them later is drawn again from the rest
    discrete = ["z"] if graph.has_words else [name for name, site in graph.latent.items() if site.discrete]
    schedule = Schedule(
        num_warmup, num_samples, thinning, chunk_size(num_warmup, num_samples, thinning, wanted),
        unstored=[*large, *discrete], snapshot=snapshot, statistics=plan.statistics,
    )  # fmt: skip
    kernel, topics = (plan if plan.form is None else plan.bare()).kernel(), plan.blocks[-1]
    # a sweep in C++, or by a kernel, shares its batches out to threads by itself, but not to processes
    at_once = isinstance(topics, TopicBlock) and (by_kernel or topics.swept_by == COMPILED)
    shared = isinstance(topics, TopicBlock) and passes is None and len(data.documents.laid_out.terms) > 1
    shared = shared and (number > 1 or not by_kernel) and not graph.has_sentences
    if graph.has_sentences and number > 1:
        raise ValueError(
            f"{number} processes share out the words of documents; in the story {graph.story.name!r} those of a sentence "
            "share their topic: run it in one process."
        )
    chosen: Any = kernel
    if passes is not None:
        chosen = StreamedGibbs(kernel, graph, passes)
    elif shared:
        chosen = SplitGibbs(kernel, num_chains if number == 1 else 1, at_once)
    drawn = run_chains(
        chosen, data, seed=seed, num_chains=num_chains,
        schedule=schedule, constrain=plan.constrain,
        reset=reset_totals, means=totals, progress_bar=progress_bar, begin=begin,
        form=(plan.form and passes is None and (plan.form, shared, num_chains)) or None,
        lasting=opened(checkpoint, graph),
    )  # fmt: skip
    _warn_of_divergences(drawn.statistics)
    return Posterior.of(
        graph, drawn.draws, engine="gibbs", means=drawn.means, statistics=drawn.statistics,
        snapshots=drawn.snapshots, snapshot_index=drawn.snapshot_index,
        info={
            "seed": seed, "num_warmup": num_warmup, "thinning": thinning, "start": start,
            "response_weight": response_weight, "held_out": list(weighed.held_out), "blocks": plan.describe(),
            "sweep": getattr(topics, "swept_by", None), "interrupted": drawn.interrupted, "as_means": sorted(large),
            "processes": number,
            **circumstances(),
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
