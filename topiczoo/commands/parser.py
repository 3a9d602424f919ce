"""What each command takes: arguments, options, what they are for, and an example that works."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

Run = Callable[[argparse.Namespace], int]
Commands = Mapping[str, argparse.ArgumentParser]
FORMATS = ("csv", "tsv", "parquet", "jsonl", "ldac", "folder")
ENGINES = ("gibbs", "nuts", "svi", "vem")
STORY = "a story of the zoo (topiczoo models), or file.py:function"
DATA = "CSV, TSV, Parquet, JSON lines, LDA-C, or a folder of text files"


def build_parser(version: str, runs: Mapping[str, Run]) -> tuple[argparse.ArgumentParser, Commands]:
    """The parser of the command line, and those of its commands by name; ``runs`` has what each of them does."""
    parser = argparse.ArgumentParser(
        "topiczoo", description="Topic models for text with responses, as editable stories.",
        epilog="topiczoo COMMAND --help says more, with an example.",
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=f"topiczoo {version}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    found = {}
    for add in (_demo, _models, _simulate, _fit, _resume, _compare, _topics, _predict, _report, _check):
        name = add.__name__.removeprefix("_")
        help, description, example = (add.__doc__ or "").split("\n\n")
        text = " ".join(f"{help} {description}".split())
        command = commands.add_parser(
            name, help=_small(help.strip().rstrip(".")), description=text, allow_abbrev=False,
            epilog="example:\n  " + " ".join(example.split()), formatter_class=_Layout,
        )  # fmt: skip
        add(command)
        command.set_defaults(run=runs[name])
        found[name] = command
    return parser, found


def of_unknown(name: str, command: argparse.ArgumentParser, word: str) -> str:
    """What to say of a word that a command does not know."""
    known = {option for action in command._actions for option in action.option_strings}
    if not word.startswith("-"):
        where = "; the file that is written is named by --out" if "--out" in known else ""
        return f"{word!r} is one argument too many{where}."
    if "--set" in known:
        example = f"--set num_topics=10; topiczoo {name} --help lists the options"
        return f"there is no option {word!r}: arguments of the story and the engine are given by --set, e.g. {example}."
    return f"there is no option {word!r}; topiczoo {name} --help lists those there are."


class _Layout(argparse.HelpFormatter):
    """Paragraphs are filled, and the example stays a line that can be copied."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith("example:") else super()._fill_text(text, width, indent)


def _small(text: str) -> str:
    return " ".join((text[0].lower() + text[1:]).split())


def _writing(command: argparse.ArgumentParser) -> None:
    command.add_argument("--force", action="store_true", help="replace results that are there")
    _config(command)


def _config(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--config", metavar="TOML", help="options in a file, by their long names; those given here win over it"
    )


def _reading(command: argparse.ArgumentParser, *, of: str = "DATA", fitted: bool = False) -> None:
    group = command.add_argument_group(f"how {of} is read")
    group.add_argument("--text", metavar="COLUMN", help=f"column of texts ({'that of the fit' if fitted else 'text'})")
    group.add_argument("--id", metavar="COLUMN", help="column of names of documents, carried into predictions")
    group.add_argument("--covariates", metavar="A,B", help="columns that the story reads as corpus.covariates")
    group.add_argument("--format", choices=FORMATS, help="how it is written (by the ending of its name)")
    group.add_argument("--delimiter", metavar="CHARACTER", help="between the cells of a row, or 'tab' (guessed)")
    group.add_argument("--encoding", metavar="NAME", help="utf-8, utf-16, cp1252, ... (guessed)")
    terms = "LDA-C's terms" if fitted else "LDA-C's terms, or the only ones to count"
    group.add_argument("--vocabulary", metavar="FILE", help=f"a term a line: {terms}")


def _response(command: argparse.ArgumentParser, *, of: str = "DATA") -> None:
    group = command.add_argument_group("responses")
    group.add_argument("--y", metavar="COLUMN", help=f"column of responses of {of}")
    group.add_argument("--responses", metavar="FILE", help="responses of LDA-C, one a line")


def _standardising(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--standardise", action="store_true", help="fit y in standard units; predictions come back in its own"
    )


def _words(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("words of texts")
    group.add_argument("--min-df", metavar="N", help="leave out terms of fewer documents, or a smaller share (2)")
    group.add_argument(
        "--max-df", metavar="N", help="leave out terms of more documents, or of a larger share such as 0.5"
    )
    group.add_argument("--stop-words", metavar="FILE", help="terms to leave out: a file, english, or none (english)")
    group.add_argument("--ngrams", metavar="FROM,TO", help="terms of so many words, such as 1,2 (1,1)")
    group.add_argument(
        "--keep-texts", action="store_true", help="save the texts with the fit, so that its reports show them"
    )


def _settings(command: argparse.ArgumentParser, whose: str) -> None:
    command.add_argument("--set", action="append", default=[], metavar="NAME=VALUE",
                         help=f"an argument of {whose}, e.g. --set num_topics=10; may be repeated")  # fmt: skip


def _saved_fit(command: argparse.ArgumentParser) -> None:
    command.add_argument("fit", metavar="FIT", help="a saved fit")
    command.add_argument("--story", metavar="FILE.PY:FUNCTION", help="the fit's story, where it is not one of the zoo")


def _seed(command: argparse.ArgumentParser) -> None:
    command.add_argument("--seed", type=int, default=0, help="of random numbers (0)")


def _documents(command: argparse.ArgumentParser) -> None:
    """Documents with responses, read from a file."""
    _response(command)
    _standardising(command)
    _reading(command)
    _words(command)


def _fitting(command: argparse.ArgumentParser, *, out: str) -> None:
    """A story, the documents that it is fitted to, and by what."""
    command.add_argument("story", metavar="STORY", help=STORY)
    command.add_argument("data", metavar="DATA", help=DATA)
    command.add_argument("out", metavar="OUT", help=out)
    command.add_argument("--engine", default="gibbs", choices=ENGINES, help="(gibbs)")
    _settings(command, "the story or the engine")
    _seed(command)
    _writing(command)
    _documents(command)


def _demo(command: argparse.ArgumentParser) -> None:
    """Fit supervised LDA to simulated restaurant reviews and look at it.

    The report goes beside the fit.

    topiczoo demo --out demo.nc
    """
    command.add_argument(
        "--out", default="demo-fit.nc", help="where the fit is saved (demo-fit.nc); the report goes beside it (.html)"
    )
    _seed(command)
    _writing(command)


def _models(command: argparse.ArgumentParser) -> None:
    """List the stories that come with the zoo, or print the card of one.

    Each with its first sentence and its arguments, which --set sets. A card has a story's joint density, its sites and
    their roles, what serves each site in every engine, what simulations have said of them, and what a sweep costs here.

    topiczoo models --card slda --out slda.md
    """
    command.add_argument("--card", metavar="STORY", help=f"{STORY}, on made-up documents")
    command.add_argument(
        "--out", metavar="MD", help="where the card is written, with its plate diagram; else it is printed"
    )
    command.add_argument("--quick", action="store_true", help="leave out what a sweep costs, which is measured")
    _settings(command, "the story")
    _writing(command)


def _fit(command: argparse.ArgumentParser) -> None:
    """Fit a story to documents.

    The fit goes to OUT, one netCDF file with the documents in it; its topics are printed. From there 'topiczoo report OUT'
    writes an HTML page, 'topiczoo topics OUT' its topics and 'topiczoo predict OUT' predictions. A run that is cut short
    goes on by 'topiczoo resume OUT.checkpoint'.

    topiczoo fit slda reviews.csv fit.nc --y stars --standardise --id id --set num_topics=10
    """
    _fitting(command, out="where the fit is saved (netCDF)")
    group = command.add_argument_group("checkpoints")
    group.add_argument(
        "--checkpoint", metavar="FOLDER", help="where they are kept (OUT.checkpoint, removed once the fit is saved)"
    )
    group.add_argument("--no-checkpoint", action="store_true", help="keep none")


def _resume(command: argparse.ArgumentParser) -> None:
    """Go on with a fit that was cut short.

    FOLDER holds its checkpoints, OUT.checkpoint beside the fit's file. The fit goes to OUT and is what it would have been
    without the break, to the last bit.

    topiczoo resume fit.nc.checkpoint
    """
    command.add_argument("folder", metavar="FOLDER", help="the checkpoints of a fit")
    command.add_argument("--story", metavar="FILE.PY:FUNCTION", help="the fit's story, where it is not one of the zoo")


def _predict(command: argparse.ArgumentParser) -> None:
    """Predict the responses of new documents.

    Writes a CSV file with a row a document: its name, the mean of its response with an interval, or its class with
    probabilities; where the story has no response, its topic proportions. Words are counted as they were for the fit.
    Where OUT ends in .parquet, DATA is a Parquet file, a folder or a pattern of them, which is read and written batch by
    batch.

    topiczoo predict fit.nc new.csv predictions.csv --id id --interval 0.8
    """
    _saved_fit(command)
    command.add_argument("data", metavar="DATA", help=DATA)
    command.add_argument("out", metavar="OUT", help="where predictions are written (CSV, or Parquet from Parquet)")
    command.add_argument("--interval", type=float, default=0.9, help="probability of the interval (0.9)")
    command.add_argument(
        "--raw", action="store_true", help="leave texts that a spreadsheet would take for formulas as they are"
    )
    _seed(command)
    _writing(command)
    _reading(command, fitted=True)


def _report(command: argparse.ArgumentParser) -> None:
    """Write what is known of a fit to one HTML file.

    Verdict, topics, coefficients, convergence, checks and documents; held-out ones are scored.

    topiczoo report fit.nc --out report.html --test new.csv --y stars
    """
    _saved_fit(command)
    command.add_argument("--out", default="report.html", help="where the report goes (report.html)")
    command.add_argument("--test", metavar="DATA", help="held-out documents, to be scored and browsed")
    command.add_argument("--documents", type=int, default=100, help="how many documents can be browsed (100)")
    _seed(command)
    _writing(command)
    _response(command, of="the held-out documents, in their own units")
    _reading(command, of="the held-out file", fitted=True)


def _topics(command: argparse.ArgumentParser) -> None:
    """Print the topics of a fit, or write them to a CSV file.

    A row a term in the file: topic, rank, term, probability, and the topic's coefficient where there is one. Of a story
    without topics, the terms that each class raises most.

    topiczoo topics fit.nc --n 8 --out topics.csv
    """
    _saved_fit(command)
    command.add_argument("--n", type=int, default=10, help="terms a topic (10)")
    command.add_argument(
        "--by",
        choices=["relevance", "frex", "probability"],
        default="relevance",
        help="what makes a term lead (relevance)",
    )
    command.add_argument("--chain", type=int, default=0, help="whose topics (0)")
    command.add_argument("--out", metavar="CSV", help="where they are written; else they are printed")
    _writing(command)


def _compare(command: argparse.ArgumentParser) -> None:
    """Choose a number of topics by documents that the fits have not seen.

    Fits the story with each number to four fifths of the documents and scores the rest. The table goes to OUT, its picture
    beside it (.png).

    topiczoo compare slda reviews.csv numbers.csv --y stars --standardise --topics 5,10,20
    """
    command.add_argument(
        "--topics", metavar="5,10,20", help="numbers to try; or how_many=5,10,20 where the story has several such"
    )
    command.add_argument(
        "--by", choices=["response", "words"], help="the score that decides (response where there is one)"
    )
    command.add_argument("--folds", type=int, default=5, help="parts of the documents, of which one is held out (5)")
    command.add_argument("--fits", type=int, default=1, help="how many parts are held out in turn (1)")
    _fitting(command, out="where the table is written (CSV)")


def _check(command: argparse.ArgumentParser) -> None:
    """Test every block that the Gibbs engine would use on a story.

    Each conditional is compared with the story's own density, on some of your documents or on simulated reviews. Status 1
    says that one does not pass.

    topiczoo check story.py:story reviews.csv --y stars --standardise
    """
    command.add_argument("story", metavar="STORY", help=STORY)
    command.add_argument("data", metavar="DATA", nargs="?", help=f"{DATA} (simulated reviews)")
    _settings(command, "the story")
    _seed(command)
    _config(command)
    _documents(command)


def _simulate(command: argparse.ArgumentParser) -> None:
    """Draw documents and responses from a story.

    Everything is drawn from the priors: topics, coefficients, words and responses. OUT is a CSV file with the columns id,
    text and the response.

    topiczoo simulate slda simulated.csv --documents 200 --length 60 --set num_topics=5 --seed 1
    """
    command.add_argument("story", metavar="STORY", help=STORY)
    command.add_argument("out", metavar="OUT", help="where the documents are written (CSV)")
    command.add_argument("--documents", type=int, help="how many (100)")
    command.add_argument("--length", type=float, help="expected number of words of each (50)")
    command.add_argument("--terms", type=int, help="size of the vocabulary (200)")
    command.add_argument("--y", dest="column", default="y", metavar="COLUMN", help="name of the response's column (y)")
    command.add_argument(
        "--like", metavar="DATA", help="documents whose lengths, vocabulary, names and covariates are taken instead"
    )
    _settings(command, "the story")
    _seed(command)
    _writing(command)
    _reading(command, of="the file of --like")
    _words(command)
