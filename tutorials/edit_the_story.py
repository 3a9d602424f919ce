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
# # Edit the story
#
# A topic model in this zoo is a short NumPyro function that says how the data came about. To change the model you
# change the function. Here we take supervised LDA, meet data it does not fit, change **one line**, let the library
# check that every step of the sampler is still right, and compare.

# %%
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd

from topiczoo import corpora, diagnostics, inference
from topiczoo.models import draw_words

# %% [markdown]
# ## The data
#
# Simulated restaurant reviews with a star rating that follows from what the review says about food, service, price,
# place and waiting. We keep 500 of them, and then something happens that happens to real ratings: in one review of
# twelve the stars have nothing to do with the text.

# %%
corpus, stars, aspects = corpora.load_reviews(seed=0, num_documents=500, return_aspects=True)
print(aspects["text"].iloc[2])

rng = np.random.default_rng(0)
y = (stars - stars.mean()) / stars.std()
spoilt = rng.random(len(y)) < 1 / 12
clean, y = y, np.where(spoilt, rng.normal(0, 6, len(y)), y)
train, test = np.arange(400), np.arange(400, 500)

# %% [markdown]
# ## The story
#
# This is supervised LDA as the paper tells it. `draw_words` draws a topic for every word and the word from its topic;
# its value `zbar` holds the shares of the topics in each document, and `zbar @ eta` is the linear predictor.


# %%
def story(corpus, y=None, *, num_topics=10, alpha=0.1, gamma=0.05):
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


normal = inference.gibbs(
    story, corpus[train], y[train], num_warmup=200, num_samples=200, num_chains=2, progress_bar=False
)
normal.info["blocks"]

# %% [markdown]
# The engine read the story and found an exact draw for every site. The topics, and their coefficients:

# %%
table = normal.topics(7).groupby("topic").agg(eta=("eta", "first"), terms=("term", " ".join))
table.sort_values("eta").round(2)


# %% [markdown]
# ## One line changed
#
# Ratings that have nothing to do with the text are outliers to the normal. A heavy-tailed response shrugs them off. The
# last line becomes a Student's t:


# %%
def heavy_tailed(corpus, y=None, *, num_topics=10, alpha=0.1, gamma=0.05):
    with numpyro.plate("topics", num_topics):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, gamma)))
    eta = numpyro.sample("eta", dist.Normal(0, 2).expand([num_topics]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    documents = numpyro.plate("documents", corpus.num_documents)
    with documents:
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(num_topics, alpha)))
    zbar = draw_words(corpus, theta, beta)
    with documents:
        numpyro.sample("y", dist.StudentT(2, zbar @ eta, sigma), obs=y)  # was: dist.Normal(zbar @ eta, sigma)


# %% [markdown]
# ## Is the sampler still right?
#
# `inference.check` compares the conditional distribution of every block with the story's own log-density, on a few
# documents. The normal and the Student's t need different blocks: `eta` is drawn exactly only given a scale of its own
# for each document, which comes and goes within the block, `sigma` has no exact draw any more, so NUTS takes it, and
# the topic sweep reads the new response from the story.

# %%
inference.check(heavy_tailed, corpus, y)

# %%
robust = inference.gibbs(
    heavy_tailed, corpus[train], y[train], num_warmup=200, num_samples=200, num_chains=2, progress_bar=False
)
assert "auxiliary" in robust.info["blocks"]["eta"] and "NUTS" in robust.info["blocks"]["sigma"]
robust.info["blocks"]

# %% [markdown]
# ## Compare
#
# First whether there is something to compare. `diagnose` says what of a fit can be relied on, topics, coefficients and
# predictions apart:

# %%
for name, fit in (("normal", normal), ("Student's t", robust)):
    print(f"{name}: {diagnostics.diagnose(fit)}\n")

# %% [markdown]
# What follows is about predictions. Both predict the hundred reviews that they have not seen; the ratings compared
# with are those before they were spoilt.

# %%
predictions = {"normal": normal.predict(corpus[test]), "Student's t": robust.predict(corpus[test])}
truth = clean[test]


def score(prediction):
    low, high = prediction.interval(0.9).T
    return {
        "predictive R^2": 1 - np.sum((truth - prediction.mean) ** 2) / np.sum((truth - truth.mean()) ** 2),
        "mean width of the 90% interval": np.mean(high - low),
        "covered": np.mean((low < truth) & (truth < high)),
    }


scores = pd.DataFrame({name: score(prediction) for name, prediction in predictions.items()}).T
scores.round(2)

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 4), sharex=True, sharey=True, layout="constrained")
for axis, (name, prediction) in zip(axes, predictions.items(), strict=True):
    low, high = prediction.interval(0.9).T
    axis.vlines(truth, low, high, color="0.8")
    axis.plot(truth, prediction.mean, ".")
    axis.axline((0, 0), slope=1, color="0.5", linewidth=1)
    axis.set(title=name, xlabel="rating", ylabel="prediction, 90% interval")
plt.show()

# %%
assert scores.loc["Student's t", "predictive R^2"] > scores.loc["normal", "predictive R^2"]

# %% [markdown]
# The points are predictions, the grey lines their intervals: those of the normal are several times as wide, for the
# spoilt ratings pulled its coefficients and blew up its `sigma`. The heavy-tailed story fits the same reviews with far
# less noise, and nothing but one line of the story was touched.

# %%
pd.Series({"normal": normal.mean("sigma"), "Student's t": robust.mean("sigma")}, name="sigma").round(2)
