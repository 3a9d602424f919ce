"""Several views of a document that share its proportions: languages, or words beside tags."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from ..vocabulary.arguments import BadArgument
from ..vocabulary.priors import concentration
from ..vocabulary.responding import draw_response
from ..vocabulary.words import draw_words


def polylingual_lda(
    corpus, y=None, *, views, num_topics=20, alpha=0.1, gamma=0.1, response=None, prior="dense", outputs=None
):
    """theta_d ~ Dir(alpha);  beta_lk ~ Dir(gamma);  z_dn ~ Cat(theta_d);  w_dn ~ Cat(beta_{l, z_dn}) with l the word's view

    ============  ===============  =========================================
    argument      symbol           in Mimno et al. (2009), section 3
    ============  ===============  =========================================
    views         l                the view of each term, 0, 1, ..., [terms]: its language, say
    num_topics    T                number of topics
    alpha         alpha            Dirichlet prior of a document's proportions; one number, one a topic, or "learned"
    gamma         beta             Dirichlet prior of a topic's terms in one view; a number, or "learned"
    response ...  (none)           response, prior and outputs: a response below, as in ``models.draw_response``
    ============  ===============  =========================================

    A document is its views side by side, its terms those of all views. Which view a word is in is known: it is given
    1 / L, the same for all topics. The site beta_l has the topics of view l. A view may be empty in some documents.
    """
    views = np.asarray(views)
    number = int(views.max()) + 1 if views.size else 0
    if views.shape != (corpus.num_terms,) or set(views.tolist()) != set(range(number)):
        raise BadArgument(
            f"views has shape {views.shape} for {corpus.num_terms} terms, or leaves a number out; give each term's, from 0."
        )
    alpha, gamma = concentration("alpha", alpha, [num_topics]), concentration("gamma", gamma)
    parts = []
    for view in range(number):
        with numpyro.plate("topics", num_topics):
            terms = jnp.full((views == view).sum(), gamma)
            parts.append(numpyro.sample(f"beta_{view}", dist.Dirichlet(terms)) / number)
    place = np.argsort(np.argsort(views, kind="stable"))  # of each term among those of all views
    beta = jnp.concatenate(parts, 1)[:, place]
    with numpyro.plate("documents", corpus.num_documents):
        theta = numpyro.sample("theta", dist.Dirichlet(jnp.full(num_topics, alpha)))
    zbar = draw_words(corpus, theta, beta)
    draw_response(corpus, zbar, num_topics, y, response, prior, outputs)
