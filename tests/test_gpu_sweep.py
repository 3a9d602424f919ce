"""The sweep as a kernel of a GPU, run step by step on a host: the exact law, and the same draws as the plain sweep.

Means of 110 independent copies are compared at 5.5 standard errors, some 50 of them a case: a right sampler fails with
probability 2e-6 a case.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import known_parameters as known
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from scipy import special as exactly
from scipy import stats
from test_topic_draws import assert_counted, assert_independent

from topiczoo import inference
from topiczoo.corpora import Corpus, layouts
from topiczoo.inference.gpu import choosing, special
from topiczoo.inference.gpu import sweep as sweep_module
from topiczoo.inference.gpu.fold import expected_counts_by_kernel, soft_sweeps_by_kernel
from topiczoo.inference.gpu.numbers import CannotLower, by_numbers, flattened
from topiczoo.inference.gpu.responses import ResponseInKernel
from topiczoo.inference.gpu.sweep import Shape, sweep_by_kernel
from topiczoo.inference.kernels.assignments import Assignments, Labels
from topiczoo.inference.kernels.soft_sweep import expected_counts, soft_sweeps
from topiczoo.inference.kernels.sweep import Given, Weights, sweep_shards
from topiczoo.inference.mcmc.plan import choose_blocks
from topiczoo.inference.story import sweeping
from topiczoo.inference.story.assignments import TopicAssignments
from topiczoo.inference.story.reading import read
from topiczoo.inference.story.sweeping import sweep
from topiczoo.inference.story.tracing import traced
from topiczoo.models.vocabulary.margins import Hinge
from topiczoo.models.vocabulary.responses import RESPONSES

FAR, WARM_UP, NUM_DRAWS = 5.5, 30, 400
CLASSES = np.array(
    [[1.0, -1.0, 0.0], [0.0, 2.0, -1.0], [-2.0, 0.5, 1.0], [0.3, 0.0, 0.0], [0.0, 0.0, 2.0], [1.0, 1.0, -3.0]]
)
SIDE = np.array([2.0, -1.0, 0.5, 1.0, -2.0, 0.0])


@pytest.fixture
def interpreted(monkeypatch):
    monkeypatch.setattr(choosing, "INTERPRETED", True)


def several(corpus, y=None):
    """A number, a class and a side of a margin, each by coefficients of its own."""
    zbar = known.words(corpus)
    number, label, side = (
        zbar @ jnp.asarray(known.ETA),
        zbar @ jnp.asarray(CLASSES, jnp.float32),
        zbar @ jnp.asarray(SIDE),
    )
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("number", dist.Normal(number, 3 * known.SIGMA), obs=y["number"])
        numpyro.sample("label", dist.Categorical(logits=3 * label), obs=y["label"])
        numpyro.sample("side", Hinge(side, 2.0, 1.0), obs=y["side"])


class Several(known.Document):
    """The exact law of a document under the story above."""

    def __init__(self, terms, number, label, side):
        super().__init__(terms, story=known.unsupervised)
        scores = 3 * self.zbar @ CLASSES
        response = stats.norm.logpdf(number, self.zbar @ known.ETA, 3 * known.SIGMA)
        response += scores[:, label] - exactly.logsumexp(scores, axis=1)
        response -= 2.0 * np.maximum(0, 1.0 - (2 * side - 1) * (self.zbar @ SIDE))
        self.p = self.p * np.exp(response)
        self.p /= self.p.sum()


@pytest.mark.parametrize("story", [known.unsupervised, several], ids=["words", "number, class and margin"])
def test_topics_have_their_exact_law(interpreted, story):
    """Six topics, which a kernel pads to eight."""
    corpus, y, which, kinds = known.copies(known.unsupervised)
    if story is several:
        told = [(0.6, 2, 1), (1.3, 0, 0)]
        kinds = [Several(kind.terms, *of_kind) for kind, of_kind in zip(kinds, told, strict=True)]
        names = ("number", "label", "side")
        y = {name: np.array([one[i] for one in told], float)[which] for i, name in enumerate(names)}
    graph = read(story, corpus, y, {})
    if story is known.unsupervised:
        assert choose_blocks(graph).blocks[-1].swept_by == choosing.KERNEL
    data, y = layouts.documents(corpus, batches=True), graph.response.on_device()
    theta = np.full((len(corpus), known.K), 1 / known.K, np.float32)

    @partial(jax.jit, compiler_options={"xla_backend_optimization_level": 2})  # most of it is running
    @traced
    def run(key, data, y):
        def step(z, key):
            z = sweep(
                key, z, graph, data, y, {"theta": theta, "z": z},
                collapsed=True, supervised=story is several, by_kernel=True,
            )  # fmt: skip
            return z, z.document_topic

        z = TopicAssignments(theta, known.BETA, data.batches).sample(key)
        return jax.lax.scan(step, z, jax.random.split(jax.random.fold_in(key, 1), WARM_UP + NUM_DRAWS))

    with jax.debug_key_reuse(True):
        z, counts = jax.tree.map(np.asarray, run(jax.random.key(0), data, y))
    assert_counted(z, data.batches, corpus)
    for number, kind in enumerate(kinds):
        own, both = counts[WARM_UP:, which == number], kind.counts[:, :, None] * kind.counts[:, None]
        mean, second = kind.expect(kind.counts), np.einsum("z,zkl->kl", kind.p, both)
        assert known.standard_errors(own.mean(0), mean).max() < FAR
        assert known.standard_errors(np.einsum("tck,tcl->ckl", own, own) / len(own), second).max() < FAR
        assert_independent((own - mean)[None], np.diag(second) - mean**2)


@pytest.mark.slow
def test_a_fit_by_kernels_and_a_plain_one_have_the_same_draws(monkeypatch):
    """All parameters are known, so that nothing but topics and theta moves."""
    corpus, y, _, _ = known.copies(known.supervised, 12)
    short = {"num_warmup": 3, "num_samples": 4, "num_chains": 2, "progress_bar": False}
    plain = inference.gibbs(known.supervised, corpus, y, **short)
    monkeypatch.setattr(choosing, "INTERPRETED", True)
    fit = inference.gibbs(known.supervised, corpus, y, **short)
    assert fit.info["sweep"] == choosing.KERNEL != plain.info["sweep"]
    np.testing.assert_allclose(fit.draws["theta"], plain.draws["theta"], rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(fit.statistics["moved"], plain.statistics["moved"])


class Response:
    """A response without a story: log p(y | eta . zbar), y a number of each document."""

    linear = True

    def __init__(self, response, shape=()):
        self.response, self.shape = response, shape

    def take(self, context, rows):
        return context[rows]

    def __call__(self, context, predictors, zbar):
        with handlers.seed(rng_seed=1):
            fn = self.response(predictors[0])
        y = context.astype(jnp.int32) if fn.support is not None and fn.support.is_discrete else context
        return fn.log_prob(y)


def corpus_with_gaps():
    """Documents of many lengths, of which two are empty, in batches of which the last is not full."""
    rng = np.random.default_rng(3)
    counts = rng.poisson(0.8, (70, 7))
    counts[[5, 40]] = 0
    return Corpus.from_counts(counts, empty="keep")


def given_of(corpus, keys, num_topics=5, per_document=True):
    """What a sweep may be given: topics of two labels, a prior of each document, coefficients."""
    rng = np.random.default_rng(4)
    beta = rng.dirichlet(np.ones(corpus.num_terms), (2, num_topics)).transpose(0, 2, 1).reshape(-1, num_topics)
    labels = Labels.of(jnp.asarray(rng.integers(0, 2, len(corpus))), (2, num_topics, corpus.num_terms))
    prior = rng.gamma(1.0, size=(len(corpus) if per_document else 1, num_topics))
    term_topic = jnp.asarray(np.vstack([beta, np.full((1, num_topics), 1e-30)]), jnp.float32)
    eta = jnp.asarray(rng.normal(size=num_topics), jnp.float32)
    weights = Weights(term_topic, jnp.asarray(prior, jnp.float32), (eta,), labels)
    return Given(keys, weights, jnp.asarray(rng.normal(size=len(corpus)), jnp.float32))


def test_chains_in_one_launch_draw_as_the_plain_sweep_does_however_programs_are_cut():
    """Labels, a prior of each document, empty documents, five topics: to the last topic."""
    corpus, supervision = corpus_with_gaps(), Response(lambda x: dist.Normal(x, 0.3))
    batches = layouts.token_batches(corpus)
    topics = jax.random.randint(jax.random.key(1), batches.terms.shape, 0, 5)
    counts = np.zeros((len(corpus), 5), np.float32)
    np.add.at(counts, (corpus.tokens()[0], batches.of_tokens(topics)), 1)
    z, told = Assignments(topics, jnp.asarray(counts)), given_of(corpus, None)

    def swept(by_kernel, **cut):
        how = (lambda *given: sweep_by_kernel(*given, interpret=True, **cut)) if by_kernel else sweep_shards

        def one(key):
            return how(supervision, True, told._replace(keys=(key, key)), z, batches)

        return jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(2), 2))

    plain, kernel, cut = swept(False), swept(True), swept(True, shape=Shape(8, 1, ahead=False))
    tokens = np.asarray(batches.terms) < corpus.num_terms
    for found in (kernel, cut):
        assert (np.asarray(found.topics) == np.asarray(plain.topics))[:, tokens].all()
        assert (np.asarray(found.topics) == np.asarray(topics))[:, ~tokens].all()
        np.testing.assert_array_equal(found.counts, plain.counts)
        np.testing.assert_array_equal(found.proposed, plain.proposed)
    assert (np.asarray(plain.topics[0]) != np.asarray(plain.topics[1]))[tokens].mean() > 0.1


def test_topics_of_no_weight_are_never_drawn_however_sums_are_rounded(monkeypatch):
    """Uniforms at every place where one topic ends, with none of weight behind some; sums by halves, as a GPU has them."""
    rng, num_topics = np.random.default_rng(5), 1000
    theta = rng.gamma(0.5, size=num_topics) * (rng.uniform(size=num_topics) < 0.6)
    ends = np.cumsum(theta) / theta.sum()
    uniforms = np.clip(np.floor(ends[:, None] * 2**23) + np.arange(-3, 3), 0, 2**23 - 1).ravel() / 2**23
    corpus = Corpus.from_counts(np.full((1, 1), len(uniforms)))
    batches = layouts.token_batches(corpus)
    topics = jnp.zeros_like(batches.terms)
    weights = Weights(jnp.ones((2, num_topics)), jnp.asarray(theta, jnp.float32)[None], ())
    given = np.resize(uniforms, topics.shape[1:][::-1]).T.astype(np.float32)
    monkeypatch.setattr(sweep_module, "shard_uniforms", lambda *_: (jnp.asarray(given), jnp.asarray(given)))
    monkeypatch.setattr(jnp, "cumsum", lambda x, axis: jax.lax.associative_scan(jnp.add, x, axis=axis))
    told = Given((jax.random.key(0), jax.random.key(1)), weights, None)
    z = Assignments(topics, jnp.zeros((1, num_topics)))
    found = batches.of_tokens(sweep_by_kernel(None, False, told, z, batches, interpret=True).topics)
    assert (theta[found] > 0).all()


def test_documents_outside_the_fit_are_folded_in_as_in_plain_jax():
    corpus = corpus_with_gaps()
    batches, told = layouts.token_batches(corpus), given_of(corpus, None)
    lengths = jnp.asarray(corpus.lengths, jnp.float32)
    even, deepest = jnp.tile(lengths[:, None] / 5, 5), int(corpus.lengths.max())
    expected = jax.jit(lambda: expected_counts(None, even, batches, told.weights, 10, deepest))()
    by_kernel = jax.jit(lambda: expected_counts_by_kernel(even, batches, told.weights, 10, interpret=True))()
    of_lanes = np.asarray(batches.lengths) > 0
    np.testing.assert_allclose(np.asarray(by_kernel)[of_lanes], np.asarray(expected)[of_lanes], rtol=1e-4, atol=1e-5)
    centre = expected.reshape(-1, 5)[batches.lane]
    draw = jax.jit(lambda key: soft_sweeps(key, centre, batches, told.weights, 1, deepest))
    draw_by_kernel = jax.jit(lambda key: soft_sweeps_by_kernel(key, centre, batches, told.weights, 1, interpret=True))
    (topics, counts), found = draw(jax.random.key(5)), draw_by_kernel(jax.random.key(5))
    tokens = np.asarray(batches.terms) < corpus.num_terms
    np.testing.assert_array_equal(np.asarray(found[0])[tokens], np.asarray(topics)[tokens])
    np.testing.assert_array_equal(found[1], counts)


MARGINS = {"hinge": lambda x: Hinge(x, 2.0, 1.0)}
DISCRETE = {
    "logit": 2,
    "probit": 2,
    "binomial": 2,
    "poisson": 9,
    "negative_binomial": 9,
    "ordered": 5,
    "softmax": 20,
    "hinge": 2,
}


@pytest.mark.parametrize("name", [*RESPONSES, *MARGINS])
def test_a_response_is_the_same_number_by_number(name):
    """In the kernel's form, where predictors enter some steps alone, and as JAX computes it."""
    rng, num_documents, shape = np.random.default_rng(0), 16, (20,) if name == "softmax" else ()
    y = rng.integers(0, DISCRETE[name], num_documents) if name in DISCRETE else rng.gamma(2.0, size=num_documents)
    supervision, context = Response({**RESPONSES, **MARGINS}[name]), jnp.asarray(y, jnp.float32)
    weights = Weights(jnp.zeros((2, 3)), jnp.zeros((1, 3)), (jnp.zeros((3, *shape)),))
    predictor = jnp.asarray(rng.normal(size=(num_documents, *shape)), jnp.float32)
    response = ResponseInKernel(supervision, weights, context)

    @jax.jit
    def both(predictor):
        read = [list(part.T) for part in response.numbers(num_documents)]
        columns = list(predictor.reshape(num_documents, -1).T)
        return response(read, columns), supervision(context, [predictor], None)

    np.testing.assert_allclose(*both(predictor), rtol=2e-6, atol=1e-6)
    names = {step.primitive.name for step in response.inside}
    assert "lgamma" not in names and len(response.inside) > 1  # what is of y alone is computed before


def test_twenty_classes_and_the_runner_up_can_be_part_of_a_kernel_for_triton():
    corpus = corpus_with_gaps()
    batches, told = layouts.token_batches(corpus), given_of(corpus, (jax.random.key(0), jax.random.key(1)))
    z = Assignments(batches.terms * 0, jnp.zeros((len(corpus), 5)))
    eta = jnp.zeros((5, 20))

    def lowered(supervision, coefficients):
        given = told._replace(weights=told.weights._replace(coefficients=coefficients))
        program = jax.jit(lambda given, z: sweep_by_kernel(supervision, True, given, z, batches))
        return program.trace(given, z).lower(lowering_platforms=("cuda",)).as_text()

    try:
        lowered(None, ())
    except Exception as error:  # newer versions compile while they lower, for which this host has no compiler
        pytest.skip(f"this version of JAX lowers nothing for GPUs on a host: {str(error)[:80]}")
    runner_up = Response(lambda x: dist.Normal(jax.lax.top_k(x, 2)[0][..., 1] - x.max(-1), 1.0))
    for supervision in (Response(RESPONSES["softmax"]), runner_up):
        assert "triton" in lowered(supervision, (eta,))


def test_what_a_kernel_cannot_hold_is_left_to_the_plain_sweep_with_the_reason(interpreted, monkeypatch):
    corpus, y, _, _ = known.copies(known.not_linear, 3)
    reason = "the response reads more of the topics' shares than products with coefficients"
    assert choose_blocks(read(known.not_linear, corpus, y, {})).blocks[-1].swept_by == f"plain JAX: {reason}"

    monkeypatch.setattr(sweeping, "LARGEST", layouts.num_places(corpus))
    large = choose_blocks(read(known.unsupervised, corpus, None, {})).blocks[-1]
    assert large.swept_by == f"plain JAX: the corpus has more than {sweeping.LARGEST} places"
    assert layouts.num_places(corpus) == layouts.token_batches(corpus, shards=1).terms.size

    weights = Weights(jnp.zeros((2, 3)), jnp.zeros((1, 3)), (jnp.zeros(3),))
    sorting = Response(lambda x: dist.Normal(jnp.sort(jnp.stack([x, 2 * x], -1), -1)[..., 0], 1.0))
    response = ResponseInKernel(sorting, weights, jnp.zeros(4))
    with pytest.raises(CannotLower, match="'sort' has no form in a kernel"):
        response([list(part.T) for part in response.numbers(4)], [jnp.zeros(4)])
    with pytest.raises(CannotLower, match="several shards"):
        batches = layouts.token_batches(corpus, shards=2)
        z = Assignments(jnp.zeros_like(batches.terms), None)
        sweep_by_kernel(None, True, Given((None, None), weights, None), z, batches, interpret=True)


def test_arrays_are_computed_number_by_number():
    """Every rule that is no operation of single numbers, against JAX."""

    def function(x, y):
        picked = jnp.take_along_axis(x, jnp.argmax(y, 1)[:, None] % 3, 1)
        padded = jnp.pad(x[:, ::2], ((1, 0), (0, 2)), constant_values=0.5)
        sums = jnp.cumsum(y[:, ::-1], 1) - jax.lax.cumsum(y, 1, reverse=True)
        largest, places = jax.lax.top_k(x, 2)
        parts = [padded.ravel(), picked.ravel(), sums.ravel(), (x.T @ y).ravel(), largest.ravel(), places.ravel() * 1.0]
        parts += [
            jnp.prod(x, 0),
            jnp.min(x, 1),
            jnp.argmin(y, 0) * 1.0,
            x[jnp.argmax(y[:, 0])],
            jax.lax.cummax(x, 0).ravel(),
        ]
        parts += [
            jnp.any(x > 1, 1) * 1.0,
            jnp.all(y > -1, 0) * 1.0,
            jax.nn.logsumexp(y, 1),
            jnp.einsum("ij,ij->i", x, x),
        ]
        first, second = jnp.split(y, [2], 1)
        parts += [jnp.stack([first[:, 0], second[:, 1]], 1).ravel(), *jnp.unstack(x)]
        return jnp.concatenate(parts)

    rng = np.random.default_rng(6)
    x, y = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((4, 3), (4, 5)))

    @jax.jit
    def numbers(x, y):
        names, steps, (result,) = flattened(jax.make_jaxpr(function)(x, y))
        values = {}
        for name, array in zip(names, (x, y), strict=True):
            values[name] = np.empty(array.shape, object)
            for place in np.ndindex(array.shape):
                values[name][place] = array[place][None]
        by_numbers(steps, values, lambda value, dtype: jnp.full((1,), value, dtype))
        return jnp.concatenate(list(values[result]))

    np.testing.assert_allclose(numbers(x, y), function(x, y), rtol=1e-5, atol=1e-6)


def test_special_functions_that_triton_lacks():
    x, n = np.linspace(-5, 8, 4001), np.concatenate([np.linspace(-4.7, 40, 4001), np.geomspace(40, 1e6, 500)])
    x, n = x.astype(np.float32), n.astype(np.float32)
    np.testing.assert_allclose(special.erf(x), exactly.erf(x.astype(float)), atol=3e-7)
    np.testing.assert_allclose(special.erfc(x), exactly.erfc(x.astype(float)), rtol=1e-5)
    exact = exactly.gammaln(n.astype(float))
    assert (np.abs(special.lgamma(n) - exact) / (1 + np.abs(exact))).max() < 5e-6


def test_products_on_an_accelerator_keep_their_digits(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    product = jax.make_jaxpr(traced(lambda x: x @ x))(jnp.zeros((2, 2)))
    assert "HIGHEST" in str(product)
