// Plots of the live page: lines over five minutes, bars, and one stacked bar. Each has its figures as a table behind it.

const SVG = "http://www.w3.org/2000/svg", WIDTH = 400, HEIGHT = 120, LEFT = 42, RIGHT = 6, TOP = 8, BOTTOM = 18, SECONDS = 300;
const DASHES = ["", "6 3", "2 3", "8 3 2 3"];

// An element with these attributes and children; `text` is its text.
function make(tag, attributes = {}, ...children) {
  const node = tag === "svg" || tag.startsWith("svg:") ? document.createElementNS(SVG, tag.replace("svg:", "")) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "text") node.textContent = value; else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

// Changes a text only if it differs: what is selected or read aloud stays.
const setText = (node, text) => { if (node.textContent !== text) node.textContent = text; };

// A number with as many digits as matter.
function number(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 1e6) return number(value / 1e6) + " M";
  if (value >= 9.95 || Number.isInteger(value)) return Math.round(value).toLocaleString("en");
  return value.toFixed(value >= 0.095 ? 1 : value >= 0.0095 ? 2 : 3);
}

function bytes(count) {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let place = 0;
  while (count >= 1000 && place < units.length - 1) { count /= 1000; place++; }
  return number(count) + " " + units[place];
}

function duration(seconds) {
  if (seconds < 120) return Math.round(seconds) + " s";
  if (seconds < 7200) return Math.round(seconds / 60) + " min";
  return seconds < 172800 ? Math.round(seconds / 3600) + " h" : Math.round(seconds / 86400) + " days";
}

// The end of an axis: 1, 2 or 5 times a power of ten.
function ceiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}

// A table behind a plot. Its rows are made when it is opened, and while it is open.
function tableBehind(summary, rows) {
  const table = make("table"), details = make("details", {}, make("summary", { text: summary }), make("div", { class: "scroll" }, table));
  const fill = () => { if (details.open) fillTable(table, ...rows()); };
  details.ontoggle = fill;
  return { details, fill };
}

function fillTable(table, names, rows) {
  const text = JSON.stringify([names, rows]);
  if (table.dataset.text === text) return;
  table.dataset.text = text;
  const cell = (tag, value) => make(tag, { text: typeof value === "number" || value === null ? number(value) : value, class: typeof value === "number" ? "number" : undefined, scope: tag === "th" ? "col" : undefined });
  table.replaceChildren(make("thead", {}, make("tr", {}, ...names.map((name) => cell("th", name)))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((value) => cell("td", value))))));
}

// Lines over the last five minutes. `lines`: [{ name, column, colour, unit }].
class LinePlot {
  constructor(title, lines) {
    this.title = title; this.lines = lines; this.data = {}; this.at = null;
    this.now = make("div", { class: "now" });
    this.values = lines.map((line, place) => {
      const sample = make("svg", { viewBox: "0 0 26 10", "aria-hidden": "true" }, make("svg:path", { d: "M0 5H26", class: "line", stroke: line.colour, "stroke-dasharray": DASHES[place] }));
      const value = make("b");
      this.now.append(make("span", { class: "key" }, sample, line.name + " ", value));
      return value;
    });
    this.when = make("span", { class: "quiet" });
    this.now.append(this.when);
    this.svg = make("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", tabindex: "0" });
    this.paths = lines.map((line, place) => make("svg:path", { class: "line", stroke: line.colour, "stroke-dasharray": DASHES[place] }));
    this.ticks = [0, 0.5, 1].map((share) => {
      const y = TOP + (1 - share) * (HEIGHT - TOP - BOTTOM), text = make("svg:text", { class: "tick", x: LEFT - 5, y: y + 4, "text-anchor": "end" });
      this.svg.append(make("svg:path", { class: "axis", d: `M${LEFT} ${y}H${WIDTH - RIGHT}` }), text);
      return { share, text };
    });
    for (const minutes of [5, 4, 3, 2, 1, 0]) {
      const anchor = minutes === 0 ? "end" : minutes === 5 ? "start" : "middle";
      this.svg.append(make("svg:text", { class: "tick", x: this.x(minutes * 60), y: HEIGHT - 3, "text-anchor": anchor, text: minutes === 0 ? "now" : minutes === 5 ? "5 min ago" : minutes }));
    }
    this.cross = make("svg:path", { class: "cross" });
    this.svg.append(...this.paths, this.cross);
    this.svg.onpointermove = (event) => this.point(SECONDS * (1 - (event.offsetX / this.svg.clientWidth * WIDTH - LEFT) / (WIDTH - LEFT - RIGHT)));
    this.svg.onpointerleave = this.svg.onblur = () => this.point(null);
    this.svg.onkeydown = (event) => {
      const step = { ArrowLeft: 5, ArrowRight: -5, Home: SECONDS, End: -SECONDS }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      this.point((this.at ?? 0) + step);
    };
    this.table = tableBehind("Table", () => this.rows());
    this.figure = make("figure", {}, make("figcaption", { text: title }), this.svg, this.now, this.table.details);
  }

  x(secondsAgo) { return LEFT + (1 - secondsAgo / SECONDS) * (WIDTH - LEFT - RIGHT); }

  // Shows the figures of a moment, given in seconds before now; null is now.
  point(at) {
    this.at = at === null ? null : Math.min(Math.max(Math.round(at), 0), SECONDS - 1);
    this.show();
  }

  show() {
    const { length } = this.data[this.lines[0].column] ?? [];
    const place = length - 1 - (this.at ?? 0);
    this.lines.forEach((line, which) => setText(this.values[which], this.said(line, place)));
    setText(this.when, this.at === null ? "" : `${this.at} s ago`);
    this.cross.setAttribute("d", this.at === null ? "" : `M${this.x(this.at)} ${TOP}V${HEIGHT - BOTTOM}`);
    this.svg.setAttribute("aria-label", `${this.title}, ${this.at === null ? "now" : this.at + " s ago"}: ` + this.lines.map((line) => `${line.name} ${this.said(line, place)}`).join(", ") + ". Arrow keys move in time.");
  }

  said(line, place) {
    const value = this.data[line.column]?.[place];
    return value === null || value === undefined ? "–" : number(value) + (line.unit ?? "");
  }

  draw(data) {
    this.data = data;
    const columns = this.lines.map((line) => data[line.column] ?? []);
    const top = ceiling(Math.max(...columns.map((column) => column.reduce((most, value) => Math.max(most, value ?? 0), 0))));
    for (const { share, text } of this.ticks) setText(text, number(top * share));
    columns.forEach((column, which) => {
      let text = "", pen = "M";
      column.forEach((value, place) => {
        if (value === null) { pen = "M"; return; }
        const x = this.x(column.length - 1 - place), y = TOP + (1 - Math.min(value / top, 1)) * (HEIGHT - TOP - BOTTOM);
        text += `${pen}${x.toFixed(1)} ${y.toFixed(1)}`;
        // A value between two gaps is a dot.
        if (pen === "M") text += "h.1";
        pen = "L";
      });
      this.paths[which].setAttribute("d", text);
    });
    this.show();
    this.table.fill();
  }

  // Every tenth second, the newest first.
  rows() {
    const { length } = this.data[this.lines[0].column] ?? [], rows = [];
    for (let ago = 0; ago < length; ago += 10) rows.push([`${ago} s ago`, ...this.lines.map((line) => this.data[line.column][length - 1 - ago] ?? null)]);
    return [["when", ...this.lines.map((line) => line.name + (line.unit ?? ""))], rows];
  }
}

// Horizontal bars of counts: [{ label, count }].
class BarPlot {
  constructor(title, empty) {
    this.empty = empty;
    this.body = make("div", { class: "bars" });
    this.figure = make("figure", {}, make("figcaption", { text: title }), this.body);
  }

  draw(bars) {
    const text = JSON.stringify(bars);
    if (this.text === text) return;
    this.text = text;
    const most = Math.max(...bars.map((bar) => bar.count)), all = bars.reduce((sum, bar) => sum + bar.count, 0);
    const row = ({ label, count }) => [make("span", { text: label }),
      make("span", { class: "bar", "aria-hidden": "true", style: `width: ${100 * count / most}%` + (count === 0 ? "; visibility: hidden" : "") }),
      make("span", { text: `${Math.round(100 * count / all)} %`, title: `${count} batches` })];
    this.body.replaceChildren(...(all ? bars.flatMap(row) : [make("span", { class: "quiet", text: this.empty })]));
  }
}

// One bar of parts: [{ phase, ms }].
class StackPlot {
  constructor(title, colours, words) {
    this.colours = colours; this.words = words;
    this.bar = make("div", { class: "stack", "aria-hidden": "true" });
    this.table = make("table");
    this.note = make("div", { class: "now quiet" });
    this.figure = make("figure", {}, make("figcaption", { text: title }), this.bar, this.table, this.note);
  }

  draw(parts, note) {
    setText(this.note, note);
    const text = JSON.stringify(parts);
    if (this.text === text) return;
    this.text = text;
    const all = parts.reduce((sum, part) => sum + part.ms, 0);
    const shown = parts.filter((part) => part.ms > 0);
    this.bar.replaceChildren(...shown.map((part) => make("span", { style: `width: ${100 * part.ms / all}%; background: ${this.colours[part.phase]}`, title: `${part.phase} ${number(part.ms)} ms` })));
    if (!all) return this.table.replaceChildren(make("caption", { class: "quiet", text: "no request in the last minute" }));
    this.table.replaceChildren(make("tbody", {}, ...shown.map((part) => make("tr", {},
      make("td", { title: this.words[part.phase] }, make("span", { class: "swatch", style: `background: ${this.colours[part.phase]}`, "aria-hidden": "true" }), part.phase),
      make("td", { class: "number", text: number(part.ms) + " ms" }), make("td", { class: "number", text: Math.round(100 * part.ms / all) + " %" }),
      make("td", { class: "quiet", text: this.words[part.phase] })))));
  }
}
