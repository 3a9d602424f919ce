"""A response below the topics of any story: coefficients from a prior, and a law of y, or a margin, around zbar @ eta."""

from __future__ import annotations

import jax.numpy as jnp
import numpyro

from .arguments import BadArgument, check_choice
from .coefficients import COEFFICIENTS
from .margins import EpsilonInsensitive, Hinge, MultiClassHinge, OneAgainstAll
from .responses import RESPONSES

MARGINS = {"hinge": Hinge, "classes": MultiClassHinge, "one_against_all": OneAgainstAll, "margin": EpsilonInsensitive}
OF_CLASSES = ("softmax", "classes", "one_against_all")
BELOW = {**RESPONSES, **MARGINS}


def draw_response(corpus, zbar, num_topics, y=None, response=None, prior="dense", outputs=None):
    """eta ~ prior;  y_d ~ response(eta . zbar_d): one line that puts a response on any story; none if ``response`` is None.

    ============  ==================================================================================
    argument      what it is
    ============  ==================================================================================
    zbar          the value of ``draw_words``
    num_topics    of zbar
    y             as the story was given it
    response      None, a name in ``models.RESPONSES``, a margin ("hinge", "classes", "one_against_all" or "margin", of
                  numbers), or a function from the predictor to a distribution of y
    prior         of the coefficients: a name in ``models.COEFFICIENTS`` ("dense", "laplace", ...), or a function
    outputs       columns of eta: how many classes, or responses side by side of "normal"
    ============  ==================================================================================

    Call it outside all plates, below ``draw_words``.
    """
    if response is None:
        if y is not None:
            raise BadArgument("y is given and response is None; name its law, e.g. response='normal', or leave y out.")
        return
    _check(y, response, prior, outputs)
    shape = [num_topics] if outputs is None else [num_topics, outputs]
    eta = (COEFFICIENTS[prior] if isinstance(prior, str) else prior)(shape)
    distribution = (BELOW[response] if isinstance(response, str) else response)(zbar @ eta)
    with numpyro.plate("documents", corpus.num_documents):
        numpyro.sample("y", distribution, obs=y)


def _check(y, response, prior, outputs):
    check_choice("response", response, BELOW, ", or a function")
    check_choice("prior", prior, COEFFICIENTS, ", or a function")
    if not isinstance(response, str):
        return
    if outputs is None and response in OF_CLASSES:
        raise BadArgument(
            f"outputs is missing for the response {response!r}; give the number of classes, outputs=3 say."
        )
    if outputs is not None and response not in (*OF_CLASSES, "normal"):
        raise BadArgument(f"outputs is {outputs}, but the response {response!r} has one; leave outputs out.")
    columns = () if y is None else jnp.shape(y)[1:]
    if columns and not (response == "normal" and columns == (outputs,)):
        raise BadArgument(f"y has {columns[0]} columns for the response {response!r} with outputs {outputs}; give one "
                          "number a document, or response='normal' with as many outputs.")  # fmt: skip
