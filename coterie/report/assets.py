"""The look and the behaviour of the page, inlined so that one file is all there is."""

STYLE = """
:root {
  color-scheme: light dark;
  --back: #fbfbfa; --card: #ffffff; --ink: #1d2430; --soft: #5d6675; --line: #e3e6ea;
  --grid: #e9ecef; --accent: #2f6f9f; --best: #e8f3ec; --note: #eef4f9;
}
@media (prefers-color-scheme: dark) {
  :root {
    --back: #14171c; --card: #1b1f26; --ink: #e6e9ee; --soft: #9aa4b2; --line: #2c323c;
    --grid: #2a303a; --accent: #7db7e0; --best: #1d3a2a; --note: #1b2a37;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--back); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif;
}
main { max-width: 1240px; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .25rem; letter-spacing: -.01em; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .25rem; }
h3 { font-size: .9rem; font-weight: 600; margin: 0 0 .25rem; overflow-wrap: anywhere; }
p { margin: .25rem 0 .75rem; max-width: 100ch; }
.soft { color: var(--soft); font-size: .9rem; }
.finding {
  background: var(--note); border-left: 4px solid var(--accent); border-radius: 6px;
  padding: .9rem 1.1rem; margin: 1.25rem 0; overflow-wrap: anywhere;
}
.finding p { margin: .3rem 0; font-size: 1.05rem; }
.scroll {
  overflow-x: auto; border: 1px solid var(--line); border-radius: 8px; background: var(--card);
  margin-bottom: .75rem;
}
table {
  border-collapse: collapse; width: 100%; font-size: .85rem; font-variant-numeric: tabular-nums;
}
th, td { padding: .45rem .6rem; text-align: right; white-space: nowrap; }
th:nth-child(-n+2), td:nth-child(-n+2) { text-align: left; }
td:first-child { white-space: normal; min-width: 9rem; }
th { border-bottom: 1px solid var(--line); color: var(--soft); font-weight: 600; }
th button { all: unset; cursor: pointer; white-space: nowrap; }
button:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
th[aria-sort=ascending] button::after { content: " ↑"; }
th[aria-sort=descending] button::after { content: " ↓"; }
tbody tr + tr td { border-top: 1px solid var(--line); }
tbody tr.more td { border-top: none; padding-top: 0; color: var(--soft); }
td small { color: var(--soft); font-weight: 400; }
.many { font-size: .8rem; }
.many th, .many td { padding: .4rem .36rem; }
.many td:first-child { min-width: 7rem; }
.many th, .many th button { white-space: normal; }
.many td small { display: block; line-height: 1.2; }
td.text { white-space: normal; }
td.best { background: var(--best); font-weight: 600; }
.dot { display: inline-block; width: .7em; height: .7em; border-radius: 50%; margin-right: .45em; }
.legend {
  display: flex; flex-wrap: wrap; gap: .4rem; margin: .5rem 0; padding: .5rem 0;
  position: sticky; top: 0; z-index: 2; background: var(--back);
}
.chip {
  font: inherit; font-size: .85rem; color: var(--ink); background: var(--card); cursor: pointer;
  border: 1px solid var(--line); border-radius: 99px; padding: .2rem .75rem;
}
.chip[aria-pressed=false] { opacity: .4; }
.grid {
  --least: 340px; display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, var(--least)), 1fr));
}
.grid.two { --least: 440px; }
.panel {
  background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: .75rem .75rem .25rem; min-width: 0;
}
.panel[hidden] { display: none; }
.panel header { display: flex; justify-content: space-between; gap: .5rem; }
.save { all: unset; cursor: pointer; color: var(--soft); font-size: .75rem; }
.save:hover { color: var(--accent); }
.plot { height: 270px; }
.panel.wide { grid-column: 1 / -1; }
.wide .plot { height: auto; min-height: 270px; }
.grid + .grid { margin-top: 1rem; }
.row { margin-top: 1rem; color: var(--soft); }
select {
  font: inherit; font-size: .9rem; color: var(--ink); background: var(--card); max-width: 100%;
  border: 1px solid var(--line); border-radius: 6px; padding: .3rem .5rem; margin: .25rem 0 .75rem;
}
details {
  background: var(--card); border: 1px solid var(--line); border-radius: 8px; margin: .6rem 0;
  padding: .6rem .9rem;
}
summary { cursor: pointer; font-weight: 600; overflow-wrap: anywhere; }
pre { overflow-x: auto; font: .82rem/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
@media (max-width: 600px) { main { padding: 1.25rem .8rem 3rem; } h1 { font-size: 1.4rem; } }
@media print {
  .save { display: none; }
  .legend { position: static; }
  .panel { break-inside: avoid; }
}
"""

SCRIPT = """
"use strict";
const figures = JSON.parse(document.getElementById("figures").textContent);
const hidden = new Set();
const tone = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function axis(own) {
  const soft = tone("--soft"), lines = {gridcolor: tone("--grid"), linecolor: tone("--line")};
  const title = Object.assign({standoff: 8}, own && own.title);
  const tickfont = Object.assign({}, own && own.tickfont, {color: soft});
  return Object.assign({}, own, lines, {title, tickfont, tickcolor: soft});
}

function themed(layout) {
  const clear = "rgba(0,0,0,0)", ink = tone("--ink"), card = tone("--card");
  const family = getComputedStyle(document.body).fontFamily;
  return Object.assign({}, layout, {
    paper_bgcolor: clear, plot_bgcolor: clear, font: {family, size: 12, color: ink},
    xaxis: axis(layout.xaxis), yaxis: axis(layout.yaxis),
    hoverlabel: Object.assign({}, layout.hoverlabel, {bgcolor: card, font: {color: ink}}),
  });
}

function draw(plot) {
  const figure = figures[Number(plot.dataset.figure)];
  const data = figure.data.map(t => Object.assign({}, t, {visible: !hidden.has(t.meta)}));
  plot.dataset.drawn = "yes";
  Plotly.react(plot, data, themed(figure.layout), {responsive: true, displayModeBar: false});
}

// Figures are drawn when they come into view: a page with many opens at once.
const watch = new IntersectionObserver(entries => {
  for (const entry of entries) {
    if (entry.isIntersecting && !entry.target.dataset.drawn) draw(entry.target);
  }
}, {rootMargin: "600px"});
document.querySelectorAll(".plot").forEach(plot => watch.observe(plot));

document.querySelectorAll(".save").forEach(save => save.addEventListener("click", () => {
  const panel = save.closest(".panel"), filename = panel.querySelector("h3").textContent;
  Plotly.downloadImage(panel.querySelector(".plot"), {format: "png", scale: 3, filename});
}));

const redraw = () => document.querySelectorAll(".plot[data-drawn]").forEach(draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
addEventListener("beforeprint", () => {
  document.querySelectorAll(".panel:not([hidden]) .plot").forEach(draw);
});

document.querySelectorAll(".chip").forEach(chip => chip.addEventListener("click", () => {
  const label = chip.dataset.label, show = hidden.delete(label);
  if (!show) hidden.add(label);
  document.querySelectorAll(".chip").forEach(c => {
    if (c.dataset.label === label) c.setAttribute("aria-pressed", String(show));
  });
  redraw();
}));

document.querySelectorAll("select").forEach(select => {
  const panels = select.nextElementSibling.querySelectorAll(".panel[data-choice]");
  const update = () => panels.forEach(panel => {
    panel.hidden = panel.dataset.choice !== select.value;
  });
  select.addEventListener("change", update);
  update();
});

function sort(table, column, down) {
  const rows = Array.from(table.tBodies[0].rows);
  const key = row => row.cells[column].dataset.value;
  const number = text => text === undefined || text === "" ? NaN : Number(text);
  rows.sort((a, b) => {
    const x = number(key(a)), y = number(key(b));
    if (!Number.isNaN(x) && !Number.isNaN(y)) return down ? y - x : x - y;
    if (Number.isNaN(x) !== Number.isNaN(y)) return Number.isNaN(x) ? 1 : -1;
    const order = (key(a) || "").localeCompare(key(b) || "");
    return down ? -order : order;
  });
  table.tBodies[0].append(...rows);
}

document.querySelectorAll("th button").forEach(button => button.addEventListener("click", () => {
  const head = button.closest("th"), table = head.closest("table");
  const down = head.getAttribute("aria-sort") !== "descending";
  table.querySelectorAll("th").forEach(other => other.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  sort(table, head.cellIndex, down);
}));
"""
