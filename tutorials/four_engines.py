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
# # One story, four engines
#
# A story says how the data came about and nothing of how to find its posterior. That is an engine's work, and there
# are four: `gibbs`, `nuts`, `svi` and `vem`. Here all of them fit the same story to the same documents, drawn from the
# story itself, so that the truth is known. Each tells what it has done, and each gets something right that another
# does not.

# %%
import time
import warnings

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from scipy.optimize import linear_sum_assignment

from topiczoo import corpora, diagnostics, inference
from topiczoo.models import draw_words


def story(corpus, y=None, *, num_topics=3, alpha=0.5, gamma=0.3):
    """theta_d ~ Dir(alpha);  z_dn ~ Cat(theta_d);  w_dn ~ Cat(beta_{z_dn});  y_d ~ N(eta . zbar_d, sigma^2)"""
    with numpyro.plate("topics", num_topics):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, gamma)))
    eta = numpyro.sample("eta", dist.Normal(0, 2).expand([num_topics]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    documents = numpyro.plate("documents", corpus.num_documents)
    with documents:
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(num_topics, alpha)))
    zbar = draw_words(corpus, theta, beta)
    with documents:
        numpyro.sample("y", dist.Normal(zbar @ eta, sigma), obs=y)


# %% [markdown]
# ## Data whose truth is known
#
# 100 documents of 20 to 40 words over 30 terms. Of 40 documents the response is put away.

# %%
rng = np.random.default_rng(4)
theta = rng.dirichlet(np.full(3, 0.5), 100)
beta = rng.dirichlet(np.full(30, 0.3), 3)
eta, sigma = np.array([-1.5, 0.5, 2.0]), 0.5
z = rng.multinomial(rng.integers(20, 41, 100), theta)
counts = rng.multinomial(z, beta).sum(1)
y = z / z.sum(1, keepdims=True) @ eta + rng.normal(0, sigma, 100)
corpus = corpora.Corpus.from_counts(counts)
train, test = np.arange(60), np.arange(60, 100)

# %% [markdown]
# ## Four calls
#
# The call is the same but for the name and for how long to go on. What differs is what becomes of `draw_words`:
#
# | engine | topics of words | what it returns |
# |---|---|---|
# | `gibbs` | drawn, one after the other in each document, all documents side by side | draws of the posterior |
# | `nuts` | summed out; the rest follows the gradient of what is left | draws, with a response of nearly the posterior |
# | `svi` | summed out; a normal law is fitted to what is left, on parts of the corpus if it is large | draws of that law |
# | `vem` | a distribution for each word, as in the papers; parameters at their best values | one estimate |

# %%
quiet, fits, seconds = {"progress_bar": False}, {}, {}
for name, engine, length in (
    ("gibbs", inference.gibbs, {"num_warmup": 300, "num_samples": 300, "num_chains": 2}),
    # shorter trajectories than the default, to save time: fine for so few documents
    ("nuts", inference.nuts, {"num_warmup": 100, "num_samples": 100, "num_chains": 2, "max_tree_depth": 6}),
    ("svi", inference.svi, {"num_steps": 2000}),
    ("vem", inference.vem, {}),
):
    start = time.perf_counter()
    fits[name] = engine(story, corpus[train], y[train], **length, **quiet)
    seconds[name] = time.perf_counter() - start
pd.Series(seconds, name="seconds, compiling included").round().to_frame()

# %% [markdown]
# These are seconds of documents few enough for a tutorial, and much of them is compiling. How they grow is another
# matter: a sweep of `gibbs` and an iteration of `vem` cost time in proportion to the words; a step of `svi` may look
# at a part of the documents only; and a trajectory of `nuts` runs through all documents many times.
#
# ## What each of them says
#
# `diagnose` asks each engine what can be known of it: whether chains agree, or whether an approximation is near the
# posterior.

# %%
for name, fit in fits.items():
    print(f"{name}: {diagnostics.diagnose(fit)}\n")

# %% [markdown]
# The advice to draw more is for the few draws of a tutorial. The rest is about the engines. Of `vem` nothing better
# can be said: one optimum, and no draws to tell how sure it is. That of `svi` looks at importance ratios between the
# posterior and the fitted law (Pareto k), and says so where the law is not near enough to be taken for the posterior.
#
# ## Coefficients
#
# Topics have no numbers of their own. Those of each fit are matched with the true ones by their words.

# %%
colours = dict(zip(fits, ("#3b6ea5", "#2a8c4a", "#c77d0a", "#b3402e"), strict=True))
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), width_ratios=(3, 1), layout="constrained")
rows = {}
for place, (name, fit) in enumerate(fits.items()):
    aligned = diagnostics.align(fit)
    _, match = linear_sum_assignment(-np.sqrt(beta) @ np.sqrt(aligned.mean("beta")).T)
    drawn, noise = aligned.draws["eta"][..., match], aligned.draws["sigma"]
    low, middle, high = np.quantile(drawn, [0.05, 0.5, 0.95], axis=(0, 1))
    shift = np.arange(3) + (place - 1.5) * 0.15
    left.vlines(shift, low, high, color=colours[name], linewidth=2)
    left.plot(shift, middle, "o", color=colours[name], markersize=4, label=name)
    right.vlines(place, *np.quantile(noise, [0.05, 0.95]), color=colours[name], linewidth=2)
    right.plot(place, np.median(noise), "o", color=colours[name], markersize=4)
    rows[name] = {"mean width of the 90% intervals of eta": np.mean(high - low), "sigma": np.mean(noise)}
left.hlines(eta, np.arange(3) - 0.3, np.arange(3) + 0.3, color="k", linewidth=1, label="truth")
left.set(xticks=np.arange(3), xticklabels=[f"topic {k}" for k in range(3)], ylabel="coefficient, 90% interval")
left.legend()
right.axhline(sigma, color="k", linewidth=1)
right.set(xticks=np.arange(4), xticklabels=list(fits), title="sigma", xlim=(-0.6, 3.6))
plt.show()
pd.DataFrame(rows).T.round(2)

# %% [markdown]
# The draws of `gibbs` and `nuts` lie on each other: two ways to the same posterior. `svi` finds the same coefficients
# with intervals of its own; a mean-field law knows no correlations, so they may come out too narrow. `vem` has a point
# in the place of an interval.
#
# ## Predictions
#
# For predictions an estimate may do. Error on documents whose response nobody has seen, and how many of them the 90%
# intervals hold:

# %%
rows = {}
for name, fit in fits.items():
    prediction = fit.predict(corpus[test])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        low, high = prediction.interval(0.9).T
    for warning in said:
        print(f"{name}: {warning.message}")
    rows[name] = {
        "R^2": 1 - np.mean((prediction.mean - y[test]) ** 2) / np.var(y[test]),
        "in the 90% interval": np.mean((low <= y[test]) & (y[test] <= high)),
        "width": np.mean(high - low),
    }
rows["the true parameters, topics known"] = {"R^2": 1 - sigma**2 / np.var(y[test])}
pd.DataFrame(rows).T.round(2)

# %% [markdown]
# (The warnings are the library's, and the verdict said it, too: what a variational fit does not know is missing from
# its intervals.) All four are close to each other and not far from what could be had with the truth in hand; forty
# documents tell their differences only roughly. For words that is not so, in general: a poor optimum of `vem` or a
# chain of `gibbs` in a poor mode has other topics. Which is why one fits from several starts, and reads the verdict.
#
# ## Which one?
#
# | you want | take |
# |---|---|
# | a posterior, whatever the story | `gibbs` |
# | a second opinion on a posterior, or a story of few documents with much above them | `nuts` |
# | an estimate now, or a paper's own numbers | `vem` |
# | documents by the million, seen a part at a time | `svi` |
#
# An engine that cannot take a story says which part of it, and which engine would:


# %%
def correlated(corpus, *, num_topics=4):
    with numpyro.plate("topics", num_topics):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, 0.1)))
    with numpyro.plate("documents", corpus.num_documents):
        mix = numpyro.sample("mix", dist.MultivariateNormal(jnp.zeros(num_topics), jnp.eye(num_topics) + 0.5))
    draw_words(corpus, jax.nn.softmax(mix), beta)


try:
    inference.vem(correlated, corpus)
except ValueError as refusal:
    print(refusal)
