// SPDX-License-Identifier: Apache-2.0
// OpenAI's client by its Responses API, schemas as zod 4 writes them, and the Agents SDK as it asks by default:
//   node responses.mjs http://127.0.0.1:PORT KEY
import assert from "node:assert/strict";
import { Agent, OpenAIProvider, Runner, setTracingDisabled, tool } from "@openai/agents";
import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

const [url, key] = process.argv.slice(2);
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
const model = (await openai.models.list()).data[0].id;
const ask = (more = {}) => ({ model, input: "Say something.", max_output_tokens: 24, temperature: 0, ...more });
const weather = {
  type: "function",
  name: "weather",
  strict: true,
  parameters: { type: "object", properties: { city: { type: "string", enum: ["Bern", "Oslo"] } }, required: ["city"], additionalProperties: false },
};
const Person = z.object({ name: z.string().max(8), age: z.number().int(), mail: z.email(), kind: z.enum(["a", "b"]), when: z.iso.date().nullable() });

const checks = {
  async "a response, and one that goes on from it"() {
    const a = await openai.responses.create(ask());
    assert.equal(a.object, "response");
    assert.equal(typeof a.output_text, "string");
    assert.ok(["completed", "incomplete"].includes(a.status));
    const b = await openai.responses.create(ask({ previous_response_id: a.id }));
    assert.ok(b.usage.input_tokens > a.usage.input_tokens);
    assert.equal((await openai.responses.retrieve(a.id)).id, a.id);
    await openai.responses.delete(a.id);
    await assert.rejects(openai.responses.retrieve(a.id), { status: 404 });
  },

  async "streamed, it is the same"() {
    const whole = await openai.responses.create(ask());
    const stream = openai.responses.stream(ask());
    let text = "";
    stream.on("response.output_text.delta", (event) => (text += event.delta));
    const last = await stream.finalResponse();
    assert.equal(text, whole.output_text);
    assert.equal(last.output_text, whole.output_text);
  },

  async "zod's integers, addresses and dates"() {
    const chat = await openai.chat.completions.parse({ model, messages: [{ role: "user", content: "Who?" }], max_tokens: 400, temperature: 0, response_format: zodResponseFormat(Person, "person") });
    Person.parse(chat.choices[0].message.parsed);
    const response = await openai.responses.parse(ask({ max_output_tokens: 400, text: { format: zodTextFormat(Person, "person") } }));
    Person.parse(response.output_parsed);
  },

  async "a call and its result"() {
    const a = await openai.responses.create(ask({ tools: [weather], tool_choice: "required", max_output_tokens: 200 }));
    const call = a.output.find((item) => item.type === "function_call");
    assert.ok(["Bern", "Oslo"].includes(JSON.parse(call.arguments).city));
    const b = await openai.responses.create(ask({ input: [{ role: "user", content: "Where?" }, call, { type: "function_call_output", call_id: call.call_id, output: "sunny" }], tools: [weather] }));
    assert.ok(b.usage.input_tokens > 0);
  },

  async "the Agents SDK"() {
    setTracingDisabled(true);
    const asked = [];
    const spy = tool({
      name: "weather",
      description: "the weather of a city",
      parameters: z.object({ city: z.enum(["Bern", "Oslo"]), days: z.number().int().min(1).max(9) }),
      execute: (input) => (asked.push(input), "sunny"),
    });
    const runner = new Runner({ modelProvider: new OpenAIProvider({ openAIClient: openai }), model });
    const agent = new Agent({ name: "A", instructions: "Ask the tool.", tools: [spy], toolUseBehavior: "stop_on_first_tool", modelSettings: { toolChoice: "required", maxTokens: 200, temperature: 0 } });
    const result = await runner.run(agent, "What is the weather?", { maxTurns: 4 });
    assert.equal(result.finalOutput, "sunny");
    assert.ok(asked.length > 0 && Number.isInteger(asked[0].days));
  },
};

let failed = 0;
for (const [name, check] of Object.entries(checks)) {
  try {
    await check();
    console.log(`ok      ${name}`);
  } catch (error) {
    ++failed;
    console.log(`FAILED  ${name}: ${error.stack ?? error}`);
  }
}
process.exit(failed ? 1 : 0);
