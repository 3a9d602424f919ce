"""Variational EM: expectations of topics given parameters, parameters given expectations."""
