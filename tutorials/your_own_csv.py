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
# # Your own CSV: from choosing K to trusting it
#
# You have a file with a column of texts, a column of numbers, and perhaps a column of something else that you know of
# each text. You want to know what the texts are about, what of it goes with the numbers, and how far to believe it.
# This is the whole way, on a file as awkward as files are: read it, choose the number of topics, fit, ask whether the
# fit can be trusted, and only then read topics, coefficients and predictions.

# %%
import csv
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from topiczoo import corpora, diagnostics, inference, models

# %% [markdown]
# ## The file
#
# The next cell only makes the file, and you would not have it. It holds 600 of the simulated restaurant reviews that
# come with the library, as a spreadsheet of a German office would save them: semicolons between cells, decimal commas,
# an old encoding, quotes and line breaks inside texts, empty cells. And it has a column `takeaway`: those meals were
# rated half a star lower, whatever was said of them. We keep that in mind to see whether the fit finds it.

# %%
_, stars, reviews = corpora.load_reviews(seed=0, num_documents=600, return_aspects=True)
rng = np.random.default_rng(0)
takeaway = rng.random(len(reviews)) < 0.3
stars = np.clip(stars - 0.5 * takeaway, 1, 5).round(1)
blank_text, blank_stars = rng.choice(len(reviews), 12, replace=False), rng.choice(len(reviews), 20, replace=False)
with open("reviews.csv", "w", newline="", encoding="latin-1") as file:
    table = csv.writer(file, delimiter=";")
    table.writerow(["id", "restaurant", "review", "stars", "takeaway"])
    for row, text in enumerate(reviews["text"]):
        text = text.replace(". ", '. "Never mind; next time", he said.\n', 1) if row % 20 == 3 else text
        shown = "NA" if row in blank_stars else f"{stars[row]:.1f}".replace(".", ",")
        text = "" if row in blank_text else text
        table.writerow([f"r{row:03}", "Café Müller" if row % 2 else "Café Noë", text, shown, int(takeaway[row])])
print("\n".join(Path("reviews.csv").read_text(encoding="latin-1").splitlines()[:7]))

# %% [markdown]
# ## Read it
#
# `corpora.read` finds out the rest by itself and, with `tell=print`, says what it found. `empty="drop"` leaves out
# rows without any words; rows without stars stay, since their words still tell what topics there are.
# `keep_texts=True` keeps the texts, to be read beside their topics later. What comes last goes to scikit-learn's
# `CountVectorizer`: common words of the language, words of fewer than three reviews and words of more than four in ten
# are left out.

# %%
corpus, stars = corpora.read(
    "reviews.csv", text="review", y="stars", names="id", covariates=["takeaway"], empty="drop", keep_texts=True, tell=print,
    stop_words="english", min_df=3, max_df=0.4,
)  # fmt: skip
print(corpus)
print(f"{corpus.num_dropped} rows without words were left out; {np.isnan(stars).sum()} of the others have no stars")

# %% [markdown]
# Look at the counts before any model does. Documents of very few words say little about their topics; a term that
# leads this list and says nothing belongs among the words to leave out (`max_df`, `stop_words`).

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
left.hist(corpus.lengths, bins=20, color="#3b6ea5")
left.set(xlabel="words of a review, after counting", ylabel="reviews")
often = pd.Series(np.asarray(corpus.counts.sum(0)).ravel(), corpus.vocabulary).nlargest(12)[::-1]
right.barh(often.index, often, color="#3b6ea5")
right.set(xlabel="occurrences", title="most frequent terms")
plt.show()

# %% [markdown]
# No review is nearly empty, and no term is far ahead of the others.
#
# Some reviews are put away now, and nothing below is chosen by them. The stars are brought to mean 0 and standard
# deviation 1 by the others, for that is what the priors of the story expect.

# %%
order = np.random.default_rng(1).permutation(len(corpus))
train, test = np.sort(order[150:]), np.sort(order[:150])
centre, spread = np.nanmean(stars[train]), np.nanstd(stars[train])
y = (stars - centre) / spread

# %% [markdown]
# ## How many topics?
#
# `slda_glm` is supervised LDA: each review has shares of topics, and the stars follow from the shares and from
# `takeaway`. `compare_topics` fits it with several numbers of topics to four fifths of the training reviews, and
# predicts the stars of the last fifth. It names the smallest number that is not told from the best: more topics than
# that cannot hurt much, but there is more to read.

# %%
story = {"response": "normal", "covariates": ["takeaway"], "gamma": 0.05}
numbers = diagnostics.compare_topics(
    models.slda_glm, corpus[train], y[train], [5, 10, 15], num_warmup=100, num_samples=50, num_chains=2, most_draws=4,
    progress_bar=False, **story,
)  # fmt: skip
numbers.plot()
plt.show()

# %% [markdown]
# The red line marks the choice, and the sentence on top says what it rests on. To its left held-out stars are
# predicted worse, by more than the bars; to its right there is nothing to gain. `agreement` is the share of words in
# topics that both chains have found: a second opinion, and a hint of what the verdict below will say.
#
# ## Fit
#
# Two chains, each from a start of its own: only another chain can tell what a chain has missed. Four tell more, and
# take twice the time.

# %%
fit = inference.gibbs(
    models.slda_glm, corpus[train], y[train], num_topics=numbers.best, num_warmup=200, num_samples=400, num_chains=2,
    progress_bar=False, **story,
)  # fmt: skip
diagnosis = diagnostics.diagnose(fit)
print(diagnosis)

# %% [markdown]
# **Read the verdict before anything else.** It speaks of topics, coefficients and predictions apart, for chains that
# have found different topics often predict alike. Where it says "do not rely", what follows of that kind is not to be
# read; where it says "with care", it says why and what would help. The reasons are in a table:

# %%
diagnosis.checks[["about", "value", "threshold", "passes"]]

# %% [markdown]
# ## What the topics are about
#
# The verdict has matched the topics of the chains; `diagnosis.fit` is the fit with its topics numbered alike. The
# terms of a topic are those that are frequent in it and more so than elsewhere (`by="relevance"`). With
# `by="probability"` the order is by frequency alone, and with `by="frex"` it goes furthest towards terms that no other
# topic has.

# %%
fit = diagnosis.fit
pd.DataFrame({
    by: fit.topics(6, by=by).groupby("topic")["term"].agg(" ".join) for by in ("relevance", "probability", "frex")
})  # fmt: skip

# %% [markdown]
# Terms alone are guesses; read the reviews that have most of a topic before you give it a name.

# %%
effects = fit.effects()
best = effects.dropna(subset="topic").nlargest(1, "mean")["topic"].item()
worst = effects.dropna(subset="topic").nsmallest(1, "mean")["topic"].item()
for topic in (best, worst):
    for line in fit.documents(topic, n=2).itertuples():
        print(f"topic {topic}, {line.document}, share {line.share:.2f}: {line.text[:230]} ...\n")

# %% [markdown]
# A name stands in the place of the number from here on, in tables, figures and the report.

# %%
fit = fit.rename({int(best): "most praised", int(worst): "most blamed"})

# %% [markdown]
# ## What goes with the stars
#
# A coefficient is the rating, in standard deviations from the mean, of a review that speaks of nothing but the topic.
# The one of `takeaway` is in the same table; in stars it should be near the half star that we took away.

# %%
effects = fit.effects(n=4)
slope = effects[effects["covariate"] == "takeaway"].iloc[0]
low, high = spread * slope["low"], spread * slope["high"]
print(f"takeaway: {spread * slope['mean']:.2f} stars, 90% interval from {low:.2f} to {high:.2f}")
effects.drop(columns="chain").round(2)

# %%
diagnostics.plot_coefficients(fit, "eta")
plt.show()

# %% [markdown]
# Each line is a 90% interval, one colour a chain. Lines that lie on each other say that the chains agree on that
# coefficient; a row whose colours stand apart is one to leave alone. Intervals that cross 0 belong to topics that say
# nothing clear of the rating.

# %%
diagnostics.plot_topic_map(fit)
plt.show()

# %% [markdown]
# Near each other are topics that use the same words, a large circle has many words, and its colour is the coefficient.
# Praise and blame of the same side of a visit share nouns, so they lie nearer to each other than to the rest where the
# plane has room for it.
#
# ## Predict
#
# Now the reviews that were put away, in stars. `interval` is of the rating itself, not of its mean.

# %%
prediction = fit.predict(corpus[test])
known = ~np.isnan(y[test])
low, high = prediction.interval(0.9)[known].T
error = np.mean((prediction.mean[known] - y[test][known]) ** 2) / np.var(y[test][known])
held = np.mean((low <= y[test][known]) & (y[test][known] <= high))
print(f"{known.sum()} reviews with stars: R^2 {1 - error:.2f}; of their ratings {held:.0%} are in the 90% intervals")
(centre + spread * prediction.frame(0.9)).assign(stars=stars[test]).head().round(1)

# %%
diagnostics.plot_predictions(prediction, y=y[test])
plt.show()

# %% [markdown]
# A line that meets the diagonal holds the truth. About one in ten should miss it; were it many more, the intervals
# would promise too much, and `fit.predict(..., calibrate=(documents, responses))` would widen them.
#
# A text that arrives tomorrow is counted with the terms of the fit. Terms that it has never seen are left out.

# %%
arrived = corpora.Corpus.from_texts(
    ["The waiter was rude and ignored us, and the bill was outrageous.", "Delicious soup, friendly waiters, a cosy room."],
    vocabulary=corpus.vocabulary, covariates={"takeaway": [0, 0]},
)  # fmt: skip
(centre + spread * fit.predict(arrived).frame(0.9)).round(1)

# %% [markdown]
# Short texts have wide intervals: a dozen words leave open what a review of a hundred would be about.
#
# ## The report
#
# All of this, with the documents and their words coloured by topic, in one file to send to somebody else. It begins
# with the verdict.

# %%
page = diagnostics.report(fit, "report.html", test=corpus[test], y_test=y[test], progress_bar=False)
print(f"{page.name}: {page.stat().st_size / 1e6:.1f} MB")

# %% [markdown]
# The same from the shell, with no line of Python:
#
#     topiczoo compare slda reviews.csv numbers.csv --text review --y stars --id id --standardise --topics 5,10,15
#     topiczoo fit slda reviews.csv fit.nc --text review --y stars --id id --standardise --set num_topics=10
#     topiczoo report fit.nc --out report.html
#
# Where to go from here: [did it converge](did_it_converge.ipynb) when the verdict is not what you hoped for; [topics
# or predictions](topics_or_predictions.ipynb) when predictions are what you are after; [edit the
# story](edit_the_story.ipynb) when no story of the zoo is yours.
