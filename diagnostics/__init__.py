"""From a posterior to checks, metrics and a report; knows no model and no engine's internals."""

if not __name__.startswith("topiczoo."):
    raise ImportError(f"Import topiczoo.{__name__}; plain {__name__} would be a second copy of it.")

from .alignment import Alignment, align
from .calibration import Calibration, calibrate, geweke
from .class_topics import ClassTopics, class_topics
from .diagnosis import Diagnosis, diagnose
from .held_out import HeldOut, perplexity
from .invariants import invariants
from .pointwise import with_log_likelihood
from .predictive_scores import scores
from .reporting import report
from .response_checks import check_response
from .topic_quality import coherence, diversity, entropy
from .word_checks import WordCheck, check_words

__all__ = [
    "Alignment", "Calibration", "ClassTopics", "Diagnosis", "HeldOut", "WordCheck", "align", "calibrate", "check_response",
    "check_words", "class_topics", "coherence", "diagnose", "diversity", "entropy", "geweke", "invariants", "perplexity",
    "report", "scores", "with_log_likelihood",
]  # fmt: skip
