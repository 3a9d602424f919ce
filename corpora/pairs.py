"""The distinct (document, term) pairs of a corpus, as stories and engines read them."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
from scipy import sparse


class Pairs(NamedTuple):
    """The distinct (document, term) pairs of a corpus, document by document."""

    document: jax.Array  # [P]
    term: jax.Array  # [P]
    count: jax.Array  # type: ignore[assignment]  # [P] float32; hides tuple.count

    # To NumPyro, which checks values against plates, the whole is one value outside all plates.
    @property
    def ndim(self) -> int:
        return 0

    @property
    def shape(self) -> tuple[int, ...]:
        return ()


def distinct_pairs(counts: sparse.csr_array, places: int = 0) -> Pairs:
    """One entry for each term of each document, with its count; behind them, up to so many in all, pairs of no document."""
    document = np.repeat(np.arange(counts.shape[0], dtype=np.int32), np.diff(counts.indptr))
    pairs = document, counts.indices.astype(np.int32), counts.data.astype(np.float32)
    more = (0, max(places - counts.nnz, 0))
    arrays = (
        np.pad(part, more, constant_values=fill) for part, fill in zip(pairs, (counts.shape[0], 0, 0), strict=True)
    )
    return Pairs(*map(jax.device_put, arrays))  # jnp.asarray would compile something for every length
