"""Every block's conditional against the story's own log-density, on the zoo's stories and on edited ones."""

from __future__ import annotations

import pytest
import stories

from topiczoo import inference, models
from topiczoo.inference import sweep
from topiczoo.inference.blocks import DirichletBlock
from topiczoo.inference.gibbs_engine import choose_blocks
from topiczoo.inference.reading import read


def run_check(story, counts=False, **arguments):
    corpus, y = stories.small(counts)
    responses = () if story in (models.lda, models.mixture) else (y,)
    return inference.check(story, corpus, *responses, num_documents=3, num_tokens=4, **arguments)


@pytest.mark.parametrize("story", [models.lda, models.slda, models.mixture, *stories.REAL], ids=lambda s: s.__name__)
def test_every_block_is_the_conditional_of_the_story(story):
    arguments = {"num_topics": 3} if story.__module__.startswith("topiczoo") else {}
    table = run_check(story, **arguments)
    assert table["passes"].all(), table.to_string()


@pytest.mark.parametrize("story", stories.COUNTS, ids=lambda s: s.__name__)
def test_counted_responses_need_no_new_code(story):
    table = run_check(story, counts=True)
    assert table["passes"].all(), table.to_string()


@pytest.mark.parametrize("story", [models.lda, models.slda], ids=lambda s: s.__name__)
def test_fully_collapsed_sampler(story):
    table = run_check(story, num_topics=3, collapse="topics")
    assert "fully collapsed sampler" in set(table["block"])
    assert table["passes"].all(), table.to_string()


def test_wrong_exponent_in_the_response_is_caught(monkeypatch):
    right = sweep.BlockSweep.response
    monkeypatch.setattr(sweep.BlockSweep, "response", lambda self, lanes: 2 * right(self, lanes))
    table = run_check(models.slda, num_topics=3)
    assert list(table["passes"]) == [True, True, True, False], table.to_string()


def test_forgotten_count_is_caught(monkeypatch):
    right = sweep.BlockSweep.move

    def forgetful(self, lanes, topic, step):
        return right(self, lanes, topic, abs(step))

    monkeypatch.setattr(sweep.BlockSweep, "move", forgetful)
    assert not run_check(models.lda, num_topics=3)["passes"].all()


def test_wrong_prior_is_caught(monkeypatch):
    right = DirichletBlock.conditional

    def wrong(self, values, corpus, y):
        conditional = right(self, values, corpus, y)
        return type(conditional)(conditional.concentration + 1)

    monkeypatch.setattr(DirichletBlock, "conditional", wrong)
    assert not run_check(models.lda, num_topics=3)["passes"].all()


def served(story, counts=False, **arguments):
    corpus, y = stories.small(counts)
    responses = None if story in (models.lda, models.mixture) else y
    return choose_blocks(read(story, corpus, responses, arguments)).describe()


def test_blocks_are_chosen_by_what_the_story_says():
    assert served(models.slda) == {
        "beta": "Dirichlet draw", "eta": "normal draw", "sigma": "generalised inverse Gaussian draw",
        "z": "topic sweep, theta integrated out", "theta": "topic sweep, theta integrated out",
    }  # fmt: skip
    assert served(stories.asymmetric_alpha)["variance"] == "generalised inverse Gaussian draw"
    assert served(stories.student_t)["eta"] == "normal draw given auxiliary variables"
    assert served(stories.laplace_eta)["eta"] == "normal draw given auxiliary variables"
    assert served(stories.poisson, counts=True)["eta"] == "NUTS given the rest"
    assert served(stories.random_effect)["effect"] == "NUTS given the rest"
    assert served(stories.learned_alpha)["alpha"] == "NUTS given the rest"


@pytest.mark.parametrize("story", [stories.response_reads_theta, stories.logistic_normal], ids=lambda s: s.__name__)
def test_theta_that_cannot_be_integrated_out_is_kept(story):
    assert served(story)["z"] == "topic sweep given theta"


@pytest.mark.parametrize("story", [stories.centred, stories.total_only], ids=lambda s: s.__name__)
def test_linked_documents_are_refused_by_name(story):
    with pytest.raises(ValueError, match=f"{story.__name__}.*links documents"):
        served(story)


def test_a_discrete_latent_nobody_owns_is_refused_by_name():
    with pytest.raises(ValueError, match="Nobody owns the discrete site 'switch'"):
        served(stories.global_switch)
