// Clients that leave in the middle of an answer of `echo`; the address and a folder for gates are arguments. Each client gets
// the first word, leaves, and waits until the server has noticed. What each saw goes to stdout as JSON.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { ChatOpenAI } from "@langchain/openai";
import { streamText } from "ai";
import OpenAI from "openai";

const [baseURL, folder] = process.argv.slice(2);
const apiKey = "none";
const model = "echo";
const text = "word ".repeat(1000);
const limit = 1000;
const PATIENCE_MS = 60_000;

async function until(condition, what) {
  const end = Date.now() + PATIENCE_MS;
  let value;
  while (!(value = await condition())) {
    if (Date.now() > end) throw new Error(`waited ${PATIENCE_MS / 1000} s without success: ${what}`);
    await sleep(10);
  }
  return value;
}

async function count(name, label = "") {
  const metrics = await (await fetch(`${new URL(baseURL).origin}/metrics`)).text();
  const lines = metrics.split("\n").filter((line) => line.startsWith(`${name}{`) && line.includes('deployment="echo"'));
  return lines.filter((line) => line.includes(label)).reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0);
}

const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const create = (gate, signal) =>
  client.chat.completions.create(
    { model, messages: [{ role: "user", content: text }], max_tokens: limit, stream: true, gate },
    { signal },
  );
const langchain = (gate) =>
  new ChatOpenAI({ model, apiKey, configuration: { baseURL }, maxRetries: 0, maxTokens: limit, modelKwargs: { gate } });
const provider = createOpenAICompatible({ name: "jitney", baseURL, apiKey });

// Each takes what stops it, and returns the first word.
const clients = {
  async official(gate) {
    for await (const chunk of await create(gate)) if (chunk.choices[0].delta.content) return chunk.choices[0].delta.content;
  },
  async official_signal(gate, stop) {
    for await (const chunk of await create(gate, stop.signal)) {
      if (!chunk.choices[0].delta.content) continue;
      stop.abort();
      return chunk.choices[0].delta.content;
    }
  },
  async langchain(gate) {
    for await (const chunk of await langchain(gate).stream(text)) if (chunk.content) return chunk.content;
  },
  async langchain_signal(gate, stop) {
    let first = "";
    try {
      for await (const chunk of await langchain(gate).stream(text, { signal: stop.signal })) {
        first ||= chunk.content;
        if (first) stop.abort();
      }
    } catch (error) {
      return first;
    }
  },
  async vercel_signal(gate, stop) {
    const providerOptions = { jitney: { gate } };
    const asked = { model: provider(model), prompt: text, maxOutputTokens: limit, maxRetries: 0, providerOptions };
    let first = "";
    for await (const part of streamText({ ...asked, abortSignal: stop.signal }).textStream) {
      first ||= part;
      stop.abort();
    }
    return first;
  },
};

const seen = {};
let cancelled = 0;
for (const [name, read] of Object.entries(clients)) {
  const gate = join(folder, `gate-${name}`);
  const first = await read(gate, new AbortController());
  cancelled += 1;
  await until(async () => (await count("jitney_requests_total", 'outcome="cancelled"')) === cancelled, `${name} is cancelled`);
  await until(async () => (await count("jitney_running_items")) === 0, `no item of ${name} runs`);
  writeFileSync(gate, "");
  const released = `${gate}.released`;
  const written = await until(() => existsSync(released) && readFileSync(released, "utf8"), `${name} is released`);
  seen[name] = { first, written: Number(written) };
}
console.log(JSON.stringify(seen));
