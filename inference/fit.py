class Fit:
    def __init__(self, story, corpus, posterior, **kw):
        self.story, self.corpus, self.draws = story, corpus, posterior
        self.__dict__.update(kw)
