"""Whether a story fits the data, and an engine the story."""
