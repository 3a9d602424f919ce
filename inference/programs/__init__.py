"""Compiled programs: which are the same, kept in the process and on the disk."""
