"""The stories, one file each, and the vocabulary they are written in."""

if not __name__.startswith("topiczoo."):
    raise ImportError(f"Import topiczoo.{__name__}; plain {__name__} would be a second copy of it.")

from .additive import DEVIATIONS, background, sage_facets, sage_geo, sage_nb, sage_topics, share_of_zeros
from .categorical_mixture import mixture
from .discriminative import disclda
from .generalised import slda_glm
from .latent_dirichlet import lda
from .max_margin import medlda
from .regions import find_regions
from .sparse import sstm
from .structured.content import stm_content
from .structured.correlated import ctm
from .structured.dynamic import dtm
from .structured.growing import dp_mixture, hdp, stick_shares
from .structured.labelled import labelled_lda
from .structured.prevalence import dmr, stm
from .structured.raters import slda_raters
from .structured.seeds import keyatm, seed_words, seeded_lda
from .structured.sentences import htmm
from .structured.views import polylingual_lda
from .supervised import slda
from .vocabulary.coefficients import COEFFICIENTS
from .vocabulary.distributions import NormalJeffreys
from .vocabulary.margins import EpsilonInsensitive, Hinge, MultiClassHinge, OneAgainstAll
from .vocabulary.priors import concentration
from .vocabulary.responding import draw_response
from .vocabulary.responses import RESPONSES
from .vocabulary.words import draw_bags, draw_words

__all__ = [
    "COEFFICIENTS", "DEVIATIONS", "RESPONSES", "EpsilonInsensitive", "Hinge", "MultiClassHinge", "NormalJeffreys",
    "OneAgainstAll", "background", "concentration", "ctm", "disclda", "dmr", "dp_mixture", "draw_bags",
    "draw_response", "draw_words", "dtm", "find_regions", "hdp", "htmm", "keyatm", "labelled_lda", "lda", "medlda",
    "mixture", "polylingual_lda", "sage_facets", "sage_geo", "sage_nb", "sage_topics", "seed_words", "seeded_lda",
    "share_of_zeros", "slda", "slda_glm", "slda_raters", "sstm", "stick_shares", "stm", "stm_content",
]  # fmt: skip
