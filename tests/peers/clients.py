#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The official Python clients of OpenAI and Anthropic against `apus deploy`.

Usage: clients.py APUS GOLDEN FOLDER
"""
import asyncio
import json
import os
import re
import subprocess
import sys
import time

import tiny

KEY = "secret"
TOOL = {"type": "object", "properties": {"town": {"enum": ["Bonn", "Rome"]}, "days": {"enum": [1, 2]}}, "required": ["town", "days"],
        "additionalProperties": False}
SHAPE = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
         "required": ["name", "age"], "additionalProperties": False}


def start(apus, folder):
    model = os.path.join(folder, "model")
    if not os.path.exists(os.path.join(model, "config.json")):
        tiny.run(apus, "init", "--preset", "tiny", "--output_dir", model, "--seed", 5)
    log = open(os.path.join(folder, "server.log"), "w+", encoding="utf-8")
    server = subprocess.Popen([apus, "deploy", "--model", model, "--host", "127.0.0.1", "--port", "18790", "--api_key", KEY],
                              stdout=log, stderr=subprocess.STDOUT)
    for _ in range(600):
        with open(log.name, encoding="utf-8") as file:
            found = re.search(r"serving .* at (http://[0-9.:]*)/v1", file.read())
        if found:
            return server, found.group(1)
        if server.poll() is not None:
            break
        time.sleep(0.1)
    server.kill()
    with open(log.name, encoding="utf-8") as file:
        sys.exit("the server did not start:\n" + file.read()[-2000:])


def check(title, condition, seen=""):
    print(f"{'ok' if condition else 'FAILED':7} {title} {'' if condition else repr(seen)[:300]}", flush=True)
    return bool(condition)


def openai_checks(url):
    import openai
    client = openai.OpenAI(base_url=url + "/v1", api_key=KEY, max_retries=0)
    model = client.models.list().data[0].id
    asked = dict(model=model, messages=[{"role": "user", "content": "Say something."}], max_tokens=12, temperature=0)
    whole = client.chat.completions.create(**asked)
    yield check("openai: chat", whole.choices[0].message.role == "assistant" and whole.usage.completion_tokens <= 12, whole)
    parts = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    text = "".join(p.choices[0].delta.content or "" for p in parts if p.choices)
    yield check("openai: chat, streamed", text == whole.choices[0].message.content and parts[-1].usage, text)
    told = ""
    try:
        with client.chat.completions.stream(**asked) as stream:
            for event in stream:
                told += event.delta if event.type == "content.delta" else ""
    except openai.LengthFinishReasonError:
        pass  # as this helper answers an answer that was cut at max_tokens
    yield check("openai: its stream helper", told == text, told)
    probable = client.chat.completions.create(**asked, logprobs=True, top_logprobs=3)
    yield check("openai: logprobs", len(probable.choices[0].logprobs.content[0].top_logprobs) == 3, probable)
    plain = client.completions.create(model=model, prompt="Once upon", max_tokens=5, n=2, seed=1)
    yield check("openai: completions", len(plain.choices) == 2, plain)
    schema = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": SHAPE}}
    formed = client.chat.completions.create(**{**asked, "max_tokens": 200}, response_format=schema)
    yield check("openai: json_schema", set(json.loads(formed.choices[0].message.content)) == {"name", "age"}, formed)
    tools = [{"type": "function", "function": {"name": "weather", "description": "of a town", "parameters": TOOL}}]
    called = client.chat.completions.create(**{**asked, "max_tokens": 400}, tools=tools,
                                            tool_choice={"type": "function", "function": {"name": "weather"}})
    call = (called.choices[0].message.tool_calls or [None])[0]
    yield check("openai: forced tool call", call and set(json.loads(call.function.arguments)) == {"town", "days"}, called)
    answer = client.responses.create(model=model, input="Hello", max_output_tokens=8, temperature=0)
    yield check("openai: responses", answer.status in ("completed", "incomplete") and answer.output_text is not None, answer)
    events = [event.type for event in client.responses.create(model=model, input="Hello", max_output_tokens=8, stream=True)]
    yield check("openai: responses, streamed", "response.output_text.delta" in events and events[0] == "response.created", events)
    try:
        client.chat.completions.create(**{**asked, "model": "nobody"})
        yield check("openai: an unknown model is refused", False)
    except openai.NotFoundError as error:
        yield check("openai: an unknown model is refused", "nobody" in str(error))
    try:
        openai.OpenAI(base_url=url + "/v1", api_key="wrong", max_retries=0).models.list()
        yield check("openai: a wrong key is refused", False)
    except openai.AuthenticationError:
        yield check("openai: a wrong key is refused", True)

    async def several():
        many = openai.AsyncOpenAI(base_url=url + "/v1", api_key=KEY, max_retries=0)
        return await asyncio.gather(*[many.chat.completions.create(**asked) for _ in range(6)])
    answers = asyncio.run(several())
    yield check("openai: six at once", all(a.choices[0].message.content == text for a in answers), answers)


def anthropic_checks(url):
    import anthropic
    client = anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0)
    model = client.models.list().data[0].id
    asked = dict(model=model, max_tokens=12, messages=[{"role": "user", "content": "Say something."}])
    whole = client.messages.create(**asked)
    yield check("anthropic: message", whole.role == "assistant" and whole.stop_reason in ("max_tokens", "end_turn"), whole)
    with client.messages.stream(**asked) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    yield check("anthropic: streamed", text == "".join(b.text for b in final.content if b.type == "text"), final)
    tools = [{"name": "weather", "description": "of a town", "input_schema": TOOL}]
    called = client.messages.create(**{**asked, "max_tokens": 400}, tools=tools, tool_choice={"type": "tool", "name": "weather"})
    use = next((b for b in called.content if b.type == "tool_use"), None)
    yield check("anthropic: forced tool", use and set(use.input) == {"town", "days"} and called.stop_reason == "tool_use", called)
    counted = client.messages.count_tokens(model=model, messages=asked["messages"])
    yield check("anthropic: count_tokens", counted.input_tokens == whole.usage.input_tokens, counted)
    try:
        client.messages.create(**{**asked, "max_tokens": 0})
        yield check("anthropic: a bad request is refused", False)
    except anthropic.BadRequestError as error:
        yield check("anthropic: a bad request is refused", "max_tokens" in str(error), error)


def main():
    apus, _, folder = sys.argv[1:4]
    os.makedirs(folder, exist_ok=True)
    server, url = start(apus, folder)
    good = True
    try:
        for checks in (openai_checks(url), anthropic_checks(url)):
            try:
                for result in checks:
                    good &= result
            except Exception as error:  # the client could not read what the server said
                good = check(f"{type(error).__name__} in the client", False, str(error))
    finally:
        server.terminate()
        good &= check("the server stops well", server.wait(30) == 0)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
