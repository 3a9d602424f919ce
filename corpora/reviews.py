"""Simulated restaurant reviews: a demo corpus that ships as a grammar and whose truth is known.

A review spends its sentences on a few of five aspects of a visit. In one review an aspect is either good
or bad throughout, and the stars follow from what was said by the formula in `load_reviews`. The nouns of
an aspect serve both opinions, so topics found without the stars tend to be aspects, and topics found with
them tend to split into praise and blame.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, overload

import numpy as np
import pandas as pd

from .corpus import Corpus


def _phrases(text: str) -> list[str]:
    """The phrases of a text in which semicolons separate them, over any number of lines."""
    return [" ".join(phrase.split()) for phrase in text.split(";")]


class Wording(NamedTuple):
    """One opinion on one aspect. Deeds continue "The soup ..."; remarks are clauses of their own."""

    adjectives: list[str]
    deeds: list[str]
    remarks: list[str]


class Aspect(NamedTuple):
    """A side of the visit: its weight in the stars, its nouns (plural if they end in s), its wording."""

    weight: float
    nouns: list[str]
    good: Wording
    bad: Wording


ASPECTS = {
    "food": Aspect(
        weight=2.2,
        nouns=_phrases(
            """soup; salmon; risotto; steak; curry; salad; cheesecake; dumplings; noodles; mussels;
            potatoes"""
        ),
        good=Wording(
            _phrases("delicious; tender; fragrant; juicy; crisp; succulent; flavourful; creamy; zesty; scrumptious"),
            _phrases(
                """melted on the tongue; burst with flavour; tasted of herbs and lemon; deserved a second
                helping; balanced sweetness with spice; came in a silky buttery sauce; carried a smoky
                aroma; reminded me of my grandmother's recipes"""
            ),
            _phrases(
                """we wiped our plates clean; every mouthful was a delight; the chef loves ripe
                ingredients; even the garnish was worth savouring; I keep dreaming of another forkful"""
            ),
        ),
        bad=Wording(
            _phrases("bland; soggy; stale; rubbery; overcooked; tasteless; greasy; chewy; inedible; oversalted"),
            _phrases(
                """tasted of old frying oil; swam in a watery gravy; came straight from a freezer; stuck
                to the fork like glue; left a bitter aftertaste; crumbled into grey mush; smelled faintly
                sour; went back to the kitchen untouched"""
            ),
            _phrases(
                """my dog would have refused it; the microwave did the cooking; nobody finished a portion;
                it was burnt outside and raw inside; I suffered from a stomach ache afterwards"""
            ),
        ),
    ),
    "service": Aspect(
        weight=1.9,
        nouns=_phrases("waiter; manager; hostess at the door; bartender; sommelier; trainee; owner; servers; waiters"),
        good=Wording(
            _phrases(
                """attentive; friendly; courteous; helpful; polite; cheerful; gracious; knowledgeable;
                welcoming; thoughtful"""
            ),
            _phrases(
                """greeted us with a genuine smile; remembered our names; explained each dish with
                patience; refilled our glasses unasked; brought crayons for the children; handled my
                allergy expertly; recommended a lovely pairing; thanked us warmly"""
            ),
            _phrases(
                """we felt like honoured guests; such hospitality is rare; no request was any trouble;
                every need was anticipated; kindness came naturally to the team"""
            ),
        ),
        bad=Wording(
            _phrases(
                """rude; dismissive; careless; inattentive; surly; arrogant; clumsy; unhelpful;
                condescending; grumpy"""
            ),
            _phrases(
                """ignored our raised hands; mixed up the orders; spilled wine on my jacket; sighed at
                questions; slammed the plates down; snapped at my daughter; shrugged at our complaint;
                gossiped on the phone instead"""
            ),
            _phrases(
                """we felt like a nuisance; nobody bothered to say hello; an apology never followed; the
                attitude was insulting; basic manners were absent"""
            ),
        ),
    ),
    "price": Aspect(
        weight=1.6,
        nouns=_phrases(
            """price; cheque; set menu; lunch deal; wine list; total; tasting menu; prices; specials;
            cocktails"""
        ),
        good=Wording(
            _phrases(
                """reasonable; fair; affordable; modest; sensible; inexpensive; competitive; cheap;
                economical; generous"""
            ),
            _phrases(
                """left money in my wallet; stayed below our budget; offered terrific value; saved us a
                fortune; included coffee for free; suited student pockets; turned out to be a bargain;
                earned a discount with the loyalty stamp"""
            ),
            _phrases(
                """we paid happily and tipped extra; the coupon made it a steal; frugal families will
                rejoice; there were no hidden charges; you receive plenty for a few coins"""
            ),
        ),
        bad=Wording(
            _phrases(
                """overpriced; outrageous; exorbitant; steep; inflated; extortionate; unjustified;
                excessive; expensive; costly"""
            ),
            _phrases(
                """doubled what the website advertised; contained a sneaky surcharge; swallowed a week of
                wages; drained our holiday savings; required a mortgage; felt like daylight robbery;
                exceeded any sane limit; hid a compulsory gratuity"""
            ),
            _phrases(
                """my credit card is weeping; tourists are being fleeced; I regret each cent; a refund was
                denied; even tap water was invoiced"""
            ),
        ),
    ),
    "place": Aspect(
        weight=1.1,
        nouns=_phrases("dining room; terrace; garden; interior; patio; corner booth; entrance; hall; tables; rooms"),
        good=Wording(
            _phrases("cosy; elegant; charming; bright; stylish; spotless; romantic; airy; tranquil; picturesque"),
            _phrases(
                """glowed in candlelight; created a relaxed mood; invited us to linger; sparkled with
                mirrors; blended rustic timber with velvet; belonged in a design magazine; overlooked the
                harbour; resembled a Tuscan villa"""
            ),
            _phrases(
                """soft jazz drifted through the air; fresh flowers stood everywhere; the fireplace
                crackled; we admired the sunset by the river; lanterns hung from an oak"""
            ),
        ),
        bad=Wording(
            _phrases("noisy; cramped; dirty; gloomy; dingy; shabby; draughty; sticky; stuffy; dusty"),
            _phrases(
                """smelled of damp and bleach; needed repairs years ago; rattled with passing trucks;
                echoed with shouting; showed mould and peeling paint; attracted flies; hid cobwebs and
                crumbs; faced a garbage container"""
            ),
            _phrases(
                """the toilets were a disgrace; loud techno drowned our voices; a broken lamp flickered;
                the carpet had ugly stains; we shivered in our coats"""
            ),
        ),
    ),
    "waiting": Aspect(
        weight=1.4,
        nouns=_phrases(
            """queue; kitchen; order; reservation; opening course; seating; pace; starters; drinks;
            desserts"""
        ),
        good=Wording(
            _phrases("quick; prompt; swift; punctual; speedy; brisk; efficient; rapid; timely; effortless"),
            _phrases(
                """ran like clockwork; kept to the promised schedule; flowed without a hitch; respected
                our theatre deadline; beat my stopwatch; proceeded at a lively tempo; finished ahead of
                plan; delighted our impatient toddlers"""
            ),
            _phrases(
                """we were seated immediately; our booking was ready on arrival; we caught an early train;
                hardly a pause separated the courses; I barely unfolded my newspaper"""
            ),
        ),
        bad=Wording(
            _phrases(
                """slow; endless; delayed; late; sluggish; interminable; chaotic; disorganised; tedious;
                glacial"""
            ),
            _phrases(
                """dragged on for an hour; crawled like a snail; tested our patience; stalled without a
                reason; lasted longer than a film; vanished in a backlog; made us miss the tram; slipped
                towards midnight"""
            ),
            _phrases(
                """we stared at the clock; our babysitter went home; my stomach growled; people gave up
                and walked out; I nearly fell asleep standing"""
            ),
        ),
    ),
}

OPINION_TEMPLATES = [
    "the {noun} {was} {adjective} and {adjective}.",
    "the {noun} {deed}, and {remark}.",
    "we thought that the {noun} {was} {adjective}: {remark}.",
    "the {noun} {deed}.",
    "my husband agreed that the {noun} {deed}: {adjective}, in a word.",
    "to be honest, {remark}, because the {noun} {was} so {adjective}.",
    "this time the {noun} {was} {adjective} and {deed}.",
    "{remark}.",
]

NEUTRAL = {
    "template": [
        "we came on a {weather} {day} with {company}.",
        "I visited on a {weather} {day}, for {occasion}.",
        "it was {occasion}, and I brought {company}.",
        "we live {where}.",
        "you will find it {where}, next to {landmark}.",
        "{company} had told me about it.",
        "my last visit was in {month}, on a {weather} {day}.",
        "we walked there from {landmark}.",
    ],
    "weather": _phrases("rainy; sunny; windy; foggy; snowy; mild"),
    "day": _phrases("Monday; Tuesday; Wednesday; Thursday; Friday; Saturday; Sunday"),
    "company": _phrases("my parents; two colleagues; a cousin; an old friend; the neighbours; my choir"),
    "occasion": _phrases("a birthday; an anniversary; a reunion; a business meeting; a farewell party"),
    "where": _phrases("on the main street; behind the station; in the suburbs; near the market square"),
    "landmark": _phrases("the library; the museum; a bookshop; the town hall; the stadium"),
    "month": _phrases("January; March; May; July; October; December"),
}


class _Cards:
    """Decks of phrases to fill a template from: none comes twice before its deck is used up."""

    def __init__(self, rng: np.random.Generator, decks: dict[str, list[str]]) -> None:
        self.rng = rng
        self.decks = decks
        self.left: dict[str, list[int]] = {}
        self.verb = ""

    def __getitem__(self, slot: str) -> str:
        if slot == "was":
            return self.verb
        if not self.left.get(slot):
            self.left[slot] = self.rng.permutation(len(self.decks[slot])).tolist()
        phrase = self.decks[slot][self.left[slot].pop()]
        if slot == "noun":
            self.verb = "were" if phrase.endswith("s") else "was"
        return phrase

    def sentence(self) -> str:
        filled = self["template"].format_map(self)
        return filled[0].upper() + filled[1:]


def _review(rng: np.random.Generator) -> dict[str, str | float]:
    """One review of 6 to 14 sentences, with the share and the polarity of each aspect in it."""
    num_sentences = int(rng.integers(6, 15))
    num_neutral = 1 if num_sentences < 10 else 2
    num_opinions = num_sentences - num_neutral
    spoken = rng.multinomial(num_opinions, rng.dirichlet([0.6] * len(ASPECTS)))
    sentences = []
    row: dict[str, str | float] = {}
    for (name, aspect), times in zip(ASPECTS.items(), spoken.tolist(), strict=True):
        is_good = rng.random() < 0.55
        wording = aspect.good if is_good else aspect.bad
        decks = {
            "template": OPINION_TEMPLATES,
            "noun": aspect.nouns,
            "adjective": wording.adjectives,
            "deed": wording.deeds,
            "remark": wording.remarks,
        }
        cards = _Cards(rng, decks)
        sentences += [cards.sentence() for _ in range(times)]
        row[f"{name}_share"] = times / num_opinions
        row[f"{name}_polarity"] = 0.0 if times == 0 else 1.0 if is_good else -1.0
    neutral = _Cards(rng, NEUTRAL)
    places = [0, len(sentences) + 1][:num_neutral]
    for place in places:
        sentences.insert(place, neutral.sentence())
    return {"text": " ".join(sentences), **row}


@overload
def load_reviews(
    seed: int = 0, *, num_documents: int = 1000, return_aspects: Literal[False] = False
) -> tuple[Corpus, np.ndarray]: ...


@overload
def load_reviews(
    seed: int = 0, *, num_documents: int = 1000, return_aspects: Literal[True]
) -> tuple[Corpus, np.ndarray, pd.DataFrame]: ...


def load_reviews(
    seed: int = 0, *, num_documents: int = 1000, return_aspects: bool = False
) -> tuple[Corpus, np.ndarray] | tuple[Corpus, np.ndarray, pd.DataFrame]:
    """Simulate restaurant reviews and their stars; the same seed gives the same reviews.

    With share_a the part of a review's opinions that concern aspect a, polarity_a = +1 or -1 for praise
    or blame (0 if a goes unmentioned), and weight_a = 2.2 for food, 1.9 for service, 1.6 for price, 1.4
    for waiting and 1.1 for the place,

        y = 3 + sum_a weight_a share_a polarity_a + Normal(0, 0.3), kept within [1, 5], to one decimal.

    Parameters
    ----------
    num_documents : how many reviews; the first reviews are the same whatever their number.
    return_aspects : also return a DataFrame with the columns "text", "food_share", "food_polarity", ...

    Returns
    -------
    The corpus (lower-case words, English stop words removed), the stars [documents], and the aspects
    if asked for.
    """
    if num_documents < 1:
        raise ValueError(f"num_documents is {num_documents}: ask for at least one review")
    rng = np.random.default_rng(seed)
    reviews = []
    noise = []
    for _ in range(num_documents):
        reviews.append(_review(rng))
        noise.append(rng.normal(0.0, 0.3))
    aspects = pd.DataFrame(reviews)
    opinion = sum(
        aspect.weight * aspects[f"{name}_share"] * aspects[f"{name}_polarity"] for name, aspect in ASPECTS.items()
    )
    y = np.clip(3.0 + np.asarray(opinion) + noise, 1.0, 5.0).round(1)
    # the grammar's connecting phrases ("to be honest", "my husband agreed") are in most reviews and say nothing
    corpus = Corpus.from_texts(aspects["text"], stop_words="english", max_df=0.4, keep_texts=True)
    return (corpus, y, aspects.set_axis(corpus.names, axis=0)) if return_aspects else (corpus, y)
