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
# # Did it converge? Labels, traps, calibration
#
# Chains of a topic model differ for three reasons, and only one of them is harmless. Topics have no numbers, so that
# chains count them differently: labels. Chains stay where they started, in different ways to divide the words among
# topics: traps. And a sampler may draw from the wrong distribution, in which case all chains agree and are wrong: that
# is what calibration is for.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from arviz_stats import rhat

from topiczoo import corpora, diagnostics, inference, models
from topiczoo.inference import register_block, unregister_block
from topiczoo.inference.blocks.conjugate import GaussianBlock

corpus, stars = corpora.load_reviews(seed=0, num_documents=400)
y = (stars - stars.mean()) / stars.std()
settings = {"gamma": 0.05, "num_warmup": 150, "num_samples": 200, "num_chains": 3, "progress_bar": False}

# %% [markdown]
# ## 1. Labels
#
# Supervised LDA with ten topics, three chains. First the coefficient of "topic 0" as each chain counts, then after
# `diagnostics.align`, which renumbers the topics of every chain so that those with the same words have the same number.

# %%
ten = inference.gibbs(models.slda, corpus, y, num_topics=10, **settings)
aligned = diagnostics.align(ten)
figure, axes = plt.subplots(1, 2, figsize=(10, 3), sharey=True, layout="constrained")
for axis, (name, fit) in zip(axes, {"as drawn": ten, "aligned": aligned}.items(), strict=True):
    drawn = fit.draws["eta"][..., 0]
    for chain, line in enumerate(drawn):
        axis.plot(line, linewidth=0.8, label=f"chain {chain}")
    axis.set(title=f"topic 0, {name}: R-hat {float(rhat(drawn)):.2f}", xlabel="draw", ylabel="coefficient")
axes[0].legend()
plt.show()
print(aligned.alignment.verdict)

# %% [markdown]
# On the left each line rests at a value of its own, because each is about another topic; R-hat, which compares the
# lines, is far above 1. On the right they lie on each other. Nothing was sampled in between. So never read R-hat of
# coefficients, topics or proportions off draws that were not aligned. What does not depend on numbers, such as `sigma`
# or a prediction, needs no alignment.
#
# ## 2. Traps
#
# Now the same reviews with seven topics. They speak of five sides of a visit, each praised or blamed, which seven
# topics cannot hold: some must share, and there are many ways to choose which.

# %%
seven = inference.gibbs(models.slda, corpus, y, num_topics=7, **settings)
verdicts = {"10 topics": diagnostics.diagnose(ten), "7 topics": diagnostics.diagnose(seven)}
for name, diagnosis in verdicts.items():
    print(f"{name}. {diagnosis}\n")

# %% [markdown]
# The line that begins with "What to do" is the library's advice for each. To see what it speaks of, compare the topics
# of two chains word by word, and look at the log joint density along each chain.

# %%
figure, axes = plt.subplots(2, 2, figsize=(10, 6), layout="constrained")
for row, (name, diagnosis) in zip(axes, verdicts.items(), strict=True):
    first, second = (diagnosis.fit.topic_terms(chain) for chain in (0, 1))
    like = np.sqrt(first) @ np.sqrt(second).T
    shown = row[0].imshow(like, vmin=0, vmax=1, cmap="Blues")
    row[0].set(title=f"{name}: likeness of topics", xlabel="topic of chain 1", ylabel="topic of chain 0")
    for chain, line in enumerate(diagnosis.fit.statistics["lp"]):
        row[1].plot(line, linewidth=0.8, label=f"chain {chain}")
    row[1].set(title=f"{name}: log joint density", xlabel="draw", ylabel="log joint density")
    figure.colorbar(shown, ax=row[0])
axes[0, 1].legend()
plt.show()

# %% [markdown]
# With ten topics the diagonal is dark: each topic of one chain is a topic of the other, and the traces of the density
# are mixed. With seven parts of the diagonal are pale: what is one topic in one chain is two halves in the other, or
# nowhere. Longer chains do not mend that. To leave, thousands of words would have to change their topic one by one,
# through states that are far less probable. Mind that the density gives no warning: it may be level with the others
# while the topics differ.
#
# What can be done, most useful first:
#
# - another number of topics (`diagnostics.compare_topics`; [your own CSV](your_own_csv.ipynb) shows it), or more
#   documents;
# - take what holds. Chains that disagree about topics often predict alike: that is what the verdict on predictions is
#   about;
# - let chains count by how well they predict, `fit.predict(new, chains="stacked")`;
# - more chains, to see how many ways there are. Never pick the chain with the nicest topics and forget the others.

# %%
for name, diagnosis in verdicts.items():
    said = diagnosis.reliance.loc["predictions"]
    print(f"{name}, predictions: {said['grade']} ({said['why']})")

# %% [markdown]
# ## 3. Calibration
#
# Chains that agree may agree on something wrong. The test: draw parameters from the prior and documents given them,
# fit, and ask at which place among the posterior's draws the true value lies. Over many such simulations every place
# is equally probable, if the draws are from the posterior. `calibrate` does it, many small corpora side by side, for
# quantities that do not depend on the numbers of topics.

# %%
shape = corpora.Corpus.from_counts(
    np.random.default_rng(0).poisson(1.0, (6, 5)) + 1
)  # lends lengths and number of terms
small = {"num_topics": 2, "alpha": 0.5, "gamma": 0.5, "num_simulations": 160, "num_draws": 31, "num_warmup": 100}
small |= {"thinning": 4, "progress_bar": False}
right = diagnostics.calibrate(models.slda, shape, "gibbs", **small)
right.plot()
plt.show()

# %% [markdown]
# Above, how often the truth came in at each place: flat but for chance. Below, the same summed up, with a band that a
# right sampler leaves once in a hundred times. And this is what it looks like when something is wrong. We register a
# block that draws coefficients with half of their posterior's spread, a mistake that no trace and no R-hat would
# show:


# %%
@register_block
class TooSure(GaussianBlock):
    label = "too sure"

    def draw(self, key, values, data):
        conditional, unravel = self.conditional(values, data)
        return unravel(conditional.mean + 0.5 * (conditional.sample(key) - conditional.mean)), {}


wrong = diagnostics.calibrate(models.slda, shape, "gibbs", **small)
unregister_block(TooSure)
wrong.plot()
plt.show()

# %% [markdown]
# Red is what fails. Look at the quantities of eta: the truth is too often at either end of the draws, which are too
# narrow. And one mistake spreads: sigma, drawn right but given these coefficients, is shifted, with the truth far too
# often above all of its draws. (A heap in the middle would say that draws are too wide.) In numbers, with the share of right
# samplers that would look as bad (`p`) and the spread of the ranks (1 if it is right, more if draws are too narrow):

# %%
pd.concat(
    {"right": right.table[["p", "spread", "passes"]], "wrong": wrong.table[["p", "spread", "passes"]]}, axis=1
).round(3)

# %% [markdown]
# Would `inference.check` have seen it? No: the block's density is right and only its draws are wrong. The two belong
# together. benchmarks/calibration.md has both for every story and engine of the library; for a story of your own, call
# them yourself, and `diagnostics.geweke` beside them.
