// The live page: reads the events of the server, keeps five minutes of them, and shows the chosen deployment.

// A front that wakes less late than this has a core when it needs one.
const NOTABLE_LAG_MS = 10;
// A request that takes so many times as long as half of all is slow; a replica that takes so many times as long as others is named.
const SLOW = 3, NAMED = 1.5;
const POINTS = 300, WORDS = {
  receive: "reading the body", queue: "waiting for a batch", link: "way to the worker", decode: "reading the items",
  predict: "the model", encode: "writing the results", render: "writing the answer",
};
const COLOURS = { receive: "var(--c6)", queue: "var(--c2)", link: "var(--c5)", decode: "var(--c3)", predict: "var(--c1)", encode: "var(--c4)", render: "var(--c7)" };
const find = (id) => document.getElementById(id);
// The deployment that the address names; none if it cannot be read.
function hash() {
  try { return decodeURIComponent(location.hash.slice(1)); } catch { return ""; }
}
const columnsOf = {}, lines = new Map(), cards = new Map();
// Behind how many samples the points in `columnsOf` end.
let taken = 0, newest = null, chosen = hash(), spec = null, stop = null;

const plots = [
  new LinePlot("Requests per second", [
    { name: "answered", column: "answered", colour: "var(--c1)" }, { name: "refused", column: "refused", colour: "var(--c2)" },
    { name: "failed", column: "failed", colour: "var(--c4)" }, { name: "clients' errors", column: "mistaken", colour: "var(--c7)" }]),
  new LinePlot("Duration of answered requests, ms", [
    { name: "p50", column: "p50_ms", colour: "var(--c1)", unit: " ms" }, { name: "p95", column: "p95_ms", colour: "var(--c2)", unit: " ms" },
    { name: "p99", column: "p99_ms", colour: "var(--c4)", unit: " ms" }]),
  new LinePlot("Items that wait", [{ name: "waiting", column: "queued", colour: "var(--c1)" }]),
  new LinePlot("Age of the oldest item that waits, ms", [{ name: "oldest", column: "oldest_ms", colour: "var(--c2)", unit: " ms" }]),
  new LinePlot("Time for which the model computed, %", [{ name: "busy", column: "busy_percent", colour: "var(--c3)", unit: " %" }]),
  new LinePlot("Items in a batch", [{ name: "mean", column: "mean_batch", colour: "var(--c3)" }]),
];
const phases = new StackPlot("Where the time of an item goes", COLOURS, WORDS);
const sizes = new BarPlot("Batches by size, last minute", "no batch in the last minute");
const reasons = new BarPlot("Why batches were closed, last minute", "no batch in the last minute");
find("plots").append(...plots.map((plot) => plot.figure), phases.figure, sizes.figure, reasons.figure);

// Adds the newest point to what is known, and forgets the oldest.
function keep(name, point) {
  const columns = columnsOf[name] ??= {};
  for (const [column, values] of Object.entries(point)) {
    const kept = columns[column] ??= [];
    kept.push(...values);
    if (kept.length > POINTS) kept.splice(0, kept.length - POINTS);
  }
}

function showServer({ server }) {
  const front = [server.front_cores === null ? null : `the front uses ${number(server.front_cores)} of ${server.cores} cores`, server.front_bytes === null ? null : bytes(server.front_bytes)];
  const state = server.draining ? "Ending: " + server.reasons.join("; ") + "." : server.ready ? "Ready." : "Not ready: " + server.reasons.join("; ") + ".";
  const { machine_busy: busy, front_lag_ms: lag } = server;
  const machine = [busy === null ? null : `the machine's cores are ${Math.round(100 * busy)} % busy`, lag === null || lag < NOTABLE_LAG_MS ? null : `the front wakes ${number(lag)} ms late`];
  const parts = [`Version ${server.version}, up ${duration(server.up_s)}`, front.filter(Boolean).join(", "), ...machine].filter(Boolean);
  setText(find("server"), `${state} ${parts.join("; ")}.`);
  find("server").classList.toggle("bad", !server.ready);
}

// The deployment that is most worth a look.
const worst = (deployments) => ["failing", "refusing", "at its limit", "loading", "fine", "idle"]
  .map((word) => deployments.find(({ judgement }) => judgement.word === word)).find(Boolean);

// One line for each deployment.
function showLines({ deployments }) {
  const names = deployments.map(({ name }) => name);
  for (const [name, line] of lines) if (!names.includes(name)) { line.item.remove(); lines.delete(name); }
  if (!names.includes(chosen)) chosen = worst(deployments)?.name ?? "";
  for (const deployment of deployments) {
    const line = lines.get(deployment.name) ?? newLine(deployment.name), { word, why } = deployment.judgement;
    if (line.word.textContent !== word) {
      if (line.word.textContent) setText(find("news"), `${deployment.name} is ${word}: ${why}`);
      line.word.className = "word " + word.replaceAll(" ", "-");
    }
    setText(line.word, word); setText(line.sentence, deployment.sentence); setText(line.why, why);
    line.button.setAttribute("aria-current", String(deployment.name === chosen));
  }
}

function newLine(name) {
  const [word, sentence, why] = ["word", "sentence", "why"].map((kind) => make("span", { class: kind }));
  const button = make("button", { type: "button" }, make("span", { class: "name", text: name }), word, sentence, why);
  const item = make("li", {}, button), line = { item, button, word, sentence, why };
  button.onclick = () => { location.hash = encodeURIComponent(name); };
  lines.set(name, line);
  find("deployments").append(item);
  return line;
}

function showChosen() {
  const deployment = newest?.deployments.find(({ name }) => name === chosen);
  find("chosen").hidden = !deployment;
  if (!deployment) return;
  const columns = columnsOf[chosen] ?? {};
  columns.busy_percent = (columns.busy ?? []).map((busy) => busy === null ? null : busy * 100);
  setText(find("title"), deployment.name);
  setText(find("doc"), deployment.doc + (deployment.uses.length ? ` It calls ${deployment.uses.join(", ")}.` : ""));
  setText(find("slow"), mostFrequent(deployment.slowest));
  plots.forEach((plot) => plot.draw(columns));
  phases.draw(deployment.phases, deployment.item_bytes ? `An item has ${bytes(deployment.item_bytes)} on average: ${bytes(deployment.bytes_per_s)} per second.` : ""); sizes.draw(deployment.sizes); reasons.draw(deployment.reasons);
  showWorkers(deployment);
  showRequests(find("slowest"), deployment.slowest, "no request has ended");
  showRequests(find("failed"), deployment.failed, "no request has failed");
  fillTable(find("batches"), ["ago", "items", "left waiting", "held", "closed because"], deployment.last_batches.map((batch) =>
    [batch.ms_ago < 1000 ? number(batch.ms_ago) + " ms" : duration(batch.ms_ago / 1000), batch.items, batch.left_waiting, number(batch.held_ms) + " ms", batch.closed]));
  fillTable(find("outcomes"), ["outcome", "requests", "whose doing"], deployment.outcomes.map(({ outcome, count, blame }) => [outcome, count, blame]));
  fillTable(find("options"), ["option", "value", "from"], deployment.options.map(({ name, value, source }) => [name, value, source]));
  showForms(deployment);
}

// The reason that most of the slowest requests share; sentences that differ only in their numbers are one reason. Where the slowest
// ones took hardly longer than usual, there is nothing to explain.
function mostFrequent(requests) {
  const slowest = requests.filter(({ ms, usual_ms }) => usual_ms !== null && ms >= SLOW * usual_ms);
  const groups = Object.values(Object.groupBy(slowest, ({ why }) => why.replace(/^.*?: \D*[\d.,]+/, "").replace(/[\d.,]+ (bytes|.B)\b|[\d.,]+|\bone\b|\bitems?\b/g, "#")));
  const [most] = groups.sort((one, other) => other.length - one.length);
  return most ? `Why the slowest requests of 5 minutes were slow: ${most.length} of ${slowest.length} like this: ${most[0].why}.` : "";
}

function showRequests(list, requests, none) {
  const text = JSON.stringify(requests) || none;
  if (list.dataset.text === text) return;
  list.dataset.text = text;
  const item = ({ request_id, at_ms, why }) => make("li", {}, why, make("span", { class: "id" }, `${new Date(at_ms).toLocaleTimeString()} `,
    make("a", { href: "trace/" + encodeURIComponent(request_id), "data-keyed": "Trace of request " + request_id, text: request_id })));
  list.replaceChildren(...(requests.length ? requests.map(item) : [make("li", { class: "quiet", text: none })]));
}

// The memory of a worker as a small line, with its growth.
function memoryOf(worker) {
  if (!worker.memory.length) return "–";
  const last = worker.memory.at(-1), growth = last - worker.memory[0];
  const trend = Math.abs(growth) < last / 50 ? "steady" : (growth > 0 ? "+" : "−") + bytes(Math.abs(growth)) + ` in ${duration((worker.memory.length - 1) * 10)}`;
  return `${bytes(last)}, ${trend}`;
}

function newCard(replica) {
  const title = make("span", { text: "replica " + replica }), state = make("span"), list = make("dl"), spark = make("svg:path", { class: "line", stroke: "var(--c1)" });
  const error = make("p", { class: "error" });
  const names = ["for", "process", "device", "memory", "CPU", "computes", "sent", "restarts"];
  const values = Object.fromEntries(names.map((name) => {
    const value = make("dd"), text = make("span");
    value.append(text);
    if (name === "memory") value.append(make("svg", { class: "spark", viewBox: "0 0 80 16", "aria-hidden": "true", preserveAspectRatio: "none" }, spark));
    list.append(make("dt", { text: name }), value);
    return [name, text];
  }));
  const card = { node: make("section", { class: "card", "aria-label": "replica " + replica }, make("h4", {}, title, state), list, error), state, values, spark, error };
  cards.set(replica, card);
  return card;
}

const STATES = { ready: "fine", loading: "loading", starting: "loading", waiting: "loading", leaving: "idle" };

function showWorkers({ name, workers, uses }) {
  const box = find("workers");
  if (box.dataset.name !== name) { box.dataset.name = name; cards.clear(); box.replaceChildren(); }
  for (const [replica, card] of cards) if (!workers.some((worker) => worker.replica === replica)) { card.node.remove(); cards.delete(replica); }
  if (!workers.length) return setText(box, uses.length ? "It has none: the front calls other deployments." : "None.");
  for (const worker of workers) {
    const card = cards.get(worker.replica) ?? newCard(worker.replica), { values } = card;
    if (!card.node.isConnected) box.append(card.node);
    const share = (value) => value === null ? "–" : Math.round(100 * value) + " %";
    const state = worker.hangs_s === null ? worker.state : `hangs for ${duration(worker.hangs_s)}`;
    setText(card.state, state.replaceAll("_", " "));
    card.state.className = "word " + (STATES[state] ?? "failing");
    setText(values.for, duration(worker.for_s) + (worker.load_s === null ? "" : `, loaded in ${number(worker.load_s)} s`));
    setText(values.process, (worker.pid === null ? "–" : String(worker.pid)) + (worker.host === null ? "" : " on " + worker.host));
    setText(values.device, worker.device ?? "cpu");
    setText(values.memory, memoryOf(worker));
    setText(values.CPU, worker.cores === null ? "–" : number(worker.cores) + " cores");
    setText(values.computes, `${share(worker.busy)} of the time` + (worker.slower !== null && worker.slower >= NAMED ? `, ${number(worker.slower)} times as slow as others` : ""));
    values.computes.classList.toggle("bad", worker.slower !== null && worker.slower >= SLOW);
    setText(values.sent, `${number(worker.batches)} batches, ${number(worker.items)} items`);
    setText(values.restarts, String(worker.restarts) + (worker.lost ? `, ${worker.lost} lost in 5 min` : ""));
    const most = Math.max(...worker.memory, 1);
    card.spark.setAttribute("d", worker.memory.map((value, place) => `${place ? "L" : "M"}${(80 * place / Math.max(worker.memory.length - 1, 1)).toFixed(1)} ${(15 - 14 * value / most).toFixed(1)}`).join(""));
    setText(card.error, worker.last_error === null ? "" : "last error: " + worker.last_error);
    card.error.hidden = worker.last_error === null;
  }
}

// The forms of the chosen deployment, when they are wanted.
async function showForms({ name, routes }) {
  const box = find("cards");
  if (!find("try").open || box.dataset.name === name) return;
  box.dataset.name = name;
  if (!spec) {
    const reply = await fetch("openapi.json", { headers: keyed({}) });
    if (!reply.ok) { box.dataset.name = ""; return setText(box, `The form needs openapi.json: ${reply.status}.`); }
    spec = await reply.json();
  }
  box.replaceChildren(...routesOf(spec).filter(([path]) => routes.includes(path)).map(([path, post]) => show(path, post, spec)));
}
find("try").ontoggle = () => showChosen();

// Another page has the place of this one. It does not come back by itself: the two would take turns.
function showReplaced({ most_watchers: most }) {
  const again = make("button", { type: "button", text: "Watch again" });
  again.onclick = () => watch();
  find("stream").replaceChildren(`Not connected: at most ${most} pages and programs watch this server, and a further one has taken the place of this page. `, again);
}

function take(name, data) {
  if (name === "history") {
    taken = data.taken;
    Object.keys(columnsOf).forEach((known) => delete columnsOf[known]);
    Object.assign(columnsOf, data.deployments);
    return;
  }
  newest = data;
  if (data.taken > taken) {
    taken = data.taken;
    for (const deployment of data.deployments) keep(deployment.name, deployment.now);
  }
  showServer(data); showLines(data); showChosen();
}

// Reads the stream with `fetch`: an `EventSource` cannot send a key.
async function read() {
  stop = new AbortController();
  const reply = await fetch("live/events", { headers: keyed({ accept: "text/event-stream" }), signal: stop.signal });
  askForKey(reply.status === 401);
  if (!reply.ok) {
    const problem = await reply.json().catch(() => ({}));
    setText(find("server"), problem.detail ?? `The server answers ${reply.status}.`);
    find("server").classList.add("bad");
    return reply.status === 401 ? Infinity : 10;
  }
  setText(find("stream"), "");
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = ""; ;) {
    const { done, value } = await reader.read();
    if (done) return 1;
    const events = (text + value).split("\n\n");
    text = events.pop();
    for (const event of events) {
      const [, name, data] = event.match(/^event: (\w+)\ndata: ([^]*)$/) ?? [];
      if (name === "replaced") { showReplaced(JSON.parse(data)); return Infinity; }
      if (name) take(name, JSON.parse(data));
    }
  }
}

const pause = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

// Watches for as long as the page is seen: a page that is not looked at costs the server nothing.
async function watch() {
  for (let failures = 0; ;) {
    const began = performance.now();
    let wait;
    try { wait = await read(); } catch (error) {
      if (error.name === "AbortError") return;
    }
    if (wait === Infinity) return;
    // A stream that ends after a while goes on in the next one. An application may bound its streams.
    const isLost = wait === undefined || performance.now() - began < 1000;
    failures = wait === undefined ? failures + 1 : 0;
    if (isLost) setText(find("stream"), "Not connected: what is shown is old, and the page tries again. If the server has ended, its log says why.");
    await pause(isLost ? wait ?? Math.min(failures, 10) : 0.1);
  }
}

let hidden = 0;
document.onvisibilitychange = () => {
  clearTimeout(hidden);
  if (document.hidden) hidden = setTimeout(() => { stop?.abort(); stop = null; }, 60000);
  else if (!stop && find("key-form").hidden) watch();
};
window.onhashchange = () => { chosen = hash(); if (newest) { showLines(newest); showChosen(); } };
find("key-form").onsubmit = (event) => {
  event.preventDefault();
  key = find("key").value.trim();
  find("server").classList.remove("bad");
  watch();
};
watch();
