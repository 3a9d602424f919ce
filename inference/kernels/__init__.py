"""Arrays only: the topic sweep, the E-step for words, samplers, small matrices, work shared out to threads. No story."""
