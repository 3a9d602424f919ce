"""What a fit says of the words of documents: alpha and beta at posterior draws, p(w_d) where it is exact, and topics of
tokens, redrawn because fits do not store them."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import Documents, distinct_pairs

from ..posterior.posterior import Posterior
from ..programs.compiling import jitted
from ..story.classes import is_class
from ..story.sweeping import read_weights
from ..story.tracing import Values, ZbarHandler
from ..story.validation import check_counts, check_draws, check_seed
from .fold_in import FoldIn, known_words

PAIRS_AT_ONCE = 16384  # pairs of a document and a term whose probabilities are computed together


class WordWeights(NamedTuple):
    """theta_d ~ Dir(alpha_d), z_dn ~ Cat(theta_d), w_dn ~ Cat(beta_{z_dn}) at some posterior draws."""

    corpus: Corpus  # the documents over the fit's vocabulary, words that it has not seen left out
    beta: np.ndarray  # [chain, draw, topics, terms]
    alpha: np.ndarray  # [chain, draw, documents (or 1, if common to all), topics]


def word_weights(fit: Posterior, corpus: Corpus, *, most_draws: int = 10) -> WordWeights:
    """alpha and beta for the documents of a corpus, at ``most_draws`` draws a chain at the most.

    Where the engine has estimated alpha itself (``fit.info["alpha"]``) it is that one.
    """
    fold = FoldIn(fit, corpus)
    graph, name = fold.graph, fit.story.name
    if not graph.has_words:
        raise ValueError(f"The story {name!r} has one topic a document; its p(w_d) is exact: use label_evidence.")
    if graph.has_labels:
        raise ValueError(f"In the story {name!r} topics are those of a label; p(w_d), a sum over labels, is not known.")
    if fold.local is not None:
        raise ValueError(
            f"left_to_right and chib need Dirichlet proportions that only words read, which theta of the story {name!r} is "
            "not; use method='completion'."
        )
    own = [site for site in graph.parents[graph.theta] - {graph.theta} if "document" in graph.dims[site]]
    if own:
        raise ValueError(
            f"In the story {name!r} theta's prior depends on {own[0]!r}, which new documents have values of their own "
            "for; p(w_d) is known only where theta's prior is common to documents or follows from covariates."
        )
    draws = fit.global_draws(most_draws)
    num_chains, num_draws = next(iter(draws.values())).shape[:2]

    @jitted
    def read(corpus: Documents, values: Values) -> tuple[jax.Array, jax.Array]:
        weights = read_weights(graph, corpus, None, values, collapsed=True)
        return weights.term_topic[:-1].T, weights.proportions

    found = [
        jax.tree.map(np.asarray, read(fold.corpus, {site: jnp.asarray(value[c, i]) for site, value in draws.items()}))
        for c in range(num_chains)
        for i in range(num_draws)
    ]
    beta, alpha = (np.stack(part).reshape(num_chains, num_draws, *part[0].shape) for part in zip(*found, strict=True))
    if np.ptp(alpha, axis=2).max() == 0:
        alpha = alpha[:, :, :1]
    return WordWeights(known_words(fit, corpus), beta, alpha)


def drawn_completion(
    fit: Posterior, first: Corpus, second: Corpus, *, most_draws: int = 10, seed: int = 0, **settings: int
) -> np.ndarray | None:
    """log p(second_d | first_d, draw), [chain, draw, documents], for a story whose theta is not integrated out; else None.

    p(second | first) is the mean of prod_n sum_k theta_k beta_{k, w_n} over ``num_thetas`` draws (100) of theta given the
    first half, with ``num_burn`` rounds (20) behind them. Its logarithm is low by about half its squared error.
    """
    fold = FoldIn(fit, first)
    if fold.local is None:
        return None
    if unknown := sorted(set(settings) - {"num_thetas", "num_burn"}):
        raise TypeError(
            f"{unknown[0]!r} is no setting of completion where theta is drawn, as in the story {fit.story.name!r}; it takes "
            "num_thetas and num_burn."
        )
    num_thetas, num_burn = settings.get("num_thetas", 100), settings.get("num_burn", 20)
    check_counts(num_thetas=num_thetas)
    check_draws(most_draws, num_burn)
    pairs = distinct_pairs(known_words(fit, second).counts)
    fold.data = fold.corpus, jax.tree.map(jnp.asarray, pairs)
    found = fold.run(_log_completed, num_thetas, seed=seed, most_draws=most_draws, num_burn=num_burn)
    logs = np.stack(list(found))
    return logs.reshape(len(fold.chains), -1, len(first)).astype(float)


def _log_completed(
    fold: FoldIn, burn: int, num_thetas: int, data: tuple, key: jax.Array, centre: jax.Array, values: Values
) -> jax.Array:
    corpus, pairs = data
    start_key, key = jax.random.split(key)

    def log_words(z: Any) -> jax.Array:
        weights = read_weights(fold.graph, corpus, None, fold.given(z, None, values), collapsed=False)
        theta = jnp.broadcast_to(weights.proportions, (corpus.num_documents, fold.graph.num_topics))

        def one(pair: tuple) -> jax.Array:
            document, term, count = pair
            return count * jnp.log(theta[document] @ weights.term_topic[term])

        logs = jax.lax.map(one, tuple(pairs), batch_size=min(PAIRS_AT_ONCE, max(len(pairs.count), 1)))
        return jnp.zeros(corpus.num_documents).at[pairs.document].add(logs)

    def one_more(i: jax.Array, carry: tuple) -> tuple:
        z, total = carry
        z = fold.sweep(corpus, jax.random.fold_in(key, i), z, values)
        return z, jnp.logaddexp(total, log_words(z))

    z = fold.topics(corpus, start_key, centre, values, burn)
    begin = z, jnp.full(corpus.num_documents, -jnp.inf)
    return jax.lax.fori_loop(0, num_thetas, one_more, begin)[1] - jnp.log(num_thetas)


def label_evidence(fit: Posterior, corpus: Corpus, *, most_draws: int = 10) -> np.ndarray | None:
    """log p(w_d | draw) = log sum_k p(z_d = k) prod_n beta_{k, w_dn}, [chain, draw, documents], exactly.

    For a story with one topic a document; None for a story whose words have topics of their own.
    """
    fold = FoldIn(fit, corpus)
    graph = fold.graph
    if graph.has_words:
        return None
    labels = [name for name in graph.latent if is_class(graph, name)]
    if len(labels) != 1:
        raise ValueError(f"The story {fit.story.name!r} has {len(labels)} labels a document; p(w_d) is known for one.")
    (site,) = labels
    num_labels = len(graph.latent[site].fn.enumerate_support(expand=False))
    # what the label drives, less a response: a latent site that nothing reads
    parts = tuple(part for part in sorted(graph.children([site])) if part == site or part not in graph.latent)
    given = site, parts, num_labels
    logs = np.stack(list(fold.run(_log_sum, *given, seed=0, most_draws=most_draws, num_burn=0)))
    return logs.reshape(len(fold.chains), -1, len(corpus)).astype(float)


def _log_sum(
    fold: FoldIn, _burn: int, site: str, parts: tuple[str, ...], num_labels: int, data: tuple, _key: jax.Array,
    _centre: None, values: Values,
) -> jax.Array:  # fmt: skip
    corpus, _ = data

    def log_joint(label: jax.Array) -> jax.Array:
        tried = {**values, site: jnp.full(corpus.num_documents, label, jnp.int32)}
        return fold.graph.document_terms(parts, corpus, None, tried, ZbarHandler())

    return jax.nn.logsumexp(jax.lax.map(log_joint, jnp.arange(num_labels)), axis=0)


class TokenTopics(NamedTuple):
    """Every token of a corpus, in the order of ``Corpus.tokens``, and draws of its topic."""

    document: np.ndarray  # [tokens]
    term: np.ndarray  # [tokens], columns of the fit's vocabulary
    topics: np.ndarray  # [draws, tokens]
    num_topics: int


def token_topics(
    fit: Posterior, corpus: Corpus, *, chain: int = 0, most_draws: int = 20, num_burn: int = 5, seed: int = 0
) -> TokenTopics:
    """Draws of z given the words and posterior draws of one chain: z ~ p(z | w, phi_s), the response not seen.

    Every draw has ``num_burn`` exact sweeps behind it. Words that the fit has not seen are left out.
    """
    check_seed(seed)
    check_draws(most_draws, num_burn)
    num_chains = next(iter(fit.global_draws(1).values())).shape[0]
    if not 0 <= chain < num_chains:
        raise ValueError(f"chain is {chain!r}; the fit has chains 0 to {num_chains - 1}.")
    fold = FoldIn(fit, corpus, chains=[chain])
    if not fold.graph.has_words:
        raise ValueError(f"In the story {fit.story.name!r} words have no topics of their own; use fit.transform.")

    known = known_words(fit, corpus)
    batches = fold.corpus.laid_out
    small = np.min_scalar_type(fold.graph.num_topics)
    settings: dict[str, Any] = {"seed": seed, "most_draws": most_draws, "num_burn": num_burn}
    topics = np.stack([batches.of_tokens(*part).astype(small) for part in fold.run(_token_topics, **settings)])
    return TokenTopics(*known.tokens(), topics, fold.graph.num_topics)


def _token_topics(fold: FoldIn, burn: int, data: tuple, key: jax.Array, centre: Any, values: Values) -> tuple:
    z = fold.topics(data[0], key, centre, values, burn)
    return z.topics, z.long
