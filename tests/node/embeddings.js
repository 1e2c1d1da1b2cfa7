// What the official JavaScript client and a framework on top of it get from a server; the address, the key and a text are
// arguments, the answers go to stdout as JSON.
import { OpenAIEmbeddings } from "@langchain/openai";
import OpenAI from "openai";

const [baseURL, apiKey, text] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });

const models = [];
for await (const model of client.models.list()) models.push(model.id);
const one = await client.embeddings.create({ model: "words", input: text });
const floats = await client.embeddings.create({ model: "words", input: [text, "x"], encoding_format: "float" });
const short = await client.embeddings.create({ model: "matryoshka", input: [[1, 2]], dimensions: 3 });

const errors = [];
const wrong = [
  () => client.embeddings.create({ model: "nobody", input: text }),
  () => client.embeddings.create({ model: "words", input: [] }),
  () => new OpenAI({ baseURL, apiKey: "wrong", maxRetries: 0 }).models.list(),
];
for (const ask of wrong) {
  try {
    await ask();
    errors.push(null);
  } catch (error) {
    errors.push({ name: error.constructor.name, status: error.status, code: error.code, message: error.message });
  }
}

const framework = new OpenAIEmbeddings({ model: "words", apiKey, configuration: { baseURL }, maxRetries: 0 });
const embedded = await framework.embedDocuments([text, "x"]);

console.log(JSON.stringify({ models, one, floats, short, errors, embedded }));
