"""Is an engine right for a story? Simulation-based calibration and Geweke's joint test.

Both rest on one fact: parameters drawn from the prior, and data drawn from the story given them, are a draw from the joint
distribution; so the parameters are also a draw from the posterior given those data. An engine that draws from the
posterior cannot be told apart from the prior.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax.sharding import Mesh, PartitionSpec
from scipy import stats

from topiczoo.corpora import Corpus
from topiczoo.inference import Trials
from topiczoo.inference.programs.progress import tqdm
from topiczoo.inference.story.validation import check_counts, check_seed

from .invariants import Quantities, invariants

LEVEL = 0.01  # chance that a right engine fails a whole test, all its quantities together
BATCH = 250  # simulations run side by side at most
ACROSS = 6  # quantities side by side in a figure
ROUNDING = 1e-6  # up to which numbers count as equal
PRIOR_DRAWS = 10_000  # from the story alone, for Geweke's test


@dataclass(frozen=True)
class Calibration:
    """Ranks of the true values among posterior draws, [simulations] for each quantity, from 0 to ``num_draws``."""

    ranks: pd.DataFrame
    num_draws: int
    title: str = ""

    @property
    def table(self) -> pd.DataFrame:
        """One row a quantity: p (of uniform ranks, by the ECDF's largest excursion), passes at 1% for all together, and
        what a failure looks like: the mean rank (0.5 if unbiased) and the spread (1 if neither too wide nor too narrow)."""
        uniform = (self.ranks + 0.5) / (self.num_draws + 1)
        null = _null_excursions(len(self.ranks), self.num_draws)
        rows = []
        for name in self.ranks.columns:
            worst = _excursion(self.ranks[name].to_numpy()[None], self.num_draws)[0]
            rows.append({
                "quantity": name, "p": float((1 + (null <= worst).sum()) / (1 + len(null))),
                "mean_rank": uniform[name].mean(), "spread": uniform[name].std() * np.sqrt(12),
            })  # fmt: skip
        table = pd.DataFrame(rows).set_index("quantity")
        table["passes"] = table["p"] > LEVEL / len(table)
        return table

    @property
    def passes(self) -> bool:
        return bool(self.table["passes"].all())

    def plot(self) -> Any:
        """Rank histograms above, ECDF differences with 99% simultaneous bands below; a matplotlib figure."""
        return plot_calibration(self)

    def __repr__(self) -> str:
        return f"Calibration({self.title}, {'passes' if self.passes else 'fails'})\n{self.table.to_string()}"


def calibrate(
    story: str | Callable, corpus: Corpus, engine: str | Callable = "gibbs", *, num_simulations: int = 200,
    num_draws: int = 63, num_warmup: int = 200, thinning: int = 5, quantities: Quantities | None = None, seed: int = 0,
    progress_bar: bool = True, **arguments: Any,
) -> Calibration:  # fmt: skip
    """Simulation-based calibration (Talts et al. 2018) of an engine on a story.

    Parameters, topics, words and responses are drawn from the story, the engine fits them, and the true value of each
    quantity is ranked among its posterior draws. Ranks are uniform if the engine draws from the posterior.

    Parameters
    ----------
    story, arguments
        The story with its keyword arguments; its priors must be proper. ``collapse`` and, for svi, ``num_steps`` are the
        engine's.
    corpus
        Lends its document lengths, number of terms and covariates. Small: each simulation is a fit.
    engine
        ``"gibbs"``, ``"nuts"``, ``"svi"``, or a function ``(story, corpus, y, seed, **arguments) -> Fit`` such as ``vem``.
    num_draws, num_warmup, thinning
        Of each chain. Thin enough for the draws to be nearly independent: correlated ones look over-dispersed.
    quantities
        ``(values, documents, y) -> dict of numbers``; must not depend on the numbering of topics. By default
        :func:`invariants`.
    """
    check_seed(seed)
    check_counts(num_simulations=num_simulations, num_draws=num_draws, num_warmup=num_warmup, thinning=thinning)
    if callable(engine):
        ranks = _ranks_by_fits(
            story, corpus, engine, num_simulations, num_draws, quantities, seed, progress_bar, arguments
        )
        name = getattr(engine, "__name__", "engine")
    else:
        trials = Trials(story, corpus, engine=engine, **arguments)
        evaluate = quantities or invariants(trials.graph)
        if engine == "svi":
            num_warmup, thinning = 0, 1
        warm = -(-num_warmup // thinning)

        def one(key: jax.Array) -> dict[str, jax.Array]:
            simulate_key, start_key = jax.random.split(key)
            truth = trials.simulate(simulate_key)
            documents = trials.documents(truth.terms)
            state = trials.start(start_key, truth, warm * thinning)

            def draw(state: Any, _: Any) -> tuple[Any, dict]:
                state = jax.lax.fori_loop(0, thinning, lambda _, s: trials.step(s, truth), state)
                return state, evaluate(trials.values(state, truth), documents, truth.y)

            # warm-up in the same loop: a second one would be compiled a second time
            _, drawn = jax.lax.scan(draw, state, None, length=warm + num_draws)
            true = evaluate(truth.values, documents, truth.y)
            ties_key = jax.random.fold_in(key, 2)
            return {name: _rank(ties_key, drawn[name][warm:], true[name]) for name in drawn}

        ranks = pd.DataFrame(_in_batches(one, num_simulations, seed, progress_bar))
        name = engine
    return Calibration(ranks, num_draws, f"{getattr(story, '__name__', str(story))} by {name}")


def _rank(key: jax.Array, drawn: jax.Array, true: jax.Array) -> jax.Array:
    """The place of the truth among draws, at random among equals: responses that are all zero make quantities alike.

    Equal are numbers that differ by rounding: shares of 1 and 0, whose squares add up to 1, are drawn in different ways.
    """
    equal = jnp.abs(drawn - true) <= ROUNDING * jnp.maximum(jnp.abs(true), 1.0)
    return ((drawn < true) & ~equal).sum() + jax.random.randint(key, (), 0, equal.sum() + 1)


def _in_batches(one: Callable, number: int, seed: int, progress_bar: bool, most: int = BATCH) -> dict[str, np.ndarray]:
    """``one(key)`` for many keys, a batch side by side at a time, shared out to the devices."""
    mesh, parts = Mesh(np.asarray(jax.devices()), ("simulations",)), []
    split = PartitionSpec("simulations")
    many = jax.jit(jax.shard_map(jax.vmap(one), mesh=mesh, in_specs=split, out_specs=split, check_vma=False))
    batches = -(-number // most)  # as few as may be, all of one size
    batch = -(-number // (batches * mesh.size)) * mesh.size
    keys = jax.random.split(jax.random.key(seed), -(-number // batch) * batch)
    with tqdm(total=number, disable=not progress_bar, unit="simulation") as bar:
        for first in range(0, number, batch):
            parts.append(jax.tree.map(np.asarray, many(keys[first : first + batch])))
            bar.update(min(batch, number - first))
    return {name: np.concatenate([part[name] for part in parts])[:number] for name in parts[0]}


def _ranks_by_fits(
    story: str | Callable, corpus: Corpus, engine: Callable, number: int, num_draws: int, quantities: Quantities | None,
    seed: int, progress_bar: bool, arguments: dict,
) -> pd.DataFrame:  # fmt: skip
    """Ranks from fits made one by one."""
    trials = Trials(story, corpus, **arguments)
    evaluate = quantities or invariants(trials.graph)
    one_draw = jax.jit(lambda values, terms, y: evaluate(values, trials.documents(terms), y))
    rows = []
    for i in tqdm(range(number), disable=not progress_bar, unit="simulation"):
        truth = jax.jit(trials.simulate)(jax.random.fold_in(jax.random.key(seed), i))
        y = () if truth.y is None else (jax.tree.map(np.asarray, truth.y),)
        fit = engine(story, trials.corpus(truth.terms, corpus), *y, seed=i, progress_bar=False, **arguments)
        known = {name: value for name, value in truth.values.items() if name in fit.draws}
        true = one_draw(known, truth.terms, truth.y)
        chosen = np.linspace(0, next(iter(fit.draws.values())).shape[1] - 1, num_draws).astype(int)
        drawn = [
            one_draw({name: jnp.asarray(fit.draws[name][0, d]) for name in known}, truth.terms, truth.y) for d in chosen
        ]
        rows.append({name: sum(int(d[name] < true[name]) for d in drawn) for name in true})
    return pd.DataFrame(rows)


def _excursion(ranks: np.ndarray, num_draws: int) -> np.ndarray:
    """For each row of ranks the smallest two-sided binomial tail of its ECDF over all places (Sailynoja et al. 2022)."""
    number = ranks.shape[1]
    below = np.stack([(ranks <= place).sum(1) for place in range(num_draws)], 1)  # last place is certain
    share = (np.arange(num_draws) + 1) / (num_draws + 1)
    low, high = stats.binom.cdf(below, number, share), stats.binom.sf(below - 1, number, share)
    return 2 * np.minimum(low, high).min(1)


@functools.cache
def _null_excursions(number: int, num_draws: int, repeats: int = 4000) -> np.ndarray:
    ranks = np.random.default_rng(0).integers(0, num_draws + 1, (repeats, number))
    return _excursion(ranks, num_draws)


def geweke(
    story: str | Callable, corpus: Corpus, engine: str = "gibbs", *, num_chains: int = 2000, num_steps: int = 50,
    quantities: Quantities | None = None, seed: int = 0, progress_bar: bool = True, **arguments: Any,
) -> pd.DataFrame:  # fmt: skip
    """Geweke's joint test (2004) of an MCMC engine on a story, with many independent chains.

    Each chain starts at a draw of everything from the story, and then alternates a step of the engine with words and
    responses drawn anew given all latent values. If the engine leaves the posterior as it is, every state on the way is
    again a draw from the joint distribution. So quantities are turned into their ranks u among draws from the story, from
    0 to 1; averages of u over a chain's steps must be 1/2 and averages of (u - 1/2)^2 must be 1/12, and the spread of
    these averages over chains, which are independent, says how nearly.

    Returns one row a quantity: both averages, their z scores, and whether it passes (1% for all of them together).
    """
    check_seed(seed)
    check_counts(num_chains=num_chains, num_steps=num_steps)
    if engine == "svi":
        raise ValueError("engine is 'svi'; Geweke's test is for MCMC: give 'gibbs' or 'nuts', or use calibrate.")
    trials = Trials(story, corpus, engine=engine, **arguments)
    evaluate = quantities or invariants(trials.graph)

    def prior(key: jax.Array) -> dict[str, jax.Array]:
        joint = trials.simulate(key)
        return evaluate(joint.values, trials.documents(joint.terms), joint.y)

    def chain(key: jax.Array) -> dict[str, jax.Array]:
        def turn(joint: Any, key: jax.Array) -> tuple[Any, dict]:
            start_key, data_key = jax.random.split(key)
            state = trials.step(trials.start(start_key, joint, at_truth=True), joint)
            values = trials.values(state, joint)  # what the engine summed out is drawn anew with the data
            # looked at before data are drawn anew: new data fit any values
            looked_at = evaluate(values, trials.documents(joint.terms), joint.y)
            return trials.simulate(data_key, values), looked_at

        keys = jax.random.split(key, num_steps + 1)
        return jax.lax.scan(turn, trials.simulate(keys[0]), keys[1:])[1]

    expected = _in_batches(prior, PRIOR_DRAWS, seed + 1, False, most=PRIOR_DRAWS)
    found = _in_batches(chain, num_chains, seed, progress_bar)
    rows, rng = [], np.random.default_rng(seed)
    for name, drawn in found.items():
        known, equals = np.sort(expected[name]), rng.random(drawn.shape)
        near = ROUNDING * np.maximum(np.abs(drawn), 1.0)
        below, upto = np.searchsorted(known, drawn - near, "left"), np.searchsorted(known, drawn + near, "right")
        u = (below + equals * (upto - below)) / PRIOR_DRAWS  # [chain, step]; at random among equals, as in calibrate
        mean, spread = u.mean(1), ((u - 0.5) ** 2).mean(1)
        rows.append({
            "quantity": name, "mean_rank": mean.mean(), "spread": np.sqrt(12 * spread.mean()),
            "z_mean": _z(mean, 1 / 2, 1 / 12), "z_spread": _z(spread, 1 / 12, 1 / 180),
        })  # fmt: skip
    return _judged(pd.DataFrame(rows).set_index("quantity"))


def _judged(table: pd.DataFrame) -> pd.DataFrame:
    """With whether each quantity passes: the level is shared out to two sides of two numbers of each."""
    far = stats.norm.isf(LEVEL / (4 * len(table)))
    return table.assign(passes=(table["z_mean"].abs() < far) & (table["z_spread"].abs() < far))


def _z(averages: np.ndarray, expected: float, variance: float) -> float:
    """Standard errors between averages of independent chains and the expectation, itself from PRIOR_DRAWS draws."""
    return float((averages.mean() - expected) / np.sqrt(averages.var(ddof=1) / len(averages) + variance / PRIOR_DRAWS))


def plot_calibration(calibration: Calibration) -> Any:
    """For each quantity the histogram of ranks, and below it the ECDF minus the diagonal with its simultaneous band."""
    import matplotlib.pyplot as plt

    ranks, last = calibration.ranks, calibration.num_draws
    columns = list(ranks.columns)
    across, down = min(len(columns), ACROSS), -(-len(columns) // ACROSS)
    size = 2.3 * across, 3.6 * down + 0.4
    figure, axes = plt.subplots(2 * down, across, figsize=size, squeeze=False, layout="constrained", sharey="row")
    aboves, belows = axes[::2].ravel(), axes[1::2].ravel()
    number = len(ranks)
    # a point of the ECDF leaves the band where its two-sided binomial tail is below what 99% of uniform ranks stay above
    tail = np.quantile(_null_excursions(number, last), LEVEL) / 2
    share = (np.arange(last) + 1) / (last + 1)
    low, high = (stats.binom.ppf(q, number, share) / number - share for q in (tail, 1 - tail))
    bins = np.linspace(-0.5, last + 0.5, min(17, last + 2))
    passes = calibration.table["passes"]
    for above, below, name in zip(aboves, belows, columns, strict=False):
        color = "#3b6ea5" if passes[name] else "#b3402e"
        above.hist(ranks[name], bins=bins, color=color, alpha=0.8)
        above.axhline(number / (len(bins) - 1), color="black", linewidth=0.8)
        above.set_title(name, fontsize=8)
        ecdf = np.array([(ranks[name] <= place).mean() for place in range(last)]) - share
        below.fill_between(share, low, high, color="#dddddd", step="mid")
        below.step(share, ecdf, where="mid", color=color)
        below.set_xlabel("rank", fontsize=8)
    for above, below in zip(axes[::2, 0], axes[1::2, 0], strict=True):
        above.set_ylabel("simulations")
        below.set_ylabel("ECDF - uniform")
    for unused in (*aboves[len(columns) :], *belows[len(columns) :]):
        unused.remove()
    figure.suptitle(calibration.title, fontsize=10)
    return figure
