"""Gibbs sampling: the plan that chooses blocks, where chains start, how they run, ratio tests."""
