"""Stories with structure above the words: correlated and covaried proportions, seeded, labelled, dynamic and growing topics.

Those with words of several topics end in ``draw_response``, so that a response, a margin or a sparse prior of coefficients
is a matter of arguments.
"""
