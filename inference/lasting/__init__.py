"""Runs that last: what a run is at a moment, written to a folder, and taken up again."""
