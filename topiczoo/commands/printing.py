"""What a fit says of topics and classes, on a terminal."""

from __future__ import annotations

from typing import Any


def print_topics(fit: Any, n: int = 8, chain: int = 0, by: str = "relevance") -> None:
    """The topics of a chain, by coefficient where there is one."""
    frame = fit.topics(n, by=by, chain=chain)
    coefficient = next((column for column in frame.columns[5:] if f"{column}_low" in frame), None)
    table = frame.groupby("topic", sort=False).agg(terms=("term", " ".join))
    if coefficient:
        first = frame.drop_duplicates("topic").set_index("topic")
        columns = first[[coefficient, f"{coefficient}_low", f"{coefficient}_high"]].to_numpy()
        table.insert(0, coefficient, [f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]" for mean, low, high in columns])
        table = table.loc[first[coefficient].sort_values().index]
    print(table.rename_axis(f"topic (chain {frame['chain'].iloc[0]})").to_string())


def print_classes(fit: Any, n: int = 8, chain: int = 0) -> None:
    """What each class of a story without topics says more than others, by a chain."""
    for _, leading in leading_of_classes(fit, n, chain).groupby("site", sort=False):
        print(leading.groupby("label", sort=False).agg(terms=("term", " ".join)).to_string())


def leading_of_classes(fit: Any, n: int, chain: int = 0) -> Any:
    """The terms that each class raises most, for every site of deviations of labels: a row a term."""
    import pandas as pd

    tables = [
        fit.deviations(site, n, chain=chain).assign(site=site) for site in fit.graph.of_labels if site in fit.sites
    ]
    found = [table for table in tables if "label" in table]
    if not found:
        return pd.DataFrame(columns=["label", "rank", "term", "deviation", "site"])
    return pd.concat(found, ignore_index=True)
