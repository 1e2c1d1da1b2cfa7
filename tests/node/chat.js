// What the official JavaScript client, and two frameworks, get from the routes for texts; the address is an argument, the
// answers go to stdout as JSON.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { ChatOpenAI } from "@langchain/openai";
import { generateText, streamText } from "ai";
import OpenAI from "openai";

const [baseURL] = process.argv.slice(2);
const apiKey = "none";
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const model = "echo";
const messages = [{ role: "user", content: "one two three" }];

const whole = await client.chat.completions.create({ model, messages, n: 2 });
const stream = await client.chat.completions.create({ model, messages, stream: true, stream_options: { include_usage: true } });
const chunks = [];
for await (const chunk of stream) chunks.push(chunk);
const helped = await client.chat.completions.stream({ model, messages }).finalChatCompletion();
const completion = await client.completions.create({ model: "go_on", prompt: "abc", max_tokens: 2 });

const left = await client.chat.completions.create({ model, messages, stream: true });
for await (const _ of left) break; // closes the connection

const errors = [];
const hurt = [{ role: "user", content: "you hurt" }];
const wrong = [
  () => client.chat.completions.create({ model: "nobody", messages }),
  () => client.chat.completions.create({ model, messages, logprobs: true }),
  async () => {
    for await (const _ of await client.chat.completions.create({ model, messages: hurt, stream: true }));
  },
];
for (const ask of wrong) {
  try {
    await ask();
    errors.push(null);
  } catch (error) {
    errors.push({ status: error.status, code: error.code, param: error.param, message: error.message });
  }
}

const langchain = new ChatOpenAI({ model, apiKey, configuration: { baseURL }, maxRetries: 0 });
const invoked = await langchain.invoke("one two three");
let streamed = "";
for await (const chunk of await langchain.stream("one two three")) streamed += chunk.content;

const provider = createOpenAICompatible({ name: "jitney", baseURL, apiKey, includeUsage: true });
const generated = await generateText({ model: provider(model), prompt: "one two three", maxRetries: 0 });
const flowing = streamText({ model: provider(model), prompt: "one two three", maxRetries: 0 });
let flowed = "";
for await (const text of flowing.textStream) flowed += text;
const vercel = {
  generated: generated.text,
  flowed,
  reason: await flowing.finishReason,
  tokens: (await flowing.usage).totalTokens,
};

// What comes before an error, and the error.
const late = { langchain: ["", null], vercel: ["", null] };
try {
  for await (const chunk of await langchain.stream("you hurt")) late.langchain[0] += chunk.content;
} catch (error) {
  late.langchain[1] = error.message;
}
const failing = streamText({ model: provider(model), prompt: "you hurt", maxRetries: 0, onError() {} });
for await (const part of failing.fullStream) {
  if (part.type === "text-delta") late.vercel[0] += part.text;
  if (part.type === "error") late.vercel[1] = part.error.message ?? part.error;
}

// Errors before the first part.
const early = [
  () => langchain.invoke("forbidden"),
  async () => { for await (const _ of await langchain.stream("hurt")); },
  () => generateText({ model: provider(model), prompt: "forbidden", maxRetries: 0 }),
  () => generateText({ model: provider(model), prompt: "hurt", maxRetries: 0 }),
];
const statuses = [];
for (const ask of early) {
  try {
    await ask();
    statuses.push(null);
  } catch (error) {
    statuses.push([error.status ?? error.statusCode, error.message]);
  }
}

const frameworks = { invoked: invoked.content, streamed, vercel, late, statuses };
console.log(JSON.stringify({ whole, chunks, helped, completion, errors, ...frameworks }));
