"""Concentrations of Dirichlet priors: given, or drawn from a prior of their own."""

from __future__ import annotations

import numpyro
import numpyro.distributions as dist

from .arguments import BadArgument

LEARNED = "learned"


def concentration(name, value=LEARNED, shape=(), *, mean=0.1):
    """A Dirichlet's concentration: ``value`` as it is given, or one that is drawn and so learned from the documents.

    ============  ==================================================================================
    argument      what it is
    ============  ==================================================================================
    name          of the sample site, where there is one
    value         a number or an array: the concentration; "learned": name ~ Exponential(1 / mean)
    shape         (): one number for all; [num_topics]: one a topic, so that some topics are common and others rare
    mean          of the prior, which is wide: half of it lies outside 0.03 to 0.14 for 0.1
    ============  ==================================================================================

    With ``shape=[num_topics]`` these are Wallach, Mimno & McCallum's (2009) asymmetric proportions: the shares
    alpha / sum(alpha) are uniform beforehand, and their sum is Gamma(num_topics, 1 / mean). Call it outside all plates.
    """
    if isinstance(value, str):
        if value != LEARNED:
            raise BadArgument(f"{name} is {value!r}; give a positive number, an array of them, or {LEARNED!r}.")
        return numpyro.sample(name, dist.Exponential(1 / mean).expand(list(shape)).to_event(len(shape)))
    return value
