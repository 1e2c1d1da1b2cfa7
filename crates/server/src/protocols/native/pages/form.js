// The form that tries a deployment, for the pages that have one. It is made from the OpenAPI document of the server.

// Kept by this page only, and lost when it is left.
let key = "";
const LONG = 2000; // characters of an example that still reads well in a box
const keyed = (headers) => key ? { ...headers, authorization: "Bearer " + key } : headers;
const pretty = (value) => JSON.stringify(value, null, 2);
// Shows what an address answers, above the page: a link that is followed would send no key.
async function showText(title, address) {
  const dialog = document.createElement("dialog"), heading = document.createElement("h2"), button = document.createElement("button"), text = document.createElement("pre");
  heading.textContent = title; button.textContent = "Close"; text.textContent = "Loading…";
  dialog.append(button, heading, text);
  button.onclick = () => dialog.close();
  dialog.onclose = () => dialog.remove();
  document.body.append(dialog);
  dialog.showModal();
  try {
    const reply = await fetch(address, { headers: keyed({}) }), got = await reply.text();
    if (reply.ok) text.textContent = got;
    else text.textContent = got.startsWith("{") ? JSON.parse(got).detail : `${address} answers ${reply.status}.`;
  } catch (error) { text.textContent = "The server does not answer: " + error; }
}
// Links of this kind open above the page: all of them if there is a key, else those that would leave the page for an error.
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[data-keyed]");
  if (!link || event.ctrlKey || event.metaKey || !(key || link.dataset.keyed)) return;
  event.preventDefault();
  showText(link.dataset.keyed || link.textContent, link.getAttribute("href"));
});
// Without a key that is needed these links lead nowhere.
function askForKey(isNeeded) {
  document.getElementById("key-form").hidden = !isNeeded;
  for (const link of document.querySelectorAll("a[data-keyed]")) link.hidden = isNeeded;
}
const isText = (type) => /json|^text\//.test(type);
const quote = (text) => "'" + text.replaceAll("'", "'\\''") + "'";
const FORM = "multipart/form-data";
const isInParts = (type) => /^text\/|ndjson/.test(type);
const SHOWN = 20000; // characters of an answer

// The schema with its references to components written out; a type that holds itself stays a reference there.
function whole(schema, spec, seen = []) {
  if (Array.isArray(schema)) return schema.map((each) => whole(each, spec, seen));
  if (schema === null || typeof schema !== "object") return schema;
  const name = typeof schema.$ref === "string" ? schema.$ref.split("/").pop() : undefined;
  if (name && seen.includes(name)) return schema;
  if (name) return whole(spec.components.schemas[name] ?? {}, spec, [...seen, name]);
  return Object.fromEntries(Object.entries(schema).map(([member, value]) => [member, whole(value, spec, seen)]));
}

// Whether a field of a form is a file: bytes, an image or an array.
const isFile = (field) => [field, ...(field.anyOf ?? [])].some((one) => one.format === "binary" || one.contentEncoding || one.contentMediaType);
const listed = (field) => [field, ...(field.anyOf ?? [])].map((one) => one.items).find((items) => items && isFile(items));

// One input for each field of a form.
function fillForm(box, schema, refresh) {
  box.replaceChildren();
  for (const [name, field] of Object.entries(schema.properties ?? {})) {
    const label = document.createElement("label"), input = document.createElement("input");
    const needed = (schema.required ?? []).includes(name);
    input.name = name; input.type = isFile(field) || listed(field) ? "file" : "text"; input.required = needed;
    input.multiple = !isFile(field) && !!listed(field);
    if (field.default !== undefined && input.type !== "file") input.placeholder = JSON.stringify(field.default);
    input.oninput = refresh;
    label.append(name + (needed ? " * " : " "), input);
    box.append(label);
  }
}

function formData(box) {
  const data = new FormData();
  for (const input of box.querySelectorAll("input")) {
    if (input.type === "file") { for (const file of input.files) data.append(input.name, file); }
    else if (input.value !== "") data.append(input.name, input.value);
  }
  return data;
}

const formCurl = (box) => [...box.querySelectorAll("input")]
  .filter((input) => input.required || input.value !== "")
  .map((input) => "-F " + quote(input.name + "=" + (input.type === "file" ? "@FILE" : input.value))).join(" ");

// What is offered first: JSON with its example, unless the example is long or a file is the natural body.
function firstType(inputs, example) {
  const names = Object.keys(inputs).filter((name) => !name.includes("msgpack"));
  if (example !== undefined && pretty(example).length <= LONG && !inputs["application/json"]?.schema?.contentEncoding) return "application/json";
  return names.find((name) => !isText(name) && name !== FORM) ?? names[0];
}

// A text, written as it comes: it may be an answer in parts.
async function showParts(reply, answer) {
  const text = document.createElement("pre"), reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  answer.append(text);
  for (let left = SHOWN; ;) {
    const { done, value } = await reader.read();
    if (done) return;
    if (left > 0) text.append(value.length > left ? value.slice(0, left) + "…" : value);
    left -= value.length;
  }
}

// The card of a route: what it takes and returns, and the form.
function show(path, operation, spec) {
  const card = document.getElementById("deployment").content.cloneNode(true);
  const find = (name) => card.querySelector("." + name);
  const [doc, type, accept, body, file, fields, status, answer, curl] =
    ["doc", "type", "accept", "body", "file", "fields", "status", "answer", "curl"].map(find);
  const inputs = operation.requestBody.content, outputs = operation.responses["200"].content;
  const plain = inputs["application/json"];
  const example = plain && plain.examples ? Object.values(plain.examples)[0].value : undefined;
  const schemaOf = (content) => whole((content["application/json"] || {}).schema || Object.keys(content), spec);
  find("path").textContent = "POST " + path;
  doc.textContent = operation.description;
  find("input").textContent = pretty(schemaOf(inputs));
  find("output").textContent = pretty(schemaOf(outputs));
  for (const name of Object.keys(inputs)) if (!name.includes("msgpack")) type.add(new Option(name));
  for (const name of ["*/*", ...Object.keys(outputs)]) accept.add(new Option(name));
  type.value = firstType(inputs, example);
  if (example !== undefined) body.value = pretty(example);
  const refresh = () => {
    const isForm = type.value === FORM;
    body.hidden = isForm || !isText(type.value); file.hidden = isForm || !body.hidden; fields.hidden = !isForm;
    for (const input of fields.querySelectorAll("input")) input.disabled = !isForm;
    const name = type.value.includes("*") ? "application/octet-stream" : type.value;
    const text = body.value.length > LONG ? "@FILE" : quote(body.value);
    const data = isForm ? formCurl(fields) : `-H ${quote("content-type: " + name)} ` + (body.hidden ? "--data-binary @FILE" : "-d " + text);
    const header = key ? ' -H "authorization: Bearer $JITNEY_CLIENT_KEY"' : "";
    const wants = accept.value === "*/*" ? "" : ` -H ${quote("accept: " + accept.value)}`;
    curl.textContent = `curl ${"text/event-stream" in outputs && isInParts(accept.value) ? "-N " : ""}${location.origin}${path}${header}${wants} ${data}`;
  };
  if (inputs[FORM]) fillForm(fields, whole(inputs[FORM].schema, spec), refresh);
  type.onchange = accept.onchange = body.oninput = refresh;
  refresh();
  card.querySelector("form").onsubmit = async (event) => {
    event.preventDefault();
    const button = event.submitter;
    if (button) button.disabled = true;
    status.textContent = "…"; status.className = "status"; answer.replaceChildren();
    try {
      const isForm = type.value === FORM;
      const data = isForm ? formData(fields) : body.hidden ? file.files[0] : body.value;
      const name = type.value.includes("*") ? (data && data.type) || "application/octet-stream" : type.value;
      // The browser writes the type of a form itself, with the boundary between its parts.
      const headers = isForm ? { accept: accept.value } : { "content-type": name, accept: accept.value };
      const started = performance.now();
      const reply = await fetch(path, { method: "POST", body: data, headers: keyed(headers) });
      const media = reply.headers.get("content-type") || "";
      if (isInParts(media)) await showParts(reply, answer);
      const got = isInParts(media) ? null : await reply.blob(), took = (performance.now() - started).toFixed(1);
      const timing = reply.headers.get("server-timing"), batch = reply.headers.get("x-jitney-batch-size");
      status.textContent = `${reply.status} in ${took} ms` + (batch ? ` · batch of ${batch} · ${timing}` : "");
      status.classList.toggle("bad", !reply.ok);
      if (media.startsWith("image/")) {
        const image = document.createElement("img");
        image.src = URL.createObjectURL(got); image.alt = "the answer";
        answer.append(image);
      } else if (got) {
        const text = document.createElement("pre");
        let shown = isText(media) ? await got.text() : `${got.size} bytes of ${media}`;
        if (media.includes("problem")) shown = pretty(JSON.parse(shown));
        text.textContent = shown.length > SHOWN ? shown.slice(0, SHOWN) + "…" : shown;
        answer.append(text);
      }
    } catch (error) {
      status.textContent = String(error); status.classList.add("bad");
    } finally {
      if (button) button.disabled = false;
    }
  };
  return card;
}

// The routes of deployments that take one item, each with what the document says of it.
const routesOf = (spec) => Object.entries(spec.paths)
  .filter(([path, item]) => item.post?.tags.includes("deployments") && !path.endsWith("/batch"))
  .map(([path, item]) => [path, item.post]);
