"""Responses: functions from the linear predictor x to a NumPyro distribution of y.

A response may draw parameters of its own, a dispersion or cut points; it is called outside all plates. Yours is a function
like these, given to ``slda_glm`` as ``response=``. x is [documents], or [documents, outputs] for an eta with outputs.

Links are logarithms where y is positive. The canonical links of gamma, inverse Gaussian and negative binomial would need
every coefficient below zero.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.distributions.transforms import OrderedTransform

from .distributions import BernoulliProbit, InverseGaussian

__all__ = ["RESPONSES"]


def normal(x):
    """y ~ N(x, sigma^2); with several outputs, each has its own sigma. Standardise y."""
    if x.ndim == 1:
        return dist.Normal(x, numpyro.sample("sigma", dist.HalfNormal(1)))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1).expand([x.shape[-1]]).to_event(1))
    return dist.Normal(x, sigma).to_event(1)


def student_t(x, df=4.0):
    """y ~ StudentT(df, x, sigma): a few wild responses do not move the coefficients. Standardise y."""
    return dist.StudentT(df, x, numpyro.sample("sigma", dist.HalfNormal(1)))


def logit(x):
    """y ~ Bernoulli(1 / (1 + exp(-x))), y 0 or 1."""
    return dist.Bernoulli(logits=x)


def probit(x):
    """y ~ Bernoulli(Phi(x)), y 0 or 1."""
    return BernoulliProbit(x)


def binomial(x, total_count=1):
    """y ~ Binomial(total_count, 1 / (1 + exp(-x)))."""
    return dist.Binomial(total_count, logits=x)


def poisson(x):
    """y ~ Poisson(exp(x)), a count."""
    return dist.Poisson(jnp.exp(x))


def negative_binomial(x):
    """y ~ NegativeBinomial with mean exp(x) and variance mean + mean^2 / size: a count with a long tail."""
    return dist.NegativeBinomial2(jnp.exp(x), numpyro.sample("size", dist.Gamma(2, 0.5)))


def gamma(x):
    """y ~ Gamma with mean exp(x) and shape drawn: positive, its spread in proportion to its mean."""
    shape = numpyro.sample("shape", dist.Gamma(2, 0.5))
    return dist.Gamma(shape, shape * jnp.exp(-x))


def inverse_gaussian(x):
    """y ~ InverseGaussian(mean exp(x), shape): positive, with a longer tail than gamma."""
    return InverseGaussian(jnp.exp(x), numpyro.sample("shape", dist.Gamma(2, 0.5)))


def weibull(x):
    """y ~ Weibull(scale exp(x), shape): a time until something happens."""
    return dist.Weibull(jnp.exp(x), numpyro.sample("shape", dist.LogNormal(0, 0.5)))


def ordered(x, num_classes=5):
    """y in 0 .. num_classes - 1, ordered: P(y > c) = 1 / (1 + exp(cut_c - x)), cuts rising."""
    cuts = dist.TransformedDistribution(dist.Normal(0, 2).expand([num_classes - 1]).to_event(1), OrderedTransform())
    return dist.OrderedLogistic(x, numpyro.sample("cuts", cuts))


def softmax(x):
    """y one of the outputs: P(y = c) proportional to exp(x_c)."""
    return dist.Categorical(logits=x)


RESPONSES = {
    function.__name__: function
    for function in (
        normal, student_t, logit, probit, binomial, poisson, negative_binomial, gamma, inverse_gaussian, weibull, ordered,
        softmax,
    )
}  # fmt: skip
