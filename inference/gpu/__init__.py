"""The topic sweep as one kernel of a GPU, written in Pallas for Triton; :mod:`..kernels.sweep` is the same in plain JAX."""
