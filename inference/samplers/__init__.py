"""Random numbers: gammas and Dirichlets in bulk, Polya-Gamma, generalised inverse Gaussian, truncated normal, and uniforms
that belong to a token."""
