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
# # Ratings, counts and classes from text
#
# You know regression: a response, predictors, coefficients. In supervised LDA the predictors are the shares of a
# document's words that belong to each of a few topics, and the topics are not given: they are found together with
# their coefficients, so that they explain the words and the response at once. We predict a rating, a count and a class
# from reviews, ask each time what the prediction is worth, and end with a response of our own.
#
# Most of the waiting is compiling, once for each fit. With `JAX_COMPILATION_CACHE_DIR` set to a folder, a second run
# takes half the time.

# %%
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from scipy.optimize import linear_sum_assignment
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import GridSearchCV

from topiczoo import corpora, diagnostics, inference, models

corpus, stars = corpora.load_reviews(seed=0, num_documents=900)
train, aside, test = np.arange(400), np.arange(400, 600), np.arange(600, 900)
settings = {"num_topics": 12, "gamma": 0.05, "num_warmup": 200, "num_samples": 200, "progress_bar": False}
corpus

# %% [markdown]
# ## 1. Ratings
#
# The reviews are simulated and come with one to five stars. The story `slda` says that the stars are normal around a
# weighted sum of topic shares. Its priors expect a response on a unit scale, so we standardise by the training
# documents, and turn predictions back into stars. Two hundred documents are set aside for later.

# %%
centre, spread = stars[train].mean(), stars[train].std()
y = (stars - centre) / spread

ratings = inference.gibbs(models.slda, corpus[train], y[train], **settings)
diagnosis = diagnostics.diagnose(ratings)
print(diagnosis)

# %% [markdown]
# **The verdict comes first.** Two chains started apart, and what they say is believed as far as they say the same.
# They have more topics than these reviews need, and chains may spend what is left over in different ways: one divides
# this topic in two, the other that one. So the verdict speaks of topics, coefficients and predictions apart.
# `diagnosis.fit` is the fit with the topics of both chains under the same numbers, as far as they have the same; `in
# both chains` says which these are.

# %%
ratings = diagnosis.fit
topics = ratings.topics(6).groupby("topic").agg(eta=("eta", "first"), terms=("term", " ".join))
topics["in both chains"] = ratings.alignment.topics["matched"].astype(bool).to_numpy()
topics.sort_values("eta").round(2)

# %%
diagnostics.plot_coefficients(ratings)
plt.show()

# %% [markdown]
# One colour a chain. Where the two lines of a row lie on each other, the chains agree on topic and coefficient; where
# they stand apart, the row is about two different topics that had to be given one number.
#
# **What to do about chains that disagree.** Read those topics alone that both chains have. If you need all of them,
# take another number of topics: `diagnostics.compare_topics` says how many the reviews support ([your own
# CSV](your_own_csv.ipynb)). Longer chains seldom help ([did it converge](did_it_converge.ipynb) shows why). And if the
# verdict holds for predictions, go on predicting: ways to divide the words that the chains differ in can make the same
# predictions, which we look at below.

# %% [markdown]
# A coefficient `eta` reads as in any regression: it is the rating, in standard deviations from the mean, of a review
# that speaks of nothing but this topic. Now the three hundred reviews that nobody has seen, in stars:

# %%
prediction = ratings.predict(corpus[test])
(centre + spread * prediction.frame(0.9)).assign(stars=stars[test]).head().round(1)

# %% [markdown]
# Beside it, what one would do without topics: ridge regression on the shares of all words, with intervals from its
# leave-one-out errors; and the mean of the training ratings.

# %%
words = corpus.counts.toarray() / corpus.lengths[:, None]
ridge = RidgeCV(np.logspace(-4, 2, 10), store_cv_results=True).fit(words[train], y[train])
ridge_error = np.sqrt(ridge.cv_results_.mean(0).min())


def guess(mean, error):
    """A prediction and its 90% interval, from a normal."""
    return mean, mean[:, None] + norm.ppf([0.05, 0.95]) * error


def r_squared(mean):
    return 1 - np.mean((y[test] - mean) ** 2) / np.var(y[test])


def held(interval):
    return np.mean((interval[:, 0] <= y[test]) & (y[test] <= interval[:, 1]))


guesses = {
    "supervised LDA": (prediction.mean, prediction.interval(0.9)),
    "ridge on words": guess(ridge.predict(words[test]), ridge_error),
    "mean rating": guess(np.zeros(len(test)), 1.0),
}
compared = pd.DataFrame(
    [(r_squared(mean), held(interval), spread * np.diff(interval).mean()) for mean, interval in guesses.values()],
    index=list(guesses),
    columns=["R^2", "held by the 90% interval", "its width in stars"],
)
compared.round(2)

# %%
figure, axis = plt.subplots(figsize=(5, 4), layout="constrained")
axis.vlines(stars[test], *(centre + spread * prediction.interval(0.9).T), color="0.8")
axis.plot(stars[test], centre + spread * prediction.mean, ".")
axis.axline((3, 3), slope=1, color="0.5", linewidth=1)
axis.set(xlabel="stars", ylabel="prediction, 90% interval")
plt.show()

# %% [markdown]
# **Look at** the topics before the R²: do their words belong together, and does the sign of the coefficient make sense?
#
# **What could be wrong:** a chain may sit in a poor mode. Then it predicts worse than the other, with a larger
# `sigma`; a longer warm-up or a few more topics help. And the story need not fit: a normal does not know that stars
# end at five, as some intervals show.

# %%
by_chain = {"sigma": ratings.draws["sigma"].mean(1), "R^2": [r_squared(mean) for mean in prediction.expected.mean(1)]}
pd.DataFrame(by_chain).rename_axis("chain").round(3)

# %% [markdown]
# Whatever topics they disagree on, the two chains predict alike. That is what the verdict means by relying on
# predictions.

# %% [markdown]
# ## 2. What an interval is worth
#
# An interval of 90% should hold nine of ten new ratings. It does if the story is right and the posterior is known. Two
# other ways to predict:
#
# - `rule="plug-in"` fixes topics and coefficients at their posterior means, as papers often do. What is not known of
#   them is left out of the interval.
# - `calibrate=(documents, responses)` takes documents that the fit has not seen, looks at how many of their responses
#   the intervals hold, and widens or narrows all intervals until they hold as many as they say (conformal prediction).
#   The story need not be right; new documents need only be like those set aside.
#
# Where no document can be spared, `inference.cross_predict(inference.gibbs, models.slda, corpus[train], y[train],
# folds=5, **settings)` predicts every training document by a fit that has not seen it, at the price of five fits, and
# `calibrate=` takes that prediction, with `y[train]`, in the place of documents.

# %%
rules = {
    "posterior": prediction,
    "plug-in": ratings.predict(corpus[test], rule="plug-in"),
    "calibrated": ratings.predict(corpus[test], calibrate=(corpus[aside], y[aside])),
}
levels = np.array([0.5, 0.6, 0.7, 0.8, 0.9, 0.95])
promised = pd.Index(levels, name="promised")
shares = pd.DataFrame({name: [held(p.interval(level)) for level in levels] for name, p in rules.items()}, promised)
widths = pd.DataFrame(
    {name: [spread * np.diff(p.interval(level)).mean() for level in levels] for name, p in rules.items()}, promised
)
pd.concat({"held": shares, "width in stars": widths}, axis=1).round(2)

# %%
figure, axis = plt.subplots(figsize=(5, 4), layout="constrained")
error = np.sqrt(levels * (1 - levels) / len(test))
axis.fill_between(levels, levels - 2 * error, levels + 2 * error, color="0.9", label="chance, 300 documents")
axis.plot(shares, ".-", label=list(shares))
axis.set(xlabel="promised", ylabel="held")
axis.legend()
plt.show()

# %%
assert (widths["plug-in"] < widths["posterior"]).all()
assert shares["plug-in"].mean() < shares["posterior"].mean()

# %% [markdown]
# The posterior's intervals keep their promise in the middle; the wide ones hold a few in a hundred less, at the edge
# of what chance explains. The plug-in's are narrower at every level and on the whole hold less still. The difference
# is small, because four hundred reviews tell the topics well and most of the width is `sigma`; with fewer documents it
# grows. Calibration moves the widest towards their promise.
#
# **Look at** held and width together: a wide interval holds easily.
#
# **What could be wrong:** two hundred documents set aside tell a share of nine in ten give or take two in a hundred,
# and three hundred test documents judge hardly better. Calibration is right on average over documents, not for each
# kind of them; and if new documents are of another kind, it promises nothing.

# %% [markdown]
# ## 3. Counts
#
# The reviews have no counts, so we make some, and know the truth. We take six topics of the first fit and coefficients
# of our choice, and draw new words and the number of readers who found a review helpful. This is the story of
# `slda_glm` with `response="poisson"`, in NumPy:

# %%
rng = np.random.default_rng(0)
beta = ratings.draws["beta"][0, -1, ::2].astype(float)  # every second topic of the first chain's last draw
eta = np.linspace(-1, 2, 6)

theta = rng.dirichlet(np.full(6, 0.1), 400)  # shares of topics in each document
z = rng.multinomial(corpus.lengths[train], theta)  # how many of its words have which topic
w = rng.multinomial(z, beta / beta.sum(1, keepdims=True)).sum(1)  # how often it has which word
votes = rng.poisson(np.exp(z / z.sum(1, keepdims=True) @ eta))
retold = corpora.Corpus.from_counts(w, corpus.vocabulary)

# %% [markdown]
# The fit sees words and votes alone. A coefficient is now the logarithm of a rate: one more, and votes are 2.7 times as
# many. These coefficients have no conditional in closed form; NUTS draws them, and needs a longer warm-up.

# %%
patient = settings | {"num_topics": 6, "num_warmup": 400}
counts = inference.gibbs(models.slda_glm, retold, votes, response="poisson", **patient)


def recovered(fit):
    """True coefficients beside their posterior; topics have no numbers of their own and are matched by their words."""
    aligned = diagnostics.align(fit)
    print(f"{aligned.alignment.verdict} Share of steps that diverged: {fit.statistics['diverging'].mean():.2f}.")
    _, match = linear_sum_assignment(-np.sqrt(beta) @ np.sqrt(aligned.mean("beta")).T)
    low, high = np.quantile(aligned.draws["eta"], [0.05, 0.95], axis=(0, 1))[:, match]
    terms = [" ".join(corpus.vocabulary[order[:4]]) for order in np.argsort(-beta)]
    columns = {"topic": terms, "truth": eta, "mean": aligned.mean("eta")[match], "low": low, "high": high}
    return pd.DataFrame(columns).assign(held=(low <= eta) & (eta <= high))


coefficients = recovered(counts)
coefficients.round(2)

# %%
assert coefficients["held"].sum() >= 4

# %% [markdown]
# **Look at** the line above the table first. Chains that found other topics have other coefficients. And NUTS fixes its
# steps at the end of the warm-up: a chain whose topics settle only later diverges, stands still, and looks very sure of
# itself. Then look at the widths: a topic that draws a third of a vote is known less well than one that draws seven.
#
# **What could be wrong:** a Poisson count has a variance equal to its mean, and real counts mostly vary more. Then
# coefficients look better known than they are, and intervals of new counts hold less than they promise
# (`diagnostics.scores` tells). `response="negative_binomial"` is the same story with one more parameter, the excess.

# %% [markdown]
# ## 4. Classes
#
# Labels may be strings. We ask for three verdicts, so `eta` has three columns, `outputs=3`, and the response is a
# softmax. (These verdicts have an order, which `response="ordered"` and an ordered `pd.Categorical` would use; softmax
# serves any classes.)

# %%
verdict = np.select([stars < 2.5, stars < 3.5], ["disliked", "mixed"], "liked")
classes = inference.gibbs(models.slda_glm, corpus[train], verdict[train], response="softmax", outputs=3, **settings)
print(diagnostics.diagnose(classes))
said = classes.predict(corpus[test])
pd.DataFrame(said.probabilities, columns=said.classes).assign(label=said.label, truth=verdict[test]).head().round(2)

# %% [markdown]
# Again the verdict first: what follows is about predictions, so it is the sentence on predictions that must hold.

# %%
logistic = GridSearchCV(LogisticRegression(max_iter=500), {"C": [100, 200, 400]}, cv=3, scoring="neg_log_loss")
logistic.fit(words[train], verdict[train])
outcome = verdict[test][:, None] == classes.classes
probabilities = {
    "supervised LDA": said.probabilities,
    "logistic regression on words": logistic.predict_proba(words[test]),
    "shares of the classes": np.tile(np.mean(verdict[train][:, None] == classes.classes, 0), (len(test), 1)),
}
scores = pd.DataFrame({
    name: {
        "accuracy": np.mean(outcome[np.arange(len(test)), p.argmax(1)]),
        "Brier score": np.mean(np.sum((p - outcome) ** 2, 1)),
        "log score": np.mean(np.log(p[outcome])),
    }
    for name, p in probabilities.items()
}).T  # fmt: skip
scores.round(2)

# %% [markdown]
# The last row always names the most frequent class. Accuracy asks whether the most probable class is right; the Brier
# score (lower is better) and the log score (higher is better) also ask whether the probabilities are. So do we: of all
# the times that a class was given about 0.8, did it happen eight times in ten?

# %%
bins = [0, 0.1, 0.3, 0.5, 0.7, 0.9, 1]
reliability = pd.concat({
    name: pd.DataFrame({"said": p.ravel(), "happened": outcome.ravel()})
    .groupby(pd.cut(p.ravel(), bins), observed=True)
    .agg(said=("said", "mean"), happened=("happened", "mean"), times=("said", "size"))
    for name, p in probabilities.items() if name != "shares of the classes"
}, axis=1)  # fmt: skip
reliability.round(2)

# %%
figure, axis = plt.subplots(figsize=(5, 4), layout="constrained")
axis.axline((0, 0), slope=1, color="0.5", linewidth=1)
for name in reliability.columns.unique(0):
    axis.plot(reliability[name, "said"], reliability[name, "happened"], ".-", label=name)
axis.set(xlabel="probability said", ylabel="happened")
axis.legend()
plt.show()

# %%
assert scores["Brier score"].idxmin() == scores["log score"].idxmax() == "supervised LDA"
often = reliability.iloc[4]  # what was given 0.7 to 0.9
assert often["supervised LDA", "happened"] > often["supervised LDA", "said"]
print(f"spread of the coefficients: {classes.draws['eta'].std():.1f}, of their prior: 2")

# %% [markdown]
# Supervised LDA has the better scores, and is too modest: what it gives 0.8 happens more than nine times in ten.
# Logistic regression, tuned for its log score, is nearer the line and knows less.
#
# **Look at** which classes are confused: `pd.crosstab(verdict[test], said.label)`.
#
# **What could be wrong:** the prior. `slda_glm` expects coefficients of about 2, and here the posterior wants more: a
# logit is a sum over topic shares, each a fraction, and has far to go. The prior holds it back, and probabilities are
# drawn towards the middle. If you need them sharp, [edit the story](edit_the_story.ipynb): copy it, and widen the
# prior of `eta`.

# %% [markdown]
# ## 5. Your own response
#
# A response is a function from the linear predictor to a NumPyro distribution, and may draw parameters of its own. Say
# that a quarter of the reviews was never shown to anybody, and nobody noted which. Their votes are zero, whatever they
# say:

# %%
shown = rng.random(400) > 0.25


def shown_or_not(x):
    hidden = numpyro.sample("hidden", dist.Beta(1, 1))
    return dist.ZeroInflatedPoisson(hidden, jnp.exp(x))


own = inference.gibbs(models.slda_glm, retold, np.where(shown, votes, 0), response=shown_or_not, **patient)
own.info["blocks"]

# %% [markdown]
# The topic sweep reads the new response from the story, and NUTS draws its parameter together with the coefficients.

# %%
low, high = np.quantile(own.draws["hidden"], [0.05, 0.95])
print(f"hidden: {np.mean(~shown):.2f} in truth; 90% interval from {low:.2f} to {high:.2f}")
with_hidden = recovered(own)
with_hidden.round(2)

# %%
assert with_hidden["held"].sum() >= 4
assert (with_hidden["high"] - with_hidden["low"]).mean() > (coefficients["high"] - coefficients["low"]).mean()

# %% [markdown]
# **Look at** the coefficients beside those of section 3: most of the truth is found again, with wider intervals, since
# a quarter of the votes is gone and it is not known which.
#
# **What could be wrong:** a zero of a dull review and a zero of a hidden one look alike. What tells them apart is that
# topics with many votes should have no zeros; were all rates low, `hidden` and the coefficients could trade against
# each other, and the prior would decide. Before you trust a response of your own, `inference.check` compares every
# step of the sampler with it ([edit the story](edit_the_story.ipynb) shows how).
