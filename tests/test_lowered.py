"""Lowered programs on the disk: the next process traces next to nothing, and never gets those of another story."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from topiczoo import corpora, inference, models
from topiczoo.inference.mcmc import chains
from topiczoo.inference.programs import compiling, keeping, lowered, written
from topiczoo.inference.story.reading import read
from topiczoo.inference.story.tracing import Story

SHORT = {"num_warmup": 2, "num_samples": 2, "num_chains": 1, "progress_bar": False}
rng = np.random.default_rng(0)
CORPUS = corpora.Corpus.from_counts(rng.poisson(1.0, (30, 12)) + 1)
Y = rng.normal(size=30)


@pytest.fixture(autouse=True)
def no_change_of_the_package_while_tests_run(monkeypatch):
    monkeypatch.setattr(written, "BEGAN", float("inf"))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of programs, as a process on one device has it, and no programs in the process."""
    monkeypatch.setattr(lowered, "FOLDER", tmp_path / "lowered")
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    return tmp_path / "lowered"


@pytest.fixture
def runs(monkeypatch):
    """The names of stories, one for each time that one is run."""
    found, plain = [], Story.plain

    def noted(story, *arguments):
        found.append(story.name)
        plain(story, *arguments)

    monkeypatch.setattr(Story, "plain", noted)
    return found


def by_scale(corpus, y=None, *, how_many=2, alpha=0.3):
    """A user's story."""
    with numpyro.plate("topics", how_many):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, 0.1)))
    eta = numpyro.sample("eta", dist.Normal(0, 2).expand([how_many]).to_event(1))
    with numpyro.plate("documents", corpus.num_documents):
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(how_many, alpha)))
    zbar = models.draw_words(corpus, theta, beta)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.Normal(zbar @ eta, 1.0), obs=y)


ENGINES = {
    "gibbs": (SHORT, 12),
    "vem": ({"num_iterations": 2, "progress_bar": False}, 9),
}


@pytest.mark.parametrize(
    ("engine", "story"),
    [
        ("gibbs", by_scale),
        pytest.param("vem", models.slda, marks=pytest.mark.slow),
        pytest.param("gibbs", models.slda, marks=pytest.mark.longest),
        pytest.param("vem", by_scale, marks=pytest.mark.longest),
    ],
)
def test_another_process_runs_the_story_few_times_and_draws_the_same(engine, story, folder, runs):
    """A first fit by gibbs has run the story 28 times; to read it, and to see whether it is the same, takes 9."""
    settings, most = ENGINES[engine]
    topics = {"num_topics": 2} if story is models.slda else {}
    fit = partial(getattr(inference, engine), story, CORPUS, Y, **settings, **topics)
    first, before = fit(), len(runs)
    assert list(folder.glob("*-cache"))
    keeping.forget()  # as another process begins
    runs.clear()
    again = fit()
    assert 0 < len(runs) <= most < before
    prediction = first.predict(CORPUS[:2]).draws
    keeping.forget()
    np.testing.assert_array_equal(prediction, again.predict(CORPUS[:2]).draws)
    folder.rename(folder.with_name("away"))
    keeping.forget()
    plain = fit()
    for site, draws in plain.draws.items():
        np.testing.assert_array_equal(draws, first.draws[site])
        np.testing.assert_array_equal(draws, again.draws[site])


def with_nuts(corpus, y=None):
    """A site that NUTS draws, whose kernel learns of it when it is initialised."""
    with numpyro.plate("topics", 2):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, 0.1)))
    eta = numpyro.sample("eta", dist.Laplace(0, 2).expand([2]).to_event(1))
    with numpyro.plate("documents", corpus.num_documents):
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(2, 0.3)))
    zbar = models.draw_words(corpus, theta, beta)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.Gumbel(zbar @ eta, 1.0), obs=y)


@pytest.mark.parametrize("engine", [pytest.param("gibbs", marks=pytest.mark.slow), "nuts"])
def test_chains_whose_start_is_found_may_be_of_another_length(engine, folder, runs):
    fit = partial(getattr(inference, engine), with_nuts, CORPUS, Y, num_warmup=2, num_chains=1, progress_bar=False)
    one = fit(num_samples=2)
    assert engine == "nuts" or "NUTS" in one.info["blocks"]["eta"]
    before = len(runs)
    keeping.forget()
    runs.clear()
    longer = fit(num_samples=4, thinning=2)
    assert len(runs) < before
    keeping.forget()
    folder.rename(folder.with_name("away"))
    afresh = fit(num_samples=4, thinning=2)
    for site, draws in afresh.draws.items():
        np.testing.assert_array_equal(draws, longer.draws[site])


def from_text(text, **known):
    """A function ``f`` of a user's module."""
    module = ModuleType("users")
    vars(module).update(jnp=jnp, np=np, **known)
    exec(text, vars(module))
    return module.f


WRITTEN = {
    "code": ("def f(x): return x + 1", "def f(x): return x + 2"),
    "a default": ("def f(x, n=1): return x + n", "def f(x, n=2): return x + n"),
    "a default by name": ("def f(x, *, n=1): return x + n", "def f(x, *, n=2): return x + n"),
    "a variable": ("n = 1.0\ndef f(x): return x + n", "n = 2.0\ndef f(x): return x + n"),
    "an array": ("n = np.zeros(2)\ndef f(x): return x + n", "n = np.ones(2)\ndef f(x): return x + n"),
    "another operation": ("def f(x): return jnp.exp(x)", "def f(x): return jnp.log(x)"),
    "a function that it calls": (
        "def g(x): return x + 1\ndef f(x): return g(x)",
        "def g(x): return x + 2\ndef f(x): return g(x)",
    ),
    "a variable of one within it": (
        "n = 1\ndef f(x): return [n * y for y in x]",
        "n = 2\ndef f(x): return [n * y for y in x]",
    ),
    "what it closes over": (
        "def made(n):\n  def f(x): return x + n\n  return f\nf = made(1)",
        "def made(n):\n  def f(x): return x + n\n  return f\nf = made(2)",
    ),
    "a function that it closes over": (
        "def made(g): return lambda x: g(x)\nf = made(lambda x: x)",
        "def made(g): return lambda x: g(x)\nf = made(lambda x: -x)",
    ),
    "what a table holds": (
        "g = {'a': [1, (2, None)]}\ndef f(x): return g['a']",
        "g = {'a': [1, (3, None)]}\ndef f(x): return g['a']",
    ),
}


@pytest.mark.parametrize("what", WRITTEN)
def test_what_a_user_has_written_tells_one_function_from_another(what):
    one, other = WRITTEN[what]
    told = written.key(from_text(one))
    assert told is not None and told == written.key(from_text(f"\n\n{one}"))  # wherever it stands
    assert told != written.key(from_text(other)) is not None


UNTOLD = {
    "an object of the user's": "class A: pass\na = A()\ndef f(x): return a",
    "a class of the user's": "class A: pass\ndef f(x): return A",
    "a module of the user's": "import pytest\ndef f(x): return pytest.approx(x)",
    "a module imported within": "def f(x):\n  import pytest\n  return pytest.approx(x)",
    "a method of an object": "g = np.random.default_rng(0).normal\ndef f(x): return g()",
    "a program": "import jax\ng = jax.jit(jnp.exp)\ndef f(x): return g(x)",
}


@pytest.mark.parametrize("what", UNTOLD)
def test_what_cannot_be_looked_into_has_no_key(what):
    assert written.key(from_text(UNTOLD[what])) is None


def test_keys_depend_on_what_jax_and_the_package_are_told(monkeypatch):
    before = written.key("a")
    assert before == written.key("a") != written.key("b")
    with jax.default_matmul_precision("bfloat16"):
        assert before != written.key("a")
    monkeypatch.setattr(written, "BESIDE", [*written.BESIDE, lambda: "kernels in C++"])
    assert before != written.key("a")


def test_a_package_that_has_changed_since_it_was_read_keeps_nothing(monkeypatch):
    monkeypatch.setattr(written, "BEGAN", 0.0)
    written._package.cache_clear()
    try:
        assert written.key("a") is None
    finally:
        written._package.cache_clear()


def test_form_of_a_story_is_told(folder):
    def key(story, **arguments):
        return written.key(read(story, CORPUS, Y, arguments).form)

    assert key(by_scale) == key(by_scale, alpha=0.7) != key(by_scale, how_many=3)
    assert key(models.slda, num_topics=2) != key(models.slda, num_topics=3)


def several(x, y, power):
    return {1: (x**power, None), 2: [jnp.linalg.cholesky(y), 0.0 * power]}, jax.random.split(jax.random.key(0))


def fresh(function=several):
    """As another process has it."""
    return compiling.jitted(function, form="several", static_argnames="power")


def test_programs_are_found_again_by_shapes_and_static_arguments(folder):
    x, y = jnp.arange(3.0), 2 * jnp.eye(2)
    first, keys = fresh()(x, y, power=2)
    fresh()(x, y, power=3), fresh()(x[:2], y, power=2), fresh()(np.arange(3), y, power=2), fresh()(x, y, 3)
    assert len(list(folder.glob("*-cache"))) == 4
    again, keys_again = fresh(lambda x, y, power: pytest.fail("traced"))(x, y, power=2)
    assert jax.tree.structure(again) == jax.tree.structure(first)
    for one, other in zip(jax.tree.leaves(again), jax.tree.leaves(first), strict=True):
        assert one.weak_type == other.weak_type and one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(*map(jax.random.key_data, (keys, keys_again)))


def test_what_a_program_gives_is_known_before_it_is_compiled(folder):
    def told(x):
        return {
            "x": x + 1,
            "weak": 2.0 * jnp.sqrt(2),
            "keys": jax.random.split(jax.random.key(0), len(x)),
            "none": None,
        }

    program, x = compiling.jitted(told, form="told"), jnp.arange(3.0)
    like = program.like(x)
    assert keeping.shapes(like) == keeping.shapes(program(x))
    assert not like["x"].any() and like["weak"].weak_type
    assert compiling.jitted(told).like(x) is None  # a function of no known form: nothing is made beforehand


def test_chains_are_compiled_while_they_are_started(folder, monkeypatch):
    """The program of an iteration is asked for by what a start is like, and serves the starts that are found."""
    asked, ready = [], chains.Chains._ready

    def noted(self, steps, state=None):
        asked.append((state is not None, len(getattr(self, "states", ()))))
        return ready(self, steps, state)

    monkeypatch.setattr(chains.Chains, "_ready", noted)
    fit = inference.gibbs(models.slda, CORPUS, Y, num_topics=2, **SHORT)
    assert asked[0][0] and sum(early for early, _ in asked) == 1
    programs = [kept for kept in keeping._kept.values() if isinstance(kept, chains.Programs)]
    assert [len(one.advance) for one in programs] == [1]
    assert np.isfinite(fit.draws["eta"]).all()


@pytest.mark.parametrize("harm", ["cut short", "other bytes", "empty", "a type of another package"])
def test_a_file_that_is_not_whole_is_made_again(folder, harm):
    x, y = jnp.arange(3.0), 2 * jnp.eye(2)
    first, _ = fresh()(x, y, power=2)
    (file,) = folder.glob("*-cache")
    whole = file.read_bytes()
    head, module = lowered._parts(whole)
    if harm == "cut short":
        file.write_bytes(whole[:-100])
    elif harm == "other bytes":
        file.write_bytes(whole[:-8] + bytes(8))
    elif harm == "empty":
        file.write_bytes(b"")
    else:
        lowered._write(file, head.replace(b'{"list": [1, 2]}', b'{"named": ["os", "system", [1, 2]]}'), module)
    assert file.read_bytes() != whole
    again, _ = fresh()(x, y, power=2)
    np.testing.assert_array_equal(first[1][0], again[1][0])
    assert lowered._parts(file.read_bytes())[0] == head
    fresh(lambda x, y, power: pytest.fail("traced"))(x, y, power=2)


def test_a_program_that_calls_back_is_not_kept(folder):
    def told(x):
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    assert compiling.jitted(told, form="told")(jnp.zeros(2)).shape == (2,)
    assert not list(folder.glob("*-cache"))


def test_where_nothing_can_be_written_programs_run_all_the_same(tmp_path, monkeypatch, folder):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(lowered, "FOLDER", tmp_path / "file" / "lowered")
    assert fresh()(jnp.arange(3.0), jnp.eye(2), power=2)[0][1][0][2] == 4


EDITED = """
import sys, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, {folder!r})
import numpy as np
from topiczoo import corpora, inference
from story import story
rng = np.random.default_rng(0)
corpus = corpora.Corpus.from_counts(rng.poisson(1.0, (20, 6)) + 1)
fit = inference.gibbs(story, corpus, rng.normal(size=20), num_warmup=1, num_samples=2, num_chains=1, progress_bar=False)
print(fit.draws["eta"].ravel().tolist())
"""
STORY = """
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from topiczoo.models import draw_words
SPREAD = 1.0


def story(corpus, y=None):
    with numpyro.plate("topics", 2):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, 0.1)))
    eta = numpyro.sample("eta", dist.Normal(0, SPREAD).expand([2]).to_event(1))
    with numpyro.plate("documents", corpus.num_documents):
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(2, 0.3)))
    zbar = draw_words(corpus, theta, beta)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.Normal(zbar @ eta, 0.5), obs=y)
"""


@pytest.mark.slow
def test_a_story_that_was_edited_between_two_processes_is_the_new_one(tmp_path):
    known = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_COMP", "JAX_PERS"))}
    flags = os.environ.get("XLA_FLAGS", "").replace("--xla_force_host_platform_device_count=2", "")

    def drawn(text, cache):
        (tmp_path / "story.py").write_text(text)
        environment = {**known, "TOPICZOO_CACHE": str(cache), "XLA_FLAGS": flags, "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-c", EDITED.format(folder=str(tmp_path))]
        return subprocess.check_output(command, env=environment, text=True, cwd=tmp_path).strip()

    first = drawn(STORY, tmp_path / "cache")
    files = set(tmp_path.rglob("lowered/*-cache"))
    assert files and first == drawn(STORY, tmp_path / "cache")
    assert files == set(tmp_path.rglob("lowered/*-cache"))  # keys are the same in every process
    edited = drawn(STORY.replace("SPREAD = 1.0", "SPREAD = 3.0"), tmp_path / "cache")
    assert edited != first and edited == drawn(STORY.replace("SPREAD = 1.0", "SPREAD = 3.0"), "off")
