#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes train.jsonl (200 rows) and heldout.jsonl (50): a sentence about somebody, and name and age of it as exact JSON.
No name stands in both files. A row's columns "name" and "age" are for reward.py."""
import json
import random

random.seed(7)
NAMES = """Aisha Bela Carlos Dagny Emeka Fatima Goran Hanna Ivan Jamila Kenji Leila Marta Nadia Oskar Paulo Quentin Rosa Sven Tariq
Uma Viktor Wanda Ximena Yusuf Zoe Anders Bianca Chidi Dora Elif Farid Greta Hugo Ines Jonas Katya Lars Mina Noor Olga Pedro Rana
Selma Tomas Ursula Vera Wim Yara Zeno""".split()
PLACES = ["Oslo", "Porto", "Lagos", "Kyoto", "Lima", "Cork", "Tunis", "Graz", "Turku", "Quito"]
WORK = ["bakes bread", "repairs clocks", "teaches maths", "drives a tram", "keeps bees", "draws maps", "sells tea", "builds boats"]
FORMS = ["{n} is {a} years old and {w} in {p}.", "In {p} lives {n}, {a}, who {w}.", "{n} from {p} {w} and has just turned {a}.",
         "At the age of {a}, {n} {w} near {p}."]

def row(name):
    age = random.randint(18, 90)
    text = random.choice(FORMS).format(n=name, a=age, w=random.choice(WORK), p=random.choice(PLACES))
    answer = json.dumps({"name": name, "age": age})
    return {"messages": [{"role": "user", "content": f"Name and age as JSON: {text}"}, {"role": "assistant", "content": answer}],
            "name": name, "age": age}

random.shuffle(NAMES)
for file, names, count in (("train.jsonl", NAMES[:40], 200), ("heldout.jsonl", NAMES[40:], 50)):
    with open(file, "w") as out:
        for i in range(count):
            out.write(json.dumps(row(names[i % len(names)])) + "\n")
