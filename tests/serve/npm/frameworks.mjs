// SPDX-License-Identifier: Apache-2.0
// The frameworks that JavaScript programs ask through, with zod 4's schemas:  node frameworks.mjs http://127.0.0.1:PORT KEY
import assert from "node:assert/strict";
import { createOpenAI } from "@ai-sdk/openai";
import Instructor from "@instructor-ai/instructor";
import { tool as langchainTool } from "@langchain/core/tools";
import { ChatOpenAI } from "@langchain/openai";
import { generateObject, generateText, stepCountIs, streamObject, streamText, tool } from "ai";
import OpenAI from "openai";
import { z } from "zod";
import { z as z3 } from "zod/v3";

const [url, key] = process.argv.slice(2);
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
const model = (await openai.models.list()).data[0].id;
const Trip = z.object({ city: z.enum(["Bern", "Oslo"]), days: z.number().int().min(1).max(9), note: z.string().max(8).nullable() });
const prompt = "Plan a trip.";

// The AI SDK asks by the Responses API, or by chat completions where it is told to.
const provider = createOpenAI({ baseURL: `${url}/v1`, apiKey: key });
const common = { maxOutputTokens: 200, temperature: 0, maxRetries: 0 };
const kinds = { "responses": provider(model), "chat completions": provider.chat(model) };
const weather = () => {
  const asked = [];
  const run = (input) => (asked.push(input), "sunny");
  return { asked, run };
};

const checks = {};
for (const [kind, of] of Object.entries(kinds)) {
  checks[`the AI SDK by ${kind}: text, whole and streamed`] = async () => {
    const whole = await generateText({ ...common, model: of, prompt, maxOutputTokens: 24 });
    let streamed = "";
    for await (const part of streamText({ ...common, model: of, prompt, maxOutputTokens: 24 }).textStream) streamed += part;
    assert.equal(streamed, whole.text);
    assert.ok(whole.usage.outputTokens > 0);
  };
  checks[`the AI SDK by ${kind}: objects, whole and streamed`] = async () => {
    const whole = await generateObject({ ...common, model: of, prompt, schema: Trip });
    Trip.parse(whole.object);
    const stream = streamObject({ ...common, model: of, prompt, schema: Trip });
    let parts = 0;
    for await (const _ of stream.partialObjectStream) ++parts;
    assert.ok(parts > 0);
    assert.deepEqual(await stream.object, whole.object);
  };
  checks[`the AI SDK by ${kind}: a tool is called and answered`] = async () => {
    const { asked, run } = weather();
    const tools = { weather: tool({ description: "the weather of a city", inputSchema: Trip, execute: run }) };
    const result = await generateText({ ...common, model: of, prompt, tools, toolChoice: "required", stopWhen: stepCountIs(2) });
    assert.ok(asked.length > 0);
    for (const input of asked) Trip.parse(input);
    assert.equal(result.steps.length, 2);
  };
}

const langchain = (more = {}) =>
  new ChatOpenAI({ model, apiKey: key, configuration: { baseURL: `${url}/v1` }, temperature: 0, maxTokens: 200, maxRetries: 0, ...more });

const instructor = (client, mode, schema) =>
  Instructor({ client, mode }).chat.completions.create({
    model, messages: [{ role: "user", content: prompt }], max_tokens: 200, temperature: 0, response_model: { schema, name: "Trip" }, max_retries: 0,
  });

Object.assign(checks, {
  async "LangChain: text, whole and streamed"() {
    const chat = langchain({ maxTokens: 24 });
    const whole = await chat.invoke(prompt);
    let streamed = "";
    for await (const part of await chat.stream(prompt)) streamed += part.text;
    assert.equal(streamed, whole.text);
  },

  async "LangChain: objects by schema and by call"() {
    for (const method of ["jsonSchema", "functionCalling"])
      Trip.parse(await langchain().withStructuredOutput(Trip, { name: "trip", method }).invoke(prompt));
  },

  async "LangChain: a bound tool is called and run"() {
    const { asked, run } = weather();
    const spy = langchainTool(run, { name: "weather", description: "the weather of a city", schema: Trip });
    const answer = await langchain().bindTools([spy], { tool_choice: "required" }).invoke(prompt);
    assert.ok(answer.tool_calls.length > 0);
    for (const call of answer.tool_calls) assert.equal((await spy.invoke(call)).content, "sunny");
    assert.equal(asked.length, answer.tool_calls.length);
  },

  async "Instructor by tools, functions and schemas"() {
    const Trip3 = z3.object({ city: z3.enum(["Bern", "Oslo"]), days: z3.number().int().min(1).max(9), note: z3.string().max(8).nullable() });
    for (const mode of ["TOOLS", "FUNCTIONS", "JSON_SCHEMA"])
      Trip.parse(await instructor(openai, mode, Trip3));
  },

  // It writes zod 4's schemas as {}: an object has to come all the same, and by tools as a call.
  async "Instructor where it sends an empty schema"() {
    for (const mode of ["TOOLS", "JSON_SCHEMA"]) {
      let message;
      const spy = async (address, options) => {
        const sent = JSON.parse(options.body);
        assert.deepEqual(sent.tools?.[0].function.parameters ?? sent.response_format.schema, {});
        const reply = await fetch(address, options);
        message = (await reply.clone().json()).choices[0].message;
        return reply;
      };
      await instructor(new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0, fetch: spy }), mode, Trip).catch(() => {});
      const answer = mode === "TOOLS" ? message.tool_calls[0].function.arguments : message.content;
      assert.equal(answer.trimStart()[0], "{");
    }
  },
});

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
