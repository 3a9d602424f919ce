"""A report read back: a strict reader of its HTML, for tests."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

VOID = {"meta", "link", "img", "input", "br"}


class Page(HTMLParser):
    """A strict reader: tags must close in order. Keeps tables, headings, links, embedded data and documents.

    A document has its ``name``, what is ``said`` beside it, its ``predictions`` in words, its topics' ``shares`` in percent,
    its coloured ``words`` as (text, times, topic, percent or None), and its ``text``.
    """

    def __init__(self, path):
        super().__init__()
        self.open, self.tables, self.headings, self.sources, self.data, self.scripts = [], {}, [], [], {}, 0
        self.documents, self.ids, self.outside = [], [], ""
        self.feed(path.read_text(encoding="utf-8"))
        self.close()
        assert self.open == []
        assert len(self.ids) == len(set(self.ids))

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.sources += [attributes[name] for name in ("src", "href", "xlink:href", "srcset") if name in attributes]
        self.ids += [attributes["id"]] if "id" in attributes else []
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
        if tag not in VOID:
            self.open.append((tag, attributes))
        if tag == "table":
            self.table = self.tables.setdefault(attributes["id"], [])
        if tag == "tr":
            self.table.append([])
        if tag in ("td", "th"):
            self.table[-1].append("")
        if tag == "h2":
            self.headings.append("")
        if tag == "script" and "type" not in attributes:
            self.scripts += 1
        if tag == "details":
            self.documents.append({"name": "", "said": "", "predictions": [], "shares": {}, "words": [], "text": None})
        if tag == "p" and self.inside("details") and "prediction" in self.looks():
            self.documents[-1]["predictions"].append("")
        if tag == "p" and self.inside("details") and "text" in self.looks():
            self.documents[-1]["text"] = ""
        if tag == "b":
            percent = int(attributes["data-p"]) if "data-p" in attributes else None
            self.documents[-1]["words"].append(["", 1, int(attributes["class"].split()[0][1:]), percent])

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def inside(self, tag):
        return tag in [name for name, _ in self.open]

    def looks(self):
        return [look for _, attributes in self.open for look in attributes.get("class", "").split()]

    def handle_data(self, data):
        tags = [tag for tag, _ in self.open]
        if "td" in tags or "th" in tags:
            self.table[-1][-1] += data
        if "h2" in tags:
            self.headings[-1] += data
        if tags[-1:] == ["script"] and self.open[-1][1].get("type") == "application/json":
            self.data[self.open[-1][1]["id"]] = json.loads(data)
        if "script" not in tags and "style" not in tags:
            self.outside += data
        if "details" in tags:
            self._of_document(data, tags, self.looks())

    def _of_document(self, data, tags, looks):
        document = self.documents[-1]
        if "text" in looks:
            document["text"] += data
        if tags[-1] == "sub":
            document["words"][-1][1] = int(data.removeprefix("×"))
        elif "b" in tags:
            document["words"][-1][0] += data
        elif "title" in looks or "said" in looks:
            document["name" if "title" in looks else "said"] += data
        elif "prediction" in looks:
            document["predictions"][-1] += data
        elif "li" in tags and data.endswith("%"):
            topic = next(int(attributes["data-topic"]) for tag, attributes in self.open if tag == "li")
            document["shares"][topic] = float(data.strip().strip("<%"))


def number(text):
    return float(text.replace("−", "-").rstrip("%"))


def numbers(text):
    """All numbers of a sentence."""
    return [number(found) for found in re.findall(r"−?\d+(?:\.\d+)?(?:e-?\d+)?", text)]
