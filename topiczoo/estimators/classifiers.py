"""Topics with a response that is a class."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from scipy.special import softmax
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from topiczoo.inference.predictive.prediction import Prediction
from topiczoo.models import medlda, sage_facets, sage_nb, slda_glm, sstm
from topiczoo.models.catalogue import as_story

from .base import TopicEstimator


class _Classifier(ClassifierMixin, TopicEstimator):
    classes_: np.ndarray

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # where classes of real numbers are asked of shares of words
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Fit counts [documents, terms] and one label a document, of any kind."""
        X, y = validate_data(self, X, y, accept_sparse="csr")
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class, {self.classes_.tolist()[0]!r}; give documents of two classes or more.")
        return self._fit(X, lambda corpus: self._response(codes[corpus.source_rows]))

    def predict(self, X: Any) -> np.ndarray:
        """The class of each document: the most probable, or under a margin that of the least expected loss."""
        corpus = self._documents(X)
        shares = self._shares(self.fit_.predict(corpus, alike=True, calibrate=False))
        return self.classes_[shares.argmax(1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probabilities of the classes, [documents, classes], in the order of ``classes_``.

        A margin, and a class above the words, give none of their own: what they say of a class is tempered until it is as
        sure of the fitted documents as it is right (docs of ``Fit.predict``); no decision depends on it.
        """
        corpus = self._documents(X)
        return self._shares(self.fit_.predict(corpus, alike=True))

    def _response(self, codes: np.ndarray) -> Any:
        """Classes as the story takes them: by their names, which the fit then shows."""
        return pd.Categorical.from_codes(codes, _names(self.classes_))

    def _shares(self, prediction: Prediction) -> np.ndarray:
        if prediction.probabilities is None:
            raise ValueError(f"The story's response {prediction.site!r} is no class; use StoryRegressor.")
        if prediction.losses is not None and prediction.temperature is None:  # too few documents to temper them
            return softmax(-prediction.losses, axis=1)
        return prediction.probabilities


def _names(classes: np.ndarray) -> list[str]:
    """Labels as text, by which no two are the same."""
    names = [str(label) for label in classes.tolist()]
    return names if len(set(names)) == len(names) else [repr(label) for label in classes.tolist()]


class SLDAClassifier(_Classifier):
    """Supervised latent Dirichlet allocation with classes; the story is ``models.slda_glm``.

    Parameters
    ----------
    n_components : number of topics.
    response : None is "logit" for two classes and "softmax" for more; or "probit" for two, or "ordered" for classes whose
        sorted labels are in the order of their meaning.
    scale : prior deviation of the topics' coefficients; classes that words tell apart well want more, say 6.
    response_weight : the power of the response's likelihood; above 1 topics serve predictions (docs/weights.md).
    alpha, gamma : Dirichlet priors of a document's proportions and of a topic's terms: numbers, or "learned".
    engine : "gibbs", "vem", "svi" or "nuts".
    engine_options : settings of the engine, e.g. ``{"num_warmup": 500, "num_samples": 500, "num_chains": 4}`` of gibbs.
    story_options : further arguments of the story.
    random_state : a whole number is the engine's seed; None draws one from NumPy's global generator.
    verbose : whether a bar shows how far the engine is.
    """

    _arguments: ClassVar = ("alpha", "gamma", "scale")
    response: str | None

    def __init__(
        self, n_components: int = 20, *, response: str | None = None, scale: float = 2.0, response_weight: float = 1.0,
        alpha: float | str | Sequence[float] = 0.1, gamma: float | str = 0.1, engine: str = "gibbs",
        engine_options: Mapping[str, Any] | None = None, story_options: Mapping[str, Any] | None = None,
        random_state: Any = None, verbose: bool = False,
    ) -> None:  # fmt: skip
        self._keep(locals())

    def _story(self) -> Callable:
        return slda_glm

    def _told(self) -> dict[str, Any]:
        number = len(self.classes_)
        response = self.response or ("logit" if number == 2 else "softmax")
        if response in ("logit", "probit") and number > 2:
            raise ValueError(f"response is {response!r} for {number} classes; leave it out, or give 'softmax'.")
        told = {**super()._told(), "response": response}
        if response == "softmax":
            told["outputs"] = number
        return {**told, "options": {"num_classes": number}} if response == "ordered" else told


class SSTMClassifier(_Classifier):
    """Sparse supervised topics with classes, by probit; the story is ``models.sstm``.

    More than two classes are as many probit responses side by side, one a class against the others, that share topics;
    their probabilities are divided by their sum. ``fit_.select()`` says which topics count.

    Parameters
    ----------
    prior : of the coefficients: "laplace", "horseshoe", "spike_and_slab", "dense", or a function.
    nu : scale of the coefficients; None: it is drawn.

    The others are those of :class:`SLDAClassifier`.
    """

    _arguments: ClassVar = ("alpha", "gamma", "prior", "nu")

    def __init__(
        self, n_components: int = 50, *, prior: str | Callable = "laplace", nu: float | None = None,
        response_weight: float = 1.0, alpha: float | str | Sequence[float] = 0.1, gamma: float | str = 0.1,
        engine: str = "gibbs", engine_options: Mapping[str, Any] | None = None,
        story_options: Mapping[str, Any] | None = None, random_state: Any = None, verbose: bool = False,
    ) -> None:  # fmt: skip
        self._keep(locals())

    def _story(self) -> Callable:
        return sstm

    def _told(self) -> dict[str, Any]:
        several = {"outputs": len(self.classes_)} if len(self.classes_) > 2 else {}
        return {**super()._told(), "response": "probit", **several}

    def _response(self, codes: np.ndarray) -> Any:
        return super()._response(codes) if len(self.classes_) == 2 else np.eye(len(self.classes_))[codes]

    def _shares(self, prediction: Prediction) -> np.ndarray:
        if len(self.classes_) == 2:
            return super()._shares(prediction)
        return prediction.mean / prediction.mean.sum(1, keepdims=True)


class MedLDAClassifier(_Classifier):
    """Max-margin supervised topics for classes; the story is ``models.medlda``.

    Parameters
    ----------
    margin : "classes" (Crammer & Singer), "one_against_all", or for two classes "binary".
    weight, cost : of a document's loss, and how far classes shall be apart.
    prior, nu : of the coefficients, and its scale.

    The others are those of :class:`SLDAClassifier`.
    """

    _arguments: ClassVar = ("alpha", "gamma", "margin", "weight", "cost", "prior", "nu")
    margin: str

    def __init__(
        self, n_components: int = 40, *, margin: str = "classes", weight: float = 1.0, cost: float = 16.0,
        prior: str | Callable = "dense", nu: float = 1.0, response_weight: float = 1.0,
        alpha: float | str | Sequence[float] = 0.1, gamma: float | str = 0.05, engine: str = "gibbs",
        engine_options: Mapping[str, Any] | None = None, story_options: Mapping[str, Any] | None = None,
        random_state: Any = None, verbose: bool = False,
    ) -> None:  # fmt: skip
        self._keep(locals())

    def _story(self) -> Callable:
        return medlda

    def _told(self) -> dict[str, Any]:
        several = {} if self.margin == "binary" else {"outputs": len(self.classes_)}
        return {**super()._told(), **several}


class SAGEClassifier(_Classifier):
    """Sparse additive generative models: words of a class deviate from all words, in few terms.

    Without topics the story is ``models.sage_nb``, naive Bayes: :attr:`components_` are the deviations of the classes from
    the log frequencies of terms, [classes, terms], and :meth:`transform` gives the probabilities of the classes. With topics
    it is ``models.sage_facets``: every class has its own version of each topic, and of these the means are
    :attr:`components_`.

    Parameters
    ----------
    n_components : number of topics; None: none.
    prior : of a term's deviation: "laplace" or "jeffreys"; None: "laplace" without topics, "jeffreys" with them.
    scale : of "laplace".
    alpha : with topics, Dirichlet prior of a document's proportions.

    The others are those of :class:`SLDAClassifier`.
    """

    _arguments: ClassVar = ("scale",)
    prior: str | None
    alpha: float | str | Sequence[float]

    def __init__(
        self, n_components: int | None = None, *, prior: str | None = None, scale: float = 3.0,
        alpha: float | str | Sequence[float] = 0.1, engine: str = "gibbs",
        engine_options: Mapping[str, Any] | None = None, story_options: Mapping[str, Any] | None = None,
        random_state: Any = None, verbose: bool = False,
    ) -> None:  # fmt: skip
        self._keep(locals())

    def _story(self) -> Callable:
        return sage_nb if self.n_components is None else sage_facets

    def _told(self) -> dict[str, Any]:
        told = {**super()._told(), "outputs": len(self.classes_)}
        if self.prior is not None:
            told["prior"] = self.prior
        return told if self.n_components is None else {**told, "alpha": self.alpha}


class StoryClassifier(_Classifier):
    """A story of your own, ``story(corpus, y=None, *, ...)``, whose response is a class.

    Parameters
    ----------
    story : the function, or the name of a story of the zoo. One that takes ``outputs`` is given the number of classes.
    n_components : the story's ``num_topics``; None leaves the story's own default, or its other name to ``story_options``.
    story_options : arguments of the story.

    The others are those of :class:`SLDAClassifier`. A pickle holds the story by its name: whoever reads it must be able to
    import it from where it was defined.
    """

    _arguments: ClassVar = ()
    story: str | Callable

    def __init__(
        self, story: str | Callable, n_components: int | None = None, *, response_weight: float = 1.0,
        engine: str = "gibbs", engine_options: Mapping[str, Any] | None = None,
        story_options: Mapping[str, Any] | None = None, random_state: Any = None, verbose: bool = False,
    ) -> None:  # fmt: skip
        self._keep(locals())

    def _story(self) -> Callable:
        return self.story  # type: ignore[return-value]

    def _told(self) -> dict[str, Any]:
        takes = "outputs" in inspect.signature(as_story(self.story)).parameters
        return {**super()._told(), **({"outputs": len(self.classes_)} if takes else {})}
