"""Gibbs blocks: kernels that draw some sites from their conditional given all others, and the registry of their kinds."""
