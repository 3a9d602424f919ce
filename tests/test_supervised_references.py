"""Supervised reference posteriors: the second method's density against the stories' own, the files, gibbs against them."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lengths import longest_but
from reference_checks import assert_whole
from scipy import stats
from scipy.special import logsumexp

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "benchmarks"))

import supervised_references  # noqa: E402
from label_invariants import summary  # noqa: E402
from reference_files import apart  # noqa: E402
from reference_runs import Run  # noqa: E402
from supervised_data import DESIGNS, FILES, arguments_of, corpus_of, load, simulate  # noqa: E402
from supervised_densities import constrained, invariants, log_marginal, log_prior, numbered, parameters  # noqa: E402
from supervised_references import SITES, by_gibbs, files_of  # noqa: E402
from supervised_stan import program  # noqa: E402

from topiczoo import models  # noqa: E402
from topiczoo.inference.story.tracing import Story, run, total  # noqa: E402

LIMIT = 5.5  # standard errors; some 20 quantities a test, so right code fails in less than 1e-6 of all runs
every_posterior = pytest.mark.parametrize("name", DESIGNS)


def some_numbers(design, seed, *more):
    """Numbers without a constraint, for every parameter."""
    rng = np.random.default_rng(seed)
    shapes = {name: shape for name, (shape, _) in parameters(design).items()}
    return {name: jnp.asarray(rng.normal(0, 0.7, (*more, *shape)), jnp.float32) for name, shape in shapes.items()}


def first_documents(data, number):
    """The data of so few documents that all assignments of their topics together can be written down."""
    words = data["doc"].index(number + 1)
    short = {"M": number, "N": words} | {name: data[name][:words] for name in ("w", "doc")}
    return data | short | {name: data[name][:number] for name in ("y", "x") if name in data}


@every_posterior
def test_the_density_is_the_sum_of_the_storys_own_over_every_assignment_of_topics(name):
    """p(theta, z, ...) / p(theta | z) is p(z, ...) with theta integrated out, at whatever theta."""
    design = DESIGNS[name]
    data = first_documents(simulate(design), 2)
    values, _ = constrained(design, some_numbers(design, 1))
    corpus, y = corpus_of(design, data)
    document, theta = corpus.tokens()[0], np.random.default_rng(2).dirichlet(np.ones(data["K"]), 2)
    every = np.array(list(itertools.product(range(data["K"]), repeat=data["N"])))
    given = {SITES.get(site, site): value for site, value in values.items()} | {"theta": jnp.asarray(theta)}
    story = Story(getattr(models, design.story), arguments_of(design))

    @jax.jit
    @jax.vmap
    def joint(z):
        return total(run(story, corpus, jnp.asarray(y), given | {"z": z}))

    terms = np.array(joint(jnp.asarray(every)), float)
    alpha = np.array(values["alpha"] if design.learned else data["alpha"], float)
    for d in range(2):
        counts = (every[:, document == d, None] == np.arange(data["K"])).sum(1)
        for number in np.unique(counts, axis=0):
            terms[(counts == number).all(1)] -= stats.dirichlet.logpdf(theta[d], alpha + number)
    found = jax.jit(lambda: log_prior(design, data, values) + log_marginal(design, data, values).sum())()
    assert len(terms) >= 64 and float(found) == pytest.approx(logsumexp(terms), rel=2e-5, abs=3e-4)


@pytest.mark.parametrize("name", ["slda_learned_alpha", "slda_glm_ordered", "slda_glm_softmax"])  # all kinds of numbers
def test_what_is_moved_has_the_jacobian_that_is_counted(name):
    """Of phi with what no density reads beside it, which is standard normal."""
    design = DESIGNS[name]
    free, expected = some_numbers(design, 3), 0.0
    for parameter, (shape, _) in parameters(design).items():

        def moved(x, name=parameter):
            value = constrained(design, free | {name: x})[0][name]
            if name != "phi":
                return value.ravel()
            return jnp.concatenate([value[:, :-1], jax.nn.logsumexp(x, -1, keepdims=True)], 1).ravel()

        x, size = free[parameter], int(np.prod(shape))
        expected += np.linalg.slogdet(np.reshape(jax.jit(jax.jacobian(moved))(x), (size, size)))[1]
        if parameter == "phi":
            expected -= float((jax.nn.logsumexp(x, -1) ** 2).sum() / 2)
    assert float(constrained(design, free)[1]) == pytest.approx(expected, rel=1e-4, abs=1e-4)


@every_posterior
def test_the_quantities_do_not_change_when_topics_are_renumbered(name):
    design, data = DESIGNS[name], simulate(DESIGNS[name])
    values = jax.vmap(lambda one: constrained(design, one)[0])(some_numbers(design, 4, 3))
    values = {parameter: np.asarray(value)[None] for parameter, value in values.items()}
    names, found = invariants(design, data, values)
    turned = {n: v[:, :, ::-1] if n in ("phi", "eta", "alpha") else v for n, v in values.items()}
    assert len(names) == len(set(names)) == found.shape[2] >= 14 and np.ptp(found, axis=1).min() > 0
    np.testing.assert_allclose(invariants(design, data, turned)[1], found, rtol=1e-5)
    phi, eta = values["phi"][0, 0], values["eta"][0, 0]
    place = names.index("eta_phi[2]") if eta.ndim == 1 else names.index("eta_phi[2,3]")
    assert found[0, 0, place] == pytest.approx(phi[:, 1] @ (eta if eta.ndim == 1 else eta[:, 2]), rel=1e-5)
    pairs = itertools.combinations(phi.astype(float), 2)
    assert found[0, 0, names.index("phi_overlap")] == pytest.approx(sum(a @ b for a, b in pairs), rel=1e-5)


def blocks_of(text):
    """Blocks of a Stan program by name, without comments."""
    lines = re.sub(r"//.*", "", text)
    names = "data", "parameters", "generated quantities"
    return {name: lines.split(f"\n{name} {{\n")[1].split("\n}")[0] for name in names}


def declared_in(block):
    """Names that a block declares, not within its loops, with their lengths as they are written."""
    found = {}
    for line in block.splitlines():
        match = re.match(r"  (?:array\[\w+\] )?(\w+)(?:<[^>]*>)?(?:\[([^\]]*)\])? (\w+)(?: =.*)?;", line)
        if match:
            found[match[3]] = [part.strip() for part in match[2].split(",")] if match[2] else []
    return found


@every_posterior
def test_the_stan_program_reads_the_data_and_generates_the_quantities(name):
    text, data = (FILES / f"{name}.stan").read_text(), load(name)
    assert text == program(DESIGNS[name])
    blocks = blocks_of(text)
    assert declared_in(blocks["data"]).keys() == data.keys()
    named = declared_in(blocks["parameters"]) | declared_in(blocks["generated quantities"])
    sizes = {length: data[length] for length in "KVC" if length in data} | {"C - 1": data.get("C", 1) - 1}
    generated = {each for own, lengths in named.items() for each in numbered(own, *(sizes[part] for part in lengths))}
    names = json.loads((FILES / f"{name}.json").read_text())["names"]
    assert set(names) <= generated
    # and what else there is are parameters, nothing that is generated
    assert {each.split("[")[0] for each in generated - set(names)} <= set(declared_in(blocks["parameters"]))


def test_there_are_ten_references_with_data_and_programs():
    ends, found = ("data.json", "stan", "json", "info.json"), {path.name for path in FILES.iterdir()}
    assert len(DESIGNS) == 10 and found == {"README.md", *(f"{n}.{end}" for n in DESIGNS for end in ends)}
    assert all(json.loads((FILES / f"{name}.info.json").read_text())["is_reference"] for name in DESIGNS)
    assert sum(path.stat().st_size for path in FILES.iterdir()) < 300_000


@every_posterior
def test_the_data_come_from_their_seed_and_are_those_of_the_draws(name):
    data, info = load(name), json.loads((FILES / f"{name}.info.json").read_text())
    assert simulate(DESIGNS[name]) == data
    digest = hashlib.sha256(json.dumps(data).encode()).hexdigest()
    for part in (info, info["second_method"]):
        assert part["inference"]["told"]["data_sha256"] == digest
    assert data["doc"] == sorted(data["doc"]) and set(data["doc"]) == set(range(1, data["M"] + 1))
    assert set(data["w"]) == set(range(1, data["V"] + 1))
    assert len(data["w"]) == len(data["doc"]) == data["N"] and len(data["y"]) == data["M"]


@every_posterior
def test_the_files_of_a_posterior_are_whole_and_hold_what_they_say(name):
    numbers, info = (json.loads((FILES / f"{name}.{end}").read_text()) for end in ("json", "info.json"))
    names, design = numbers["names"], DESIGNS[name]
    assert names == supervised_references.names_of(name, load(name))
    assert info["name"] == name and info["story"] == {"name": design.story, "arguments": arguments_of(design)}
    assert_whole(numbers, info)


def test_methods_that_differ_make_no_reference():
    data, rng = simulate(DESIGNS["slda_normal"]), np.random.default_rng(0)
    number = len(supervised_references.names_of("slda_normal", data))
    told = {"method": "made up", "settings": {}, "cpu_seconds": 0}
    first, same = (Run(rng.normal(size=(10, 1000, number)), told) for _ in range(2))
    other = same.draws + 0.1 * (np.arange(number) == 3)
    assert files_of("slda_normal", data, first, same)[1]["is_reference"]
    _, info = files_of("slda_normal", data, first, Run(other, told))
    assert not info["is_reference"] and "NOT A REFERENCE" in info["comments"]
    assert [check for check, passed in info["checks_made"].items() if not passed] == ["methods_agree_within_4_mcse"]


def test_a_run_is_kept_for_the_same_settings_of_the_same_data_alone(monkeypatch, tmp_path):
    made = []

    def method(name, data, *, draws):
        made.append(draws)
        return Run(np.zeros((2, draws, 1)), {})

    monkeypatch.setitem(supervised_references.METHODS, "made up", method)
    for data, draws in (({"y": 1}, 3), ({"y": 1}, 3), ({"y": 1}, 4), ({"y": 2}, 4)):
        found = supervised_references.kept(tmp_path, "any", "made up", data, {"draws": draws})
        assert found.draws.shape == (2, draws, 1) and found.told["settings"] == {"draws": draws}
    assert made == [3, 4, 4]


@pytest.mark.slow
@pytest.mark.parametrize("name", longest_but(DESIGNS, "slda_normal", "medlda_partial"))
def test_gibbs_has_the_means_of_the_reference(name):
    reference = json.loads((FILES / f"{name}.json").read_text())
    run = by_gibbs(name, load(name), engine="gibbs", seed=3, chains=4, draws=4000, thinning=5, num_warmup=300)
    found = summary(run.draws)
    assert max(found["r_hat"]) < 1.03
    far = dict(zip(reference["names"], apart(reference, found), strict=True))
    assert max(map(abs, far.values())) < LIMIT, far
