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

console.log(JSON.stringify({ whole, chunks, helped, completion, errors, invoked: invoked.content, streamed, vercel }));
