"""Figures of a fit, one call each: topics, coefficients, the map of topics, correlations, predictions, documents."""
