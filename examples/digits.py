#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes rows of small tasks about digits, which a model of random weights learns in a minute: digits.py KIND COUNT SEED

pairs    sort the digits: the right answer, and one in which two neighbours are swapped (a reward model)
labels   which digit is the largest: ten labels
vectors  the same digits in another order belong together; hard negatives have one digit changed
ranks    the same as documents for a query: one that has its digits, three that have not
games    a number from 1 to 9 is guessed at random, and every guess told whether it is too low or too high
numbers  the questions of such games
"""
import json
import random
import sys


def some(rng, count):
    return [rng.choice("0123456789") for _ in range(count)]


def shuffled(rng, digits):
    return "".join(rng.sample(digits, len(digits)))


def changed(rng, digits):
    place = rng.randrange(len(digits))
    other = rng.choice([d for d in "0123456789" if d != digits[place]])
    return shuffled(rng, digits[:place] + [other] + digits[place + 1:])


def user(text):
    return [{"role": "user", "content": text}]


def assistant(text):
    return [{"role": "assistant", "content": text}]


def pairs(rng):
    right = sorted(rng.sample("0123456789", 6))
    place = rng.randrange(5)
    wrong = right[:place] + [right[place + 1], right[place]] + right[place + 2:]
    return {"messages": user("sort " + shuffled(rng, right)) + assistant("".join(right)), "rejected_response": "".join(wrong)}


def labels(rng):
    digits = some(rng, 4)
    return {"messages": user("".join(digits)), "label": int(max(digits))}


def vectors(rng):
    digits = some(rng, 8)
    return {"messages": user("".join(digits)), "positive_messages": [user(shuffled(rng, digits))],
            "negative_messages": [user(changed(rng, digits))]}


def ranks(rng):
    digits = some(rng, 5)
    return {"messages": user("".join(digits)), "positive_messages": [assistant(shuffled(rng, digits))],
            "negative_messages": [assistant(shuffled(rng, some(rng, 5))) for _ in range(3)]}


QUESTION = "guess 1 to 9"


def games(rng):
    number, turns = rng.randint(1, 9), user(QUESTION)
    for _ in range(3):
        guess = rng.randint(1, 9)
        turns += assistant(str(guess))
        if guess == number:
            return {"messages": turns}
        turns += user("higher" if guess < number else "lower")
    return {"messages": turns[:-1]}


def numbers(rng):
    return {"messages": user(QUESTION), "low": 1, "high": 9}


def main():
    kind, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    rng = random.Random(f"{kind} {seed}")
    for _ in range(count):
        print(json.dumps({task.__name__: task for task in (pairs, labels, vectors, ranks, games, numbers)}[kind](rng)))


main()
