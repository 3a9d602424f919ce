"""What the estimators share: counts become a corpus, an engine fits the story, and its Fit answers."""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted, check_non_negative, validate_data

from topiczoo import inference
from topiczoo.corpora import Corpus
from topiczoo.inference import Fit
from topiczoo.models.catalogue import as_story

ENGINES = ("gibbs", "vem", "svi", "nuts")
SEEDS = 2**31 - 1


class TopicEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A story with the manners of scikit-learn.

    X is a table of counts [documents, terms]: sparse, dense, or a DataFrame whose columns name the terms. Counts are whole
    numbers; tf-idf weights are none and are refused. Rows without a word are left out of the fit; where they are asked for,
    their topics and responses are those that the prior expects.

    Attributes
    ----------
    fit_ : the :class:`topiczoo.inference.Fit`, with draws, tables, predictions with intervals, and a file of its own;
        ``diagnostics.diagnose(estimator.fit_)`` says whether to trust it.
    components_ : mean topics of the first chain, [topics, terms]; those of :meth:`transform`.
    n_features_in_, feature_names_in_ : columns of X, and their names where X had some.
    """

    _arguments: ClassVar[tuple[str, ...]] = ("alpha", "gamma")  # parameters that the story takes by the same name

    # of every subclass: get_params, and so clone and grid search, read the signature of its own __init__
    n_components: int | None
    engine: str
    engine_options: Mapping[str, Any] | None
    story_options: Mapping[str, Any] | None
    random_state: Any
    verbose: bool
    fit_: Fit
    components_: np.ndarray

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        # counts: of scikit-learn's tags this one says that columns hold whole numbers from 0 and no measurements
        tags.input_tags.categorical = True
        tags.transformer_tags.preserves_dtype = []  # proportions are float32, as the engines compute them
        return tags

    def _keep(self, given: Mapping[str, Any]) -> None:
        """The arguments of a constructor, as they are: get_params finds them by their names, and nothing is checked before
        ``fit``, as scikit-learn asks."""
        for name in given.keys() - {"self"}:
            setattr(self, name, given[name])

    def transform(self, X: Any) -> np.ndarray:
        """Expected topic proportions given the words, [documents, topics], by the topics of the first chain."""
        corpus = self._documents(X)
        return self.fit_.transform(corpus, alike=True)

    def topics(self, n: int = 10, feature_names: Iterable[str] | None = None, **options: Any) -> pd.DataFrame:
        """The leading terms of every topic, with its coefficient where there is one: ``fit_.topics``.

        In a pipeline the vectoriser knows the words: ``topics(10, pipeline[:-1].get_feature_names_out())``.
        """
        check_is_fitted(self, "fit_")
        fit = self.fit_
        if feature_names is not None:
            named = Corpus.from_counts(fit.corpus.counts, feature_names)
            fit = replace(fit, corpus=replace(fit.corpus, vocabulary=named.vocabulary))
        return fit.topics(n, **options)

    def _story(self) -> Callable:
        """The story that is fitted."""
        raise NotImplementedError

    def _told(self) -> dict[str, Any]:
        """The story's arguments, as far as the parameters of the estimator say them."""
        told = {name: getattr(self, name) for name in self._arguments}
        if self.n_components is not None:
            told["num_topics"] = self.n_components
        return told

    def _fit(self, X: Any, respond: Callable[[Corpus], Any] | None = None) -> Self:
        """Fit validated counts; ``respond`` gives the responses of the documents that have words."""
        corpus = self._corpus(X, empty="drop")
        engine, options = self._engine()
        story = as_story(self._story())
        if (own := self.n_components) is not None and not (isinstance(own, numbers.Integral) and own > 0):
            raise ValueError(f"n_components is {own!r}; give a whole number of at least 1.")
        self._check_arguments(story)
        arguments = {**self._told(), **(self.story_options or {})}
        for name, made_of in getattr(story, "from_corpus", {}).items():  # a story may say which of its arguments do
            arguments.setdefault(name, made_of(corpus))
        y = () if respond is None else (respond(corpus),)
        self.fit_ = engine(
            story, corpus, *y, seed=self._seed(), progress_bar=bool(self.verbose), **options, **arguments
        )
        self.components_ = self._components()
        return self

    def _check_arguments(self, story: Callable) -> None:
        """What the story must be able to take."""
        taken = inspect.signature(story).parameters.values()
        if any(p.kind is p.VAR_KEYWORD for p in taken):
            return
        known = [p.name for p in taken if p.kind is not p.POSITIONAL_ONLY][1:]
        name = getattr(story, "__name__", type(story).__name__)
        if self.n_components is not None and "num_topics" not in known:
            raise ValueError(
                f"n_components is {self.n_components}, and the story {name!r} takes no num_topics; leave it out, and give "
                "what the story calls it in story_options."
            )
        for option in self.story_options or {}:
            if option not in known or option == "y":
                own = ", ".join(each for each in known if each != "y")
                raise ValueError(
                    f"story_options has {option!r}, which is no argument of the story {name!r}; it has {own}."
                )

    def _engine(self) -> tuple[Callable[..., Fit], dict[str, Any]]:
        if self.engine not in ENGINES:
            raise ValueError(f"engine is {self.engine!r}; choose from {', '.join(map(repr, ENGINES))}.")
        engine, options = getattr(inference, self.engine), dict(self.engine_options or {})
        if (weight := getattr(self, "response_weight", 1.0)) != 1.0:
            options["response_weight"] = weight
        reserved = ("story", "corpus", "y", "seed", "progress_bar", "arguments")
        known = [name for name in inspect.signature(engine).parameters if name not in reserved]
        for name in options:
            if name not in known:
                raise ValueError(
                    f"engine_options has {name!r}, which is no setting of {self.engine!r}; it has {', '.join(known)}."
                )
        return engine, options

    def _seed(self) -> int:
        """random_state where it is a number, so that an engine that is given it as its seed finds the same."""
        if isinstance(self.random_state, numbers.Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(SEEDS))

    def _components(self) -> np.ndarray:
        """What words are drawn from: topics, [topics, terms], or what a story without topics has of terms."""
        if self.fit_.has_topics:
            return self.fit_.topic_terms(0)
        (site, *_) = [name for name, dims in self.fit_.graph.dims.items() if dims and dims[-1] == "term"]
        return self.fit_.mean(site, chain=0)

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def _corpus(self, X: Any, empty: str) -> Corpus:
        check_non_negative(X, type(self).__name__)
        try:
            return Corpus.from_counts(X, getattr(self, "feature_names_in_", None), empty=empty)
        except ValueError as error:
            raise ValueError(f"X is no table of counts: {error}") from None

    def _documents(self, X: Any) -> Corpus:
        """New documents, those without a word among them."""
        check_is_fitted(self, "fit_")
        return self._corpus(validate_data(self, X, reset=False, accept_sparse="csr"), empty="keep")
