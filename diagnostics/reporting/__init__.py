"""The report: one HTML file from verdict to how to reproduce it."""
