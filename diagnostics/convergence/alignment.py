"""The same topics under the same numbers: topics matched across draws and chains.

The posterior of a topic model does not change when topics are renumbered, so a chain may renumber them on its way
(label switching), and two chains number them differently from the start. That is harmless. Two chains may also sit in
different modes, with topics that the other does not have; that is not. Both look the same until topics are matched.

Each draw's topics are matched to a reference by the assignment problem

    max over permutations s of  sum_k similarity(draw's topic s_k, reference topic k)

where the similarity of two topics is their Bhattacharyya coefficient, sum_v sqrt(beta_jv beta_kv), plus a little for
alike coefficients, which tells apart topics that use the same words. The reference is the mean of the first chain's
draws, matched to its last one.

What is left after matching is measured draw against draw: a topic is *matched* if draws of different chains are nearly
as alike as draws of one chain far apart in time.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment
from scipy.special import softmax

from topiczoo.inference import Fit
from topiczoo.inference.posterior.posterior import STATISTIC_DIMS
from topiczoo.inference.posterior.tables import made_of_draws

MATCHED = 0.9  # likeness across chains, as a share of likeness within chains, from which a topic counts as the same
MOST = 0.5  # share of words in shared topics from which most are said to be shared
MOST_TERMS = 500  # terms that matching looks at; the rest of each topic is one more term
COEFFICIENT_WEIGHT = 0.1  # of the second view, the coefficients, against the first, the words
COMPARED_DRAWS = 20  # of each chain, for likeness within and across chains


@dataclass(frozen=True)
class Alignment:
    """What matching found.

    Attributes
    ----------
    permutations
        [chain, draw, topic]: which of the draw's own topics now has the number.
    topics
        One row a topic: ``usage``; ``overlap``, likeness of its draws across chains; ``within``, likeness within a chain;
        ``stability``, their ratio, at most 1; ``switched``, the share of draws in which the chain itself renumbered it;
        ``matched``, whether every chain has it (None with a single chain).
    chains
        One row a topic and chain: ``overlap`` with the other chains and ``matched``.
    """

    permutations: np.ndarray
    topics: pd.DataFrame
    chains: pd.DataFrame

    @property
    def agreement(self) -> float | None:
        """The share of words that belongs to matched topics: 1 if chains differ by numbering alone."""
        if not len(self.chains):
            return None
        usage = self.topics["usage"]
        return float(usage[self.topics["matched"].astype(bool)].sum() / usage.sum())

    @property
    def likeness(self) -> float | None:
        """Mean stability of the topics, each weighted by its usage: 1 if chains differ by numbering alone."""
        if not len(self.chains):
            return None
        return float(np.average(self.topics["stability"], weights=self.topics["usage"]))

    @property
    def switching(self) -> float:
        """The share of draws in which a chain renumbered any topic."""
        return float((self.permutations != self.permutations[:, -1:]).any(-1).mean())

    @property
    def unmatched(self) -> list[int]:
        """Topics that some chain does not have."""
        return [int(k) for k in self.topics.index[self.topics["matched"] == False]]  # noqa: E712

    @property
    def verdict(self) -> str:
        if not len(self.topics):
            return "The story has no topics to compare."
        switched = "" if self.switching < 0.005 else f" Labels switched within chains in {self.switching:.0%} of draws."
        return self.shared + switched

    @property
    def shared(self) -> str:
        """How far chains share their topics, in words."""
        agreement = self.agreement
        if agreement is None:
            return "One chain: whether another would find the same topics cannot be known."
        if not self.unmatched:
            return "All chains found the same topics."
        total = len(self.topics)
        number = f"{total - len(self.unmatched)} of {total}, with {agreement:.0%} of words"
        if agreement >= MOST:
            shown = ", ".join(map(str, self.unmatched[:10])) + (", ..." if len(self.unmatched) > 10 else "")
            return f"Most topics are shared by all chains ({number}); chains differ in {shown}."
        likeness = f"likeness {self.likeness:.2f} where 1 is the same"
        return f"Topics differ from chain to chain: all chains share {number}, {likeness}."


class AlignedFit(Fit):
    """A fit whose topics have the same numbers in every draw and chain."""

    alignment: Alignment
    topics_are_matched = True


def align(fit: Fit) -> AlignedFit:
    """The same fit with topics numbered alike in every draw and chain, most used first; ``.alignment`` says how well.

    Every variable with an axis of topics is renumbered: draws, snapshots, means and statistics. A story without topics
    (naive Bayes) has nothing to renumber and stays as it is; so do topics that are made of sites without such an axis.
    """
    if not fit.has_topics:
        return _without_topics(fit)
    name, beta = _topic_draws(fit)
    num_draws = beta.shape[1]
    views = _Views(beta, _coefficients(fit, num_draws))
    follow = bool(name) or _topics_follow(fit, beta)
    order = _match(views) if follow else np.broadcast_to(np.arange(beta.shape[2]), beta.shape[:3])
    usage = _usage(fit, order)
    by_use = np.argsort(-usage, kind="stable") if follow else np.arange(len(usage))
    order = order[:, :, by_use]
    topics, chains = _compare(views, order)
    topics.insert(0, "usage", usage[by_use])
    topics["switched"] = (order != order[:, -1:]).mean((0, 1))
    topics = topics.rename_axis("topic")
    aligned = _renumbered(fit, order, _places(fit, name, num_draws))
    aligned.alignment = Alignment(order, topics, chains)
    return aligned


def _without_topics(fit: Fit) -> AlignedFit:
    chains, draws = next(iter(fit.draws.values())).shape[:2]
    aligned: Any = copy.copy(fit)
    aligned.__class__ = AlignedFit
    none = pd.DataFrame(columns=["usage", "within", "overlap", "stability", "matched", "switched"])
    aligned.alignment = Alignment(np.zeros((chains, draws, 0), int), none.rename_axis("topic"), pd.DataFrame())
    return aligned


def _topic_draws(fit: Fit) -> tuple[str, np.ndarray]:
    """The draws that tell topics apart: the site with axes of topics and terms, [chain, draw, topic, term].

    Deviations in log-space count as what they multiply, in shares.
    """
    stored = {**fit.snapshots, **fit.draws}
    of_terms = [name for name, dims in fit.graph.dims.items() if dims == ("topic", "term") and name in stored]
    for name in sorted(of_terms, key=lambda name: name != fit.graph.topics):
        draws = stored[name]
        return name, draws if draws.min() >= 0 else softmax(draws, axis=-1)
    if (made := made_of_draws(fit, "beta", most=None)) is not None:
        return "", made if made.ndim == 4 else made.mean(2)
    raise ValueError(
        f"The story {fit.story.name!r} has no site with axes of topics and terms, so its topics cannot be matched by words."
    )


def _topics_follow(fit: Fit, beta: np.ndarray) -> bool:
    """Whether topics that the story makes of other sites move when these are renumbered: tried with each put behind."""
    num_draws = beta.shape[1]
    behind = np.broadcast_to(np.roll(np.arange(beta.shape[2]), 1), beta.shape[:3])
    moved = made_of_draws(_renumbered(fit, behind, _places(fit, "", num_draws)), "beta", most=1)
    if moved is None:
        return False
    first = moved[0, 0] if moved.ndim == 4 else moved[0, 0].mean(0)
    return bool(np.allclose(first, np.roll(beta[0, 0], 1, 0), rtol=1e-4, atol=1e-7))


def _coefficients(fit: Fit, num_draws: int) -> np.ndarray | None:
    """The coefficients as features, scaled to their spread, [chain, draw, topic, feature]; None without any."""
    if not fit.coefficients:
        return None
    views = map(fit.by_topic, fit.coefficients)
    value = np.concatenate([view.reshape(*view.shape[:3], -1) for view in views], -1).astype(np.float32)
    if value.shape[1] != num_draws:
        value = value[:, fit.snapshot_index]
    return value / max(float(value.std()), 1e-9)


class _View(NamedTuple):
    """The topics of a draw, or a mean of several: unit vectors of their words, and their coefficients."""

    words: Any  # [topic, feature]
    scores: Any  # [topic, coefficient], or None


class _Views:
    """Draws as features for matching: sqrt(beta) over the leading terms, the rest of each topic as one term more."""

    def __init__(self, beta: np.ndarray, coefficients: np.ndarray | None) -> None:
        self.beta, self.coefficients = beta, coefficients
        self.num_chains, self.num_draws, self.num_topics, num_terms = beta.shape
        self.leading = None
        if num_terms > MOST_TERMS + 1:
            some = beta[:, :: max(1, self.num_draws // 10)]
            self.leading = np.sort(np.argsort(-some.max((0, 1, 2)))[:MOST_TERMS])

    def at(self, chain: int, draw: int) -> _View:
        words = self.beta[chain, draw]
        if self.leading is not None:
            kept = words[:, self.leading]
            words = np.concatenate([kept, np.maximum(1.0 - kept.sum(1, keepdims=True), 0.0)], 1)
        words = np.sqrt(words, dtype=np.float32)
        return _View(words, None if self.coefficients is None else self.coefficients[chain, draw])


def _match(views: _Views) -> np.ndarray:
    """For every draw which of its topics matches each reference topic, [chain, draw, topic]."""
    order = np.empty((views.num_chains, views.num_draws, views.num_topics), int)
    reference = None
    for chain in range(views.num_chains):
        # first within the chain, then the chain as a whole: a mean of many draws is the better judge
        own, mean = _match_chain(views, chain)
        reference = reference or mean
        order[chain] = own[:, _assign(mean, reference)]
    return order


def _match_chain(views: _Views, chain: int) -> tuple[np.ndarray, _View]:
    """Draws of one chain matched to its last, then to their mean; the permutations and that mean."""
    target = views.at(chain, views.num_draws - 1)
    order = np.empty((views.num_draws, views.num_topics), int)
    for _ in range(2):
        total = _View(*(None if part is None else np.zeros(part.shape) for part in target))
        room = _room(target)
        for draw in range(views.num_draws):
            view = views.at(chain, draw)
            order[draw] = _assign(view, target, room)
            for sums, part in zip(total, view, strict=True):
                if part is not None:
                    sums += part[order[draw]]
        target = _View(*(None if t is None else (t / views.num_draws).astype(np.float32) for t in total))
        if (order == np.arange(views.num_topics)).all():
            break
    return order, target


def _similarity(view: _View, target: _View) -> np.ndarray:
    similarity = target.words @ view.words.T
    if view.scores is not None and target.scores is not None:
        gap = ((target.scores[:, None] - view.scores[None]) ** 2).mean(-1)
        similarity = similarity + COEFFICIENT_WEIGHT * np.exp(-0.5 * gap)
    return similarity


def _room(target: _View) -> np.ndarray:
    """For each topic the distance to the nearest other one, |sqrt(beta_j) - sqrt(beta_k)|."""
    squared = (target.words**2).sum(1)
    apart = np.sqrt(np.maximum(squared[:, None] + squared - 2 * target.words @ target.words.T, 0.0))
    np.fill_diagonal(apart, np.inf)
    return apart.min(1)


def _assign(view: _View, target: _View, room: np.ndarray | None = None) -> np.ndarray:
    """The permutation p that makes the view's topics p most alike to the target's.

    With a = the room around a target's topic and d = its distance from the view's topic of the same number, all other
    targets are at least a - d away. If a^2 - 2 a d > 2 weight for every topic, no other number can be more alike, whatever
    the coefficients say, so the assignment problem need not be solved.
    """
    if room is not None:
        d = np.sqrt(((view.words - target.words) ** 2).sum(1))
        if (room * (room - 2 * d) > 2 * COEFFICIENT_WEIGHT).all():
            return np.arange(len(d))
    return linear_sum_assignment(_similarity(view, target), maximize=True)[1]


def _compare(views: _Views, order: np.ndarray) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Likeness of a topic's draws within and across chains."""
    num_chains, num_draws, num_topics = order.shape
    chosen = np.unique(np.linspace(0, num_draws - 1, COMPARED_DRAWS).astype(int))
    half = max(1, len(chosen) // 2)
    early, late = (
        np.stack([np.mean([views.at(c, d).words[order[c, d]] for d in part], axis=0) for c in range(num_chains)])
        for part in (chosen[:half], chosen[-half:])
    )
    # mean likeness of chain a's early draws with chain b's late ones; for a = b, of draws of one chain far apart
    like = np.einsum("akv,bkv->abk", early, late)
    within = np.einsum("aak->ak", like).mean(0)
    frame = pd.DataFrame({"within": within}, index=np.arange(num_topics))
    if num_chains == 1:
        frame["overlap"], frame["stability"], frame["matched"] = np.nan, np.nan, None
        return frame, pd.DataFrame(columns=["topic", "chain", "overlap", "matched"])
    across = (like + like.swapaxes(0, 1)) / 2
    across[np.arange(num_chains), np.arange(num_chains)] = np.nan
    of_chain = np.nanmax(across, axis=1)  # with the nearest other chain, [chain, k]
    frame["overlap"] = np.nanmin(across, axis=(0, 1))
    frame["stability"] = np.minimum(frame["overlap"] / within, 1.0)
    frame["matched"] = frame["stability"] >= MATCHED
    chains = pd.DataFrame({
        "topic": np.tile(np.arange(num_topics), num_chains),
        "chain": np.repeat(np.arange(num_chains), num_topics),
        "overlap": of_chain.ravel(),
        "matched": (of_chain >= MATCHED * within).ravel(),
    })  # fmt: skip
    return frame, chains


def _usage(fit: Fit, order: np.ndarray) -> np.ndarray:
    """How much of the corpus each matched topic has, averaged over chains and draws."""
    usage = topic_usage(fit)
    if usage is None:
        return np.full(order.shape[-1], 1.0 / order.shape[-1])
    if usage.shape[1] not in (1, order.shape[1]):
        usage = (
            usage[:, fit.snapshot_index] if len(fit.snapshot_index) == order.shape[1] else usage.mean(1, keepdims=True)
        )
    return np.take_along_axis(np.broadcast_to(usage, order.shape), order, -1).mean((0, 1))


def topic_usage(fit: Fit) -> np.ndarray | None:
    """The share of words in each topic, [chain, draw or 1, topic]: what the sampler counted, or the mean of theta."""
    if "usage" in fit.statistics:
        return fit.statistics["usage"]
    lengths = fit.corpus.lengths / fit.corpus.num_tokens
    theta = fit.graph.theta
    if theta in fit.means and theta not in fit.draws:
        return np.einsum("cnk,n->ck", fit.means[theta], lengths)[:, None]
    draws = fit.draws[theta] if theta in fit.draws else made_of_draws(fit, "theta")
    if draws is None:
        return None
    usage = np.einsum("cdnk,n->cdk", draws, lengths)
    return usage if theta in fit.draws else usage.mean(1, keepdims=True)


def _places(fit: Fit, name: str, num_draws: int) -> np.ndarray:
    """For every draw of the fit, the matched draw that stands for it: itself, or the nearest snapshot."""
    if name in fit.draws or not fit.snapshots:
        return np.arange(num_draws)
    length = next(iter({**fit.draws, **fit.statistics}.values())).shape[1]
    return np.abs(np.arange(length)[:, None] - fit.snapshot_index).argmin(1)


def _renumbered(fit: Fit, order: np.ndarray, places: np.ndarray) -> Any:
    """A copy of the fit with every axis of topics renumbered."""
    aligned = copy.copy(fit)
    aligned.__class__ = AlignedFit
    aligned.__dict__.pop("posterior", None)  # made anew from the renumbered draws
    every = order[:, places]

    def apply(values: dict[str, np.ndarray], dims_of: Any, by_draw: np.ndarray) -> dict[str, np.ndarray]:
        out = {}
        for name, value in values.items():
            dims = dims_of.get(name, ())
            for axis, dim in enumerate(dims):
                if dim == "topic":
                    value = _take(value, by_draw, axis)
            out[name] = value
        return out

    aligned.draws = apply(fit.draws, fit.graph.dims, every)
    aligned.snapshots = apply(fit.snapshots, fit.graph.dims, order)
    aligned.statistics = apply(fit.statistics, STATISTIC_DIMS, every)
    aligned.means = apply(fit.means, fit.graph.dims, _usual(order))
    alpha = fit.info.get("alpha")  # estimated, one a topic
    if alpha is not None and np.size(alpha) == order.shape[-1]:
        aligned.info = {**fit.info, "alpha": np.asarray(alpha)[_usual(order)[0]]}
    if fit.topic_names is not None:
        aligned.topic_names = fit.topic_names[_usual(order)[0]]
    return aligned


def _usual(order: np.ndarray) -> np.ndarray:
    """For running means, which mix all draws of a chain: the numbering most of its draws have, [chain, topic]."""
    usual = []
    for chain in order:
        permutations, votes = np.unique(chain, axis=0, return_counts=True)
        usual.append(permutations[votes.argmax()])
    return np.stack(usual)


def _take(value: np.ndarray, order: np.ndarray, axis: int) -> np.ndarray:
    """value[chain, draw, ..., topic, ...] with topics renumbered draw by draw; without draws for order [chain, topic]."""
    lead = order.ndim - 1
    if order.shape[:lead] != value.shape[:lead]:
        raise ValueError(f"permutations of shape {order.shape} do not fit values of shape {value.shape}.")
    if (order == np.arange(order.shape[-1])).all():
        return value
    out = np.empty_like(value)
    for place in np.ndindex(*order.shape[:lead]):
        out[place] = np.take(value[place], order[place], axis=axis)
    return out
