// The agent of guess.py with OpenAI's client for JavaScript: npm install openai, and AGENT="node examples/agent/guess.mjs".
import { readFileSync } from "node:fs";
import OpenAI from "openai";

const row = JSON.parse(readFileSync(0, "utf8"));
const client = new OpenAI(); // OPENAI_BASE_URL and OPENAI_API_KEY are set
const number = row.low + Number(BigInt(process.env.APUS_SEED) % BigInt(row.high - row.low + 1));
const talk = [...row.messages];
let won = false;
for (let turn = 0; turn < 3 && !won; turn++) {
  const reply = await client.chat.completions.create({ model: process.env.OPENAI_MODEL, messages: talk });
  const said = reply.choices[0].message.content;
  const guess = /^\s*\d+\s*$/.test(said) ? Number(said) : null;
  won = guess === number;
  const hint = guess === null ? "a number, please" : guess < number ? "higher" : "lower";
  talk.push({ role: "assistant", content: said }, { role: "user", content: hint });
}
console.log(JSON.stringify({ reward: won ? 1 : 0 }));
