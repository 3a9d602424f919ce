"use strict";

// Text always enters the page through textContent: whatever a document or a term holds stays text.
function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function wordsOf(text) {
  return text.toLowerCase().split(/\s+/).filter(Boolean);
}

// Leaves the items for which every word of the box holds; ``holds`` makes a test of an item.
function filterBy(box, items, output, noun, holds) {
  box.addEventListener("input", () => {
    const words = wordsOf(box.value);
    let shown = 0;
    for (const item of items) {
      item.hidden = words.length > 0 && !words.every(holds(item));
      shown += !item.hidden;
    }
    output.textContent = words.length ? `${shown} of ${items.length} ${noun}` : `${shown} ${noun}`;
  });
}

for (const filter of document.querySelectorAll(".filter")) filter.hidden = false; // without a script it would do nothing

// ---- tables: a heading sorts, a box filters

function sortBy(table, place) {
  const headings = [...table.tHead.rows[0].cells];
  const ascending = headings[place].getAttribute("aria-sort") !== "ascending";
  const isNumber = headings[place].classList.contains("number");
  const key = (row) => {
    const value = row.cells[place].dataset.value;
    return value === "" ? null : isNumber ? Number(value) : value.toLowerCase();
  };
  const rows = [...table.tBodies[0].rows].map((row) => [key(row), row]);
  rows.sort(([a], [b]) => {
    if (a === null || b === null) return (a === null) - (b === null); // what is missing comes last either way
    const order = isNumber ? a - b : a.localeCompare(b, undefined, { numeric: true });
    return ascending ? order : -order;
  });
  table.tBodies[0].append(...rows.map(([, row]) => row));
  headings.forEach((heading, i) => {
    heading.setAttribute("aria-sort", i !== place ? "none" : ascending ? "ascending" : "descending");
  });
}

for (const table of document.querySelectorAll("table.sortable")) {
  [...table.tHead.rows[0].cells].forEach((heading, place) => {
    heading.querySelector("button").addEventListener("click", () => sortBy(table, place));
  });
}
for (const box of document.querySelectorAll("input[data-filters]")) {
  const rows = [...document.getElementById(box.dataset.filters).tBodies[0].rows];
  const output = document.querySelector(`output[data-counts="${box.dataset.filters}"]`);
  filterBy(box, rows, output, "rows", (row) => {
    const text = row.textContent.toLowerCase();
    return (word) => text.includes(word);
  });
}
for (const cell of document.querySelectorAll("#topics tbody th")) {
  cell.prepend(make("span", `swatch t${cell.dataset.value}`));
}

// ---- terms by a relevance of the reader's: lambda log p(w | k) + (1 - lambda) log [p(w | k) / p(w)]

function leadingTerms(data, topic, lambda) {
  const pairs = data.topics[topic];
  const terms = [];
  for (let i = 0; i < pairs.length; i += 2) {
    const share = pairs[i + 1];
    const score = Math.log(Math.max(share, 1e-300)) - (1 - lambda) * Math.log(data.share[pairs[i]]);
    terms.push({ term: data.terms[pairs[i]], share, lift: share / data.share[pairs[i]], score });
  }
  return terms.sort((a, b) => b.score - a.score).slice(0, data.shown);
}

function relevance(data, root) {
  const slider = root.querySelector("#relevance");
  const choice = root.querySelector("#relevance-topic");
  const bars = root.querySelector("#relevance-terms");
  const cells = new Map();
  for (const row of document.querySelectorAll("#topics tbody tr")) {
    if (row.cells[1].classList.contains("terms")) cells.set(Number(row.cells[0].dataset.value), row.cells[1]);
  }

  function bar(share, most, topic) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", "0 0 1000 10");
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("aria-hidden", "true");
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("class", `topic t${topic}`);
    path.setAttribute("d", `M0 0H${Math.max(3, (1000 * share) / most).toFixed(0)}V10H0Z`);
    svg.append(path);
    return svg;
  }

  function show() {
    const topic = Number(choice.value);
    const found = leadingTerms(data, topic, Number(slider.value));
    const most = Math.max(...found.map((item) => item.share), 1e-300);
    bars.replaceChildren();
    for (const item of found) {
      const term = make("bdi", "term", item.term);
      term.title = item.term;
      const amount = make("span", "amount");
      const times = item.lift >= 10 ? item.lift.toFixed(0) : item.lift.toFixed(1);
      amount.append(bar(item.share, most, topic), make("span", "", `${(100 * item.share).toPrecision(2)}%, ×${times}`));
      bars.append(term, amount);
    }
  }

  function choose() {
    show();
    for (const node of document.querySelectorAll(".map .node")) {
      node.classList.toggle("chosen", node.dataset.topic === choice.value);
    }
  }

  function fill() {
    root.querySelector("#relevance-value").textContent = Number(slider.value).toFixed(1);
    for (const [topic, cell] of cells) {
      const terms = leadingTerms(data, topic, Number(slider.value)).map((item) => item.term);
      cell.replaceChildren();
      terms.forEach((term, i) => cell.append(i ? " " : "", make("bdi", "", term)));
      cell.dataset.value = terms.join(" ");
    }
    show();
  }

  slider.addEventListener("input", fill);
  choice.addEventListener("change", choose);
  for (const map of document.querySelectorAll(".map")) {
    map.classList.add("live");
    map.addEventListener("click", (event) => {
      const node = event.target.closest(".node");
      if (!node) return;
      choice.value = node.dataset.topic;
      choose();
    });
  }
  root.hidden = false;
  show();
}

const panel = document.querySelector(".relevance");
if (panel) relevance(JSON.parse(document.getElementById("relevance-data").textContent), panel);

// ---- documents: a box filters them, and a topic of the legend leaves the words of others plain

const browser = document.getElementById("browser");
if (browser) {
  const items = [...browser.children];
  const known = new Map(); // a document's name and its words, read when they are first asked for
  const read = (item) => {
    const name = item.querySelector(".title").textContent.toLowerCase();
    const words = new Set([...item.querySelectorAll(".text, .chips b")].flatMap((part) => {
      const text = (part.matches("b") ? part.firstChild.textContent : part.textContent).toLowerCase();
      return [text, ...text.split(/[^\p{L}\p{M}\p{N}_'’-]+/u)];
    }));
    return (word) => name.includes(word) || words.has(word);
  };
  const holds = (item) => known.get(item) || known.set(item, read(item)).get(item);
  filterBy(document.getElementById("document-filter"), items, document.getElementById("document-count"), "documents", holds);

  browser.addEventListener("toggle", (event) => {
    const item = event.target;
    if (!item.open || item.dataset.ready) return;
    item.dataset.ready = "1";
    const labels = new Map();
    for (const entry of item.querySelectorAll(".legend li")) {
      const button = make("button");
      button.type = "button";
      button.setAttribute("aria-pressed", "false");
      button.title = "Show the words of this topic alone";
      button.append(...entry.childNodes);
      entry.append(button);
      labels.set(entry.dataset.topic, button.textContent);
      button.addEventListener("click", () => only(item, button, entry.dataset.topic));
    }
    for (const word of item.querySelectorAll(".text b, .chips b")) {
      const topic = word.classList[0].slice(1);
      const sure = word.dataset.p ? ` (${word.dataset.p}%)` : word.classList.contains("u") ? " (less than half)" : "";
      word.title = (labels.get(topic) || `topic ${topic}`).replace(/ \S+%$/, "") + sure;
    }
  }, true);
}

function only(item, button, topic) {
  const chosen = button.getAttribute("aria-pressed") !== "true";
  for (const other of item.querySelectorAll(".legend button")) other.setAttribute("aria-pressed", "false");
  button.setAttribute("aria-pressed", String(chosen));
  item.classList.toggle("only", chosen);
  for (const word of item.querySelectorAll(".text b, .chips b")) {
    word.classList.toggle("on", chosen && word.classList.contains(`t${topic}`));
  }
}
