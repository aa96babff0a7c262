"use strict";
// Tables sort by a click or by the keyboard; text that is no number sorts last whichever way.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  for (const head of table.querySelectorAll("th[data-sort]")) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const numeric = head.dataset.sort === "number";
      const first = numeric ? "descending" : "ascending"; // the best first
      const order = head.ariaSort === first ? (numeric ? "ascending" : "descending") : first;
      for (const other of table.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
      head.ariaSort = order;
      const sign = order === "ascending" ? 1 : -1;
      const place = head.cellIndex;
      const keyed = Array.from(body.rows, (row) => {
        const cell = row.cells[place];
        const text = cell.textContent.trim();
        return [row, !numeric ? text : "none" in cell.dataset ? NaN : parseFloat(text)]; // "2/3 targets" is no number
      });
      keyed.sort(([, a], [, b]) => {
        if (!numeric) return sign * a.localeCompare(b, "en", { numeric: true });
        if (isNaN(a) || isNaN(b)) return isNaN(a) - isNaN(b);
        return sign * (a - b);
      });
      body.append(...keyed.map(([row]) => row));
    });
  }
}

// Figures are kept compressed and unpacked when they are first shown.
async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Response(stream).text();
}

async function show(items, chosen) {
  for (const item of items) item.hidden = item !== chosen;
  if (!chosen.dataset.svg) return;
  const text = chosen.dataset.svg;
  delete chosen.dataset.svg;
  const drawing = chosen.querySelector(".drawing");
  drawing.innerHTML = await unpack(text);
  drawing.firstElementChild.setAttribute("role", "img");
  drawing.firstElementChild.setAttribute("aria-label", chosen.dataset.alt);
}

// One choice per facet that has more than one value. A combination that does not exist gives way to the nearest that does.
for (const group of document.querySelectorAll(".switch")) {
  const items = [...group.querySelectorAll(".item")];
  const facets = items.map((item) => JSON.parse(item.dataset.facets));
  const values = new Map();
  for (const facet of facets)
    for (const [name, value] of Object.entries(facet)) {
      if (!values.has(name)) values.set(name, new Set());
      values.get(name).add(value);
    }
  const selects = new Map();
  const choose = (changed) => {
    let best = 0, most = -1;
    facets.forEach((facet, i) => {
      let same = 0;
      for (const [name, select] of selects)
        if (facet[name] === select.value) same += name === changed ? 100 : 1;
      if (same > most) { best = i; most = same; }
    });
    for (const [name, select] of selects) {
      const value = facets[best][name];
      select.disabled = value === undefined;
      if (value !== undefined) select.value = value;
    }
    show(items, items[best]);
  };
  for (const [name, set] of values) {
    if (set.size < 2) continue;
    const label = document.createElement("label");
    const select = document.createElement("select");
    select.ariaLabel = name;
    for (const value of set) select.add(new Option(value, value));
    select.value = facets[0][name] ?? select.options[0].value;
    select.addEventListener("change", () => choose(name));
    label.append(name, select);
    group.querySelector(".controls").append(label);
    selects.set(name, select);
  }
  show(items, items[0]);
}

const paper = document.getElementById("show-paper");
if (paper) paper.addEventListener("change", () => document.body.classList.toggle("hide-paper", !paper.checked));

const filter = document.getElementById("filter");
if (filter) {
  const rows = [...document.querySelectorAll("#all-runs tbody tr")];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const count = document.getElementById("filtered");
  filter.addEventListener("input", () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, i) => {
      row.hidden = !words.every((word) => texts[i].includes(word));
      shown += !row.hidden;
    });
    count.textContent = words.length ? `${shown} of ${rows.length}` : "";
  });
}
