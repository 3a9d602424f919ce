"""Posteriors: draws and means with what made them, as tables, DataTrees and files."""
