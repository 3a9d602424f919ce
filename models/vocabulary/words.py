"""The words a story is written in beside NumPyro's own.

A story is a NumPyro function ``story(corpus, y=None, *, ...)``. It draws topics and proportions with
``numpyro.sample`` and hands them to one of two effects:

``zbar = draw_words(corpus, theta, beta)``
    every word has its own topic z_dn ~ Cat(theta_d), and w_dn ~ Cat(beta_{z_dn}). The value is zbar, the
    documents' mean topic indicators; ``zbar @ eta`` is the linear predictor of a response. With ``label=y`` topics
    are those of a document's label, w_dn ~ Cat(beta_{y_d, z_dn}). With ``switch=epsilon`` the words of a sentence have
    one topic: that of the sentence before, or with probability epsilon a new one from Cat(theta_d).
``draw_bags(corpus, z, beta)``
    all words of document d come from the one topic z_d.

The handlers' contract
----------------------
``draw_words`` is a NumPyro primitive: it sends a message of type ``"draw_words"`` with arguments ``(corpus, theta,
beta, label, switch)`` up the handler stack, and any ``Messenger`` may answer it by setting the message's value:

* nobody answers: sample sites ``z`` and ``w`` in a plate over tokens, zbar a [documents, topics] array. This is the
  story's explicit joint density, the reference every engine is tested against;
* an engine answers: it accounts for z and w in its own way and returns its own zbar, either an array or a
  :class:`Zbar`, whose ``@`` gives the predictor the engine wants evaluated.

A story therefore never learns which engine runs it, and an engine never learns which story it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints
from numpyro.primitives import _PYRO_STACK, apply_stack

from .arguments import BadArgument

__all__ = ["BagOfWords", "Zbar", "draw_bags", "draw_words"]


def draw_words(corpus: Any, theta: jax.Array, beta: jax.Array, label: Any = None, switch: Any = None) -> Any:
    """z_dn ~ Cat(theta_d), w_dn ~ Cat(beta_{z_dn}) for every word of the corpus; returns zbar.

    Parameters
    ----------
    corpus
        The first argument of the story.
    theta
        Topic proportions, [documents, topics].
    beta
        Topics, [topics, terms]; with a label [labels, topics, terms].
    label
        The label of each document, counted from 0, [documents]: w_dn ~ Cat(beta_{label_d, z_dn}).
    switch
        The probability that a sentence takes a new topic, one number: words of a sentence share theirs, and a sentence
        that takes no new one has that of the sentence before it. Needs a corpus that keeps its sentences.
    """
    if any(isinstance(handler, numpyro.plate) for handler in _PYRO_STACK):
        raise ValueError("draw_words was called inside a plate; call it outside: tokens have a plate of their own.")
    expected = (corpus.num_documents, theta.shape[-1]), (theta.shape[-1], corpus.num_terms)
    if (theta.shape, beta.shape[-2:]) != expected or beta.ndim != (2 if label is None else 3):
        raise ValueError(
            f"draw_words got theta of shape {theta.shape} and beta of shape {beta.shape}; give theta as "
            f"[documents, topics] with {corpus.num_documents} documents and beta as [topics, terms], with a label as "
            f"[labels, topics, terms], with {corpus.num_terms} terms."
        )
    if label is not None and jnp.shape(label) != (corpus.num_documents,):
        raise ValueError(
            f"draw_words got a label of shape {jnp.shape(label)}; give one label a document, ({corpus.num_documents},)."
        )
    if switch is not None and (label is not None or jnp.ndim(switch)):
        raise ValueError(
            "draw_words got a switch of several numbers, or beside a label; give one number, and no label."
        )
    if switch is not None and not in_sentences(corpus):
        raise BadArgument(
            "corpus does not say which words stand in one sentence, which this story reads; make it with "
            "Corpus.from_texts(texts, sentences=True) or Corpus.from_sentences(documents)."
        )
    message = {
        "type": "draw_words",
        "name": "draw_words",
        "fn": _draw_tokens,
        "args": (corpus, theta, beta, None if label is None else jnp.asarray(label, int), switch),
        "kwargs": {},
        "value": None,
        "scale": None,
        "is_observed": False,
        "cond_indep_stack": [],
        "infer": {},
    }
    return apply_stack(message)["value"]


def in_sentences(corpus: Any) -> bool:
    """Whether a corpus, or documents as an engine lays them out, say where sentences begin."""
    return corpus.in_sentences if hasattr(corpus, "in_sentences") else corpus.sentences is not None


def _draw_tokens(corpus: Any, theta: jax.Array, beta: jax.Array, label: Any, switch: Any) -> jax.Array:
    """The reading of ``draw_words`` when no handler answers: explicit z and w for every token."""
    documents, terms = corpus.tokens()
    if switch is not None:
        return _draw_sentences(documents, terms, corpus, theta, beta, switch)
    with numpyro.plate("tokens", len(documents)):
        z = numpyro.sample("z", dist.Categorical(theta[documents]))
        numpyro.sample("w", dist.Categorical(beta[z] if label is None else beta[label[documents], z]), obs=terms)
    counts = jnp.zeros(theta.shape).at[documents, z].add(1.0)
    return counts / jnp.maximum(counts.sum(-1, keepdims=True), 1.0)


def _draw_sentences(
    document: jax.Array, term: jax.Array, corpus: Any, theta: jax.Array, beta: jax.Array, switch: Any
) -> jax.Array:
    """The same where words of a sentence share their topic: at each word whether a new topic is taken, and the new topic.

    It is always taken at the first word of a document, and never within a sentence. One that is not taken has no density.
    """
    begins = jnp.asarray(corpus.token_begins if hasattr(corpus, "token_begins") else corpus.sentences.begins)
    document = jnp.asarray(document)
    opening = jnp.diff(document, prepend=-1) != 0
    with numpyro.plate("tokens", len(document)):
        taken = numpyro.sample("taken", dist.Bernoulli(jnp.where(opening, 1.0, jnp.where(begins, switch, 0.0))))
        with numpyro.handlers.mask(mask=jnp.asarray(taken) > 0):
            z = numpyro.sample("z", dist.Categorical(theta[document]))
        topic = z[jax.lax.cummax(jnp.where(jnp.asarray(taken) > 0, jnp.arange(len(document)), 0))]
        numpyro.sample("w", dist.Categorical(beta[topic]), obs=term)
    counts = jnp.zeros(theta.shape).at[document, topic].add(1.0)
    return counts / jnp.maximum(counts.sum(-1, keepdims=True), 1.0)


def draw_bags(corpus: Any, z: jax.Array, beta: jax.Array) -> Any:
    """w_dn ~ Cat(beta_{z_d}): all words of a document from its one topic. Call it inside the documents' plate."""
    return numpyro.sample("w", BagOfWords(beta, z, corpus.lengths), obs=corpus.pairs)


class Zbar:
    """zbar as an engine hands it to a story: ``zbar @ eta`` is ``predictor(eta)``, anything else sees ``array()``.

    The engine learns which of the two a story uses: a linear predictor is cheap, the array is always right.
    """

    def __init__(self, predictor: Callable[[jax.Array], jax.Array], array: Callable[[], jax.Array]) -> None:
        self._predictor = predictor
        self._array = array

    def __matmul__(self, eta: jax.Array) -> jax.Array:
        return self._predictor(jnp.asarray(eta))

    def __jax_array__(self) -> jax.Array:
        return self._array()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._array(), name)

    def __getitem__(self, index: Any) -> jax.Array:
        return self._array()[index]


def _as_array(name: str) -> Callable:
    def method(self: Zbar, *operands: Any) -> Any:
        return getattr(self._array(), name)(*operands)

    return method


for _name in (
    "add",
    "radd",
    "sub",
    "rsub",
    "mul",
    "rmul",
    "truediv",
    "rtruediv",
    "pow",
    "rmatmul",
    "neg",
    "len",
):
    setattr(Zbar, f"__{_name}__", _as_array(f"__{_name}__"))


class BagOfWords(dist.Distribution):
    """The words of documents that have one topic each: log p = sum_w count_dw log beta_{z_d, w}.

    An observed value is the corpus' distinct (document, term, count) triples, ``corpus.pairs``; a drawn value is
    the dense [documents, terms] table of counts. ``z`` may carry leading dimensions: the table of
    log-probabilities is computed once for all topics, also where ``vmap`` tries one topic after the other.
    """

    arg_constraints: ClassVar = {"beta": constraints.independent(constraints.simplex, 1)}
    support = constraints.nonnegative_integer
    pytree_data_fields = ("beta", "z", "lengths")

    def __init__(self, beta: jax.Array, z: jax.Array, lengths: jax.Array, *, validate_args: bool | None = None):
        self.beta, self.z, self.lengths = beta, z, jnp.asarray(lengths)
        shape = jnp.broadcast_shapes(jnp.shape(z), (self.lengths.shape[0],))
        super().__init__(batch_shape=shape, validate_args=False)

    def log_prob(self, value: Any) -> jax.Array:
        num_documents = self.lengths.shape[0]

        def one_topic(log_beta: jax.Array) -> jax.Array:
            return jax.ops.segment_sum(value.count * log_beta[value.term], value.document, num_documents)

        floor = jnp.finfo(self.beta.dtype).tiny
        table = jax.lax.map(one_topic, jnp.log(jnp.maximum(self.beta, floor)))  # [topics, documents]
        return table[self.z, jnp.arange(num_documents)]

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        assert not sample_shape
        rows = self.beta[jnp.broadcast_to(self.z, self.batch_shape)]
        return dist.Multinomial(self.lengths, rows, total_count_max=int(self.lengths.max())).sample(key)
