"""Stories as a user would write them: none has an argument or a site that an engine could know by its name."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from topiczoo.corpora import Corpus
from topiczoo.models import draw_words


def prevalence(corpus, y=None, *, themes=2, drivers=("age",)):
    """How much a document says of each theme depends on its covariates: theta_d ~ Dir(exp(x_d Lambda))."""
    x = jnp.stack([jnp.ones(corpus.num_documents), *(corpus.covariates[name] for name in drivers)], 1)
    lean = numpyro.sample("lean", dist.Normal(0, 0.5).expand([x.shape[1], themes]).to_event(2))
    pull = numpyro.sample("pull", dist.Normal(0, 1).expand([themes]).to_event(1))
    with numpyro.plate("themes", themes):
        words = numpyro.sample("words", dist.Dirichlet(jnp.full(corpus.num_terms, 0.7)))
    papers = numpyro.plate("papers", corpus.num_documents)
    with papers:
        mix = numpyro.sample("mix", dist.Dirichlet(jnp.exp(x @ lean)))
    used = draw_words(corpus, mix, words)
    with papers:
        numpyro.sample("mark", dist.Normal(used @ pull, 0.5), obs=y)


def seeded(corpus, y=None, *, hints):
    """A row of hints a theme says how much is known of its words beforehand, [themes, terms]."""
    hints = jnp.asarray(hints)
    pull = numpyro.sample("pull", dist.Normal(0, 1).expand([hints.shape[0]]).to_event(1))
    with numpyro.plate("themes", hints.shape[0]):
        words = numpyro.sample("words", dist.Dirichlet(hints))
    papers = numpyro.plate("papers", corpus.num_documents)
    with papers:
        mix = numpyro.sample("mix", dist.Dirichlet(jnp.full(hints.shape[0], 0.8)))
    used = draw_words(corpus, mix, words)
    with papers:
        numpyro.sample("mark", dist.Normal(used @ pull, 0.5), obs=y)


def through_time(corpus, y=None, *, themes=2, periods=3, pace=0.5):
    """The words of a theme walk from one period to the next: beta_t = softmax(background + deviations_t)."""
    usual = numpyro.sample("usual", dist.Normal(0, 0.5).expand([corpus.num_terms]).to_event(1))
    step = numpyro.sample("step", dist.Normal(0, pace).expand([periods, themes, corpus.num_terms]).to_event(3))
    pull = numpyro.sample("pull", dist.Normal(0, 1).expand([themes]).to_event(1))
    papers = numpyro.plate("papers", corpus.num_documents)
    with papers:
        mix = numpyro.sample("mix", dist.Dirichlet(jnp.full(themes, 0.8)))
    words = jax.nn.softmax(usual + jnp.cumsum(step, 0), -1)
    used = draw_words(corpus, mix, words, label=corpus.covariates["period"])
    with papers:
        numpyro.sample("mark", dist.Normal(used @ pull, 0.5), obs=y)


def by_author(corpus, y=None, *, themes=2, writers=2):
    """Every author has an effect of their own on the mark."""
    pull = numpyro.sample("pull", dist.Normal(0, 1).expand([themes]).to_event(1))
    apart = numpyro.sample("apart", dist.LogNormal(-0.5, 0.4))
    with numpyro.plate("writers", writers):
        gift = numpyro.sample("gift", dist.Normal(0, apart))
    with numpyro.plate("themes", themes):
        words = numpyro.sample("words", dist.Dirichlet(jnp.full(corpus.num_terms, 0.7)))
    papers = numpyro.plate("papers", corpus.num_documents)
    with papers:
        mix = numpyro.sample("mix", dist.Dirichlet(jnp.full(themes, 0.8)))
    used = draw_words(corpus, mix, words)
    with papers:
        author = corpus.covariates["author"].astype(int)
        numpyro.sample("mark", dist.Normal(used @ pull + gift[author], 0.5), obs=y)


def in_camps(corpus, y=None, *, leanings):
    """A document's camp, which nobody has written down, says what it is about, in which words, and how it is marked."""
    leanings = jnp.asarray(leanings)  # [camps, themes]
    camps, themes = leanings.shape
    share = numpyro.sample("share", dist.Dirichlet(jnp.full(camps, 2.0)))
    pull = numpyro.sample("pull", dist.Normal(0, 1).expand([themes]).to_event(1))
    mood = numpyro.sample("mood", dist.Normal(0, 1).expand([camps]).to_event(1))
    with numpyro.plate("camps", camps, dim=-2), numpyro.plate("themes", themes, dim=-1):
        words = numpyro.sample("words", dist.Dirichlet(jnp.full(corpus.num_terms, 0.7)))
    papers = numpyro.plate("papers", corpus.num_documents)
    with papers:
        camp = numpyro.sample("camp", dist.Categorical(share))
        mix = numpyro.sample("mix", dist.Dirichlet(leanings[camp]))
    used = draw_words(corpus, mix, words, label=camp)
    with papers:
        numpyro.sample("mark", dist.Normal(used @ pull + mood[camp], 0.5), obs=y)


def as_many_as_words(corpus, y=None, *, terms_each=2):
    """How many themes there are follows from the corpus."""
    themes = corpus.num_terms // terms_each
    pull = numpyro.sample("pull", dist.Normal(0, 1).expand([themes]).to_event(1))
    with numpyro.plate("themes", themes):
        words = numpyro.sample("words", dist.Dirichlet(jnp.full(corpus.num_terms, 0.7)))
    papers = numpyro.plate("papers", corpus.num_documents)
    with papers:
        mix = numpyro.sample("mix", dist.Dirichlet(jnp.full(themes, 0.8)))
    used = draw_words(corpus, mix, words)
    with papers:
        numpyro.sample("mark", dist.Normal(used @ pull, 0.5), obs=y)


LEANINGS = np.array([[1.0, 1.0], [2.0, 1.0]])
STORIES = {
    "prevalence": (prevalence, {}),
    "seeded": (seeded, {"hints": None}),  # made for the corpus
    "time": (through_time, {}),
    "authors": (by_author, {}),
    "camps": (in_camps, {"leanings": LEANINGS}),
    "themes of the corpus": (as_many_as_words, {}),
}


def story_of(name: str, corpus: Corpus) -> tuple:
    """A story and its arguments for a corpus."""
    story, arguments = STORIES[name]
    if "hints" in arguments:
        hints = np.full((2, corpus.num_terms), 0.5)
        hints[0, 0] = hints[1, -1] = 2.0
        arguments = {"hints": hints}
    elif name == "themes of the corpus":
        arguments = {"terms_each": corpus.num_terms // 2}
    return story, arguments


def covariates(number: int) -> dict:
    """Ages, periods and authors of some documents."""
    rows = np.arange(number)
    return {"age": (rows % 4 - 1.5) / 2, "period": rows % 3, "author": rows % 2}


def tiny() -> tuple[Corpus, np.ndarray]:
    """Seven tokens in three documents, with responses: every assignment of topics can be written down."""
    counts = np.array([[2, 1, 0], [0, 1, 1], [1, 0, 1]])
    return Corpus.from_counts(counts, covariates=covariates(3)), np.array([1.2, -0.8, 0.3])


def small(number: int = 24) -> tuple[Corpus, np.ndarray]:
    """Documents of a dozen words from two topics, one response missing."""
    rng = np.random.default_rng(0)
    beta, theta = rng.dirichlet(np.full(8, 0.3), 2), rng.dirichlet(np.full(2, 0.5), number)
    counts = np.stack([rng.multinomial(12, row) for row in theta @ beta])
    y = theta @ np.array([-1.0, 1.0]) + 0.3 * rng.normal(size=number)
    y[-1] = np.nan
    return Corpus.from_counts(counts, covariates=covariates(number)), y
