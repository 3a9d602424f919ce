"""Stories with structure above the words: densities by hand, what serves them, fits, calibration, a response on each.

A story's density is compared with SciPy's at a draw of its own, with no engine in between; the engines have tests of their
own. Calibration at a level of 1e-4 for all quantities of a story together (longest).
"""

from __future__ import annotations

import inspect
import re
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest
from fits import fit_of
from lengths import longest_but
from numpyro import handlers
from numpyro.infer.util import log_density
from scipy import stats
from scipy.special import expit, gammaln, softmax

from topiczoo import diagnostics, inference, models
from topiczoo.corpora import Corpus
from topiczoo.diagnostics import calibrate
from topiczoo.diagnostics.checks import calibration
from topiczoo.inference.advice import engines_that_take
from topiczoo.inference.mcmc.plan import choose_blocks
from topiczoo.inference.simulation import Simulation
from topiczoo.inference.story.reading import read
from topiczoo.models.examples import example

ALL = ("gibbs", "nuts", "svi", "vem")
SAMPLED = ALL[:3]
SWEEP, GIVEN, NUTS = "topic sweep, theta integrated out", "topic sweep given theta", "NUTS given the rest"
LOCAL, SLICES = "Hamiltonian trajectories, all documents at once", "slice draws given counts"
DIRICHLET, NORMAL, GIG = "Dirichlet draw", "normal draw", "generalised inverse Gaussian draw"
LOG_LINEAR = "slice draws of log-linear topics"
SENTENCES = "topics of sentences, filtered forward and drawn backward"
COLLAPSED = {"z": SWEEP, "theta": SWEEP}
OF_LOGITS = {"beta": DIRICHLET, "logits": LOCAL, "tau": NUTS, "factor": NUTS, "z": GIVEN}
SERVED = {  # engines that take a story, and how gibbs draws each site
    "ctm": (SAMPLED, {**OF_LOGITS, "mu": NORMAL}),
    "stm": (SAMPLED, {**OF_LOGITS, "level": NORMAL, "effect": NORMAL}),
    "dmr": (ALL, {**COLLAPSED, "beta": DIRICHLET, "level": SLICES, "effect": SLICES}),
    "stm_content": (
        ALL, {**COLLAPSED, **{f"{part}_deviation": LOG_LINEAR for part in ("topic", "level", "joint")}}
    ),
    "dtm": (SAMPLED, {**COLLAPSED, "step": NUTS}),
    "seeded_lda": (ALL, {**COLLAPSED, "beta": DIRICHLET}),
    "keyatm": (
        SAMPLED, {"z": GIVEN, **dict.fromkeys(("theta", "beta", "use", "seeded_0", "seeded_1"), DIRICHLET)}
    ),
    "labelled_lda": (ALL, {**COLLAPSED, "beta": DIRICHLET}),
    "hdp": (SAMPLED, {**COLLAPSED, "beta": DIRICHLET, "alpha": SLICES, "breaks": SLICES, "growth": GIG}),
    "htmm": (ALL[:2], {"beta": DIRICHLET, "switch": "Beta draw", "z": SENTENCES, "theta": SENTENCES}),
    "dp_mixture": (ALL, {"beta": DIRICHLET, "breaks": NUTS, "growth": GIG, "z": "one topic a document"}),
    "slda_raters": (ALL, {**COLLAPSED, "beta": DIRICHLET, "eta": NUTS, "cuts": NUTS}),
    "polylingual_lda": (SAMPLED, {**COLLAPSED, "beta_0": DIRICHLET, "beta_1": DIRICHLET}),
}  # fmt: skip


def made(name, **size):
    """A story's documents, responses and arguments, with priors under which no draw is 0."""
    corpus, y, given = example(name, **size)
    takes = inspect.signature(getattr(models, name)).parameters
    wide = {"gamma": 0.5, "alpha": 0.5, "leak": 0.3, "gamma_seeds": 0.7, "weight": 3.0}
    return corpus, y, {**given, **{what: value for what, value in wide.items() if what in takes}}


def dirichlet(x, a):
    """log Dir(x; a), rows added up."""
    x, a = np.atleast_2d(x), np.broadcast_to(a, np.shape(np.atleast_2d(x)))
    return float((gammaln(a.sum(-1)) - gammaln(a).sum(-1) + ((a - 1) * np.log(x)).sum(-1)).sum())


def normal(x, mean=0.0, deviation=1.0):
    return stats.norm.logpdf(x, mean, deviation).sum()


def logistic_normal(v, centre):
    """Logits of two topics around a centre; of two, LKJ(2) is 3/4 (1 - r^2) in the correlation r."""
    total = stats.lognorm.logpdf(v["tau"], 0.5).sum() + np.log(0.75 * (1 - v["factor"][1, 0] ** 2))
    root = np.diag(v["tau"]) @ v["factor"]
    total += sum(
        stats.multivariate_normal.logpdf(row, mean, root @ root.T)
        for row, mean in zip(v["logits"], np.broadcast_to(centre, v["logits"].shape), strict=True)
    )
    return total + dirichlet(v["beta"], 0.5), softmax(v["logits"], -1), v["beta"]


def broken(v):
    """Shares, and the density of the sticks: that of Beta(1, growth), by the rule of change of variables."""
    stick = 1 - np.exp(-v["breaks"])
    density = stats.expon.logpdf(v["growth"]) + (stats.beta.logpdf(stick, 1, v["growth"]) + np.log1p(-stick)).sum()
    return np.append(stick, 1) * np.cumprod(np.append(1, 1 - stick)), density


# each: log-density of all but words and response; theta; beta [topics, terms], or [documents, topics, terms]
def ctm(v, corpus, given):
    total, *rest = logistic_normal(v, v["mu"])
    return total + normal(v["mu"]), *rest


def stm(v, corpus, given):
    x = corpus.covariates[["age"]].to_numpy()
    total, *rest = logistic_normal(v, v["level"] + x @ v["effect"])
    return total + normal(v["level"]) + normal(v["effect"]), *rest


def dmr(v, corpus, given):
    alpha = np.exp(v["level"] + corpus.covariates[["age"]].to_numpy() @ v["effect"])
    total = normal(v["level"], -1) + normal(v["effect"], 0, 0.5) + dirichlet(v["beta"], 0.5)
    return total + dirichlet(v["theta"], alpha), v["theta"], v["beta"]


def stm_content(v, corpus, given):
    parts = [v[f"{part}_deviation"] for part in ("topic", "level", "joint")]
    total = sum(stats.laplace.logpdf(part, 0, 0.5).sum() for part in parts) + dirichlet(v["theta"], 0.5)
    beta = softmax(given["background"] + sum(parts), -1)
    return total, v["theta"], beta[corpus.covariates["side"]]


def dtm(v, corpus, given):
    first, *others = v["step"]
    total = normal(first) + sum(normal(step, 0, 0.2) for step in others) + dirichlet(v["theta"], 0.5)
    beta = [softmax(given["background"] + v["step"][: t + 1].sum(0), -1) for t in range(3)]
    return total, v["theta"], np.stack(beta)[corpus.covariates["period"]]


def seeded_lda(v, corpus, given):
    prior = np.full((3, corpus.num_terms), 0.5)
    prior[0, :2] += 3
    prior[1, 2:4] += 3
    return dirichlet(v["beta"], prior) + dirichlet(v["theta"], 0.5), v["theta"], v["beta"]


def keyatm(v, corpus, given):
    total = dirichlet(v["beta"], 0.5) + dirichlet(v["use"], 1) + dirichlet(v["theta"], 0.5)
    beta, theta = np.zeros((5, corpus.num_terms)), np.zeros((len(corpus), 5))
    beta[:3], theta[:, :3] = v["beta"], v["theta"]
    for k in range(2):
        beta[3 + k, 2 * k : 2 * k + 2] = v[f"seeded_{k}"]
        total += dirichlet(v[f"seeded_{k}"], 0.7)
        theta[:, 3 + k] = v["theta"][:, k] * v["use"][k, 0]
        theta[:, k] *= v["use"][k, 1]
    return total, theta, beta


def labelled_lda(v, corpus, given):
    has = corpus.covariates[["news", "sport"]].assign(shared=1).to_numpy()
    prior = 0.5 * np.where(has, 1, 0.3)
    return dirichlet(v["beta"], 0.5) + dirichlet(v["theta"], prior), v["theta"], v["beta"]


def hdp(v, corpus, given):
    share, total = broken(v)
    np.testing.assert_allclose(models.stick_shares(v["breaks"][None])[0], share, rtol=1e-5)
    total += stats.expon.logpdf(v["alpha"]) + dirichlet(v["beta"], 0.5)
    return total + dirichlet(v["theta"], v["alpha"] * share), v["theta"], v["beta"]


def slda_raters(v, corpus, given):
    cuts = v["cuts"]  # one free number, and logarithms of the steps: the normal density, and the steps' logarithms less
    free = np.concatenate([cuts[:, :1], np.log(np.diff(cuts))], 1)
    total = normal(v["eta"], 0, 2) + normal(free, 0, 2) - np.log(np.diff(cuts)).sum()
    return total + dirichlet(v["beta"], 0.5) + dirichlet(v["theta"], 0.5), v["theta"], v["beta"]


def polylingual_lda(v, corpus, given):
    total = dirichlet(v["beta_0"], 0.5) + dirichlet(v["beta_1"], 0.5) + dirichlet(v["theta"], 0.5)
    beta = np.zeros((2, corpus.num_terms))
    beta[:, 0::2], beta[:, 1::2] = v["beta_0"] / 2, v["beta_1"] / 2
    return total, v["theta"], beta


BY_HAND = {f.__name__: f for f in (
    ctm, stm, dmr, stm_content, dtm, seeded_lda, keyatm, labelled_lda, hdp, slda_raters, polylingual_lda
)}  # fmt: skip


def drawn(name, *responses, **more):
    """A draw of a story, its log-density there, and the documents."""
    corpus, y, given = made(name)
    story, data = getattr(models, name), (corpus, *(responses or (() if y is None else (y.astype(int),))))
    given = {**given, **more}
    seeded = handlers.seed(story, 3)

    @jax.jit
    def draw():
        trace = handlers.trace(seeded).get_trace(*data, **given)
        return {n: s["value"] for n, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}

    values = draw()
    if name == "keyatm":  # a word that is no keyword was drawn from its topic's other terms
        z, (_, term) = np.asarray(values["z"]), corpus.tokens()
        values["z"] = np.where((z >= 3) & ~given["seeds"][np.maximum(z - 3, 0), term], z - 3, z)
    density = jax.jit(lambda values: log_density(seeded, data, given, values)[0])(values)
    exact = {n: np.asarray(value, int if n == "z" else float) for n, value in values.items()}
    return exact, float(density), corpus, y, given


def words(v, corpus, theta, beta):
    document, term = corpus.tokens()
    beta = np.broadcast_to(beta, (len(corpus), *np.shape(beta)[-2:]))
    return np.log(theta[document, v["z"]]).sum() + np.log(beta[document, v["z"], term]).sum()


def zbar_of(v, corpus, number):
    document, _ = corpus.tokens()
    return np.stack([np.bincount(v["z"][document == d], minlength=number) for d in range(len(corpus))]) / np.asarray(
        corpus.lengths
    ).reshape(-1, 1)


@pytest.mark.parametrize("name", BY_HAND)
def test_a_story_has_the_density_of_its_formula(name):
    v, density, corpus, y, given = drawn(name)
    total, theta, beta = BY_HAND[name](v, corpus, given)
    total += words(v, corpus, theta, beta)
    if name == "slda_raters":
        x = zbar_of(v, corpus, 2) @ v["eta"]
        above = np.pad(
            expit(x[:, None, None] - v["cuts"]), ((0, 0), (0, 0), (1, 1)), constant_values=((0, 0), (0, 0), (1, 0))
        )
        chances = above[..., :-1] - above[..., 1:]
        total += np.log(np.take_along_axis(chances, y.astype(int)[..., None], -1)).sum()
    assert np.isfinite(total)
    np.testing.assert_allclose(density, total, rtol=1e-4)


def test_a_mixture_that_grows_has_the_density_of_its_formula():
    v, density, corpus, _, _ = drawn("dp_mixture")
    share, total = broken(v)
    total += dirichlet(v["beta"], 0.5) + np.log(share[v["z"]]).sum()
    total += (corpus.counts.toarray() * np.log(v["beta"][v["z"]])).sum()
    np.testing.assert_allclose(density, total, rtol=1e-4)


def test_sentences_have_the_density_of_their_formula():
    """Whether each begins with a new topic, which one, and its words."""
    v, density, corpus, _, _ = drawn("htmm")
    document, term = corpus.tokens()
    total, topic, switch = dirichlet(v["beta"], 0.5) + dirichlet(v["theta"], 0.5), None, v["switch"]
    for n, (d, w, begins) in enumerate(zip(document, term, corpus.sentences.begins, strict=True)):
        opening = n == 0 or document[n - 1] != d
        if begins and not opening:
            total += np.log(switch if v["taken"][n] else 1 - switch)
        if v["taken"][n]:
            assert begins
            topic = v["z"][n]
            total += np.log(v["theta"][d, topic])
        total += np.log(v["beta"][topic, w])
    np.testing.assert_allclose(density, total, rtol=1e-4)


def hinge(y, x):
    return -np.maximum(0, 1 - (2 * y - 1) * x).sum()


RESPONSES = {  # arguments, y, log-density of eta and of y
    "normal": ({}, np.linspace(-1, 1, 12), lambda eta: normal(eta, 0, 2), None),
    "logit": ({}, np.arange(12) % 2, lambda eta: normal(eta, 0, 2), lambda y, x: np.log(expit((2 * y - 1) * x)).sum()),
    "hinge": ({}, np.arange(12) % 2, lambda eta: normal(eta, 0, 2), hinge),
    "Laplace": ({"response": "logit", "prior": "laplace"}, np.arange(12) % 2, None,
                lambda y, x: np.log(expit((2 * y - 1) * x)).sum()),
}  # fmt: skip


@pytest.mark.parametrize("kind", RESPONSES)
def test_a_response_is_put_below_by_arguments_alone(kind):
    more, y, of_eta, of_y = RESPONSES[kind]
    v, density, corpus, _, given = drawn("seeded_lda", y, **{"response": kind, **more})
    total, theta, beta = seeded_lda(v, corpus, given)
    total, x = total + words(v, corpus, theta, beta), zbar_of(v, corpus, 3) @ v["eta"]
    if of_eta is None:
        total += stats.invgamma.logpdf(v["nu"], 2) + stats.laplace.logpdf(v["eta"], 0, v["nu"]).sum()
    else:
        total += of_eta(v["eta"])
    total += stats.halfnorm.logpdf(v["sigma"]) + normal(y, x, v["sigma"]) if of_y is None else of_y(y, x)
    np.testing.assert_allclose(density, total, rtol=1e-4)


@pytest.mark.parametrize("name", longest_but(SERVED, "polylingual_lda"))
def test_engines_take_a_story_as_they_are(name):
    corpus, y, given = example(name)
    graph = read(name, corpus, y, given)
    engines, blocks = SERVED[name]
    assert tuple(engines_that_take(graph)) == engines
    assert choose_blocks(graph).describe() == blocks


@pytest.mark.slow
@pytest.mark.parametrize("name", longest_but(SERVED, "keyatm", "hdp"))
def test_every_conditional_is_that_of_the_story(name):
    corpus, y, given = made(name)
    found = inference.check(name, corpus, *(() if y is None else (y,)), num_documents=3, num_tokens=4, **given)
    assert found["passes"].all(), found.to_string()


SETTINGS = {
    "gibbs": {"num_warmup": 10, "num_samples": 10, "num_chains": 2}, "svi": {"num_steps": 40, "num_draws": 10},
    "nuts": {"num_warmup": 5, "num_samples": 5, "num_chains": 1, "max_tree_depth": 3}, "vem": {},
}  # fmt: skip
FITS = [(name, engine) for name, (engines, _) in SERVED.items() for engine in engines]


def marked(case):
    kept = case == ("keyatm", "gibbs")
    return pytest.param(*case, marks=[pytest.mark.slow] if kept else [pytest.mark.slow, pytest.mark.longest])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "engine"), [marked(case) for case in FITS])
def test_a_story_fits_predicts_and_reports(name, engine, tmp_path):
    corpus, y, given = example(name)
    fit = getattr(inference, engine)(name, corpus, y, progress_bar=False, **SETTINGS[engine], **given)
    shares = fit.transform(corpus[:4], most_draws=2)
    np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-4)
    topics = fit.topics(3)
    assert topics["topic"].nunique() == shares.shape[1] and topics["probability"].between(0, 1).all()
    if y is not None:
        assert fit.predict(corpus[:4], most_draws=2).mean.shape[:1] == (4,)
    if name in ("stm", "dmr"):
        effects = fit.effects()
        assert set(effects["covariate"]) == {"age"} and (effects["low"] <= effects["high"]).all()
    aligned = diagnostics.align(fit)
    assert len(aligned.alignment.topics) == shares.shape[1]
    if name == "keyatm":  # what its topics are made of has no axis of theirs: they keep their numbers
        assert (aligned.alignment.permutations == np.arange(5)).all()
    if engine == "gibbs" and name != "keyatm":
        assert diagnostics.report(fit, tmp_path / "a.html", documents=2, progress_bar=False).stat().st_size > 10_000


def test_topics_made_of_sites_without_their_axis_keep_their_numbers():
    """Two chains with the first two topics swapped: what keyatm's topics are made of cannot be renumbered."""
    corpus, _, given = example("keyatm")
    rng = np.random.default_rng(0)
    draws = {
        "beta": rng.dirichlet(np.ones(9), 3), "use": np.full((2, 2), 0.5), "seeded_0": np.array([0.3, 0.7]),
        "seeded_1": np.array([0.6, 0.4]),
    }  # fmt: skip
    swapped = {name: value[::-1] if name.startswith("seeded") else value for name, value in draws.items()}
    swapped["beta"] = draws["beta"][[1, 0, 2]]
    both = {name: np.stack([draws[name][None], swapped[name][None]]) for name in draws}
    fit = fit_of(models.keyatm, both, corpus, **given)
    assert fit.topics(2)["topic"].nunique() == 5
    np.testing.assert_array_equal(diagnostics.align(fit).alignment.permutations[:, 0], [np.arange(5)] * 2)


def test_a_story_told_to_have_no_response_is_simulated_without_one():
    corpus, _, given = example("labelled_lda")
    assert Simulation(models.labelled_lda, corpus, given).responses == []
    told = {**given, "response": "normal"}
    assert Simulation(models.labelled_lda, corpus, told).responses == ["y"]


SHAPE = Corpus.from_counts(
    np.random.default_rng(0).poisson(1.2, (6, 5)) + np.eye(6, 5, dtype=int),
    covariates={"age": (np.arange(6) - 2.5) / 2, "side": np.arange(6) % 2, "period": np.arange(6) % 3,
                "news": np.arange(6) % 3 > 0, "sport": np.arange(6) % 3 < 2},
)  # fmt: skip


SENTENCES_OF = SHAPE.with_sentences(SHAPE.tokens()[1], np.concatenate([np.arange(n) // 2 for n in SHAPE.lengths]))


@pytest.mark.slow
@pytest.mark.longest
@pytest.mark.parametrize("name", SERVED)
def test_ranks_are_uniform(name, monkeypatch):
    monkeypatch.setattr(calibration, "LEVEL", 1e-4)
    monkeypatch.setattr(calibration, "_null_excursions", partial(calibration._null_excursions, repeats=100_000))
    _, _, given = made(name, documents=6, terms=5)
    shape = SENTENCES_OF if name == "htmm" else SHAPE
    found = calibrate(name, shape, progress_bar=False, thinning=10, num_simulations=150, **given)
    assert found.passes, found


BELOW = {"normal": {}, "logit": {}, "hinge": {}, "Laplace": {"response": "normal", "prior": "laplace"}}
COMPOSED = [name for name in SERVED if name not in ("dp_mixture", "slda_raters")]


def composing():
    """The table of docs/composing.md: engines that take a story with a response."""
    page = (Path(__file__).parents[1] / "docs" / "composing.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("| ")
    ]
    heads = next(row for row in rows if row[0] == "story")
    return {
        row[0].strip("`"): dict(zip(heads[1:], row[1:], strict=True)) for row in rows if row[0].strip("`") in SERVED
    }


def test_the_table_has_every_story_and_response():
    assert {name: set(row) for name, row in composing().items()} == {name: set(BELOW) for name in COMPOSED}


@pytest.mark.slow
@pytest.mark.parametrize("name", longest_but(COMPOSED, "seeded_lda"))
@pytest.mark.parametrize("kind", BELOW)
def test_engines_take_a_story_with_a_response_as_the_table_says(name, kind):
    corpus, _, given = example(name)
    y = np.linspace(-1, 1, 12) if kind in ("normal", "Laplace") else np.arange(12) % 2
    graph = read(name, corpus, y, {**given, "response": kind, **BELOW[kind]})
    assert ", ".join(engines_that_take(graph)) == composing()[name][kind]


def test_bad_arguments_get_a_sentence():
    corpus, _, _ = example("stm")

    def refused(story, sentence, y=None, **given):
        with pytest.raises(ValueError, match=re.escape(sentence)):
            jax.eval_shape(lambda: handlers.seed(story, 0)(corpus, y, **given))

    refused(models.stm, "prevalence has 'weight', which is no numeric column", prevalence=["weight"])
    refused(models.stm, "prevalence is the bare string 'age'; give a list", prevalence="age")
    refused(models.dmr, "prevalence is empty", prevalence=[])
    refused(models.dtm, "background has shape (3,) for 9 terms", background=np.zeros(3), period="period", periods=3)
    refused(models.labelled_lda, "labels has 1 columns and shared is 0", labels=["news"])
    refused(models.polylingual_lda, "views has shape (3,) for 9 terms", views=[0, 1, 1])
    refused(models.slda_raters, "y has shape (12,) and raters is 2", y=np.zeros(12), raters=2)
    refused(models.keyatm, "seeds has 2 topics and num_topics is 1", seeds=np.eye(2, 9), num_topics=1)
    refused(models.ctm, "y is given and response is None", y=np.zeros(12))
    refused(models.ctm, "response is 'median'; give one of", y=np.zeros(12), response="median")
    refused(models.ctm, "outputs is missing for the response 'classes'", y=np.zeros(12), response="classes")
    refused(models.ctm, "outputs is 3, but the response 'hinge' has one", y=np.zeros(12), response="hinge", outputs=3)
    refused(models.ctm, "y has 2 columns for the response 'logit'", y=np.zeros((12, 2)), response="logit")
    with pytest.raises(ValueError, match="none of which is in the vocabulary"):
        models.seed_words(corpus, [["nothing of it"]])
    with pytest.raises(ValueError, match="the bare string 'food' for topic 0"):
        models.seed_words(corpus, ["food"])
