"""The correlated topic model beside LDA: seconds a sweep, and how well the second half of a document follows from its first.

    .venv/bin/python benchmarks/correlated.py --data FOLDER        # a folder with counts.npz and vocabulary.txt
    .venv/bin/python benchmarks/correlated.py --data FOLDER --topics 20 --sweeps 200 --write

A fifth of the documents is held out. Fitted to the rest by gibbs: LDA with its default alpha, LDA that learns an alpha for
each topic, and the correlated topic model, whose proportions are logistic normal with a learned mean, scales and
correlations. A sweep is timed by the process's CPU seconds after the warm-up, so that ratios hold on a machine that others
use; its parts by fits in which the other sites stand still. Scores: "completion", perplexity of the second half given the
first by diagnostics.perplexity, and "predictive", exp of minus the mean log of sum_k E[theta_k | first half] E[beta_kw]
over the words of the second half; by the latter the models are scored in one and the same way.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from held_out import load
from measuring import circumstances, run_part, write_section

HERE = Path(__file__).resolve().parent
TITLE = "correlated topics"
MODELS = {
    "lda": "LDA, alpha 0.1",
    "learned": "LDA, alpha learned",
    "correlated": "correlated topic model",
}
DRAWS = 4


def topics(corpus, num_topics, gamma):
    with numpyro.plate("topics", num_topics):
        return numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, gamma)))


def correlated(corpus, *, num_topics, gamma=0.01):
    """Blei & Lafferty (2007), with priors on mean, scales and correlations."""
    from topiczoo.models import draw_words

    beta = topics(corpus, num_topics, gamma)
    mu = numpyro.sample("mu", dist.Normal(0, 2).expand([num_topics]).to_event(1))
    tau = numpyro.sample("tau", dist.LogNormal(0.5, 0.5).expand([num_topics]).to_event(1))
    factor = numpyro.sample("factor", dist.LKJCholesky(num_topics, 2.0))
    with numpyro.plate("documents", corpus.num_documents):
        logits = numpyro.sample("logits", dist.MultivariateNormal(mu, scale_tril=tau[:, None] * factor))
    draw_words(corpus, jax.nn.softmax(logits), beta)


def learned(corpus, *, num_topics, gamma=0.01):
    """LDA with an alpha for each topic."""
    from topiczoo.models import draw_words

    beta = topics(corpus, num_topics, gamma)
    alpha = numpyro.sample("alpha", dist.LogNormal(-2, 1).expand([num_topics]).to_event(1))
    with numpyro.plate("documents", corpus.num_documents):
        theta = numpyro.sample("theta", dist.Dirichlet(alpha))
    draw_words(corpus, theta, beta)


def seconds_a_sweep(story, train, topics, sweeps):
    """CPU seconds of a sweep after a warm-up."""
    from topiczoo.inference.mcmc.plan import choose_blocks
    from topiczoo.inference.mcmc.timing import seconds_of_a_sweep
    from topiczoo.inference.story.reading import read

    graph = read(story, train, None, {"num_topics": topics})
    return seconds_of_a_sweep(graph, sweeps, 20), choose_blocks(graph).describe()


def part(name, train, test, topics, sweeps):
    from topiczoo import inference, models
    from topiczoo.diagnostics.scoring.evidence import split
    from topiczoo.diagnostics.scoring.held_out import perplexity

    story = {"lda": models.lda, "learned": learned, "correlated": correlated}[name]
    seconds, blocks = seconds_a_sweep(story, train, topics, sweeps // 2)
    began = time.process_time()
    fit = inference.gibbs(
        story, train, num_topics=topics, num_warmup=sweeps, num_samples=sweeps // 2, thinning=sweeps // 20,
        num_chains=1, seed=0, progress_bar=False,
    )  # fmt: skip
    spent = time.process_time() - began
    found = perplexity(fit, test, "completion", most_draws=DRAWS, seed=1)
    first, second = split(test, 1)
    theta, beta = fit.transform(first, seed=1), fit.topic_terms(0)
    document, term = second.tokens()
    predictive = np.exp(-np.log(np.einsum("nk,nk->n", theta[document], beta.T[term])).mean())
    return {
        "sweep": seconds, "completion": (found.perplexity, found.perplexity_error), "predictive": float(predictive),
        "seconds": spent, "blocks": blocks,
    }  # fmt: skip


def table(results):
    heads = "CPU seconds a sweep", "beside LDA's", "completion", "predictive", "CPU seconds to fit"
    lines = [f"| K | fit | {' | '.join(heads)} |", "|---|---|" + "---|" * len(heads)]
    for topics, fits in results.items():
        for name, row in fits.items():
            ratio, (value, error) = row["sweep"] / fits["lda"]["sweep"], row["completion"]
            lines.append(
                f"| {topics} | {MODELS[name]} | {row['sweep']:.3f} | {ratio:.2f} | {value:.1f} ± {error:.1f} | "
                f"{row['predictive']:.1f} | {row['seconds']:.0f} |"
            )
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=str(HERE.parent.parent / "shared/data/bbc-news"))
    parser.add_argument("--topics", type=int, nargs="+", default=[20])
    parser.add_argument("--sweeps", type=int, default=200, help="warm-up sweeps; half as many follow")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/results.md")
    options = parser.parse_args()
    if not Path(options.data, "counts.npz").is_file():
        sys.exit(f"{options.data!r} holds no counts.npz; give the corpus' folder with --data.")
    if options.part:
        print(json.dumps(part(options.part, *load(options.data), options.topics[0], options.sweeps)))
        return
    results = {}
    for topics in options.topics:
        results[topics] = {}
        for name in MODELS:
            results[topics][name] = run_part(__file__, name, data=options.data, sweeps=options.sweeps, topics=topics)
            print(topics, name, results[topics][name], flush=True)
    text = table(results)
    print(text)
    if options.write:
        train, test = load(options.data)
        about = (
            f"{circumstances(__file__, ('topiczoo', 'jax', 'numpyro'))}\n\n"
            f"{Path(options.data).name}: {len(train)} documents to fit, {len(test)} held out ({test.num_tokens} tokens). "
            f"Sweeps: {options.sweeps} and {options.sweeps // 2}. Perplexity a word, lower is better, of second halves; "
            f"completion over {DRAWS} posterior draws."
        )
        write_section(TITLE, f"{about}\n\n{text}")


if __name__ == "__main__":
    main()
