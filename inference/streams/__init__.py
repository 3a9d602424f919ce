"""Minibatches: documents in batches of one size, from files or from memory, as a bound story reads them."""
