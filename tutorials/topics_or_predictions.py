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
# # Topics or predictions: the weight of a response
#
# A review has a hundred words and one rating. In the posterior of a supervised topic model each word counts, and so
# does the rating: once. If there are fewer topics than things to tell apart, the words decide what the topics are, and
# the rating gets what is left. That is the right posterior. If predictions are what you want, it is not the best use
# of the topics: `response_weight=` counts the response more often.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.linear_model import RidgeCV

from topiczoo import corpora, diagnostics, inference, models

corpus, stars = corpora.load_reviews(seed=0, num_documents=500)
train, test = np.arange(350), np.arange(350, 500)
y = (stars - stars[train].mean()) / stars[train].std()
story = {"num_topics": 5, "gamma": 0.05}  # five sides of a visit, each praised or blamed: ten would do
short = {"num_chains": 8, "num_warmup": 60, "num_samples": 10, "thinning": 2, "progress_bar": False}

# %% [markdown]
# ## What the weight is
#
# With `response_weight=w` the density that topics and coefficients follow is
#
# $$p(\text{words} \mid \text{topics})\; p(\text{response} \mid \text{topics})^w\; p(\text{parameters})$$
#
# With 1 it is the posterior. Above 1 topics serve the predictions: they are no draws of the posterior any more, and
# the fit says so. Scales such as `sigma` would then fall to 0, for topics that follow the responses fit them whatever
# the words say; so a tenth of the documents is held out, and scales are drawn given these.
#
# We fit weights 1, 5 and 25, many short chains each, and look at documents that none of them has seen: each chain
# alone, and the mean of all.

# %%
fits, rows, by_chain = {}, {}, {}


def r_squared(mean):
    return 1 - np.mean((mean - y[test]) ** 2) / np.var(y[test])


for weight in (1, 5, 25):
    fits[weight] = inference.gibbs(
        models.slda, corpus[train], y[train], response_weight=weight, start="random", **story, **short
    )
    prediction = fits[weight].predict(corpus[test])
    low, high = prediction.interval(0.9).T
    by_chain[weight] = [r_squared(mean) for mean in prediction.expected.mean(1)]
    rows[weight] = {
        "R^2, mean of the chains": r_squared(prediction.mean),
        "R^2, a chain alone": np.mean(by_chain[weight]),
        "in the 90% interval": np.mean((low <= y[test]) & (y[test] <= high)),
        "held out": len(fits[weight].info["held_out"]),
    }
scores = pd.DataFrame(rows).T.rename_axis("weight")
scores.round(2)

# %% [markdown]
# Is that fair to the posterior? These chains are short and start at random, which suits the weight. So here is weight
# 1 as one would fit it to read topics, with the default start and a longer run:

# %%
posterior = inference.gibbs(
    models.slda, corpus[train], y[train], num_chains=2, num_warmup=200, num_samples=100, progress_bar=False, **story
)
print(f"R^2 of the posterior, longer chains: {r_squared(posterior.predict(corpus[test]).mean):.2f}")

# %% [markdown]
# A start that finds what the words are about need not help the rating: the better five topics describe the words, the
# less room they leave for anything else. Both fits are right answers, to different questions. Now all chains in a
# picture, with ridge regression on the words beside them:

# %%
words = corpus.counts.toarray() / corpus.lengths[:, None]
ridge = RidgeCV(np.logspace(-4, 2, 13)).fit(words[train], y[train])
figure, axis = plt.subplots(figsize=(6, 3.6), layout="constrained")
for weight, values in by_chain.items():
    axis.plot(np.full(len(values), weight), values, "o", color="0.7", label="a chain alone" if weight == 1 else None)
axis.plot(scores.index, scores["R^2, mean of the chains"], "o-", color="#3b6ea5", label="mean of the chains")
axis.axhline(r_squared(ridge.predict(words[test])), color="#b3402e", linestyle="--", label="ridge regression on words")
axis.set(xscale="log", xticks=[1, 5, 25], xticklabels=[1, 5, 25], xlabel="weight of the response")
axis.set(ylabel="R² on unseen reviews")
axis.legend()
plt.show()

# %% [markdown]
# Each grey dot is a chain. With weight 1 they lie far apart: which five topics a chain has found decides whether its
# shares happen to say something about the rating. With more weight each chain sees to it that they do. The mean of the
# chains is above most of them at any weight, for what chains have wrong differs; that is why many short chains are
# taken and not one long one.
#
# ## What it does to the topics
#
# The words of five topics, of one chain each, ordered by their coefficient:

# %%
tables = {}
for weight in (1, 25):
    table = fits[weight].topics(6).groupby("topic").agg(eta=("eta", "first"), terms=("term", " ".join))
    tables[f"weight {weight}"] = table.sort_values("eta").reset_index(drop=True).round(2)
pd.concat(tables, axis=1)

# %% [markdown]
# With weight 1 a topic is a group of words that occur together, whatever they say about the meal. With weight 25 it is
# a group of words that go with a rating: praise of one thing stands beside praise of another. Each has its use, and
# neither is the truth about the other's question.

# %%
figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
for place, weight in enumerate(fits):
    eta = fits[weight].draws["eta"].mean(1)  # [chains, topics]
    axis.plot(eta.ravel(), np.full(eta.size, place) + np.linspace(-0.2, 0.2, eta.size), ".", color="#3b6ea5")
axis.axvline(0, color="0.7", linewidth=0.8)
axis.set(
    yticks=range(3), yticklabels=[f"weight {weight}" for weight in fits], xlabel="coefficients of all topics and chains"
)
plt.show()

# %% [markdown]
# The coefficients move outwards with the weight: topics that hold praise and blame in equal parts, in the middle,
# become topics of one or the other.
#
# ## What the verdict says of it

# %%
for weight in (1, 25):
    print(f"weight {weight}: {diagnostics.diagnose(posterior if weight == 1 else fits[weight])}\n")

# %% [markdown]
# For the posterior, the longer run, the question is whether chains agree. For a weight of 25 it is another one: chains
# that differ are what is averaged, topics and coefficients are "do not rely" whatever they look like, and predictions
# are judged by the documents that the fit has held out. The same documents calibrate the intervals, which would
# otherwise be those of a model that is too sure of its coefficients.
#
# ## Choosing it
#
# By documents that the fit has not seen, among the training ones. Search with as many chains as you will use: what is
# too much for one chain may be best for the mean of sixteen.

# %%
found = inference.grid_search(
    inference.gibbs, models.slda, corpus[train], y[train], {"response_weight": [1, 25]}, folds=2, start="random", **story,
    **short,
)  # fmt: skip
found

# %% [markdown]
# The first row is the choice, made without a look at the test reviews.
#
# So:
#
# | you want | do |
# |---|---|
# | to read topics and coefficients | weight 1, the verdict on the number of topics ([your own CSV](your_own_csv.ipynb)) |
# | the best predictions | more topics first; then a weight from a grid search, 16 or more short chains |
# | both | two fits, and say which is which |
#
# On film reviews, with 50 topics and 24 chains, a weight of 30 has a predictive R² of 0.62 where the posterior has 0.54
# and ridge regression 0.57 (benchmarks/results.md). docs/weights.md has the rest: how scales are drawn, what the other
# engines do with a weight, and what was tried and did not help.
