"""NUTS on a story with its topics summed out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from numpyro.infer import NUTS, Gibbs

from topiczoo.corpora import Corpus

from ..lasting.checkpoint import Checkpoint, opened
from ..mcmc.chains import Schedule, chunk_size, run_chains
from ..mcmc.weighing import counting, with_weight
from ..posterior.posterior import Posterior
from ..programs.keeping import form_of
from ..story.reading import read
from ..story.tracing import circumstances
from ..story.validation import check_counts, check_numbers, check_seed, refuse_improper
from .model import Marginal
from .proportions import is_part
from .scales import HeldOutScales

NODES = 9
CHUNK = 50  # draws between two looks at a chain
STATISTICS = {  # ArviZ's name: field of NumPyro's state
    "diverging": "diverging",
    "acceptance_rate": "accept_prob",
    "n_steps": "num_steps",
    "energy": "energy",
    "lp": "potential_energy",  # its negative, below
    "step_size": "adapt_state.step_size",
}


def nuts(
    story: str | Callable, corpus: Corpus, y: Any = None, *, seed: int = 0, num_warmup: int = 500, num_samples: int = 500,
    num_chains: int = 2, thinning: int = 1, progress_bar: bool = True, target_accept_prob: float = 0.9,
    max_tree_depth: int = 10, response_weight: float = 1.0, checkpoint: str | Path | Checkpoint | None = None,
    **arguments: Any,
) -> Posterior:  # fmt: skip
    """Draw from the posterior of a story by NumPyro's NUTS, with the topics of words summed out.

    Without a response the target is the story's exact posterior. With one it is an approximation whose error vanishes
    as documents grow: the response's density is averaged over nine sigma points of its predictor. ``fit.info["target"]``
    says which. For small and middling corpora: every leapfrog step reads all words.

    Parameters
    ----------
    story
        A generative story, ``story(corpus, y=None, *, ...)``, or the name of one of the zoo.
    corpus, y
        Documents, and their responses where the story has them; NaN marks an unlabelled document.
    num_warmup, num_samples, num_chains, thinning
        As in NumPyro's MCMC. A chain's draws depend on the seed and its number, not on how many run beside it.
    target_accept_prob, max_tree_depth
        As in NumPyro's NUTS.
    response_weight
        The power of the response's density, before it is averaged. 1 is the posterior; above 1 topics serve predictions. A
        tenth of the documents, 200 at the most, are held out: scales such as sigma are drawn given them, in turn with all
        else, and predictions are calibrated by them (docs/weights.md).
    checkpoint
        A folder for checkpoints, about one a minute: ``inference.resume(folder)``, or the same call again, goes on from the
        last one, and ends with what a run without a break gives, to the last bit (docs/lasting.md).
    arguments
        Keyword arguments of the story.
    """
    check_seed(seed)
    check_counts(num_warmup=num_warmup, num_samples=num_samples, num_chains=num_chains, thinning=thinning)
    check_counts(max_tree_depth=max_tree_depth)
    check_numbers(most=1, target_accept_prob=target_accept_prob)
    graph = read(story, corpus, y, arguments)
    refuse_improper(graph, "nuts")
    weighed = with_weight(graph, response_weight)
    model = Marginal(weighed, nodes=NODES, average="density")
    sampler = partial(NUTS, target_accept_prob=target_accept_prob, max_tree_depth=max_tree_depth)
    kernel: Any
    if model.scales:  # blocks of one kernel share their model
        kernel = Gibbs([*((HeldOutScales(model, site), [site]) for site in model.scales), (sampler(model), None)])
        statistics = {name: f"block_states.{len(model.scales)}.{field}" for name, field in STATISTICS.items()}
        form = None
    else:
        bare, statistics = model.bare(), STATISTICS
        kernel, form = sampler(bare), form_of(NUTS, bare, target_accept_prob, max_tree_depth)
    data = counting(weighed, weighed.documents(pairs=True, batches=graph.has_sentences)), graph.response.on_device()
    drawn = run_chains(
        kernel,
        data,
        seed=seed,
        num_chains=num_chains,
        schedule=Schedule(
            num_warmup, num_samples, thinning, chunk_size(num_warmup, num_samples, thinning, CHUNK),
            statistics=statistics,
        ),
        constrain=lambda state: {},
        reset=lambda state: state,
        means=lambda state: {},
        progress_bar=progress_bar,
        form=form,
        lasting=opened(checkpoint, graph),
    )  # fmt: skip
    drawn.statistics["lp"] = -drawn.statistics["lp"]
    info = {
        "seed": seed, "num_warmup": num_warmup, "thinning": thinning, "target": model.target,
        "response_weight": response_weight, "held_out": list(weighed.held_out),
        "divergences": int(drawn.statistics["diverging"].sum()), "interrupted": drawn.interrupted,
        **circumstances(),
    }  # fmt: skip
    draws = {name: value for name, value in drawn.draws.items() if not is_part(name)}
    return Posterior.of(graph, draws, engine="nuts", info=info, statistics=drawn.statistics)
