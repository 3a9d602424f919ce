"""How well a fit predicts words and responses that it has not seen."""
