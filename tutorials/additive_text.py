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
# # Words of a label, words of a topic, and words of both
#
# A topic of LDA is a whole distribution over the vocabulary: it learns anew how often people say "the". SAGE (Eisenstein,
# Ahmed & Xing 2011) learns only how a topic or a label *deviates* from the background, in log-frequencies, and for most
# terms the deviation is exactly 0. Deviations add up, so that a word may be said because of the topic, because of the label,
# or because of both, without a switch for each word.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from sklearn.naive_bayes import MultinomialNB

from topiczoo import corpora, inference, models
from topiczoo.models import draw_words

quiet = {"progress_bar": False}
# simulated reviews that are of one mind: all they speak of, food, service, price, waiting or the place, is praised or blamed
_, _, reviews = corpora.load_reviews(num_documents=5000, return_aspects=True)
polarity = reviews.filter(like="polarity")
reviews = reviews[polarity.sum(axis=1).abs() == polarity.abs().sum(axis=1)]
corpus = corpora.Corpus.from_texts(reviews["text"], min_df=5)  # "the" and its like are left in
mood = np.where(reviews.filter(like="polarity").sum(axis=1) > 0, "pleased", "cross")
train, test = np.arange(1000), np.arange(1000, len(corpus))
background = models.background(corpus[train])
print(f"{len(corpus)} reviews, {corpus.num_tokens} words, {corpus.num_terms} terms")

# %% [markdown]
# ## 1. Words of a label
#
# `sage_nb` is naive Bayes: a class has a deviation for each term. The paper's prior of a deviation is 1 / |deviation|, which
# has no parameter to choose and pulls small deviations to 0.

# %%
of_moods = {"background": background, "outputs": 2, "prior": "jeffreys"}
labels = inference.vem(models.sage_nb, corpus[train], mood[train], **of_moods, **quiet)
told = labels.predict(corpus[test], rule="plug-in")
print(f"{models.share_of_zeros(labels.means['deviation']):.0%} of the deviations are 0")
print(f"right: {np.mean(told.label == mood[test]):.3f}")
labels.deviations("deviation", 8).pivot(index="rank", columns="label", values="term")

# %% [markdown]
# With few reviews to learn from, what matters is how terms are treated that were seen once or twice. Beside it the Laplace
# prior, which pulls a deviation to 0 by the same amount wherever it is, and naive Bayes with a fixed amount of smoothing.

# %%
rng, rows = np.random.default_rng(0), {}
for size in (10, 20, 50, 150, 1000):
    some = rng.permutation(train)[:size]
    story, rows[size] = {"background": models.background(corpus[some]), "outputs": 2}, {}
    for prior in ("jeffreys", "laplace"):
        fit = inference.vem(models.sage_nb, corpus[some], mood[some], prior=prior, **story, **quiet)
        rows[size][f"SAGE, {prior}"] = np.mean(fit.predict(corpus[test], rule="plug-in").label == mood[test])
    naive = MultinomialNB(alpha=0.1, fit_prior=False).fit(corpus[some].counts, mood[some])
    rows[size]["naive Bayes"] = naive.score(corpus[test].counts, mood[test])
pd.DataFrame(rows).T.rename_axis("reviews").round(3)

# %% [markdown]
# A warning, then: with two classes and a few dozen reviews the parameter-free prior keeps next to nothing. A term that one
# class has said three times and the other never is no evidence to it, for under the background each would have said it once
# or twice. The more classes, the rarer a term is expected in each, and the less there is of this: on twenty newsgroups it is
# level with a well chosen smoothing (benchmarks/results.md). So the Laplace prior is the default of `sage_nb`.
#
# ## 2. Words of a topic
#
# `sage_topics` is LDA with deviations in the place of topics. By their probability LDA's topics all begin with the same
# words; the library's own order (relevance) goes a part of the way around that, after the fit. SAGE has it in the story:
# its topics are shown by their deviations, which these words do not have.

# %%
sizes = {"num_topics": 5, "seed": 3, "num_iterations": 100, **quiet}
plain = inference.vem(models.lda, corpus[train], **sizes)
topics = inference.vem(models.sage_topics, corpus[train], background=background, **sizes)
pd.DataFrame({
    "LDA, by probability": plain.topics(6, by="probability").groupby("topic")["term"].agg(" ".join),
    "LDA, by relevance": plain.topics(6).groupby("topic")["term"].agg(" ".join),
    "SAGE": topics.deviations("deviation", 6).groupby("topic")["term"].agg(" ".join),
})  # fmt: skip

# %% [markdown]
# ## 3. Words of both
#
# `sage_facets` has both, and a third kind of deviation for each pair of topic and label. Reviews speak of sides of a visit
# (topics) in a mood (label); how one is cross about the waiter is not how one is cross about the soup.
#
# Topics of the two labels could be paired in any way, and variational EM keeps the pairing it falls into. Under a proper
# prior bounds can be compared: start several times and keep the best.

# %%
story = {"background": background, "outputs": 2, "num_topics": 5, "prior": "laplace", "scale": 0.1}
starts = [
    inference.vem(models.sage_facets, corpus[train], mood[train], seed=seed, num_iterations=100, **story, **quiet)
    for seed in range(6)
]
facets = max(starts, key=lambda fit: fit.info["bound"][-1])
print("bounds:", *sorted(round(fit.info["bound"][-1]) for fit in starts))
joint = facets.deviations("joint_deviation", 4).pivot_table(
    index="topic", columns="label", values="term", aggfunc=" ".join
)
pd.concat({
    "topic": facets.deviations("topic_deviation", 5).groupby("topic")["term"].agg(" ".join),
    **{f"topic and {label}": joint[label] for label in joint},
}, axis=1)  # fmt: skip

# %% [markdown]
# The nouns of a side of the visit are the topic's, for they serve both moods; praise and blame of it are words of both. What
# is left for the label alone is little: what a mood says whatever it speaks of. Do the topics follow the sides that the
# reviews were made of?

# %%
sides = reviews.filter(like="share").iloc[train]
likeness = np.corrcoef(facets.means["theta"][0].T, sides.to_numpy().T)[:5, 5:]
pd.DataFrame(likeness, columns=sides.columns.str.removesuffix("_share")).rename_axis("topic").round(2)

# %% [markdown]
# A topic that follows a side has a number near 1 in its row. Where two rows share two sides instead, these are paired
# crosswise, one's praise with the other's blame. The bound is a judge between starts, and no promise that the best is
# among them.
#
# How many terms deviate at all? Few, and the finer the facet, the fewer. The mood of a new review is told from its words by
# Bayes' rule, with its topics unknown.

# %%
fig, axis = plt.subplots(figsize=(6, 2.6), layout="constrained")
for name in ("topic", "label", "joint"):
    size = np.sort(np.abs(facets.means[f"{name}_deviation"]).ravel())[::-1]
    axis.plot(np.arange(1, len(size) + 1) / len(size), size, label=f"{name}: {np.mean(size < 1e-3):.0%} are 0")
axis.set(xlabel="share of the deviations, largest first", ylabel="|deviation|", xlim=(0, 1))
axis.legend()
plt.show()
print(f"right: {np.mean(facets.predict(corpus[test], rule='plug-in').label == mood[test]):.3f}")

# %% [markdown]
# ## 4. Edit the story
#
# Without interactions the story is shorter by a line. `draw_words` takes the label and topics of each label; the engine
# finds out by itself what is added to what.


# %%
def topics_and_labels(corpus, y=None, *, background, outputs, num_topics=5):
    deviations = dist.Laplace(0, 0.1).expand([corpus.num_terms]).to_event(1)
    with numpyro.plate("topics", num_topics, dim=-1):
        topic = numpyro.sample("topic_deviation", deviations)
    with numpyro.plate("labels", outputs, dim=-2):
        label = numpyro.sample("label_deviation", deviations)
    with numpyro.plate("documents", corpus.num_documents):
        y = numpyro.sample("y", dist.Categorical(jnp.full(outputs, 1 / outputs)), obs=y)
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(num_topics, 0.1)))
    draw_words(corpus, theta, jax.nn.softmax(background + topic + label), label=y)


shorter = inference.vem(
    topics_and_labels, corpus[train], mood[train], background=background, outputs=2, num_iterations=100, **quiet
)
shorter.deviations("topic_deviation", 8).groupby("topic")["term"].agg(" ".join).to_frame("topic")

# %% [markdown]
# Topics now mix praise and blame, or are of one mood: there is no other place for the words of both.

# %% [markdown]
# ## 5. How sure is a deviation?
#
# The fits above are point estimates. Under 1 / |deviation| there is nothing else: the posterior is improper at 0, and the
# engines that draw from it say so.

# %%
try:
    inference.nuts(models.sage_nb, corpus[train], mood[train], **of_moods)
except ValueError as refusal:
    print(refusal)

# %% [markdown]
# Under a Laplace prior there is a posterior. For 40 terms that are neither rare nor said by everybody:

# %%
often = np.argsort(-np.asarray(corpus[train].counts.sum(0)).ravel())[40:80]
small = corpora.Corpus.from_counts(corpus[train].counts[:, often], corpus.vocabulary[often], empty="keep")
said = small.lengths > 0
small, mood_of = small[said], mood[train][said]
story = {"background": models.background(small), "outputs": 2, "prior": "laplace", "scale": 0.5}
drawn = inference.nuts(models.sage_nb, small, mood_of, num_warmup=300, num_samples=300, **story, **quiet)
mode = inference.vem(models.sage_nb, small, mood_of, **story, **quiet).means["deviation"][0]
gap = drawn.draws["deviation"][:, :, 1] - drawn.draws["deviation"][:, :, 0]
low, middle, high = np.quantile(gap, [0.05, 0.5, 0.95], axis=(0, 1))
order = np.argsort(middle)
fig, axis = plt.subplots(figsize=(5, 7))
axis.hlines(np.arange(40), low[order], high[order], color="0.6", label="90% of the draws")
axis.plot((mode[1] - mode[0])[order], np.arange(40), ".", label="estimate of vem")
axis.set(yticks=np.arange(40), yticklabels=small.vocabulary[order], xlabel="pleased − cross, log-frequency")
axis.axvline(0, color="0.8", zorder=0)
axis.legend()
plt.show()

# %% [markdown]
# An estimate of 0 is not the knowledge that a term does not differ, and one away from 0 may have an interval that holds 0: a
# point estimate alone says more than the reviews tell.
