"""What a fit says of topics and classes, on a terminal."""

from __future__ import annotations

from typing import Any


def print_topics(fit: Any, n: int = 8) -> None:
    """The topics of the first chain, by coefficient where there is one."""
    frame = fit.topics(n)
    coefficient = next((column for column in frame.columns[5:] if f"{column}_low" in frame), None)
    table = frame.groupby("topic", sort=False).agg(terms=("term", " ".join))
    if coefficient:
        first = frame.drop_duplicates("topic").set_index("topic")
        columns = first[[coefficient, f"{coefficient}_low", f"{coefficient}_high"]].to_numpy()
        table.insert(0, coefficient, [f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]" for mean, low, high in columns])
        table = table.loc[first[coefficient].sort_values().index]
    print(table.rename_axis(f"topic (chain {frame['chain'].iloc[0]})").to_string())


def print_classes(fit: Any, n: int = 8) -> None:
    """What each class of a story without topics says more than others, by the first chain."""
    for site in fit.graph.of_labels:
        if site not in fit.sites:
            continue
        leading = fit.deviations(site, n)
        if "label" in leading:
            print(leading.groupby("label", sort=False).agg(terms=("term", " ".join)).to_string())
