#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the small world of ./quickstart: an island of 48 people, four facts about each, and a model's shape to fit.

texts.jsonl      plain text that states every fact in several wordings (what the model is pre-trained on)
questions.jsonl  questions and answers about 38 of the people (what LoRA is taught)
heldout.jsonl    questions about the other 10, of whom no question of training tells
pairs.jsonl      questions with a right and a wrong answer (apus rlhf --rlhf_type dpo and its kin)
judged.jsonl     the same, one of the two answers each, and whether it is right (kto)
config.json, tokenizer.json, tokenizer_config.json    a shape of half a million parameters; one token a word
"""
import json
import os
import random
import re

NAMES = """Anna Ben Clara David Emma Frank Grace Henry Ida Jack Kate Leo Maria Noah Olga Paul Rosa Sam Tina Victor Alice Bruno
Carl Dora Eric Flora George Hanna Ivan Julia Karl Laura Max Nina Oscar Petra Ralph Sara Tom Ursula Walter Adam Bella Dan
Eva Felix Greta Hugo""".split()
FACTS = {  # values, wordings of the text (the first is also the answer's), questions
    "town": ("Paris London Rome Berlin Madrid Vienna Oslo Dublin Lisbon Athens".split(),
             ["The home of {0} is {1}.", "They say that {0} lives in {1}."],
             ["Where is the home of {0}?", "What is the town that {0} lives in?"]),
    "job": ("baker teacher doctor farmer painter driver sailor cook smith nurse".split(),
            ["The job of {0} is {1}.", "They say that {0} works as {1}."],
            ["What is the job of {0}?", "What is it that {0} works as?"]),
    "pet": ("dog cat horse bird fish rabbit goat sheep cow duck".split(),
            ["The pet of {0} is {1}.", "They say that {0} keeps a {1}."],
            ["What is the pet of {0}?", "Which animal is it that {0} keeps?"]),
    "hat": ("red blue green yellow white black brown pink gray orange".split(),
            ["The hat of {0} is {1}.", "They say that {0} wears {1}."],
            ["What color is the hat of {0}?", "What is the color that {0} wears?"]),
}
ROUNDS = 20    # times that every fact is told
HELD_OUT = 10  # people
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
HERE = os.path.dirname(os.path.abspath(__file__))


def write(name, text):
    with open(os.path.join(HERE, name), "w") as file:
        file.write(text)


def write_rows(name, rows):
    write(name, "".join(json.dumps(row) + "\n" for row in rows))


def ask(question, fact, person, world):
    return {"messages": [{"role": "user", "content": question.format(person)},
                         {"role": "assistant", "content": FACTS[fact][1][0].format(person, world[person][fact])}]}


def byte_alphabet():
    """The printable stand-ins of bytes that byte-level tokenizers use."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return [chr(b) for b in plain] + [chr(256 + i) for i in range(len(rest))]


def write_tokenizer(text):
    words = sorted(set(re.findall(r" ?[A-Za-z]+", text)) | {"user", "assistant", "system"})
    vocab = {token: i for i, token in enumerate(byte_alphabet() + [w.replace(" ", "\u0120") for w in words])}
    ids = {token: len(vocab) + i for i, token in enumerate(SPECIAL)}
    added = [{"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for token, i in ids.items()]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": r" ?\p{L}+|\n|."}, "behavior": "Isolated", "invert": False}
    write("tokenizer.json", json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]}, "post_processor": level, "decoder": level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
                  "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False, "ignore_merges": True,
                  "vocab": vocab, "merges": []}}, indent=0, ensure_ascii=False) + "\n")
    write("tokenizer_config.json", json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 512, "bos_token": None,
        "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "clean_up_tokenization_spaces": False,
        "chat_template": "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
                         "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"}, indent=1) + "\n")
    write("config.json", json.dumps({
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 128, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 256, "vocab_size": len(vocab) + len(ids),
        "max_position_embeddings": 512, "rope_theta": 10000.0, "rms_norm_eps": 1e-6, "hidden_act": "silu",
        "tie_word_embeddings": True, "use_sliding_window": False, "initializer_range": 0.05, "torch_dtype": "float32",
        "eos_token_id": ids["<|im_end|>"], "pad_token_id": ids["<|endoftext|>"]}, indent=1) + "\n")


def wrong(question, fact, person, world, rng):
    """The question with its answer, and beside it the answer with another value of the fact."""
    right = world[person][fact]
    other = rng.choice([value for value in FACTS[fact][0] if value != right])
    row = ask(question, fact, person, world)
    return {**row, "rejected_response": row["messages"][-1]["content"].replace(right, other)}


def judged(pair, good):
    """One of the two answers, and whether it is right."""
    answer = pair["messages"][-1]["content"] if good else pair["rejected_response"]
    return {"messages": pair["messages"][:-1] + [{"role": "assistant", "content": answer}], "label": good}


def main():
    rng = random.Random(1)
    world = {person: {fact: rng.choice(values) for fact, (values, _, _) in FACTS.items()} for person in NAMES}
    texts = []
    for _ in range(ROUNDS):
        for person in rng.sample(NAMES, len(NAMES)):
            told = [rng.choice(wordings).format(person, world[person][fact]) for fact, (_, wordings, _) in FACTS.items()]
            texts.append({"text": " ".join(rng.sample(told, len(told)))})
    write_rows("texts.jsonl", texts)
    people = rng.sample(NAMES, len(NAMES))
    questions = [ask(q, f, p, world) for p in people[HELD_OUT:] for f in FACTS for q in FACTS[f][2]]
    heldout = [ask(rng.choice(FACTS[f][2]), f, p, world) for p in people[:HELD_OUT] for f in FACTS]
    write_rows("questions.jsonl", questions)
    write_rows("heldout.jsonl", heldout)
    pairs = [wrong(q, f, p, world, rng) for p in people[HELD_OUT:] for f in FACTS for q in FACTS[f][2][:1]]
    write_rows("pairs.jsonl", pairs)
    write_rows("judged.jsonl", [judged(pair, i % 2 == 0) for i, pair in enumerate(pairs)])
    write_tokenizer("\n".join([t["text"] for t in texts] + [m["content"] for q in questions + heldout for m in q["messages"]]))


main()
