// The page /docs without a browser: what it shows of an answer in parts before the answer has ended, and its command.
import { writeFileSync } from "node:fs";
const [base, path, gate] = process.argv.slice(2);

class Element {
  constructor() {
    Object.assign(this, { children: [], textContent: "", value: "", classList: { toggle() {}, add() {} }, parts: {} });
    this.content = { cloneNode: () => cards[cards.push(new Element()) - 1] };
  }
  append(...added) { this.children.push(...added); }
  add() {}
  replaceChildren() { this.children = []; }
  querySelector(name) { return this.parts[name] ??= new Element(); }
  querySelectorAll() { return []; }
  get text() { return this.children.map((child) => child.text ?? child).join(""); }
}

const cards = [], named = {};
const document = {
  getElementById: (id) => named[id] ??= new Element(), querySelector: () => new Element(), querySelectorAll: () => [],
  createElement: () => new Element(), addEventListener() {},
};

async function main() {
  const page = await (await fetch(base + "/docs")).text();
  const script = page.match(/<script>([^]*)<\/script>/)[1];
  new Function("document", "location", "fetch", "Option", script)(
    document, { origin: base }, (where, ...more) => fetch(base + where, ...more), class {});
  const find = () => cards.find((card) => card.querySelector(".path").textContent === "POST " + path);
  while (!find()) await new Promise((done) => setTimeout(done, 10));
  const part = (name) => find().querySelector(name);
  part(".accept").value = "text/event-stream";
  part(".body").value = JSON.stringify({ text: "ab", gate });
  part(".accept").onchange();
  const sent = part("form").onsubmit({ preventDefault() {} });
  while (!part(".answer").text) await new Promise((done) => setTimeout(done, 10));
  const early = part(".answer").text;
  writeFileSync(gate, "");
  await sent;
  console.log(JSON.stringify({ early, whole: part(".answer").text, status: part(".status").textContent, curl: part(".curl").textContent }));
}

main();
