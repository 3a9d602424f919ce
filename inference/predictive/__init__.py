"""What a fit says of documents that it has not seen, and of responses."""
