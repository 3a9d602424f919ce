"""Documents that come in parts: minibatches as a bound story reads them, and shards of a corpus that lie in files."""
