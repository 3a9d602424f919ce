"""No waiting for the compiler: programs are kept in the process and on the disk, and serve what differs in numbers alone."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from lengths import slow_but

from topiczoo import corpora, inference, models
from topiczoo.corpora.layouts import SMALL, rounded_up
from topiczoo.inference.programs import compiling, disk, keeping
from topiczoo.inference.story.reading import read

SHORT = {"num_warmup": 2, "num_samples": 2, "num_chains": 1, "progress_bar": False}
COMPILED = "/jax/core/compile/backend_compile_duration"
rng = np.random.default_rng(0)
# 60 documents of 5 to 40 words: other halves of them have other lengths
COUNTS = rng.multinomial(1, np.full(12, 1 / 12), (60, 40)).cumsum(1)[np.arange(60), rng.integers(5, 40, 60)]
CORPUS = corpora.Corpus.from_counts(COUNTS)
Y = rng.normal(size=60)


@contextmanager
def compilations():
    """The names of the programs that are compiled, or read from the disk, within."""
    found = []

    def listen(event, seconds, **told):
        if event == COMPILED:
            found.append(told.get("fun_name"))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield found
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def test_another_seed_another_part_of_the_corpus_and_another_alpha_compile_nothing():
    first, second = slice(0, 30), slice(30, 60)
    with compilations() as found:
        inference.gibbs(models.slda, CORPUS[first], Y[first], num_topics=3, **SHORT)
    assert found  # or the counting is wrong
    with compilations() as found:
        again = inference.gibbs(models.slda, CORPUS[second], Y[second], seed=1, alpha=0.4, num_topics=3, **SHORT)
    assert found == []
    with compilations() as found:
        other = inference.gibbs(models.slda, CORPUS[second], Y[second], seed=1, alpha=0.1, num_topics=3, **SHORT)
    assert found == []
    assert not np.array_equal(again.draws["theta"], other.draws["theta"])  # each with its own alpha
    keeping.forget()
    afresh = inference.gibbs(models.slda, CORPUS[second], Y[second], seed=1, alpha=0.4, num_topics=3, **SHORT)
    for name, draws in again.draws.items():
        np.testing.assert_array_equal(draws, afresh.draws[name])


CLASSES = (Y > 0).astype(int)
AGAIN = {
    "vem, a normal response": ("vem", models.slda, Y, {"num_topics": 3}, {"alpha": 0.4}),
    "vem, classes": ("vem", models.slda_glm, CLASSES, {"num_topics": 3, "response": "softmax", "outputs": 2}, {}),
    "vem, a learned prior": ("vem", models.lda, None, {"num_topics": 3, "alpha": "learned"}, {"gamma": 0.4}),
    "vem, documents of one topic": ("vem", models.mixture, None, {"num_topics": 3}, {"gamma": 0.4}),
    "svi": ("svi", models.slda, Y, {"num_topics": 3}, {"alpha": 0.4}),
    "svi, slices": ("svi", models.slda, Y, {"num_topics": 3, "batch_size": 10, "guide": "amortised"}, {"alpha": 0.4}),
    "nuts": ("nuts", models.slda, Y, {"num_topics": 3}, {"alpha": 0.4}),
    "gibbs, documents of one topic": ("gibbs", models.mixture, None, {"num_topics": 3}, {"gamma": 0.4}),
}
LITTLE = {"vem": {"num_iterations": 2}, "svi": {"num_steps": 4}, "nuts": {**SHORT}, "gibbs": {**SHORT}}


KEPT = ("vem, a normal response", "vem, a learned prior", "vem, documents of one topic", "svi")


@pytest.mark.parametrize("name", slow_but(AGAIN, *KEPT))
def test_a_second_fit_by_any_engine_compiles_nothing(name):
    """Another seed, another number in the prior, another half of the corpus; and numbers that are not those of the first."""
    engine, story, y, first, other = AGAIN[name]
    fit = partial(getattr(inference, engine), story, **LITTLE[engine] | {"progress_bar": False})
    halves = [(CORPUS[half], None if y is None else y[half]) for half in (slice(0, 30), slice(30, 60))]
    with compilations() as found:
        fit(*halves[0], **first)
    assert found
    with compilations() as found:
        again = fit(*halves[0], seed=1, **first | other)
        fit(*halves[1], seed=1, **first | other)
    assert found == []
    keeping.forget()
    afresh = fit(*halves[0], seed=1, **first | other)
    for site, draws in again.draws.items():
        np.testing.assert_array_equal(draws, afresh.draws[site])


def bounded_story(corpus, y=None, *, how_many=2, most=1.0):
    with numpyro.plate("topics", how_many):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, 0.5)))
    slope = numpyro.sample("slope", dist.Uniform(0, most).expand([how_many]).to_event(1))
    with numpyro.plate("documents", corpus.num_documents):
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(how_many, 0.5)))
    zbar = models.draw_words(corpus, theta, beta)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.Normal(zbar @ slope, 1), obs=y)


@pytest.mark.slow
def test_steps_of_svi_are_kept_by_all_that_they_depend_on():
    """The bounds of a site, the size of slices, the guide, the rate: what was compiled for others does not serve."""
    usual = {"batch_size": 30, "num_steps": 3, "num_draws": 5, "progress_bar": False}
    other = [{"most": 9.0}, {"batch_size": 15}, {"guide": "amortised"}, {"learning_rate": 0.3}]
    fit = partial(inference.svi, bounded_story, CORPUS[:30], Y[:30])
    keeping.forget()
    fit(**usual)
    found = [fit(**usual | changed) for changed in other]
    for changed, kept in zip(other, found, strict=True):
        keeping.forget()
        afresh = fit(**usual | changed)
        for site, draws in kept.draws.items():
            np.testing.assert_array_equal(draws, afresh.draws[site], err_msg=str(changed))
    assert found[0].draws["slope"].max() > 1


def test_a_first_fit_compiles_few_programs():
    """Stories that are tried out operation by operation compile each: a first fit of supervised LDA has had 115 programs."""
    keeping.forget()
    with compilations() as found:
        inference.gibbs(models.slda, CORPUS[:30], Y[:30], num_topics=3, **SHORT)
    assert 0 < len(found) <= 40, found


def test_a_program_within_another_is_a_part_of_it_and_the_compiler_hears_what_it_knows(monkeypatch):
    """XLA refuses settings of a part; of a version that lacks a setting nothing is asked."""
    monkeypatch.setattr(compiling, "QUICK", {**compiling.QUICK, "xla_no_such_setting": True})
    compiling.options.cache_clear()
    try:
        assert "xla_no_such_setting" not in compiling.options() and compiling.options().keys() <= compiling.QUICK.keys()
        assert compiling.options(once=True).keys() - compiling.options().keys() <= compiling.ONCE.keys()
        assert compiling.options(once=True) or jax.default_backend() != "cpu"
        assert not compiling.options(keys=True)

        @compiling.jitted(once=True, static_argnames="power")
        def raised(x, power):
            return x**power

        twice = compiling.jitted(lambda x: 2 * raised(x, power=3))
        assert raised(2.0, power=3) == 8 and twice(2.0) == 16 and jax.grad(twice)(2.0) == 24
        np.testing.assert_allclose(jax.vmap(raised, (0, None))(jnp.arange(3.0), 2), [0, 1, 4])
        assert raised.lower(2.0, power=2).compile()(2.0) == 4
    finally:
        compiling.options.cache_clear()


def test_a_second_prediction_compiles_nothing_and_a_second_fit_shares_its_programs():
    fits = [
        inference.gibbs(models.slda, CORPUS[:30], Y[:30], seed=seed, alpha=alpha, num_topics=3, **SHORT)
        for seed, alpha in ((0, 0.1), (1, 0.3))
    ]
    first = fits[0].predict(CORPUS[:1]), fits[0].transform(CORPUS[:1])
    with compilations() as found:
        told = [fit.predict(CORPUS[i : i + 1]).mean for fit in fits for i in range(30, 35)]
        shares = [fit.transform(CORPUS[30:31]) for fit in fits]
        again = fits[0].predict(CORPUS[:1]), fits[0].transform(CORPUS[:1])
    assert found == []
    assert len({float(mean[0]) for mean in told}) > 7 and not np.array_equal(*shares)
    np.testing.assert_array_equal(first[0].draws, again[0].draws)
    np.testing.assert_array_equal(first[1], again[1])
    keeping.forget()
    np.testing.assert_array_equal(fits[1].predict(CORPUS[34:35]).mean, told[-1])  # by programs of its own


def test_draws_side_by_side_are_those_made_one_by_one(monkeypatch):
    from topiczoo.inference.predictive import fold_in

    fit = inference.gibbs(models.slda, CORPUS[:30], Y[:30], num_topics=3, **SHORT)
    together = fit.predict(CORPUS[30:33]).draws
    monkeypatch.setattr(fold_in, "MOST_TOGETHER", 0)
    np.testing.assert_allclose(together, fit.predict(CORPUS[30:33]).draws, rtol=1e-4)


SPREAD = 1.0


def spread_story(corpus, y=None, *, how_many=2, alpha=0.3, noise=0.5):
    """Reads a variable of the module, and asks of one number more than that it be computed with."""
    if noise > 100:
        raise ValueError("noise")
    with numpyro.plate("topics", how_many):
        beta = numpyro.sample("beta", dist.Dirichlet(jnp.full(corpus.num_terms, 0.1)))
    eta = numpyro.sample("eta", dist.Normal(0, SPREAD).expand([how_many]).to_event(1))
    with numpyro.plate("documents", corpus.num_documents):
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(how_many, alpha)))
    zbar = models.draw_words(corpus, theta, beta)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", dist.Normal(zbar @ eta, noise), obs=y)


def test_what_a_story_computes_tells_it_from_another(monkeypatch):
    def form(**arguments):
        return read(spread_story, CORPUS[:9], Y[:9], arguments).form

    assert read(spread_story, CORPUS, Y, {}).story.numbers == ("alpha",)  # noise stands in a condition
    before = form()
    assert before == form(alpha=0.7) == read(spread_story, CORPUS[9:], Y[9:], {}).form
    assert before != form(noise=0.7) and before != form(how_many=3)
    assert before != read(spread_story, CORPUS[:9], np.where(Y[:9] > 0, np.nan, Y[:9]), {}).form  # masked
    monkeypatch.setattr(sys.modules[__name__], "SPREAD", 2.0)
    assert before != form()


def test_a_program_that_is_kept_refuses_documents_without_the_numbers():
    graph = read(models.slda, CORPUS, Y, {"num_topics": 3})
    with pytest.raises(RuntimeError, match="without the story's numbers"):
        graph.bare().story(corpora.layouts.documents(CORPUS), Y)


def test_things_are_alike_by_what_is_in_them():
    def closing_over(x):
        return lambda: x

    same = keeping.frozen
    assert same(closing_over(1.0)) == same(closing_over(1.0)) != same(closing_over(2.0))
    assert same([1, True]) != same([1, 1]) and same(1) != same(1.0)
    assert same(np.arange(3)) == same(np.arange(3)) != same(np.arange(3.0))
    assert same(np.arange(3)) != same(np.array([0, 1, 3]))
    with pytest.raises(keeping.Unkeyed):
        same(object())


def test_as_many_things_are_kept_as_there_is_room_for(monkeypatch):
    monkeypatch.setattr(keeping, "MOST", 2)
    made = []
    for key in ("a", "b", "a", "c", "a", "b"):
        keeping.keep(key, lambda key=key: made.append(key) or key)
    assert made == ["a", "b", "c", "b"]  # b was not asked for longest when c came


@pytest.mark.parametrize("size", [1, 3, 64, 65, 1000, 4097, 10**6 + 1])
def test_sizes_are_rounded_up_to_few(size):
    small, large = rounded_up(size), rounded_up(size, each=SMALL)
    assert size <= large <= 1.125 * size + 1 and small >= large and rounded_up(large, each=SMALL) == large
    assert large in {a * 2**b for a in range(8, 17) for b in range(30)} or large <= 16


def test_other_documents_have_the_same_shapes():
    shapes = {
        str(jax.tree.map(np.shape, corpora.layouts.token_batches(CORPUS[first : first + 30]))) for first in range(30)
    }
    assert len(shapes) == 1 < len({CORPUS[first : first + 30].num_tokens for first in range(30)})


def in_a_process(code, **environment):
    known = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("JAX_COMPILATION", "JAX_PERSISTENT", "TOPICZOO"))
    }
    command = [sys.executable, "-c", f"import jax\nfrom topiczoo import inference\n{code}"]
    return subprocess.check_output(command, env={**known, **environment}, text=True, cwd=environment["HOME"]).strip()


def test_programs_are_kept_in_the_users_cache(tmp_path):
    code = "import jax.numpy as jnp\njnp.arange(3) + 1\nprint(jax.config.jax_compilation_cache_dir)"
    own = Path(
        in_a_process(code, HOME=str(tmp_path), XDG_CACHE_HOME=str(tmp_path / "caches"), LOCALAPPDATA=str(tmp_path))
    )
    assert tmp_path in own.parents and list(own.glob("*-cache"))


@pytest.fixture
def jax_without_a_folder(monkeypatch):
    """JAX as it is before anybody tells it where to keep programs; what it is told is noted, and not done."""
    told = {}
    monkeypatch.setattr(type(jax.config), "jax_compilation_cache_dir", None)
    monkeypatch.setattr(jax.config, "update", told.__setitem__)
    monkeypatch.setattr(disk.compilation_cache, "reset_cache", lambda: None)
    monkeypatch.setattr(disk.atexit, "register", lambda *arguments: None)
    monkeypatch.setattr(disk.lowered, "FOLDER", None)
    return told


def test_the_folder_of_programs_is_the_one_that_is_asked_for(tmp_path, monkeypatch, jax_without_a_folder):
    monkeypatch.setenv("TOPICZOO_CACHE", str(tmp_path / "mine"))
    own = disk.keep_on_disk()
    assert own.parent == tmp_path / "mine" and own.is_dir()
    assert jax_without_a_folder["jax_compilation_cache_dir"] == str(own)


@pytest.mark.parametrize("why", ["off", "no folder can be made", "somebody has seen to it"])
def test_nothing_is_kept_on_the_disk_where_that_is_off_or_impossible(tmp_path, monkeypatch, jax_without_a_folder, why):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(
        "TOPICZOO_CACHE", {"off": "off", "no folder can be made": str(tmp_path / "file" / "a")}.get(why, "")
    )
    if why == "somebody has seen to it":
        monkeypatch.setattr(type(jax.config), "jax_compilation_cache_dir", "/theirs")
    assert disk.keep_on_disk() is None and not jax_without_a_folder


def test_what_was_not_used_for_longest_goes_from_the_disk(tmp_path):
    for age in range(10):
        path = tmp_path / "machine" / f"{age}-cache"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(100))
        os.utime(path, (10**9 - age, 10**9 - age))
    disk.prune(tmp_path, most=1000)
    assert len(list(tmp_path.rglob("*-cache"))) == 10  # there is room
    disk.prune(tmp_path, most=900)
    assert sorted(path.name for path in tmp_path.rglob("*-cache")) == [f"{age}-cache" for age in range(6)]


def test_starting_does_not_wait_for_what_few_need(tmp_path):
    code = "import sys\nfrom topiczoo import corpora, models\nprint(sorted({0} & set(sys.modules)))"
    late = {"sklearn", "scipy.stats", "scipy.optimize", "xarray", "matplotlib", "arviz"}
    assert in_a_process(code.replace("{0}", repr(late)), HOME=str(tmp_path), TOPICZOO_CACHE="off") == "[]"
