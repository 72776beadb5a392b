#!/usr/bin/env python3
"""An agent that guesses a number with a model's help, in three requests at most, by OpenAI's API and nothing but Python.

The address, the key and the model's name come from the environment, as OpenAI's own client has them, and a seed that is
one for all games that are compared; the row comes as JSON on the input; what the game was worth is the last line printed.
"""
import json
import os
import sys
import urllib.request


def answer(talk):
    body = {"model": os.environ["OPENAI_MODEL"], "messages": talk}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json",
                                      "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]})
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)["choices"][0]["message"]["content"]


row = json.load(sys.stdin)
number = row["low"] + int(os.environ["APUS_SEED"]) % (row["high"] - row["low"] + 1)
talk, won = list(row["messages"]), False
for _ in range(3):
    said = answer(talk)
    guess = int(said) if said.strip().isdigit() else None
    won = guess == number
    if won:
        break
    hint = "a number, please" if guess is None else "higher" if guess < number else "lower"
    talk += [{"role": "assistant", "content": said}, {"role": "user", "content": hint}]
print(json.dumps({"reward": 1.0 if won else 0.0}))
