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
# # From a notebook to a GPU
#
# You have tried a story on a few hundred documents in a notebook, and now there are a million. What has to change? In
# the code: nothing. This notebook runs on whatever JAX finds, measures what a fit costs here, and says what to expect
# elsewhere. Figures of a GPU below are not from this notebook: they are from benchmarks/results.md, with the command
# that made them.

# %%
import time

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from topiczoo import corpora, inference, models

print(f"JAX {jax.__version__} finds {jax.device_count()} device(s): {jax.devices()[0].platform}")

# %% [markdown]
# ## The same code
#
# `pip install "jax[cuda12]"` on a machine with an NVIDIA card, and `jax.devices()` names it; then the same call runs
# there. `fit.info` tells what has served, whatever the machine: keep it beside your results.

# %%
corpus, stars = corpora.load_reviews(seed=0, num_documents=2000)
y = (stars - stars.mean()) / stars.std()
settings = {"num_topics": 20, "gamma": 0.05, "start": "random", "num_chains": 1, "progress_bar": False}


def fitted(size, seed=0, *, num_samples):
    """A fit to the first documents, and its seconds."""
    start = time.perf_counter()
    fit = inference.gibbs(
        models.slda, corpus[:size], y[:size], num_warmup=5, num_samples=num_samples, seed=seed, **settings
    )
    return fit, time.perf_counter() - start


fit, first = fitted(2000, num_samples=50)
again, second = fitted(2000, 1, num_samples=50)
for name in ("platform", "devices", "sweep", "versions"):
    print(f"{name}: {fit.info[name]}")
print(f"seconds of the first fit: {first:.1f}; of a second one with another seed: {second:.1f}")

# %% [markdown]
# Two lines to read. `sweep` says what draws the topics of words, where nearly all of the time goes: plain JAX, machine
# code that `inference.compile_sweep()` has built (a C++ compiler is all it needs), or on a GPU one kernel into which
# the response of your story is compiled. Where a response cannot be made a part of that kernel, plain JAX serves, and
# the line says why.
#
# And the last line: a first fit compiles, a second one of the same shapes does not. Compiled programs are kept on the
# disk, too (`TOPICZOO_CACHE=FOLDER`): point it at a folder that outlives the job where machines come and go.
#
# ## What it costs
#
# The cost of a sweep is in proportion to the words. So measure a small part, and multiply. Each size is fitted with
# two numbers of sweeps, and the difference is what the additional sweeps took: compiling and all that is done once
# drop out. (The machine that made this page had other work to do: its figures are upper bounds.)

# %%
short, long, rows = {"num_samples": 20}, {"num_samples": 80}, []
for size in (500, 1000, 2000):
    fitted(size, **short), fitted(size, **long)  # compile
    few = min(fitted(size, seed, **short)[1] for seed in range(1, 6))
    many = min(fitted(size, seed, **long)[1] for seed in range(1, 6))
    tokens = corpus[:size].num_tokens
    rows.append(
        {
            "documents": size,
            "tokens": tokens,
            "seconds a sweep": max(many - few, 1e-3) / (long["num_samples"] - short["num_samples"]),
        }
    )
cost = pd.DataFrame(rows).assign(**{"tokens a second": lambda t: t["tokens"] / t["seconds a sweep"]})
cost.round({"seconds a sweep": 4, "tokens a second": -3})

# %%
# whole iterations of a Gibbs chain on one H200, 66 million tokens (benchmarks/results.md, 2026-11-18, benchmarks/gpu.py)
published = pd.DataFrame(
    [
        ("sLDA, 50 topics", 5.90e9),
        ("LDA, 50 topics", 8.03e9),
        ("sLDA, 200 topics", 2.68e9),
        ("LDA, 1000 topics", 1.13e9),
    ],
    columns=["story", "tokens a second"],
)
published["seconds a sweep"] = 65_980_920 / published["tokens a second"]
figure, axis = plt.subplots(figsize=(6.5, 4), layout="constrained")
axis.loglog(cost["tokens"], cost["seconds a sweep"], "o-", color="#3b6ea5", label="here, sLDA with 20 topics")
here = cost["tokens a second"].iloc[-1]
reach = np.array([cost["tokens"].iloc[-1], 65_980_920])
axis.loglog(reach, reach / here, ":", color="#3b6ea5", label="here, in proportion")
axis.loglog([65_980_920] * 4, published["seconds a sweep"], "s", color="#b3402e", label="one H200, published")
for line in published.itertuples():
    axis.annotate(f"{line.story} ", (65_980_920, line[3]), ha="right", va="center", fontsize=8)
axis.set(xlabel="tokens of the corpus", ylabel="seconds a sweep")
axis.legend()
plt.show()
print(f"66 million tokens here: about {65_980_920 / here:.0f} seconds a sweep")

# %% [markdown]
# Each dot is the best of five runs; but for what else the machine had to do they lie on a line, in proportion to the
# tokens. Dotted, the same continued. The squares are what one card did with 66 million tokens: hundredths of a second a
# sweep. With 200 topics in the place of 50 a sweep of sLDA took a little more than twice the time there.
#
# So what is a fit of your corpus going to take? Tokens times sweeps times chains, divided by tokens a second:

# %%
sweeps, chains = 1000, 4
sizes = {"5,000 film reviews": 1.6e6, "66 million tokens": 65_980_920, "a billion tokens": 1e9}
estimate = pd.DataFrame({
    "minutes here": {name: tokens * sweeps * chains / here / 60 for name, tokens in sizes.items()},
    "minutes at 5.9e9 tokens a second": {name: tokens * sweeps * chains / 5.90e9 / 60 for name, tokens in sizes.items()},
})  # fmt: skip
estimate.map("{:,.2f}".format)

# %% [markdown]
# Neither column counts what is done once. For the film reviews that is most of it: eight chains of 600 sweeps with
# predictions took 26 seconds on the card where nothing had been compiled and 11 where it had, and sweeps were some 3
# of these by an estimate. **A corpus of a few thousand documents is at home on a laptop; a GPU pays from millions of
# words on**, or where many chains or many fits are wanted.
#
# ## What else grows
#
# Memory. Draws of sites that are kept in full take `chains x draws x size` numbers of four bytes; what does not fit
# 128 MB is kept as a mean, with as many evenly spaced draws as fit, and `fit.info["as_means"]` names it:

# %%
print("kept as means here:", fit.info["as_means"] or "nothing")
needed = {name: 4 * 4 * 1000 * np.prod(size) / 1e9 for name, size in {
    "beta, 50 topics x 5,000 terms": (50, 5_000), "theta, 5,000 documents x 50 topics": (5_000, 50),
    "theta, 200,000 documents x 50 topics": (200_000, 50),
}.items()}  # fmt: skip
pd.Series(needed, name="GB of four chains of 1000 draws").round(1).to_frame()

# %% [markdown]
# `keep=["beta"]` asks for all draws of a site, whatever they take; `thinning=` is the cheaper answer.
#
# ## There and back
#
# Fit where the card is, read where you sit. A saved fit is one file with documents, draws and settings, and loading it
# runs nothing that the file names:

# %%
path = fit.save("fit.nc")
back = inference.load(path)
print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB; fitted on {back.info['platform']}")
back.topics(5).groupby("topic")["term"].agg(" ".join).head(3).to_frame()

# %% [markdown]
# From the shell of the other machine it is one command, and the file comes back:
#
#     topiczoo fit slda reviews.csv fit.nc --y stars --standardise --set num_topics=50 --set num_chains=8
#
# **What stays the same and what does not.** With the same seed, draws are the same to the last bit on any number of
# CPU devices, threads and chains. A GPU in the place of a CPU gives other draws of the same posterior: sums are
# rounded otherwise, and a chain soon goes another way. So compare means, intervals and verdicts between machines, not
# draws (docs/reproducibility.md).
#
# **Check before you pay.** On the small part, in the notebook: `inference.check(story, corpus[:500], y[:500])` for a
# story of your own, the verdict of a short run, and `fit.info["sweep"]` for the reason why a kernel would not serve.
