"""What blocks draw at fixed values of all other sites, against the story's own density written down in NumPy and SciPy.

Every block draws 20,000 times in one program. Limits: Kolmogorov-Smirnov tests at a level of 1e-7 and means at 6 standard
errors, below a hundred of them in all: a right program fails with probability 1e-5.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import Gibbs
from numpyro.infer.gibbs import GIBBS_SITES_KWARG
from scipy import integrate, stats
from scipy.special import gammaln, log_softmax

from topiczoo import models
from topiczoo.corpora import Corpus
from topiczoo.corpora.layouts import documents
from topiczoo.inference.blocks import conjugate
from topiczoo.inference.blocks.block import few
from topiczoo.inference.kernels.assignments import count
from topiczoo.inference.mcmc import plan as plans
from topiczoo.inference.mcmc.plan import choose_blocks
from topiczoo.inference.story.reading import read
from topiczoo.inference.story.tracing import Data
from topiczoo.models import draw_bags, draw_words

DRAWS, FAR, LEVEL = 20_000, 6.0, 1e-7
COUNTS = np.array([[2, 1, 0], [0, 1, 3], [1, 0, 1], [0, 0, 2], [3, 0, 1], [1, 1, 1]])
AGE = np.array([0.5, -1.0, 2.0, 0.3, -0.7, 1.1])
CORPUS = Corpus.from_counts(COUNTS, covariates={"age": AGE})
GAMMA = np.array([0.2, 0.4, 0.6])
Y = {
    "one": np.array([0.9, -0.4, np.nan, 1.6, 0.1, -1.2]),
    "two": np.array([0.2, np.nan, 0.7, -0.3, np.nan, 0.4]),
    "three": np.array([1.4, 0.3, -0.2, 0.8, -0.9, np.nan]),
}


def scales(corpus, y=None):
    """A deviation, a variance, a precision and the scale of coefficients, beside topics."""
    with numpyro.plate("topics", 2):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.arange(1.0, corpus.num_terms + 1) / 5))
    nu = numpyro.sample("nu", dist.InverseGamma(2.5, 1.2))
    effect = numpyro.sample("effect", dist.Laplace(0, nu).expand([3]).to_event(1))
    eta = numpyro.sample("eta", dist.Normal(0.5, 1.5).expand([2]).to_event(1))
    slope = numpyro.sample("slope", dist.Normal(-0.3, 0.8))
    sigma = numpyro.sample("sigma", dist.HalfNormal(0.9))
    variance = numpyro.sample("variance", dist.InverseGamma(3, 2))
    precision = numpyro.sample("precision", dist.Gamma(2.0, 0.7))
    with numpyro.plate("documents", corpus.num_documents):
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.array([0.4, 0.7])))
    x = draw_words(corpus, theta, beta) @ eta + slope * corpus.covariates["age"]
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("one", dist.Normal(x, sigma), obs=y["one"])
        numpyro.sample("two", dist.Normal(0.1, jnp.sqrt(variance)), obs=y["two"])
        numpyro.sample("three", dist.Normal(effect[0], precision**-0.5), obs=y["three"])


HERE = {
    "nu": 0.8, "effect": np.array([0.4, -1.1, 0.2]), "eta": np.array([0.7, -0.2]), "slope": 0.4, "sigma": 0.6,
    "variance": 1.3, "precision": 2.1, "beta": np.full((2, 3), 1 / 3), "theta": np.full((6, 2), 0.5),
}  # fmt: skip
TOPICS = np.random.default_rng(3).integers(0, 2, COUNTS.sum())


@pytest.fixture(scope="module")
def scales_plan():
    return choose_blocks(read(scales, CORPUS, Y, {}))


@pytest.fixture(scope="module")
def drawn(scales_plan):
    """Many draws of every block but the topics', all from the same values, and the means that blocks average."""
    data = documents(CORPUS, batches=True)
    topics = jnp.zeros(data.batches.terms.shape, jnp.int32).at[data.batches.positions()].set(TOPICS)
    values = {name: jnp.asarray(value, jnp.float32) for name, value in HERE.items()}
    values["z"] = count(topics, data.batches, 2, 3)
    blocks = [block for block in scales_plan.blocks if "z" not in block.sites and "effect" not in block.sites]

    @jax.jit
    @jax.vmap
    def draw(keys):
        found = [block.draw(key, values, Data(data, Y)) for key, block in zip(keys, blocks, strict=True)]
        return {site: value for new, _ in found for site, value in new.items()}, [means for _, means in found]

    draws, means = draw(jax.random.split(jax.random.key(0), (DRAWS, len(blocks))))
    return jax.tree.map(
        lambda value: np.asarray(value, float), (draws, {k: v[0] for part in means for k, v in part.items()})
    )


def topics_by_hand():
    """Counts of topics and terms, and zbar, from the list of tokens."""
    document, term = CORPUS.tokens()
    of_terms, of_documents = np.zeros((2, 3)), np.zeros((6, 2))
    np.add.at(of_terms, (TOPICS, term), 1)
    np.add.at(of_documents, (document, TOPICS), 1)
    return of_terms, of_documents / of_documents.sum(1, keepdims=True)


def assert_law(draws, log_density, low, high):
    """Draws of a number against its log density, which is integrated on a grid of its logarithm."""
    grid = np.linspace(np.log(low), np.log(high), 1201)
    logs = np.array([log_density(x) for x in np.exp(grid)]) + grid
    cumulative = integrate.cumulative_trapezoid(np.exp(logs - logs.max()), grid, initial=0)
    cumulative /= cumulative[-1]
    assert stats.kstest(np.log(draws), lambda u: np.interp(u, grid, cumulative)).pvalue > LEVEL


def test_blocks_are_chosen_by_the_form_of_the_density(scales_plan):
    served = scales_plan.describe()
    assert served["beta"] == "Dirichlet draw" and served["effect"] == "normal draw given auxiliary variables"
    assert {served[site] for site in ("eta", "slope")} == {"normal draw"}
    assert {served[s] for s in ("nu", "sigma", "variance", "precision")} == {"generalised inverse Gaussian draw"}
    powers = {block.sites[0]: block.power for block in scales_plan.blocks if hasattr(block, "power")}
    assert powers == {"nu": 1, "sigma": 2, "variance": 1, "precision": 1}


def test_topics_are_drawn_from_counts_and_their_prior(drawn):
    draws, means = drawn
    counts, _ = topics_by_hand()
    posterior = counts + GAMMA
    np.testing.assert_allclose(means["beta"], posterior / posterior.sum(1, keepdims=True), rtol=1e-4)
    for k in range(2):
        for v in range(3):
            law = stats.beta(posterior[k, v], posterior[k].sum() - posterior[k, v])
            assert stats.kstest(draws["beta"][:, k, v], law.cdf).pvalue > LEVEL
    both = draws["beta"].reshape(DRAWS, -1) - draws["beta"].reshape(DRAWS, -1).mean(0)
    share = posterior / posterior.sum(1, keepdims=True)
    of_one = [(np.diag(p) - np.outer(p, p)) / (total + 1) for p, total in zip(share, posterior.sum(1), strict=True)]
    expected = np.block([[of_one[0], np.zeros((3, 3))], [np.zeros((3, 3)), of_one[1]]])
    products = both[:, :, None] * both[:, None]
    assert (np.abs(products.mean(0) - expected) / products.std(0) * np.sqrt(DRAWS)).max() < FAR


def test_coefficients_of_a_normal_response_are_drawn_jointly(drawn):
    draws, _ = drawn
    seen = ~np.isnan(Y["one"])
    design = np.column_stack([topics_by_hand()[1], AGE])[seen]
    prior, centre = np.diag([1.5**-2, 1.5**-2, 0.8**-2]), np.array([0.5, 0.5, -0.3])
    covariance = np.linalg.inv(design.T @ design / HERE["sigma"] ** 2 + prior)
    mean = covariance @ (design.T @ Y["one"][seen] / HERE["sigma"] ** 2 + prior @ centre)
    found = np.column_stack([draws["eta"], draws["slope"]])
    white = np.linalg.solve(np.linalg.cholesky(covariance), (found - mean).T).T  # three independent standard normals
    for part in white.T:
        assert stats.kstest(part, "norm").pvalue > LEVEL
    assert np.abs(np.corrcoef(white.T) - np.eye(3)).max() < FAR / np.sqrt(DRAWS)


def test_a_deviation_is_drawn_from_its_density(drawn):
    residual = Y["one"] - topics_by_hand()[1] @ HERE["eta"] - HERE["slope"] * AGE

    def log_density(sigma):
        return stats.halfnorm.logpdf(sigma, scale=0.9) + np.nansum(stats.norm.logpdf(residual, 0, sigma))

    assert_law(drawn[0]["sigma"], log_density, 0.05, 20)


def test_a_variance_is_drawn_from_its_density(drawn):
    def log_density(variance):
        likelihood = np.nansum(stats.norm.logpdf(Y["two"], 0.1, np.sqrt(variance)))
        return stats.invgamma.logpdf(variance, 3, scale=2) + likelihood

    assert_law(drawn[0]["variance"], log_density, 1e-2, 1e3)


def test_a_precision_is_drawn_from_its_density(drawn):
    def log_density(precision):
        likelihood = np.nansum(stats.norm.logpdf(Y["three"], HERE["effect"][0], precision**-0.5))
        return stats.gamma.logpdf(precision, 2.0, scale=1 / 0.7) + likelihood

    assert_law(drawn[0]["precision"], log_density, 1e-3, 1e2)


def test_the_scale_of_a_laplace_prior_is_drawn_from_its_density(drawn):
    def log_density(nu):
        return stats.invgamma.logpdf(nu, 2.5, scale=1.2) + stats.laplace.logpdf(HERE["effect"], 0, nu).sum()

    assert_law(drawn[0]["nu"], log_density, 1e-2, 1e3)


PLACES = np.array([-0.8, 0.5, 1.9, np.nan, 0.2, -1.5])


def clusters(corpus, y=None):
    """One class a document, read by its words and by a number."""
    share = numpyro.sample("share", dist.Dirichlet(jnp.array([0.5, 1.0, 2.0])))
    centre = numpyro.sample("centre", dist.Normal(0, 2).expand([3]).to_event(1))
    with numpyro.plate("classes", 3):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.arange(1.0, corpus.num_terms + 1) / 5))
    with numpyro.plate("documents", corpus.num_documents):
        c = numpyro.sample("c", dist.Categorical(share))
        numpyro.sample("y", dist.Normal(centre[c], 0.7), obs=y)
        draw_bags(corpus, c, beta)


@pytest.fixture(scope="module")
def clusters_plan():
    return choose_blocks(read(clusters, CORPUS, PLACES, {}))


AT = {
    "share": np.array([0.2, 0.3, 0.5]), "centre": np.array([-1.0, 0.4, 1.5]), "c": np.array([0, 2, 1, 1, 0, 2]),
    "beta": np.array([[0.5, 0.2, 0.3], [0.1, 0.1, 0.8], [0.3, 0.4, 0.3]]),
}  # fmt: skip


def test_classes_of_documents_are_drawn_from_their_weights(clusters_plan):
    values = {name: jnp.asarray(value, jnp.int32 if name == "c" else jnp.float32) for name, value in AT.items()}
    blocks = {block.sites[0]: block for block in clusters_plan.blocks}
    assert {site: block.label for site, block in blocks.items()} == {
        "share": "Dirichlet draw", "beta": "Dirichlet draw", "centre": "normal draw", "c": "one topic a document"
    }  # fmt: skip
    data = documents(CORPUS, pairs=True)

    @jax.jit
    def draw(keys):
        one = jax.vmap(
            lambda key: {site: block.draw(key, values, Data(data, PLACES))[0][site] for site, block in blocks.items()}
        )
        return one(keys), blocks["c"].record(values, values, Data(data, PLACES))

    draws, seen = jax.tree.map(lambda value: np.asarray(value, float), draw(jax.random.split(jax.random.key(1), DRAWS)))
    number = np.nan_to_num(stats.norm.logpdf(PLACES[:, None], AT["centre"], 0.7))
    weights = np.exp(log_softmax(np.log(AT["share"]) + COUNTS @ np.log(AT["beta"]).T + number, 1))
    found = (draws["c"][..., None] == np.arange(3)).mean(0)
    assert (np.abs(found - weights) / np.sqrt(weights * (1 - weights) / DRAWS)).max() < FAR
    assert np.abs(np.corrcoef(draws["c"].T) - np.eye(6)).max() < FAR / np.sqrt(DRAWS)  # documents do not move together

    own = np.eye(3)[AT["c"]]
    posterior = np.array([0.5, 1.0, 2.0]) + own.sum(0)
    for k in range(3):
        law = stats.beta(posterior[k], posterior.sum() - posterior[k])
        assert stats.kstest(draws["share"][:, k], law.cdf).pvalue > LEVEL
        labelled = np.flatnonzero((AT["c"] == k) & ~np.isnan(PLACES))
        precision = 1 / 4 + len(labelled) / 0.49
        law = stats.norm(PLACES[labelled].sum() / 0.49 / precision, precision**-0.5)
        assert stats.kstest(draws["centre"][:, k], law.cdf).pvalue > LEVEL

    # the recorded log density: topics integrated out, the rest as it is
    terms = own.T @ COUNTS
    integrated = (gammaln(GAMMA + terms) - gammaln(GAMMA)).sum() + 3 * gammaln(GAMMA.sum())
    integrated -= gammaln((GAMMA + terms).sum(1)).sum()
    lp = stats.dirichlet.logpdf(AT["share"], [0.5, 1, 2]) + stats.norm.logpdf(AT["centre"], 0, 2).sum()
    lp += np.log(AT["share"])[AT["c"]].sum() + (number * own).sum() + integrated
    np.testing.assert_allclose(seen["lp"], lp, rtol=1e-5)
    np.testing.assert_allclose(seen["usage"], own.mean(0))


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_parts_of_topics_are_integrated_out_of_the_recorded_density(share):
    """Whatever they are: in float32 a share of a sparse topic may be 0, where its density has no end."""
    told = {"views": np.array([0, 1, 1]), "num_topics": 2, "alpha": 0.3, "gamma": 0.2}
    plan = choose_blocks(read(models.polylingual_lda, CORPUS, None, told))
    small = few(plan.graph)
    values = {**small.values, "beta_1": jnp.array([[share, 1 - share], [1 - share, share]])}
    seen = jax.jit(plan.blocks[-1].record)(values, small.values, small.data)

    def log_beta(x):
        return gammaln(x).sum(-1) - gammaln(x.sum(-1))

    def integrated(prior, counts):
        return (log_beta(prior + counts) - log_beta(np.full(counts.shape[-1], prior))).sum()

    of_documents, of_terms = (np.asarray(values["z"].from_theta, float), np.asarray(values["z"].topic_term, float))
    lp = integrated(0.3, of_documents) + integrated(0.2, of_terms[:, :1]) + integrated(0.2, of_terms[:, 1:])
    np.testing.assert_allclose(seen["lp"], lp - of_terms.sum() * np.log(2), rtol=1e-5)


def test_a_block_adds_up_its_means_and_never_uses_a_key_twice(clusters_plan):
    """As NumPyro's kernel: from state to state, the running sums are those of the conditional means."""
    block = next(block for block in clusters_plan.blocks if block.sites == ("share",))
    values = {name: jnp.asarray(value, jnp.int32 if name == "c" else jnp.float32) for name, value in AT.items()}
    arguments, others = (documents(CORPUS, pairs=True), PLACES), {n: v for n, v in values.items() if n != "share"}

    @jax.jit
    def run(key, others):
        state = block.init(key, 10, {"share": values["share"]}, arguments, {GIBBS_SITES_KWARG: others})
        first = block.sample(state, arguments, {GIBBS_SITES_KWARG: others})
        later = {**others, "c": jnp.zeros(6, jnp.int32)}
        return state, first, block.sample(first, arguments, {GIBBS_SITES_KWARG: later})

    with jax.debug_key_reuse(True):
        start, first, second = run(jax.random.key(5), others)
    posterior = np.array([[2.5, 3.0, 4.0], [6.5, 1.0, 2.0]])
    means = posterior / posterior.sum(1, keepdims=True)
    np.testing.assert_allclose(start.total["share"], 0)
    np.testing.assert_allclose(first.total["share"], means[0], rtol=1e-5)
    np.testing.assert_allclose(second.total["share"], means.sum(0), rtol=1e-5)
    assert (first.z["share"] != start.z["share"]).all() and (second.z["share"] != first.z["share"]).all()


@pytest.mark.filterwarnings("ignore:.*already stores a value")
def test_blocks_one_after_the_other_draw_what_numpyros_composite_kernel_draws(monkeypatch):
    plan = choose_blocks(read(models.slda, CORPUS, AGE, {"num_topics": 2}))
    assert not plan.by_nuts  # which is told of changes by NumPyro's kernel
    data = Data(documents(CORPUS, batches=True), plan.graph.response.on_device())
    kernels = [plan.kernel()]
    monkeypatch.setattr(plans, "Blocks", Gibbs)
    kernels.append(plan.kernel())
    states = [kernel.init(jax.random.key(0), 0, None, data, {}) for kernel in kernels]
    steps = [jax.jit(kernel.sample) for kernel in kernels]
    for _ in range(3):
        states = [step(state, data, {}) for step, state in zip(steps, states, strict=True)]
        own, plain = ({**state.z, "totals": [block.total for block in state.block_states]} for state in states)
        jax.tree.map(np.testing.assert_array_equal, own, plain)


@pytest.mark.parametrize("shape", [(3,), (1, 3), (40, 3)])
def test_densities_of_counts_are_the_same_a_few_rows_at_a_time(monkeypatch, shape):
    monkeypatch.setattr(conjugate, "AT_ONCE", 21)
    rng = np.random.default_rng(0)
    prior, counts = rng.gamma(1.0, size=shape), rng.poisson(2.0, (40, 3))
    found = conjugate.log_densities_of_counts(jnp.asarray(prior, jnp.float32), jnp.asarray(counts, jnp.float32))

    def log_beta(x):
        return gammaln(x).sum(-1) - gammaln(x.sum(-1))

    np.testing.assert_allclose(found, log_beta(prior + counts) - log_beta(prior), rtol=1e-4, atol=1e-4)
