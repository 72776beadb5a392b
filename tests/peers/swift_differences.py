# SPDX-License-Identifier: Apache-2.0
"""Where we differ from ms-swift on purpose; docs/data.md tells users. Each: templates, flags and shapes (None: any), whether only
rows without a system message, and why."""

TOOLS = ("tools offered", "tool calls", "tool calls of OpenAI", "several tool calls", "words and a tool call", "thoughts and a tool call")
ROUNDS = ("several turns", "query with history", "conversations", "thoughts of several turns", "some thoughts", "turns not learnt",
          "turns with a weight", "the last turn not learnt")
BARE = ("no template", "pt")

ON_PURPOSE = [
    (None, None, ("words and a tool call",), False,
     "the checkpoint's template puts a new line between words and a call, as every server of the model does"),
    (("qwen2",), None, ("thoughts and a tool call",), False, "the same: thoughts are words to this template"),
    (("qwen3",), None, TOOLS, True, "ms-swift puts two blank lines before the tools where there is no system message"),
    (("qwen3",), ("last_round", "two tables"), ("thoughts and a tool call",), False,
     "the template keeps the thoughts behind the last question until it is answered; ms-swift drops them behind a tool's answer"),
    (("llama",), None, TOOLS, False, "--template llama3 has its own words for tools"),
    (("llama",), None, ("blanks around",), False, "the template takes blanks around a message away, as the model's own does"),
    (None, None, ("an empty system",), False, "the template is given what the row says; ms-swift leaves the system message out"),
    (None, None, ("an end mark by hand",), False, "the template ends every turn itself, with the new line behind the mark"),
    (None, None, ("the last turn not learnt",), False, "nothing of a turn with \"loss\": false is learnt, nor is its end mark"),
    (None, BARE, ROUNDS + ("system",), False, "nothing is dropped: ms-swift leaves out the system message and all rounds but the last"),
    (None, BARE, TOOLS, False, "ms-swift cannot encode rows with tools without a template"),
    (("qwen3",), BARE, ("empty thoughts",), False, "no table is added for thoughts where there is no template"),
]


def allowed(template, flags, row):
    messages = row.get("messages") or [{}]
    bare = messages[0].get("role") != "system"
    return any((t is None or template in t) and (f is None or flags in f) and (s is None or row["shape"] in s) and (bare or not only_bare)
               for t, f, s, only_bare, _ in ON_PURPOSE)
