// SPDX-License-Identifier: Apache-2.0
// OpenAI's and Anthropic's own clients against a running server:  node clients.mjs http://127.0.0.1:PORT KEY
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const [url, key] = process.argv.slice(2);
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: url, apiKey: key, maxRetries: 0 });
const model = (await openai.models.list()).data[0].id;
const ask = (more = {}) => ({ model, messages: [{ role: "user", content: "Say something." }], max_tokens: 24, temperature: 0, ...more });
const weather = {
  type: "function",
  function: {
    name: "weather",
    description: "the weather of a city",
    parameters: {
      type: "object",
      properties: { city: { type: "string", enum: ["Bern", "Oslo"] }, days: { type: "integer", minimum: 1, maximum: 9 } },
      required: ["city", "days"],
    },
  },
};

const checks = {
  async chat() {
    const a = await openai.chat.completions.create(ask());
    assert.equal(a.object, "chat.completion");
    assert.equal(a.choices[0].message.role, "assistant");
    assert.ok(["stop", "length"].includes(a.choices[0].finish_reason));
    assert.ok(a.usage.completion_tokens > 0 && a.usage.completion_tokens <= 24);
    assert.ok(a._request_id, "where the client looks for it");
    assert.equal(a.usage.completion_tokens_details.reasoning_tokens, 0);
  },

  async "the same answer alone, in a crowd, and streamed"() {
    const alone = (await openai.chat.completions.create(ask())).choices[0].message.content;
    const crowd = await Promise.all(Array.from({ length: 8 }, () => openai.chat.completions.create(ask())));
    for (const a of crowd) assert.equal(a.choices[0].message.content, alone);
    let streamed = "", usage, finish;
    for await (const chunk of await openai.chat.completions.create(ask({ stream: true, stream_options: { include_usage: true } }))) {
      streamed += chunk.choices[0]?.delta?.content ?? "";
      finish ??= chunk.choices[0]?.finish_reason;
      usage ??= chunk.usage;
    }
    assert.equal(streamed, alone);
    assert.ok(finish);
    assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
  },

  async "several answers and seeds"() {
    const draw = (seed) => openai.chat.completions.create(ask({ n: 3, temperature: 1, seed }));
    const [a, b] = [await draw(7), await draw(7)];
    assert.equal(a.choices.length, 3);
    assert.deepEqual(a.choices.map((c) => c.message.content), b.choices.map((c) => c.message.content));
    assert.equal(new Set(a.choices.map((c) => c.message.content)).size, 3);
  },

  async logprobs() {
    const a = await openai.chat.completions.create(ask({ logprobs: true, top_logprobs: 3, max_tokens: 5 }));
    const tokens = a.choices[0].logprobs.content;
    assert.ok(tokens.length > 0 && tokens.length <= 5);
    for (const t of tokens) {
      assert.ok(t.logprob <= 0 && Array.isArray(t.bytes));
      assert.equal(t.top_logprobs.length, 3);
      assert.equal(t.logprob, t.top_logprobs[0].logprob, "greedy takes the likeliest");
    }
  },

  async "structured output"() {
    const schema = {
      type: "object",
      properties: { name: { type: "string", maxLength: 8 }, age: { type: "integer", minimum: 0, maximum: 120 }, tags: { type: "array", items: { enum: ["a", "b"] }, maxItems: 2 } },
      required: ["name", "age", "tags"],
      additionalProperties: false,
    };
    const a = await openai.chat.completions.create(ask({ max_tokens: 200, response_format: { type: "json_schema", json_schema: { name: "person", strict: true, schema } } }));
    const person = JSON.parse(a.choices[0].message.content);
    assert.deepEqual(Object.keys(person), ["name", "age", "tags"]);
    assert.ok(Number.isInteger(person.age) && person.age <= 120 && person.name.length <= 8);
    const choice = await openai.chat.completions.create(ask({ guided_choice: ["red", "green"] }));
    assert.ok(["red", "green"].includes(choice.choices[0].message.content));
    const digits = await openai.chat.completions.create(ask({ guided_regex: "[0-9]{3}-[a-f]{2}" }));
    assert.match(digits.choices[0].message.content, /^[0-9]{3}-[a-f]{2}$/);
  },

  async "tools, whole and streamed"() {
    const forced = ask({ tools: [weather], tool_choice: { type: "function", function: { name: "weather" } }, max_tokens: 200 });
    const a = await openai.chat.completions.create(forced);
    assert.equal(a.choices[0].finish_reason, "tool_calls");
    const call = a.choices[0].message.tool_calls[0];
    assert.equal(call.function.name, "weather");
    const { city, days } = JSON.parse(call.function.arguments);
    assert.ok(["Bern", "Oslo"].includes(city) && days >= 1 && days <= 9);

    const final = await openai.chat.completions.stream(forced).finalChatCompletion();
    assert.equal(final.choices[0].message.tool_calls[0].function.arguments, call.function.arguments);

    const strict = { ...weather, function: { ...weather.function, strict: true } };
    const free = await openai.chat.completions.create(ask({ tools: [strict] }));  // the model may call, and may not
    assert.ok(["stop", "length", "tool_calls"].includes(free.choices[0].finish_reason));

    const messages = [...ask().messages, a.choices[0].message, { role: "tool", tool_call_id: call.id, content: "sunny" }];
    const after = await openai.chat.completions.create(ask({ messages, tools: [weather] }));
    assert.equal(after.choices[0].message.role, "assistant");
  },

  async "streams in detail: several answers, log-probs, calls"() {
    const request = ask({ n: 2, temperature: 1, seed: 3, stream: true, stream_options: { include_usage: true }, logprobs: true, top_logprobs: 2, max_tokens: 6 });
    const chunks = [];
    for await (const chunk of await openai.chat.completions.create(request)) chunks.push(chunk);
    const last = chunks.pop();
    assert.deepEqual(last.choices, []);
    assert.ok(last.usage.completion_tokens > 0 && last.usage.completion_tokens <= 12);
    assert.ok(chunks.every((c) => c.usage === null && c.choices.length === 1 && c.id === last.id));
    const whole = await openai.chat.completions.create({ ...request, stream: false, stream_options: undefined });
    for (const index of [0, 1]) {
      const mine = chunks.map((c) => c.choices[0]).filter((c) => c.index === index);
      assert.deepEqual(mine[0].delta, { role: "assistant", content: "" });
      assert.ok(mine.slice(1).every((c) => c.delta.role === undefined));
      assert.deepEqual(mine.filter((c) => c.finish_reason).length, 1);
      assert.ok(mine.at(-1).finish_reason);
      assert.equal(mine.map((c) => c.delta.content ?? "").join(""), whole.choices[index].message.content);
      assert.deepEqual(mine.flatMap((c) => c.logprobs?.content ?? []), whole.choices[index].logprobs.content);
    }
    const forced = ask({ tools: [weather], tool_choice: "required", max_tokens: 200, stream: true });
    let calls = [], finish;
    for await (const { choices: [c] } of await openai.chat.completions.create(forced)) {
      for (const d of c.delta.tool_calls ?? []) {
        if (d.index === calls.length) {
          assert.ok(d.id && d.type === "function" && d.function.name === "weather");
          calls.push("");
        } else {
          assert.ok(d.index === calls.length - 1 && d.id === undefined && d.function.name === undefined);
        }
        calls[d.index] += d.function.arguments;
      }
      finish = c.finish_reason ?? finish;
    }
    assert.ok(calls.length >= 1);
    for (const text of finish === "length" ? calls.slice(0, -1) : calls) assert.ok(JSON.parse(text).days >= 1);
  },

  async completions() {
    const a = await openai.completions.create({ model, prompt: ["Once", "Twice"], max_tokens: 4, temperature: 0, logprobs: 1 });
    assert.equal(a.choices.length, 2);
    assert.equal(a.choices[1].logprobs.tokens.length, a.choices[1].logprobs.token_logprobs.length);
    let text = "";
    for await (const chunk of await openai.completions.create({ model, prompt: "Once", max_tokens: 4, temperature: 0, stream: true })) text += chunk.choices[0]?.text ?? "";
    assert.equal(text, a.choices[0].text);
  },

  async embeddings() {
    const a = await openai.embeddings.create({ model, input: ["one", "two"] });  // the client asks for base64
    const b = await openai.embeddings.create({ model, input: "one", encoding_format: "float" });
    assert.equal(a.data.length, 2);
    a.data[0].embedding.forEach((x, i) => assert.ok(Math.abs(x - b.data[0].embedding[i]) < 1e-3));
    assert.ok(Math.abs(Math.hypot(...b.data[0].embedding) - 1) < 1e-4);
  },

  async errors() {
    await assert.rejects(openai.chat.completions.create(ask({ model: "nobody" })), (e) => e instanceof OpenAI.NotFoundError && e.code === "model_not_found");
    await assert.rejects(openai.chat.completions.create(ask({ temperature: -1 })), (e) => e instanceof OpenAI.BadRequestError && e.param === "temperature");
    const picture = [{ role: "user", content: [{ type: "image_url", image_url: { url: "data:image/png;base64,AA==" } }] }];
    await assert.rejects(openai.chat.completions.create(ask({ messages: picture })), /text only/);
    const stranger = new OpenAI({ baseURL: `${url}/v1`, apiKey: "wrong", maxRetries: 0 });
    await assert.rejects(stranger.models.list(), OpenAI.AuthenticationError);
    await assert.rejects(anthropic.messages.create({ model: "nobody", max_tokens: 5, messages: ask().messages }), Anthropic.NotFoundError);
  },

  async "what cannot be followed is refused"() {
    for (const [field, value] of Object.entries({
      store: true, verbosity: "low", reasoning_effort: "much", prediction: { type: "content", content: "x" }, web_search_options: {},
      modalities: ["text", "audio"], audio: { voice: "alloy", format: "wav" }, function_call: "auto", n: 0,
      max_completion_tokens: -1, top_logprobs: 1, logit_bias: { x: 1 }, stop: 5, response_format: { type: "xml" }, tool_choice: "always",
      tools: [{ type: "custom", custom: { name: "f" } }],
    }))
      await assert.rejects(openai.chat.completions.create(ask({ [field]: value })), (e) => e instanceof OpenAI.BadRequestError && e.param.startsWith(field), field);
    const images = { model, max_tokens: 5, messages: [{ role: "user", content: [{ type: "image", source: { type: "base64", media_type: "image/png", data: "AA==" } }] }] };
    await assert.rejects(anthropic.messages.create(images), (e) => e instanceof Anthropic.BadRequestError && e.error.type === "error" && e.error.error.type === "invalid_request_error");
    const stranger = new Anthropic({ baseURL: url, apiKey: "wrong", maxRetries: 0 });
    await assert.rejects(stranger.messages.create({ ...images, messages: ask().messages }), (e) => e instanceof Anthropic.AuthenticationError && e.error.error.type === "authentication_error");
  },

  async "leaving in the middle"() {
    const stream = await openai.chat.completions.create(ask({ stream: true, max_tokens: 2000 }));
    for await (const chunk of stream) if (chunk.choices[0]?.delta?.content) break;  // ends the request
    for (let i = 0; ; ++i) {
      const metrics = await (await fetch(`${url}/metrics`, { headers: { Authorization: `Bearer ${key}` } })).text();
      if (/apus_sequences_running 0\b/.test(metrics)) break;
      assert.ok(i < 100, "the engine goes on for a client that has left");
      await new Promise((r) => setTimeout(r, 50));
    }
  },

  async "anthropic: message and stream"() {
    const request = { model, max_tokens: 16, temperature: 0, system: "Be brief.", messages: [{ role: "user", content: "Say something." }] };
    const a = await anthropic.messages.create(request);
    assert.equal(a.type, "message");
    assert.equal(a.content[0].type, "text");
    assert.ok(a._request_id, "where the client looks for it");
    assert.ok(["end_turn", "max_tokens"].includes(a.stop_reason));
    const b = await anthropic.messages.stream(request).finalMessage();
    assert.deepEqual(b.content, a.content);
    assert.equal(b.usage.output_tokens, a.usage.output_tokens);
    assert.ok((await anthropic.messages.countTokens({ model, messages: request.messages })).input_tokens > 3);
  },

  async "anthropic: the order of events"() {
    const request = { model, max_tokens: 24, temperature: 0, stream: true, system: [{ type: "text", text: "Be brief.", cache_control: { type: "ephemeral" } }], messages: [{ role: "user", content: [{ type: "text", text: "Say something." }] }] };
    const events = [];
    for await (const event of await anthropic.messages.create(request)) events.push(event);
    const types = events.map((e) => e.type).filter((t) => t !== "ping");
    const deltas = types.filter((t) => t === "content_block_delta");
    assert.deepEqual(types, ["message_start", "content_block_start", ...deltas, "content_block_stop", "message_delta", "message_stop"]);
    assert.equal(events[0].message.role, "assistant");
    assert.ok(events[0].message.usage.input_tokens > 3);
    const text = events.map((e) => e.delta?.text ?? "").join("");
    const stop = text.slice(1).match(/[!-~]{1,4}/)?.[0];
    if (!stop) return;  // nothing that can be typed: a random model
    const cut = await anthropic.messages.create({ ...request, stream: false, stop_sequences: [stop] });
    assert.equal(cut.stop_reason, "stop_sequence");
    assert.equal(cut.stop_sequence, stop);
    assert.equal(cut.content.map((b) => b.text).join(""), text.slice(0, text.indexOf(stop)));
  },

  async "anthropic: tools"() {
    const tools = [{ name: "weather", description: "d", input_schema: weather.function.parameters }];
    const request = { model, max_tokens: 200, temperature: 0, tools, tool_choice: { type: "tool", name: "weather" }, messages: [{ role: "user", content: "Bern?" }] };
    const a = await anthropic.messages.create(request);
    assert.equal(a.stop_reason, "tool_use");
    const use = a.content.find((b) => b.type === "tool_use");
    assert.ok(["Bern", "Oslo"].includes(use.input.city));
    const b = await anthropic.messages.stream(request).finalMessage();
    assert.deepEqual(b.content.find((c) => c.type === "tool_use").input, use.input);
    const messages = [...request.messages, { role: "assistant", content: a.content }, { role: "user", content: [{ type: "tool_result", tool_use_id: use.id, content: "sunny" }] }];
    assert.equal((await anthropic.messages.create({ model, max_tokens: 8, tools, messages })).role, "assistant");
  },
};

let failed = 0;
for (const [name, check] of Object.entries(checks)) {
  try {
    await check();
    console.log(`ok      ${name}`);
  } catch (e) {
    ++failed;
    console.log(`FAILED  ${name}: ${e.stack ?? e}`);
  }
}
process.exit(failed ? 1 : 0);
