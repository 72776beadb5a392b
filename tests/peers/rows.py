# SPDX-License-Identifier: Apache-2.0
"""300 rows of all shapes that training reads, the same every time. `shape` names what is special about a row."""
import json
import random

WORDS = ("the a river house of green and runs quickly below 42 3.14 don't isn't caf\u00e9 na\u00efve \u4f60\u597d \u4e16\u754c "
         "\u0440\u0435\u043a\u0430 \U0001f600 \u305d\u3046\u3067\u3059 def f(x): return x**2 https://a.example/b?c=d e-mail 1,000 (yes) \"no\" "
         "Zeus; --flag x=y [1, 2] {\"k\": null} \u0645\u0631\u062d\u0628\u0627 \u00df \u0399").split(" ")
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "The weather of a town",
                                           "parameters": {"type": "object", "properties": {"town": {"type": "string"},
                                                                                           "days": {"type": "integer"}},
                                                          "required": ["town"]}}},
         {"type": "function", "function": {"name": "add", "description": "Adds \u00fcber numbers",
                                           "parameters": {"type": "object", "properties": {"a": {"type": "number"},
                                                                                           "b": {"type": "number"}}}}}]
REACT = "Thought: I should look\nAction: weather\nAction Input: {\"town\": \"Bonn\"}\nObservation: rain\nThought: done\nFinal Answer:\n"
QWEN = "\u273fFUNCTION\u273f: weather\n\u273fARGS\u273f: {\"town\": \"Bonn\"}\n\u273fRESULT\u273f: rain\n\u273fRETURN\u273f: "


class Maker:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def text(self, low=2, high=14, ends=("", ".", "?", "!", "...", ":")):
        words = [self.random.choice(WORDS) for _ in range(self.random.randint(low, high))]
        out = words[0]
        for word in words[1:]:
            out += self.random.choice((" ",) * 12 + ("\n", "\n\n", "  ", "\t")) + word
        return out + self.random.choice(ends)

    def talk(self, turns, system=False, **answer):
        messages = [{"role": "system", "content": self.text()}] if system else []
        for _ in range(turns):
            messages += [{"role": "user", "content": self.text()}, {"role": "assistant", "content": self.text(), **answer}]
        return messages

    def thought(self):
        return "<think>\n" + self.text() + "\n</think>\n\n"

    def call(self):
        return {"name": "weather", "arguments": {"town": self.random.choice(("Bonn", "\u6771\u4eac", "a \"b\"")),
                                                 "days": self.random.randint(1, 9)}}


def tool_row(m, style, thinking=False, system=False, several=False, words=False):
    calls = [m.call() for _ in range(2 if several else 1)]
    messages = [{"role": "system", "content": m.text()}] if system else []
    messages.append({"role": "user", "content": m.text()})
    said = m.thought() if thinking else m.text() if words else ""
    if style == "openai":
        messages.append({"role": "assistant", "content": said, "tool_calls": [
            {"id": f"c{i}", "type": "function", "function": {"name": c["name"],
                                                             "arguments": json.dumps(c["arguments"], ensure_ascii=False)}}
            for i, c in enumerate(calls)]})
    else:
        if said:
            messages.append({"role": "assistant", "content": said})
        messages += [{"role": "tool_call", "content": json.dumps(c, ensure_ascii=False)} for c in calls]
    name = "tool" if style == "openai" else "tool_response"
    messages += [{"role": name, "content": json.dumps({"sky": m.text(1, 4)}, ensure_ascii=False)} for _ in calls]
    messages.append({"role": "assistant", "content": (m.thought() if thinking else "") + m.text()})
    return {"messages": messages, "tools": json.dumps(TOOLS, ensure_ascii=False)}


def rows():
    m = Maker(7)
    out = []

    def add(shape, count, make):
        for _ in range(count):
            row = make()
            row["shape"] = shape
            out.append(row)

    add("one turn", 40, lambda: {"messages": m.talk(1)})
    add("system", 25, lambda: {"messages": m.talk(1, system=True)})
    add("several turns", 35, lambda: {"messages": m.talk(m.random.randint(2, 5), system=m.random.random() < 0.5)})
    add("query and response", 15, lambda: {"query": m.text(), "response": m.text()})
    add("query with history", 10, lambda: {"query": m.text(), "response": m.text(), "system": m.text(),
                                           "history": [[m.text(), m.text()], [m.text(), m.text()]]})
    add("instruction", 15, lambda: {"instruction": m.text(), "input": m.random.choice(("", m.text())), "output": m.text()})
    add("conversations", 10, lambda: {"conversations": [{"from": "human", "value": m.text()}, {"from": "gpt", "value": m.text()},
                                                        {"from": "human", "value": m.text()}, {"from": "gpt", "value": m.text()}]})
    add("thoughts", 20, lambda: {"messages": [{"role": "user", "content": m.text()},
                                              {"role": "assistant", "content": m.thought() + m.text()}]})
    add("thoughts of several turns", 15, lambda: {"messages": [
        {"role": "user", "content": m.text()}, {"role": "assistant", "content": m.thought() + m.text()},
        {"role": "user", "content": m.text()}, {"role": "assistant", "content": m.thought() + m.text()}]})
    add("some thoughts", 10, lambda: {"messages": [
        {"role": "user", "content": m.text()}, {"role": "assistant", "content": m.thought() + m.text()},
        {"role": "user", "content": m.text()}, {"role": "assistant", "content": m.text()}]})
    add("empty thoughts", 10, lambda: {"messages": [
        {"role": "user", "content": m.text()}, {"role": "assistant", "content": "<think>\n\n</think>\n\n" + m.text()}]})
    add("turns not learnt", 10, lambda: {"messages": [
        {"role": "user", "content": m.text()}, {"role": "assistant", "content": m.text(), "loss": False},
        {"role": "user", "content": m.text()}, {"role": "assistant", "content": m.text(), "loss": True}]})
    add("turns with a weight", 10, lambda: {"messages": [
        {"role": "user", "content": m.text()}, {"role": "assistant", "content": m.text(), "loss_scale": 1.0},
        {"role": "user", "content": m.text()}, {"role": "assistant", "content": m.text(), "loss_scale": 0.0},
        {"role": "user", "content": m.text()}, {"role": "assistant", "content": m.text()}]})
    add("tools offered", 10, lambda: {"messages": m.talk(2, system=m.random.random() < 0.5),
                                      "tools": json.dumps(TOOLS, ensure_ascii=False)})
    add("tool calls", 12, lambda: tool_row(m, "swift", system=m.random.random() < 0.5))
    add("tool calls of OpenAI", 8, lambda: tool_row(m, "openai", system=m.random.random() < 0.5))
    add("several tool calls", 6, lambda: tool_row(m, "swift", system=True, several=True))
    add("words and a tool call", 4, lambda: tool_row(m, "swift", system=True, words=True))
    add("thoughts and a tool call", 5, lambda: tool_row(m, "swift", system=True, thinking=True))
    add("ReAct", 8, lambda: {"messages": [{"role": "user", "content": m.text()},
                                          {"role": "assistant", "content": REACT + m.text()}]})
    add("Qwen's marks", 4, lambda: {"messages": [{"role": "user", "content": m.text()},
                                                 {"role": "assistant", "content": QWEN + m.text()}]})
    add("only an answer", 6, lambda: {"messages": [{"role": "assistant", "content": m.text(5, 60)}]})
    add("blanks around", 6, lambda: {"messages": [{"role": "user", "content": " \n" + m.text() + "\n "},
                                                  {"role": "assistant", "content": m.random.choice(("\n", "  ")) + m.text() + " \n"}]})
    add("an empty system", 2, lambda: {"messages": [{"role": "system", "content": ""}] + m.talk(1)})
    add("an end mark by hand", 2, lambda: {"messages": [{"role": "user", "content": m.text()},
                                                        {"role": "assistant", "content": m.text() + "<|im_end|>"}]})
    add("the last turn not learnt", 2, lambda: {"messages": m.talk(1) + m.talk(1, loss=False)})
    assert len(out) == 300, len(out)
    for number, row in enumerate(out):
        row["channel"] = f"r{number}"
    return out


def write(path, chosen):
    with open(path, "w", encoding="utf-8") as file:
        for row in chosen:
            file.write(json.dumps({k: v for k, v in row.items() if k != "shape"}, ensure_ascii=False) + "\n")
