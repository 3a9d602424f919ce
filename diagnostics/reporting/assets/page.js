"use strict";

// A topic has one colour on the whole page. Neighbouring numbers lie a golden angle apart on the wheel; all are light
// enough for dark text.
function colour(topic) {
  const hue = (topic * 137.508 + 205) % 360;
  return `hsl(${hue.toFixed(1)} ${[70, 55, 85][topic % 3]}% ${[82, 76, 88][Math.floor(topic / 3) % 3]}%)`;
}

// Text always enters the page through textContent: whatever a document or a term holds stays text.
function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function swatch(topic) {
  const element = make("span", "swatch");
  element.style.backgroundColor = colour(topic);
  return element;
}

function percent(share) {
  return share > 0 && share < 0.005 ? "<1%" : `${Math.round(100 * share)}%`;
}

function decimals(value) {
  return value === null || value === undefined ? "–" : value.toPrecision(3).replace("-", "−");
}

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

function filterRows(table, text, output) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of table.tBodies[0].rows) {
    const content = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => content.includes(word));
    shown += !row.hidden;
  }
  output.textContent = words.length ? `${shown} of ${table.tBodies[0].rows.length} rows` : `${shown} rows`;
}

for (const table of document.querySelectorAll("table.sortable")) {
  [...table.tHead.rows[0].cells].forEach((heading, place) => {
    heading.querySelector("button").addEventListener("click", () => sortBy(table, place));
  });
}
for (const box of document.querySelectorAll("input[data-filters]")) {
  const table = document.getElementById(box.dataset.filters);
  const output = document.querySelector(`output[data-counts="${box.dataset.filters}"]`);
  box.addEventListener("input", () => filterRows(table, box.value, output));
}
for (const cell of document.querySelectorAll("#topics tbody th")) cell.prepend(swatch(Number(cell.dataset.value)));

// ---- the document browser

function browse(data, root) {
  const filter = root.querySelector("#document-filter");
  const list = root.querySelector("#document-list");
  const order = root.querySelector("#word-order");
  const view = root.querySelector(".document");
  const detail = root.querySelector(".detail");
  const terms = data.documents.map((item) => new Set(item.words.map(([term]) => data.terms[term].toLowerCase())));

  function options() {
    const wanted = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = list.value;
    list.replaceChildren();
    data.documents.forEach((item, i) => {
      const name = item.name.toLowerCase();
      if (!wanted.every((word) => name.includes(word) || terms[i].has(word))) return;
      const first = item.responses[0];
      const seen = first && first.y !== null && first.y !== undefined ? ` (${first.name} ${decimals(first.y)})` : "";
      const option = make("option", "", `${item.name}${seen}`);
      option.value = String(i);
      list.append(option);
    });
    list.value = [...list.options].some((option) => option.value === chosen) ? chosen : (list.options[0] || {}).value;
    root.querySelector("#document-count").textContent = `${list.options.length} of ${data.documents.length} documents`;
    show();
  }

  function response(item) {
    const box = make("div", "response");
    const known = item.y !== null && item.y !== undefined;
    if (item.label !== undefined) {
      const observed = known ? `; observed ${item.y}` : "";
      box.append(make("p", "", `${item.name}: class ${item.label} predicted with probability ${percent(item.probability)}${observed}`));
      return box;
    }
    const inside = known ? (item.low <= item.y && item.y <= item.high ? ", inside" : ", outside") : "";
    const observed = known ? `; observed ${decimals(item.y)}${inside}` : "; not observed";
    const predicted = `predicted ${decimals(item.mean)}, 90% interval ${decimals(item.low)} to ${decimals(item.high)}`;
    box.append(make("p", "prediction", `${item.name}: ${predicted}${observed}`));
    const [least, most] = data.ranges[item.name];
    const place = (value) => `${(100 * (value - least)) / (most - least || 1)}%`;
    const scale = make("div", "scale");
    scale.setAttribute("aria-hidden", "true");
    const interval = make("span", "interval");
    interval.style.left = place(item.low);
    interval.style.width = `${(100 * (item.high - item.low)) / (most - least || 1)}%`;
    const mean = make("span", "mean");
    mean.style.left = place(item.mean);
    scale.append(interval, mean);
    if (known) {
      const mark = make("span", "observed");
      mark.style.left = place(item.y);
      scale.append(mark);
    }
    scale.append(make("span", "end", decimals(least)), make("span", "end", decimals(most)));
    box.append(scale);
    return box;
  }

  function chip([term, count, ...pairs]) {
    const element = make("span", "chip", data.terms[term]);
    if (count > 1) element.append(make("sub", "", `×${count}`));
    element.style.backgroundColor = colour(pairs[0]);
    const shares = [];
    for (let i = 0; i < pairs.length; i += 2) shares.push(`topic ${pairs[i]} ${pairs[i + 1]}%`);
    element.title = shares.join(", ");
    element.dataset.topic = pairs[0];
    element.tabIndex = -1;
    const tell = () => (detail.textContent = `${data.terms[term]} ×${count}: ${shares.join(", ")}`);
    element.addEventListener("mouseenter", tell);
    element.addEventListener("focus", tell);
    return element;
  }

  function chips(words) {
    const box = make("div", "chips");
    box.append(...words.map(chip));
    return box;
  }

  function show() {
    view.replaceChildren();
    detail.textContent = "";
    const item = data.documents[Number(list.value)];
    if (list.value === "" || !item) {
      view.append(make("p", "note", "No document matches."));
      return;
    }
    view.append(make("h3", "", item.name));
    view.append(...item.responses.map(response));
    const legend = make("ul", "legend");
    for (const [topic, share] of item.shares) {
      const entry = make("li");
      entry.append(swatch(topic), `topic ${topic} ${percent(share)}`);
      entry.title = data.topics[topic];
      legend.append(entry);
    }
    view.append(legend);
    const words = [...item.words];
    const alphabet = (a, b) => data.terms[a[0]].localeCompare(data.terms[b[0]]);
    if (order.value === "topic") {
      const rank = new Map(item.shares.map(([topic], i) => [topic, i]));
      const groups = new Map();
      for (const word of words) groups.set(word[2], [...(groups.get(word[2]) || []), word]);
      const sorted = [...groups].sort(([a], [b]) => (rank.get(a) ?? 1e6 + a) - (rank.get(b) ?? 1e6 + b));
      for (const [topic, members] of sorted) {
        const heading = make("p", "group");
        heading.append(swatch(topic), `topic ${topic}: ${data.topics[topic]}`);
        members.sort((a, b) => b[3] - a[3] || b[1] - a[1] || alphabet(a, b));
        view.append(heading, chips(members));
      }
    } else {
      const orders = { count: (a, b) => b[1] - a[1] || alphabet(a, b), probability: (a, b) => b[3] - a[3] || b[1] - a[1], term: alphabet };
      view.append(chips(words.sort(orders[order.value])));
    }
    if (item.left) view.append(make("p", "note", `${item.left} further distinct words, the rarest of the document, are not shown.`));
    const first = view.querySelector(".chip");
    if (first) first.tabIndex = 0;
    view.append();
  }

  // one tab stop for all words; the arrow keys walk from word to word
  view.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const all = [...view.querySelectorAll(".chip")];
    const at = all.indexOf(document.activeElement);
    if (!step || at < 0) return;
    event.preventDefault();
    const next = all[Math.min(Math.max(at + step, 0), all.length - 1)];
    all[at].tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  filter.addEventListener("input", options);
  list.addEventListener("change", show);
  order.addEventListener("change", show);
  options();
}

const root = document.getElementById("browser");
if (root) browse(JSON.parse(document.getElementById("browser-data").textContent), root);
