"""Whether chains agree: topics matched across them, numbers judged, a verdict in plain words."""
