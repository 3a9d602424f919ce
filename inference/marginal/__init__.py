"""Stories with their topics summed out, for NUTS and stochastic variational inference."""
