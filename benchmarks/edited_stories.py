"""What a user may write below topics, and in their place: stories of edits.py, each an edit of supervised LDA.

Documents have the covariates ``x``, a number, and ``group``, one of five.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from topiczoo.models import concentration, draw_bags, draw_words

K, GROUPS, CLASSES = 4, 5, 3


def topics(corpus, gamma=0.1):
    with numpyro.plate("topics", K):
        return numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, gamma)))


def words(corpus, alpha=0.3, gamma=0.1):
    """The plate of documents, theta and zbar."""
    beta, documents = topics(corpus, gamma), numpyro.plate("documents", corpus.num_documents)
    with documents:
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(K, alpha)))
    return documents, theta, draw_words(corpus, theta, beta)


def numbers(name, *shape, scale=2.0):
    return numpyro.sample(name, dist.Normal(0, scale).expand(shape).to_event(len(shape)))


def noise():
    return numpyro.sample("sigma", dist.HalfNormal(1))


def group_of(corpus):
    return jnp.asarray(corpus.covariates["group"]).astype(int)


# laws of a response


def student(corpus, y=None):
    """Heavy tails of unknown weight."""
    documents, _, zbar = words(corpus)
    eta, nu, sigma = numbers("eta", K), numpyro.sample("nu", dist.Gamma(2, 0.1)), noise()
    with documents:
        numpyro.sample("y", dist.StudentT(nu, zbar @ eta, sigma), obs=y)


def outliers(corpus, y=None):
    """One response in ten is ten times as noisy."""
    documents, _, zbar = words(corpus)
    mean, share, sigma = zbar @ numbers("eta", K), numpyro.sample("share", dist.Beta(1, 9)), noise()
    parts = dist.Normal(jnp.stack([mean, mean], -1), jnp.stack([sigma, 10 * sigma]))
    with documents:
        mixed = dist.MixtureSameFamily(dist.Categorical(probs=jnp.stack([1 - share, share])), parts)
        numpyro.sample("y", mixed, obs=y)


def two_scales(corpus, y=None):
    """Topics say how much a response varies, too."""
    documents, _, zbar = words(corpus)
    eta, kappa = numbers("eta", K), numpyro.sample("kappa", dist.Normal(-1, 0.5).expand([K]).to_event(1))
    with documents:
        numpyro.sample("y", dist.Normal(zbar @ eta, jnp.exp(zbar @ kappa)), obs=y)


def positive(corpus, y=None):
    """Gamma, with a log link."""
    documents, _, zbar = words(corpus)
    eta, shape = numbers("eta", K, scale=1.0), numpyro.sample("shape", dist.Gamma(2, 0.5))
    with documents:
        numpyro.sample("y", dist.Gamma(shape, shape * jnp.exp(-(zbar @ eta))), obs=y)


def between_0_and_1(corpus, y=None):
    """Beta, with a logistic link."""
    documents, _, zbar = words(corpus)
    mean, many = jax.nn.sigmoid(zbar @ numbers("eta", K)), numpyro.sample("many", dist.Gamma(4, 0.2))
    with documents:
        numpyro.sample("y", dist.Beta(mean * many, (1 - mean) * many), obs=y)


def negative_binomial(corpus, y=None):
    documents, _, zbar = words(corpus)
    eta, shape = numbers("eta", K, scale=1.0), numpyro.sample("shape", dist.Gamma(2, 0.5))
    with documents:
        numpyro.sample("y", dist.NegativeBinomial2(jnp.exp(zbar @ eta), shape), obs=y)


def more_zeros(corpus, y=None):
    """Poisson, and zeros beside."""
    documents, _, zbar = words(corpus)
    eta, gate = numbers("eta", K, scale=1.0), numpyro.sample("gate", dist.Beta(1, 3))
    with documents:
        numpyro.sample("y", dist.ZeroInflatedPoisson(gate, jnp.exp(zbar @ eta)), obs=y)


def exposure(corpus, y=None):
    """Counts in proportion to a covariate."""
    documents, _, zbar = words(corpus)
    rate = jnp.exp(jnp.asarray(corpus.covariates["x"]) + zbar @ numbers("eta", K, scale=1.0))
    with documents:
        numpyro.sample("y", dist.Poisson(rate), obs=y)


def trials(corpus, y=None):
    """Successes among as many trials as the document had."""
    documents, _, zbar = words(corpus)
    eta = numbers("eta", K)
    with documents:
        numpyro.sample("y", dist.Binomial(3 + group_of(corpus), logits=zbar @ eta), obs=y)


def two_numbers(corpus, y=None):
    """Two responses that go together beyond topics."""
    documents, _, zbar = words(corpus)
    eta, root = numbers("eta", K, 2), numpyro.sample("root", dist.LKJCholesky(2, 2.0))
    scales = numpyro.sample("scales", dist.HalfNormal(1).expand([2]).to_event(1))
    with documents:
        numpyro.sample("y", dist.MultivariateNormal(zbar @ eta, scale_tril=scales[:, None] * root), obs=y)


def three_counts(corpus, y=None):
    documents, _, zbar = words(corpus)
    eta = numbers("eta", K, 3, scale=1.0)
    with documents:
        numpyro.sample("y", dist.Poisson(jnp.exp(zbar @ eta)).to_event(1), obs=y)


# what a response reads


def of_proportions(corpus, y=None):
    """theta itself in the place of the topics of words."""
    documents, theta, _ = words(corpus)
    eta, sigma = numbers("eta", K), noise()
    with documents:
        numpyro.sample("y", dist.Normal(jnp.log(theta + 0.01) @ eta, sigma), obs=y)


def class_of_proportions(corpus, y=None):
    documents, theta, _ = words(corpus)
    eta = numbers("eta", K, CLASSES, scale=3.0)
    with documents:
        numpyro.sample("y", dist.Categorical(logits=theta @ eta), obs=y)


def of_both(corpus, y=None):
    documents, theta, zbar = words(corpus)
    first, second, sigma = numbers("first", K), numbers("second", K), noise()
    with documents:
        numpyro.sample("y", dist.Normal(zbar @ first + theta @ second, sigma), obs=y)


def how_mixed(corpus, y=None):
    """The entropy of proportions."""
    documents, theta, _ = words(corpus)
    level, slope, sigma = numbers("level", scale=1.0), numbers("slope", scale=1.0), noise()
    entropy = -(theta * jnp.log(theta + 1e-6)).sum(-1)
    with documents:
        numpyro.sample("y", dist.Normal(level + slope * entropy, sigma), obs=y)


def squared(corpus, y=None):
    documents, _, zbar = words(corpus)
    first, second, sigma = numbers("first", K), numbers("second", K), noise()
    with documents:
        numpyro.sample("y", dist.Normal(zbar @ first + (zbar @ second) ** 2, sigma), obs=y)


def network(corpus, y=None):
    """Three hidden units."""
    documents, _, zbar = words(corpus)
    inner, outer, sigma = numbers("inner", K, 3), numbers("outer", 3, scale=1.0), noise()
    with documents:
        numpyro.sample("y", dist.Normal(jnp.tanh(zbar @ inner) @ outer, sigma), obs=y)


def with_covariate(corpus, y=None):
    """What a topic does depends on a number."""
    documents, _, zbar = words(corpus)
    x, first, second, sigma = jnp.asarray(corpus.covariates["x"]), numbers("first", K), numbers("second", K), noise()
    with documents:
        numpyro.sample("y", dist.Normal(zbar @ first + x * (zbar @ second), sigma), obs=y)


def curve(corpus, y=None):
    """A smooth curve of a number, of six bumps."""
    documents, _, zbar = words(corpus)
    bumps = jnp.exp(-0.5 * ((jnp.asarray(corpus.covariates["x"])[:, None] - jnp.linspace(-2, 2, 6)) / 0.8) ** 2)
    eta, heights, sigma = numbers("eta", K), numbers("heights", 6, scale=1.0), noise()
    with documents:
        numpyro.sample("y", dist.Normal(zbar @ eta + bumps @ heights, sigma), obs=y)


# priors of coefficients, levels of groups


def horseshoe(corpus, y=None):
    documents, _, zbar = words(corpus)
    tau = numpyro.sample("tau", dist.HalfCauchy(1.0))
    local = numpyro.sample("local", dist.HalfCauchy(jnp.ones(K)).to_event(1))
    eta, sigma = numpyro.sample("eta", dist.Normal(0, tau * local).to_event(1)), noise()
    with documents:
        numpyro.sample("y", dist.Normal(zbar @ eta, sigma), obs=y)


def bounded(corpus, y=None):
    """Uniform priors."""
    documents, _, zbar = words(corpus)
    eta = numpyro.sample("eta", dist.Uniform(-3, 3).expand([K]).to_event(1))
    sigma = numpyro.sample("sigma", dist.Uniform(0, 2))
    with documents:
        numpyro.sample("y", dist.Normal(zbar @ eta, sigma), obs=y)


def shared_prior(corpus, y=None):
    """Coefficients in the plate of topics, around a mean of their own; the predictor has a name."""
    mean, spread = numbers("mean", scale=1.0), numpyro.sample("spread", dist.HalfNormal(1))
    with numpyro.plate("topics", K):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, 0.1)))
        eta = numpyro.sample("eta", dist.Normal(mean, spread))
    documents = numpyro.plate("documents", corpus.num_documents)
    with documents:
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(K, 0.3)))
    predictor = numpyro.deterministic("predictor", draw_words(corpus, theta, beta) @ eta)
    with documents:
        numpyro.sample("y", dist.Laplace(predictor, 0.5), obs=y)


def shrunken_classes(corpus, y=None):
    documents, _, zbar = words(corpus)
    spread = numpyro.sample("spread", dist.HalfNormal(2))
    eta = numpyro.sample("eta", dist.Normal(0, spread).expand([K, CLASSES]).to_event(2))
    with documents:
        numpyro.sample("y", dist.Categorical(logits=zbar @ eta), obs=y)


def levels(corpus, y=None):
    """A level of each group."""
    documents, _, zbar = words(corpus)
    eta, spread, sigma = numbers("eta", K), numpyro.sample("spread", dist.HalfNormal(1)), noise()
    with numpyro.plate("groups", GROUPS):
        level = numpyro.sample("level", dist.Normal(0, spread))
    with documents:
        numpyro.sample("y", dist.Normal(zbar @ eta + level[group_of(corpus)], sigma), obs=y)


def slopes(corpus, y=None):
    """Coefficients of each group."""
    documents, _, zbar = words(corpus)
    mean, spread, sigma = numbers("mean", K), numpyro.sample("spread", dist.HalfNormal(1)), noise()
    with numpyro.plate("groups", GROUPS):
        eta = numpyro.sample("eta", dist.Normal(mean, spread).to_event(1))
    with documents:
        numpyro.sample("y", dist.Normal((zbar * eta[group_of(corpus)]).sum(-1), sigma), obs=y)


def walk(corpus, y=None):
    """A level that goes step by step from one group to the next."""
    documents, _, zbar = words(corpus)
    level = numpyro.sample("level", dist.GaussianRandomWalk(numpyro.sample("step", dist.HalfNormal(0.5)), GROUPS))
    eta, sigma = numbers("eta", K), noise()
    with documents:
        numpyro.sample("y", dist.Normal(zbar @ eta + level[group_of(corpus)], sigma), obs=y)


def effect_of_each(corpus, y=None):
    """Poisson, and an effect of each document's own."""
    documents, _, zbar = words(corpus)
    eta, spread = numbers("eta", K), numpyro.sample("spread", dist.HalfNormal(0.5))
    with documents:
        own = numpyro.sample("own", dist.Normal(0, spread))
        numpyro.sample("y", dist.Poisson(jnp.exp(zbar @ eta + own)), obs=y)


# topics and proportions


def learned_priors(corpus, y=None):
    documents, _, zbar = words(corpus, concentration("alpha", shape=[K]), concentration("gamma"))
    eta = numbers("eta", K)
    with documents:
        numpyro.sample("y", dist.Bernoulli(logits=zbar @ eta), obs=y)


def around_a_base(corpus, y=None):
    """Topics around the words that all have."""
    base = numpyro.sample("base", dist.Dirichlet(jnp.ones(corpus.num_terms)))
    with numpyro.plate("topics", K):
        beta = numpyro.sample("beta", dist.Dirichlet(0.1 + 30 * base))
    documents = numpyro.plate("documents", corpus.num_documents)
    with documents:
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(K, 0.3)))
    zbar, eta, sigma = draw_words(corpus, theta, beta), numbers("eta", K), noise()
    with documents:
        numpyro.sample("y", dist.Normal(zbar @ eta, sigma), obs=y)


def regressed_proportions(corpus, y=None):
    """Logistic-normal proportions whose mean follows a covariate."""
    x, beta = jnp.stack([jnp.ones(corpus.num_documents), jnp.asarray(corpus.covariates["x"])], -1), topics(corpus)
    lean = numbers("lean", 2, K, scale=1.0)
    documents = numpyro.plate("documents", corpus.num_documents)
    with documents:
        logits = numpyro.sample("logits", dist.Normal(x @ lean, 1.0).to_event(1))
    zbar, eta, sigma = draw_words(corpus, jax.nn.softmax(logits, -1), beta), numbers("eta", K), noise()
    with documents:
        numpyro.sample("y", dist.Normal(zbar @ eta, sigma), obs=y)


def class_above(corpus, y=None):
    """A document's class says which topics it has."""
    beta = topics(corpus)
    lean = numpyro.sample("lean", dist.Gamma(1.0, 2.0).expand([CLASSES, K]).to_event(2))
    share = numpyro.sample("share", dist.Dirichlet(jnp.ones(CLASSES)))
    with numpyro.plate("documents", corpus.num_documents):
        of_class = numpyro.sample("y", dist.Categorical(share), obs=y)
        theta = numpyro.sample("theta", dist.Dirichlet(lean[of_class] + 0.01))
    draw_words(corpus, theta, beta)


def one_topic(corpus, y=None):
    """All words of a document have one topic, and its response a level of that."""
    share, beta = numpyro.sample("share", dist.Dirichlet(jnp.ones(K))), topics(corpus, 0.3)
    level, sigma = numbers("level", K, scale=3.0), noise()
    documents = numpyro.plate("documents", corpus.num_documents)
    with documents:
        z = numpyro.sample("z", dist.Categorical(share))
    draw_bags(corpus, z, beta)
    with documents:
        numpyro.sample("y", dist.Normal(level[z], sigma), obs=y)


STORIES = (
    student, outliers, two_scales, positive, between_0_and_1, negative_binomial, more_zeros, exposure, trials, two_numbers,
    three_counts, of_proportions, class_of_proportions, of_both, how_mixed, squared, network, with_covariate, curve,
    horseshoe, bounded, shared_prior, shrunken_classes, levels, slopes, walk, effect_of_each, learned_priors,
    around_a_base, regressed_proportions, class_above, one_topic,
)  # fmt: skip
