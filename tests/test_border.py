"""Bad input ends in one sentence that names the argument, the value and the fix."""

from __future__ import annotations

import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import stories
from fits import fit_of
from numpyro.distributions import constraints

from topiczoo import diagnostics, inference, models
from topiczoo.corpora import Corpus
from topiczoo.inference.advice import engines_that_take
from topiczoo.inference.story.parameters import _outside
from topiczoo.inference.story.reading import read
from topiczoo.inference.story.tracing import Story
from topiczoo.inference.story.validation import check_corpus, check_counts, check_numbers, check_seed, check_share

CORPUS, Y = stories.small()
ENGINES = ("gibbs", "nuts", "svi", "vem")
FEW = {"num_warmup": 2, "num_samples": 2, "num_chains": 1, "progress_bar": False}


def with_value(value, row=3):
    y = np.nan_to_num(stories.small(counts=True)[1])
    y[row] = value
    return y


def on_numpy(corpus, *, num_topics=2):
    beta = stories.topics(corpus, num_topics)
    models.draw_words(corpus, stories.proportions(corpus, num_topics), np.exp(beta))


def fixed_scale(corpus, y=None, *, num_topics=2, spread=(1.0, 2.0), mean=-1.0):
    beta, eta = stories.topics(corpus, num_topics), stories.coefficients(num_topics)
    zbar = models.draw_words(corpus, stories.proportions(corpus, num_topics), beta)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.Normal(zbar @ eta + mean, jnp.asarray(spread)[1]).mask(True), obs=y)


TWO = {"num_topics": 2}
TAKES_NOT = ".* cannot have as the concentration of its Dirichlet; give a positive number"
CASES = {
    "alpha below 0": (models.lda, CORPUS, None, {**TWO, "alpha": -1}, ValueError, "^alpha is -1, .*'theta'" + TAKES_NOT),
    "alpha infinite": (models.slda, CORPUS, Y, {**TWO, "alpha": np.inf}, ValueError, "^alpha is inf, .*'theta'" + TAKES_NOT),
    "one alpha of 0": (
        models.mixture, CORPUS, None, {**TWO, "alpha": np.array([0.1, 0.0])},
        ValueError, "^alpha has 0 at place 1, .*'theta'",
    ),
    "alpha like shared": (
        models.disclda, CORPUS, np.arange(12) % 2, {**TWO, "outputs": 2, "shared": 0, "alpha": np.array([0.1, 0])},
        ValueError, "^alpha has 0 at place 1",
    ),
    "gamma NaN": (models.lda, CORPUS, None, {**TWO, "gamma": np.nan}, ValueError, "^gamma is nan, .*'beta'" + TAKES_NOT),
    "scale below 0": (
        fixed_scale, CORPUS, Y, {"spread": np.array([1.0, -1.0])},
        ValueError, "^spread has -1 at place 1, which the site 'y' .* scale of its Normal; give a positive number",
    ),
    "alpha as text": (
        models.lda, CORPUS, None, {**TWO, "alpha": "low"},
        ValueError, "^alpha is 'low'; give a positive number, an array of them, or 'learned'",
    ),
    "several responses": (models.slda, CORPUS, {"a": Y, "b": Y}, TWO, ValueError, "^y is a dict of 'a', 'b'.*give an array"),
    "NumPy on a tracer": (
        on_numpy, CORPUS, None, {},
        ValueError, "^The story 'on_numpy' reads a value that JAX only traces at line .*jax.numpy",
    ),
    "story that fails": (
        lambda corpus: missing(corpus), CORPUS, None, {},  # noqa: F821
        ValueError, "does not run at line .*NameError: name 'missing' is not defined.*; fix that line",
    ),
    "topics beyond memory": (
        models.lda, CORPUS, None, {"num_topics": 10**9},
        ValueError, r"site 'beta' .* the shape \(1000000000, 9\), 33.5 GiB, .*; give a smaller num_topics",
    ),
    "topics None": (models.lda, CORPUS, None, {"num_topics": None}, ValueError, "num_topics is None; give a whole number"),
    "unknown story": ("slad", CORPUS, Y, TWO, ValueError, "^story is 'slad'; give a function .*: ctm, disclda, .* lda"),
    "no story": (3, CORPUS, Y, TWO, ValueError, "^story is 3; give a function"),
    "not a corpus": (models.lda, np.ones((2, 3)), None, {}, TypeError, "corpus is a ndarray; make a Corpus"),
    "empty document": (
        models.lda, Corpus.from_counts(np.array([[1, 1], [0, 0]]), empty="keep"), None, {},
        ValueError, "1 documents without words",
    ),
    "y too short": (models.slda, CORPUS, Y[:-1], {}, ValueError, "y has 11 values for 12 documents"),
    "y missing": (models.slda, CORPUS, None, {}, ValueError, "y is missing.*'y'"),
    "y not asked for": (models.lda, CORPUS, Y, {}, TypeError, "'lda' takes no response"),
    "y infinite": (models.slda, CORPUS, with_value(np.inf), {}, ValueError, "y is infinite at document 3"),
    "y constant": (models.slda, CORPUS, np.ones(12), {}, ValueError, r"y is constant \(1\)"),
    "y all missing": (models.slda, CORPUS, np.full(12, np.nan), {}, ValueError, "NaN for every document"),
    "y text": (models.slda, CORPUS, np.array(["good"] * 12), {}, ValueError, "y is not numeric"),
    "y outside the support": (
        stories.poisson, CORPUS, with_value(-1.0), {},
        ValueError, "y of document '3' is -1.0, outside the support of the site 'y' .Poisson.",
    ),
    "y fractional": (stories.poisson, CORPUS, with_value(0.5), {}, ValueError, "outside the support"),
    "no topics": (models.lda, CORPUS, None, {"num_topics": 0}, ValueError, "num_topics is 0"),
    "fractional topics": (models.lda, CORPUS, None, {"num_topics": 2.5}, ValueError, "num_topics is 2.5"),
    "unknown keyword": (models.lda, CORPUS, None, {"topics": 3}, TypeError, "'topics' is no argument of the story 'lda'"),
    "missing keyword": (
        models.sage_topics, CORPUS, None, {"num_topics": 2},
        TypeError, "'background' is missing, and the story 'sage_topics' needs it; give it as background=",
    ),
    "unknown collapse": (models.lda, CORPUS, None, {"num_topics": 2, "collapse": "all"}, ValueError, "collapse is 'all"),
    "unknown site to keep": (models.lda, CORPUS, None, {"num_topics": 2, "keep": ["phi"]}, ValueError, r"keep names \['phi"),
    "no draws": (models.lda, CORPUS, None, {"num_topics": 2, "num_samples": 0}, ValueError, "num_samples is 0"),
    "no chains": (models.lda, CORPUS, None, {"num_topics": 2, "num_chains": 0}, ValueError, "num_chains is 0"),
    "thinning that does not divide": (
        models.lda, CORPUS, None, {"num_topics": 2, "num_samples": 5, "thinning": 2}, ValueError, "thinning is 2",
    ),
    "discrete latent nobody owns": (stories.global_switch, CORPUS, Y, {}, ValueError, "Nobody owns the discrete site"),
}  # fmt: skip


# said of others in the fast tests
LONGEST = {"alpha infinite", "discrete latent nobody owns", "y outside the support", "y fractional", "y constant"}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.longest] * (case in LONGEST)) for case in CASES]
)
def test_one_clear_sentence(case):
    story, corpus, y, arguments, error, words = CASES[case]
    with pytest.raises(error, match=words) as caught:
        inference.gibbs(story, corpus, y, **{**FEW, **arguments})
    assert "\n" not in str(caught.value) and str(caught.value).endswith(".")


@pytest.mark.parametrize(
    ("constraint", "value", "outside"),
    [
        (constraints.positive, [1.0, 0.0, -2.0], [0.0, -2.0]),
        (constraints.nonnegative, [1.0, 0.0, -2.0], [-2.0]),
        (constraints.unit_interval, [0.0, 1.0, 1.5], [1.5]),
        (constraints.real, [-1e30, np.inf, np.nan], [np.inf, np.nan]),
        (constraints.positive, [np.nan, -1.0], [np.nan]),  # what is lost is said first
        (constraints.independent(constraints.positive, 1), [1.0, -1.0], [-1.0]),
        (constraints.simplex, [0.5, 0.4995], []),
        (constraints.simplex, [0.5, 0.4], [0.5, 0.4]),
        (constraints.simplex, [1.5, -0.5], [-0.5]),
        (constraints.real_vector, [-np.inf, 0.0], []),
        (constraints.ordered_vector, [0.0, 1.0], []),
        (constraints.ordered_vector, [1.0, 0.0], [1.0, 0.0]),
        (constraints.nonnegative_integer, [0.0, 2.5], [2.5]),
    ],
)  # fmt: skip
def test_numbers_outside_of_a_constraint_are_found(constraint, value, outside):
    np.testing.assert_array_equal(_outside(np.array(value), constraint), outside)


BAD_SEEDS = ["7", None, 1.5, True, -1, 2**32]


@pytest.fixture(scope="module")
def fit():
    """As an engine would make one."""
    return fit_of("slda", {"beta": np.full((1, 1, 2, 9), 1 / 9)}, CORPUS, Y, num_topics=2)


def test_seeds_are_whole_numbers_everywhere(fit):
    asked = [
        *(lambda seed, run=run: run("lda", CORPUS, seed=seed) for run in map(inference.__dict__.get, ENGINES)),
        lambda seed: inference.check("lda", CORPUS, seed=seed),
        lambda seed: inference.cross_predict(inference.vem, "slda", CORPUS, Y, seed=seed),
        lambda seed: inference.token_topics(fit, CORPUS, seed=seed),
        lambda seed: inference.log_likelihood(fit, CORPUS, Y, seed=seed),
        lambda seed: fit.predict(CORPUS, seed=seed),
        lambda seed: fit.transform(CORPUS, seed=seed),
        lambda seed: diagnostics.diagnose(fit, seed=seed),
        lambda seed: diagnostics.report(fit, "nowhere.html", seed=seed),
        lambda seed: diagnostics.perplexity(fit, CORPUS, seed=seed),
        lambda seed: diagnostics.calibrate("lda", CORPUS, seed=seed),
        lambda seed: diagnostics.geweke("lda", CORPUS, seed=seed),
    ]
    for ask in asked:
        for seed in BAD_SEEDS:
            with pytest.raises(ValueError, match=re.escape(f"seed is {seed!r}; give a whole number from 0 to")):
                ask(seed)


def test_a_document_with_most_of_the_words_is_told():
    counts = CORPUS[np.arange(24) % len(CORPUS)].counts.toarray()
    counts[3] *= 100
    with pytest.warns(UserWarning, match=r"corpus holds document '3' with \d\d% of all words, .*; cut it into parts"):
        check_corpus(Corpus.from_counts(counts))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_corpus(CORPUS)


def test_a_list_of_numbers_is_an_array():
    alpha = Story(models.lda, {"num_topics": 2, "alpha": [0.5, 2.0]}).arguments["alpha"]
    assert isinstance(alpha, np.ndarray) and alpha.tolist() == [0.5, 2.0]


def test_seeds_of_numpy_and_stories_by_name():
    for seed in (np.uint32(7), 0, 2**32 - 1):
        check_seed(seed)
    story = Story("lda", {"num_topics": 2})
    assert story.function is models.lda and story.name == "lda"


def test_numbers_are_checked_at_their_ends():
    check_counts(num_warmup=0, num_burn=0, num_samples=1, thinning=1)
    check_counts(num_samples=6, thinning=3)
    check_share(probability=1e-9)
    check_numbers(zero=True, tolerance=0)
    check_numbers(most=1, target=0.999)
    for check, words in (
        (lambda: check_counts(num_samples=0), "num_samples is 0; give a whole number of at least 1"),
        (lambda: check_counts(num_warmup=-1), "num_warmup is -1; give a whole number of at least 0"),
        (lambda: check_counts(num_chains=True), "num_chains is True; give a whole"),
        (lambda: check_counts(n=2.0), "n is 2.0; give a whole"),
        (lambda: check_counts(num_samples=4, thinning=3), "thinning is 3, which does not divide num_samples 4"),
        (lambda: check_share(probability=1), "probability is 1; give a number between 0 and 1"),
        (lambda: check_share(probability=0), "probability is 0; give a number between 0 and 1"),
        (lambda: check_numbers(rate=0), "rate is 0; give a positive number"),
        (lambda: check_numbers(zero=True, tolerance=-1e-9), "give a number of at least 0"),
        (lambda: check_numbers(most=1, target=1), "target is 1; give a number between 0 and 1"),
        (lambda: check_numbers(rate=np.nan), "rate is nan; give a positive number"),
    ):
        with pytest.raises(ValueError, match=words):
            check()


@pytest.mark.parametrize(
    ("engine", "argument", "value", "fix"),
    [
        ("nuts", "target_accept_prob", 2, "a number between 0 and 1"),
        ("nuts", "max_tree_depth", 0, "a whole number of at least 1"),
        ("svi", "learning_rate", "x", "a positive number"),
        ("vem", "tolerance", -1, "a number of at least 0"),
        ("vem", "e_tolerance", None, "a number of at least 0"),
        ("vem", "num_iterations", "many", "a whole number of at least 1"),
    ],
)
def test_engines_check_their_own_arguments(engine, argument, value, fix):
    with pytest.raises(ValueError, match=f"^{argument} is {value!r}; give {fix}.$"):
        getattr(inference, engine)(models.lda, CORPUS, **{argument: value})


def test_counts_asked_of_a_fit(fit):
    for ask in (fit.predict, fit.transform):
        with pytest.raises(ValueError, match="most_draws is 0; give a whole number of at least 1"):
            ask(CORPUS, most_draws=0)
        with pytest.raises(ValueError, match="num_burn is -1; give a whole number of at least 0"):
            ask(CORPUS, num_burn=-1)
    with pytest.raises(ValueError, match="n is -1; give a whole number of at least 1"):
        fit.topics(-1)


def class_above(corpus, *, num_topics=2):
    """A latent class says which topics a document may take: every engine serves it."""
    beta = stories.topics(corpus, num_topics)
    with numpyro.plate("documents", corpus.num_documents):
        kind = numpyro.sample("kind", dist.Categorical(jnp.full(2, 0.5)))
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.array([[1.0, 0.1], [0.1, 1.0]])[kind]))
    models.draw_words(corpus, theta, beta)


def switched(corpus, *, num_topics=2):
    """A discrete site of no document says which topics all documents may take: no engine sums it out."""
    beta = stories.topics(corpus, num_topics)
    switch = numpyro.sample("switch", dist.Bernoulli(0.5))
    models.draw_words(corpus, stories.proportions(corpus, num_topics, 0.5 + switch), beta)


def time_slices(corpus, *, num_topics=2):
    """Topics that move from one time to the next: served where beta may be computed and labels have topics."""
    with numpyro.plate("times", 2, dim=-2), numpyro.plate("topics", num_topics, dim=-1):
        moves = numpyro.sample("moves", dist.Normal(0, 1).expand([corpus.num_terms]).to_event(1))
    beta = jax.nn.softmax(jnp.cumsum(moves, 0))
    models.draw_words(corpus, stories.proportions(corpus, num_topics), beta, label=corpus.lengths > 9)


NOBODY = "; no engine here serves it otherwise: sum it out of the story by hand.$"
ADVICE = {
    "gibbs, switch": ("gibbs", switched, "^Nobody owns the discrete site 'switch' .*" + NOBODY),
    "svi, switch": ("svi", switched, "site 'switch' .* cannot be summed out: .*" + NOBODY),
    "vem, switch": ("vem", switched, "vem cannot serve the site 'switch' .*" + NOBODY),
    "vem, slices": ("vem", time_slices, "vem cannot serve the site 'moves' .*; use gibbs, nuts or svi.$"),
}


FAST = {"gibbs, switch", "vem, slices"}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.longest] * (case not in FAST)) for case in ADVICE]
)
def test_an_engine_names_only_engines_that_take_the_story(case):
    engine, story, words = ADVICE[case]
    with pytest.raises(ValueError, match=words):
        getattr(inference, engine)(story, CORPUS)


def test_the_engine_that_was_named_serves_the_story():
    graph = read(time_slices, CORPUS, None, {})
    assert engines_that_take(graph) == ["gibbs", "nuts", "svi"]


@pytest.mark.slow
def test_the_engine_that_was_named_runs_the_story():
    fit = inference.svi(time_slices, CORPUS, num_steps=1, num_draws=1, progress_bar=False)
    assert (
        fit.draws["moves"].shape[:2] == (1, 1)
        and np.isfinite(fit.draws["moves"]).all()
        and len(fit.info["losses"]) == 1
    )


def test_per_document_numbers_must_come_with_the_corpus():
    offset = np.arange(12.0)

    def story(corpus, y=None, *, num_topics=2):
        def shifted(corpus, y):
            stories.numpyro.sample("y", stories.dist.Normal(offset, 1.0), obs=y)

        beta = stories.topics(corpus, num_topics)
        stories.draw_words(corpus, stories.proportions(corpus, num_topics), beta)
        with stories.numpyro.plate("documents", corpus.num_documents):
            shifted(corpus, y)

    with pytest.raises(
        ValueError, match=r"does not run on a slice of 2 documents .*must come in y or in corpus\.covariates"
    ):
        inference.gibbs(story, CORPUS, Y, **FEW)


def test_draw_words_refuses_a_plate_and_wrong_shapes():
    def inside(corpus, *, num_topics=2):
        beta, theta = stories.topics(corpus, num_topics), stories.proportions(corpus, num_topics)
        with stories.numpyro.plate("documents", corpus.num_documents):
            stories.draw_words(corpus, theta, beta)

    def transposed(corpus, *, num_topics=2):
        beta, theta = stories.topics(corpus, num_topics), stories.proportions(corpus, num_topics)
        stories.draw_words(corpus, theta, beta.T)

    with pytest.raises(ValueError, match="inside a plate"):
        inference.gibbs(inside, CORPUS, **FEW)
    with pytest.raises(ValueError, match=r"beta of shape \(9, 2\)"):
        inference.gibbs(transposed, CORPUS, **FEW)
