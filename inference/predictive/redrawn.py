"""Topics of every token of a corpus, redrawn at posterior draws: fits do not store them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from topiczoo.corpora import Corpus

from ..story.validation import check_draws, check_seed
from .fold_in import FoldIn, known_words

if TYPE_CHECKING:
    from ..posterior.fit import Fit


class TokenTopics(NamedTuple):
    """Every token of a corpus, in the order of ``Corpus.tokens``, and draws of its topic."""

    document: np.ndarray  # [tokens]
    term: np.ndarray  # [tokens], columns of the fit's vocabulary
    topics: np.ndarray  # [draws, tokens]
    num_topics: int


def token_topics(
    fit: Fit, corpus: Corpus, *, chain: int = 0, most_draws: int = 20, num_burn: int = 5, seed: int = 0
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
    assert fold.corpus.batches is not None
    batches = fold.corpus.batches
    small = np.min_scalar_type(fold.graph.num_topics)
    settings: dict[str, Any] = {"seed": seed, "most_draws": most_draws, "num_burn": num_burn}
    topics = np.stack([batches.of_tokens(*part).astype(small) for part in fold.run(_topics, **settings)])
    return TokenTopics(*known.tokens(), topics, fold.graph.num_topics)


def _topics(fold: FoldIn, burn: int, data: tuple, key: jax.Array, centre: Any, values: dict) -> tuple:
    z = fold.topics(data[0], key, centre, values, burn)
    return z.topics, z.long
