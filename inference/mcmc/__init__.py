"""Gibbs sampling: blocks that draw sites from their conditionals, the plan that chooses them, chains, ratio tests."""
