"""Reference posteriors: the summation against all assignments of topics, gibbs and tempering against it, and the files."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from lengths import longest_but
from reference_checks import assert_whole

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "benchmarks"))

import reference_posteriors  # noqa: E402
from exact_lda import Exact  # noqa: E402
from label_invariants import exact_means, invariants, summary  # noqa: E402
from reference_runs import POSTERIORS, by_engine, by_summation, by_tempering  # noqa: E402
from tempering import Words  # noqa: E402

LIMIT = 5.5  # standard errors; some 20 quantities a test, so right code fails in less than 1e-6 of all runs


def words_of(counts, alpha=1.0, gamma=1.0, num_topics=2):
    """A corpus from a table of counts [document, term]."""
    counts = np.array(counts)
    document, term = np.nonzero(counts)
    return Words(document, term, counts[document, term], *counts.shape, num_topics, alpha, gamma)


def made_up(scale):
    """Three documents of three terms in four pairs, as posteriordb's three_docs1200, but with some words of each kind."""
    rng = np.random.default_rng(0)
    return words_of([[*rng.integers(scale, 2 * scale, 2), 0], [0, scale, 0], [0, 0, rng.integers(scale, 2 * scale)]])


def by_every_assignment(words):
    """log p(w) and posterior means of quantities, topics of tokens one by one: p(z, w) from Polya's urns."""
    tokens = [(d, v) for d, v, n in zip(words.document, words.term, words.number, strict=True) for _ in range(n)]
    names, shares = list(exact_means(words)), np.bincount([d for d, _ in tokens]) / len(tokens)
    total, sums = 0.0, dict.fromkeys(names, 0.0)
    for z in itertools.product(range(2), repeat=len(tokens)):
        theta = np.full((words.num_documents, 2), words.alpha)
        phi = np.full((2, words.num_terms), words.gamma)
        joint = 1.0
        for (d, v), k in zip(tokens, z, strict=True):
            joint *= theta[d, k] / theta[d].sum() * phi[k, v] / phi[k].sum()
            theta[d, k] += 1
            phi[k, v] += 1
        of_documents, of_topics = theta.sum(1, keepdims=True), phi.sum(1, keepdims=True)
        mean, mean_phi = theta / of_documents, phi / of_topics
        products = mean @ mean.T
        squares = (mean * (theta + 1) / (of_documents + 1)).sum(1)
        np.fill_diagonal(products, squares)
        found = {
            "usage_squared": shares @ products @ shares, "theta_squared": shares @ squares,
            "phi_squared": shares @ mean @ (mean_phi * (phi + 1) / (of_topics + 1)).sum(1),
            "phi_overlap": mean_phi[0] @ mean_phi[1],
        }  # fmt: skip
        found |= {f"theta_squared[{d + 1}]": squares[d] for d in range(len(squares))}
        found |= {f"theta_overlap[{d + 1},{d + 2}]": products[d, d + 1] for d in range(len(squares) - 1)}
        probabilities = mean @ mean_phi
        found |= {f"probability[{d + 1},{v + 1}]": p for (d, v), p in np.ndenumerate(probabilities)}
        total += joint
        for name in names:
            sums[name] += joint * found[name]
    return np.log(total), {name: value / total for name, value in sums.items()}


@pytest.mark.parametrize(
    ("counts", "alpha", "gamma"),
    [
        ([[2, 1, 0], [0, 3, 0], [0, 0, 3]], 1.0, 1.0),  # the shape of three_docs1200
        ([[2, 1, 1], [1, 0, 0], [0, 1, 2]], 0.3, 0.7),  # the last two pairs share their document
        ([[2, 1], [0, 2], [0, 3]], 0.2, 1.5),  # and here their term
    ],
)
def test_the_summation_is_the_sum_over_every_assignment_of_topics(counts, alpha, gamma):
    words = words_of(counts, alpha, gamma)
    exact = Exact(words)
    log_evidence, means = by_every_assignment(words)
    assert exact.log_evidence == pytest.approx(log_evidence, abs=1e-10)
    assert exact.means(exact_means(words)) == pytest.approx(means, abs=1e-10)


def test_the_summation_refuses_what_it_cannot_sum():
    with pytest.raises(ValueError, match="3 topics and 4 pairs"):
        Exact(words_of([[2, 1, 0], [0, 3, 0], [0, 0, 3]], num_topics=3))


@pytest.fixture(scope="module")
def corpus():
    return made_up(6)


@pytest.fixture(scope="module")
def exact(corpus):
    """Independent draws and exact means."""
    return by_summation(corpus, seed=1, draws=4000)


def differences(words, exact, draws):
    """How far draws are from the exact posterior, in standard errors; of what is not in closed form, from its draws."""
    return reference_posteriors.apart(reference_posteriors.summarised(words, exact), summary(draws))


def test_independent_draws_have_the_means_of_the_summation(corpus, exact):
    found, names = summary(exact.draws), invariants(corpus)[0]
    errors = [
        (found["mean"][names.index(name)] - mean) / found["mcse_mean"][names.index(name)]
        for name, mean in exact.told["exact_means"].items()
    ]
    assert len(errors) > 12 and np.abs(errors).max() < LIMIT


@pytest.mark.slow
def test_tempering_has_the_exact_posterior_and_evidence(corpus, exact):
    run = by_tempering(corpus, seed=2, temperatures=10, tuning=[200], ladders=4, draws=4000, thinning=1)
    assert np.abs(differences(corpus, exact, run.draws)).max() < LIMIT
    # ladders tell the evidence to within 0.06 each, their mean to 0.03
    assert np.mean(run.told["log_evidence"]) == pytest.approx(exact.told["log_evidence"], abs=0.2)
    assert min(run.told["arrivals_from_the_hot_end"]) > 50


def test_the_invariants_of_gibbs_are_those_of_the_exact_posterior(corpus, exact):
    run = by_engine(corpus, engine="gibbs", seed=3, chains=2, draws=3000, num_warmup=300)
    assert np.abs(differences(corpus, exact, run.draws)).max() < LIMIT


@pytest.mark.slow
@pytest.mark.parametrize("collapse", longest_but(["proportions", "topics"], "topics"))
def test_the_invariants_of_gibbs_are_those_of_the_exact_posterior_of_more_words(collapse):
    words = made_up(12)
    exact = by_summation(words, seed=1, draws=4000)
    run = by_engine(words, engine="gibbs", seed=3, chains=2, draws=16_000, num_warmup=500, collapse=collapse)
    assert np.abs(differences(words, exact, run.draws)).max() < LIMIT


@pytest.mark.slow
def test_a_chain_is_the_best_of_its_starts():
    words = words_of([[36, 4, 0], [0, 40, 0], [0, 0, 40]])  # chains stay where they fall
    run = by_engine(words, engine="gibbs", seed=3, chains=2, draws=200, num_warmup=50, starts=6)
    heights = np.array(run.told["log_likelihood_of_starts"])
    assert heights.shape == (2, 6) and run.draws.shape[:2] == (2, 100)
    assert np.ptp(heights) > 5 and np.abs(run.draws[..., 0].mean(1) - heights.max(1)).max() < 3


MADE = sorted(path.name.removesuffix(".info.json") for path in reference_posteriors.FILES.glob("*.info.json"))


def test_there_are_files_of_the_posteriors_of_two_topics():
    assert {name for name in POSTERIORS if name.endswith("K2")} <= set(MADE) <= set(POSTERIORS)


@pytest.mark.parametrize("posterior", MADE)
def test_the_files_of_a_posterior_are_whole_and_hold_what_they_say(posterior):
    folder = reference_posteriors.FILES
    numbers, info = (json.loads((folder / f"{posterior}.{end}").read_text()) for end in ("json", "info.json"))
    assert info["name"] == posterior and sum(f.stat().st_size for f in folder.glob(f"{posterior}.*")) < 30_000
    assert_whole(numbers, info)


def test_the_summed_posterior_has_means_without_error():
    numbers = json.loads((reference_posteriors.FILES / "three_docs1200-ldaK2.json").read_text())
    errors = dict(zip(numbers["names"], numbers["mcse_mean"], strict=True))
    assert {name for name, error in errors.items() if error > 0} == {
        "log_likelihood", "usage_entropy", "usage_largest", "phi_entropy",
    }  # fmt: skip
    means = dict(zip(numbers["names"], numbers["mean"], strict=True))
    for d in range(1, 4):
        assert sum(means[f"probability[{d},{v}]"] for v in range(1, 4)) == pytest.approx(1, abs=1e-6)


def test_a_folder_without_data_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["reference_posteriors.py", "--data", str(tmp_path)])
    with pytest.raises(SystemExit, match="holds no data of three_docs1200-ldaK2"):
        reference_posteriors.main()
