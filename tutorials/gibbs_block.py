# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Write a Gibbs block
#
# The Gibbs engine draws every site of a story from its conditional given all others. Where it knows a conditional it
# draws from it exactly; what it does not know goes to NUTS. So every edited story runs. But you may know something
# about your edit that the engine does not: then you write a *block*, twenty lines, register it, and let the library
# check it.
#
# We edit supervised LDA so that coefficients cannot be negative, see that NUTS takes them over, write a block that
# draws them exactly, plant a mistake to see that it is found, and look at what was gained.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from arviz_stats import ess

from topiczoo import corpora, diagnostics, inference
from topiczoo.inference import Block, log_density_of, register_block, unregister_block
from topiczoo.inference.samplers.truncated import TruncatedNormal
from topiczoo.models import draw_words

# %% [markdown]
# ## The edit
#
# A review starts with five stars and loses points for what it complains of. No topic gives points back: what is fine
# loses none. So the coefficients are not negative, `HalfNormal` in the place of `Normal`, and the rest is supervised
# LDA.


# %%
def points_lost(corpus, y=None, *, num_topics=10, alpha=0.1, gamma=0.05):
    """theta_d ~ Dir(alpha);  z_dn ~ Cat(theta_d);  w_dn ~ Cat(beta_z);  y_d ~ N(eta . zbar_d, sigma^2);  eta_k >= 0"""
    with numpyro.plate("topics", num_topics):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, gamma)))
    eta = numpyro.sample("eta", dist.HalfNormal(4).expand([num_topics]).to_event(1))  # was: dist.Normal(0, 2)
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    documents = numpyro.plate("documents", corpus.num_documents)
    with documents:
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(num_topics, alpha)))
    zbar = draw_words(corpus, theta, beta)
    with documents:
        numpyro.sample("y", dist.Normal(zbar @ eta, sigma), obs=y)


corpus, stars = corpora.load_reviews(seed=0, num_documents=400)
y = 5 - stars
settings = {"num_warmup": 150, "num_samples": 150, "num_chains": 2, "progress_bar": False}

by_nuts = inference.gibbs(points_lost, corpus, y, **settings)
pd.Series(by_nuts.info["blocks"], name="drawn by")

# %% [markdown]
# `eta` went to NUTS, whose trajectories evaluate the density many times a sweep; everything else is served as before.
#
# ## The conditional
#
# Given topics and `sigma`, the log-density of `eta` is quadratic, as it is with a normal prior, but only where no
# coefficient is negative: $g \cdot \eta - \eta \cdot Q \eta / 2$ and a constant. That is a normal with precision $Q$
# and mean $m = Q^{-1} g$, cut off at 0. One coefficient given the others is a normal cut off at 0, too:
#
# $$\eta_k \mid \eta_{-k} \sim N\Big(m_k - \tfrac{1}{Q_{kk}} \sum_{j \ne k} Q_{kj} (\eta_j - m_j),\; \tfrac{1}{Q_{kk}}\Big)
#   \text{ above } 0$$
#
# so the block goes through them one after the other. Neither $g$ nor $Q$ has to be worked out by hand.
# `log_density_of(graph, sites, values, data)` is the part of the story's log-density that these sites enter, as a
# function of them, and JAX differentiates it. That is why the block will serve other stories, too: it asks the story.
#
# ## The block
#
# A block has four things. `recognise` says whether the conditional is one that this kind knows: here a `HalfNormal`
# site of one axis below which the density has the same curvature at two different places, tried out on three
# documents. `draw` gives new values. `log_conditional` is the logarithm of their density given the rest, which is what
# the check will look at. `label` is what `fit.info` calls it.


# %%
@register_block
class PositiveNormalBlock(Block):
    """Coefficients that are not negative and enter normal means linearly: normals cut off at 0, one after the other."""

    label = "normal draw above 0"

    @staticmethod
    def quadratic(graph, site, values, data, at=1.0):
        """g and Q of the log-density g . x - x . Q x / 2, found at a place inside, the same for all coefficients."""
        slope = jax.grad(lambda x: log_density_of(graph, [site], values, data)({site: x}))
        place = jnp.full_like(values[site], at)
        precision = -jax.jacfwd(slope)(place)
        return slope(place) + precision @ place, precision

    @classmethod
    def recognise(cls, graph, sites, few):
        (site,) = sites
        if graph.family(site) is not dist.HalfNormal or len(graph.latent[site].shape) != 1:
            return None
        curvatures = [cls.quadratic(graph, site, few.values, few.data, at)[1] for at in (0.5, 2.0)]
        return cls(graph, sites) if np.allclose(*curvatures, rtol=1e-3, atol=1e-3) else None

    def draw(self, key, values, data):
        (site,) = self.sites
        gradient, precision = self.quadratic(self.graph, site, values, data)

        def one(k, x):
            pull = gradient[k] - precision[k] @ x + precision[k, k] * x[k]
            law = TruncatedNormal(pull / precision[k, k], precision[k, k] ** -0.5, low=0.0)
            return x.at[k].set(law.sample(jax.random.fold_in(key, k)))

        return {site: jax.lax.fori_loop(0, len(gradient), one, values[site])}, {}

    def log_conditional(self, new, values, data):
        (site,) = self.sites
        gradient, precision = self.quadratic(self.graph, site, values, data)
        x = new[site]
        return gradient @ x - x @ precision @ x / 2  # but for a constant, which differences do not have


# %% [markdown]
# (`m` does not appear: $Q_{kk} m_k + \dots$ is the gradient less what the other coefficients already explain.
# `TruncatedNormal` is the library's own: NumPyro's loses its digits far out in the tail, and a topic of pure praise is
# far out.)
#
# ## Is it right?
#
# `inference.check` takes every block that the engine would use, two values of its sites, and compares the difference of
# `log_conditional` with that of the story's own joint density. Nothing is sampled, so there is no error but rounding.

# %%
inference.check(points_lost, corpus, y)

# %% [markdown]
# And with a mistake? Say that we had written the quadratic without its half:

# %%
unregister_block(PositiveNormalBlock)


@register_block
class WrongBlock(PositiveNormalBlock):
    label = "wrong draw"

    def log_conditional(self, new, values, data):
        gradient, precision = self.quadratic(self.graph, self.sites[0], values, data)
        return gradient @ new[self.sites[0]] - new[self.sites[0]] @ precision @ new[self.sites[0]]


checked = inference.check(points_lost, corpus, y)
unregister_block(WrongBlock)
assert not checked.set_index("block").loc["wrong draw", "passes"]
checked

# %% [markdown]
# The check sees `log_conditional`. That `draw` draws from it is another question, and a block that is wrong only there
# passes. So compare draws, too: here with those of NUTS, which knows nothing of our derivation.

# %%
register_block(PositiveNormalBlock)
by_block = inference.gibbs(points_lost, corpus, y, **settings)
assert by_block.info["blocks"]["eta"] == "normal draw above 0"

fits = {name: diagnostics.align(fit) for name, fit in (("NUTS", by_nuts), ("our block", by_block))}
order = np.argsort(fits["NUTS"].mean("eta"))
terms = fits["NUTS"].topics(3).groupby("topic")["term"].agg(" ".join)
like = np.sqrt(fits["NUTS"].mean("beta")) @ np.sqrt(fits["our block"].mean("beta")).T
match = {"NUTS": order, "our block": like.argmax(1)[order]}  # the same topics in the other fit, by their words
figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
for shift, (name, fit) in zip((-0.15, 0.15), fits.items(), strict=True):
    low, middle, high = np.quantile(fit.draws["eta"][..., match[name]], [0.05, 0.5, 0.95], axis=(0, 1))
    axis.hlines(np.arange(10) + shift, low, high, color="#3b6ea5" if shift < 0 else "#b3402e", label=name)
    axis.plot(middle, np.arange(10) + shift, ".", color="#3b6ea5" if shift < 0 else "#b3402e")
axis.set(yticks=np.arange(10), yticklabels=terms.iloc[order], xlabel="points that a review of this topic alone loses")
axis.legend(loc="lower right")
plt.show()

# %% [markdown]
# The intervals are the same for both, but for the Monte Carlo error of a few hundred draws. Topics of praise have
# coefficients near 0, where no normal prior would have kept them; those of blame say how many stars they cost.
#
# ## What was gained


# %%
def effective(fit):
    """Effective draws of each coefficient, [topics]."""
    return np.array([float(ess(fit.draws["eta"][..., k])) for k in range(10)])


pd.DataFrame({
    name: {"least": effective(fit).min(), "mean": effective(fit).mean()} for name, fit in fits.items()
}).T.round().rename_axis("effective draws of 300, by")  # fmt: skip

# %% [markdown]
# Draws for draws the two are of the same kind, for it is the topics that move slowly, whoever draws the coefficients.
# But for each of its draws NUTS runs through all documents at every step of a trajectory, and it must find the length
# of its steps during the warm-up: where topics settle late it is left with steps that fit no more. The block takes one
# gradient and one curvature, and has nothing to tune.
#
# What is left to do before others use it:
#
# - its calibration, `diagnostics.calibrate(points_lost, corpus[:6], "gibbs", num_topics=2)`: truth drawn from the
#   story, ranked among posterior draws ([did it converge](did_it_converge.ipynb) shows how to read it);
# - another story. This block asks for nothing but a `HalfNormal` site with a quadratic density, so a story with a
#   covariate whose slope is not negative gets it as well, whatever the site is called. `fit.info["blocks"]` says who
#   served.
#
# A registered block is asked before the built-in ones, until `unregister_block`. CONTRIBUTING.md has another example,
# and `inference/blocks/` all those that the library has.

# %%
unregister_block(PositiveNormalBlock)
