"""A corpus laid out in files, a shard each, for sweeps that read one after the other and never hold all.

shards.json       which corpus it is, and its sizes
terms-00012.npy   the terms of a shard, [positions, width], as in :class:`topiczoo.corpora.layouts.PaddedBatches`
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import LEAST_SHARED, SHARDS, PaddedBatches, arranged, terms_of
from topiczoo.corpora.streams import ahead

TOKENS = 2**22  # of a shard of a large corpus
SIZES = "shards.json"


class Shards:
    """The terms of a corpus in a folder; where its documents stand is held in memory."""

    def __init__(self, folder: str | os.PathLike, corpus: Corpus, processes: int = 1) -> None:
        """``processes``: how many share the shards out. Nothing is written before :meth:`write`."""
        self.folder, self.corpus, lengths = Path(folder), corpus, corpus.lengths
        number = max(SHARDS if lengths.sum() >= LEAST_SHARED else 1, -(-int(lengths.sum()) // TOKENS))
        self.number = -(-number // processes) * processes
        self.batches, self.positions = arranged(lengths, self.number)
        self.shape = self.positions, self.batches.lengths.shape[2]
        self.dtype = np.min_scalar_type(corpus.num_terms)

    def write(self) -> None:
        """Write what is not there yet; a folder that holds another corpus is refused."""
        counts = self.corpus.counts
        words = zlib.crc32(counts.data, zlib.crc32(counts.indices, zlib.crc32(counts.indptr)))
        told = {"corpus": words, "terms": self.corpus.num_terms, "shards": self.number, "shape": list(self.shape)}
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / SIZES
        if path.exists():
            if json.loads(path.read_text()) == told:
                return
            raise ValueError(
                f"shards {str(self.folder)!r} holds another corpus, or another layout; give another folder."
            )
        if foreign := [name for name in os.listdir(self.folder) if not name.startswith("terms-")]:
            raise ValueError(f"shards {str(self.folder)!r} holds {foreign[0]!r}; give a folder of its own.")
        for shard in range(self.number):
            terms = terms_of(self.corpus, self.batches, shard, self.positions)
            np.save(self._path(shard), terms.astype(self.dtype))
        path.write_text(json.dumps(told))  # last: a folder that has it has all

    def terms(self, shard: int) -> np.ndarray:
        """The terms of a shard, read now."""
        return np.load(self._path(shard))

    def ahead(self, shards: Sequence[int], number: int = 2) -> Iterator[tuple[int, np.ndarray]]:
        """Shards with their terms; so many are read while others are worked on."""
        return ahead(((shard, self.terms(shard)) for shard in shards), number)

    def of(self, shard: int, terms: Any) -> PaddedBatches:
        """The batches of a shard, and nothing of others; terms as they are in the file."""
        parts: list[Any] = [array[shard : shard + 1] for array in self.batches[1:5]]
        places: Any = np.arange(self.batches.lengths[0].size, dtype=np.int32)
        return PaddedBatches(*[terms[None], *parts, places])

    def _path(self, shard: int) -> Path:
        return self.folder / f"terms-{shard:05d}.npy"
