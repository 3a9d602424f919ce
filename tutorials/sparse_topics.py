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
# # Which topics matter, and how sure are we?
#
# A topic model of reviews finds topics about food, service, parking and the weather. Which of them move the rating? A
# sparse supervised topic model puts a Laplace prior on the coefficients: most topics are drawn to zero, and topics and
# coefficients are found together, so that what matters for the response is gathered in few topics.
#
# No posterior draw of a coefficient is exactly zero. "Selected" is therefore a decision made after the fit, and we look at
# three ways to make it and at what each costs.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.linear_model import LassoCV

from topiczoo import corpora, diagnostics, inference, models

corpus, stars = corpora.load_reviews(seed=0, num_documents=900)
train, test = np.arange(500), np.arange(500, 900)
y = (stars - stars[train].mean()) / stars[train].std()
settings = {"num_topics": 20, "gamma": 0.05, "num_warmup": 250, "num_samples": 150, "progress_bar": False}

# %% [markdown]
# ## 1. The story
#
# `sstm` is supervised LDA with `eta ~ Laplace(0, nu)`. The scale `nu` is drawn too, so that the data say how sparse the
# coefficients are. Nothing in the story speaks of inference: the engine finds that a Laplace is a normal with an
# exponential variance, draws these variances from inverse Gaussians, and then all coefficients at once.

# %%
fit = inference.gibbs(models.sstm, corpus[train], y[train], **settings)
pd.Series(fit.info["blocks"], name="drawn by")

# %% [markdown]
# ## 2. Which topics count
#
# The default rule steps from nothing towards the fit's own predictions, a topic at a time, and stops when they are nearly
# all explained. The kept coefficients are shown with the posterior's mean and interval beside them.

# %%
chosen = fit.select("projection")
print(chosen)
chosen.frame(6).query("kept").round(2)

# %% [markdown]
# And some of those that do not count:

# %%
chosen.frame(6).query("not kept").head(4).round(2)

# %% [markdown]
# How sure are we? Two answers. Within one chain: the interval of each coefficient above. Between chains: whether another
# chain, started elsewhere, keeps topics of the same words.

# %%
other = fit.select("projection", chain=1 - chosen.chain)


def words(selection, n=10):
    return [set(terms.split()) for terms in selection.frame(n).query("kept")["terms"]]


found = [max(len(mine & theirs) for theirs in words(other)) for mine in words(chosen)]
pd.Series(
    found,
    index=chosen.frame(4).query("kept")["terms"],
    name="of 10 leading words also lead a topic kept in the other chain",
)

# %% [markdown]
# ## 3. What sparsity costs
#
# Error on unseen reviews against the number of topics kept, by each rule. Where a curve is flat, further topics add nothing.

# %%
figure, axis = plt.subplots(figsize=(7, 3))
for rule in ("largest", "interval", "projection"):
    errors = fit.select(rule, keep=1, chain=chosen.chain).errors(corpus[test], y[test])
    axis.plot(errors["kept"], errors["error"], marker=".", label=rule)
axis.set(xlabel="topics kept", ylabel="mean squared error", ylim=(0, None))
axis.legend()
plt.show()

# %% [markdown]
# The usual way is a pipeline: topics first, from the words alone, then the lasso on their shares. Its topics do not know
# what they will be asked for.

# %%
lda = inference.gibbs(models.lda, corpus[train], **settings)
shares = lda.transform(corpus[train]), lda.transform(corpus[test])
lasso = LassoCV(cv=5).fit(shares[0], y[train])
kept = int((lasso.coef_ != 0).sum())
errors = fit.select("projection", keep=1, intercept=True, chain=chosen.chain).errors(corpus[test], y[test])["error"]
pd.DataFrame({
    "topics kept": [kept, kept, int(chosen.kept.sum())],
    "error": [np.mean((lasso.predict(shares[1]) - y[test]) ** 2), errors[kept], errors[int(chosen.kept.sum())]],
}, index=["LDA, then lasso", "sstm, as many topics", "sstm, as many as it keeps"]).round(3)  # fmt: skip

# %% [markdown]
# On these reviews the pipeline need not be behind: words alone tell their topics well. What the sparse story adds is the
# row of few topics, and that coefficients come with what is not known of them and of the topics.
#
# ## 4. Other priors are other lines of the story
#
# `prior="spike_and_slab"` or `"horseshoe"` change how coefficients are drawn to zero, and a function of yours does too. Here
# two classes, good reviews and others, by a probit response with spike and slab:

# %%
good = np.where(stars >= 4, "good", "not good")
classes = inference.gibbs(
    models.sstm, corpus[train], good[train], response="probit", prior="spike_and_slab", **settings
)
picked = classes.select("projection")
print(picked, "- error on unseen reviews", np.mean(picked.predict(corpus[test]).label != good[test]))
picked.frame(6).query("kept").round(2)

# %% [markdown]
# The report has all this on one page: `diagnostics.report(fit, "report.html", test=corpus[test], y_test=y[test])`. What it
# says of convergence comes first, since nothing above means much if chains have not settled:

# %%
print(diagnostics.diagnose(fit))

# %% [markdown]
# Twenty topics are more than these reviews have, and chains may spend the surplus differently. A topic in which they differ
# is one chain's account, kept or not: `diagnostics.align(fit).alignment.topics` says which these are, and the comparison
# in section 2 is about the same thing. Predictions, and so the curves of section 3, are another matter.
