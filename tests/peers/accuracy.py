#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The reward `accuracy` against math-verify, which ms-swift's and TRL's ask: pairs of a result and an answer that is the same in
another spelling, or nearly the same. Then the table of tests/reward, whose differences are on purpose: degrees, complex numbers,
times of two units, denials, thoughts.

Usage: accuracy.py APUS GOLDEN FOLDER    (APUS_MATH_DRIVER: tests/reward/math_driver.cpp, built)
"""
import collections
import fractions
import json
import logging
import math
import os
import random
import subprocess
import sys

PAIRS = 3000
LEAST = 0.98  # of the pairs: decimals that differ behind the sixth place are the same to math-verify, and not to us


def number(chance):
    return chance.choice([1, 1, 1, 10, 1000, 10**9, 10**17]) * chance.randint(-40, 40) + chance.randint(1, 9)


def whole(chance):
    a = number(chance)
    spelt = chance.choice([str(a), f"{a:,}" if abs(a) >= 1000 else str(a), f"{a}.0", f"x = {a}", f"\\boxed{{{a}}}"])
    return str(a), spelt, str(a + chance.choice([-1, 1, 10]))


def fraction(chance):
    value = fractions.Fraction(number(chance), chance.randint(2, 30))
    top, bottom, k = value.numerator, value.denominator, chance.randint(2, 9)
    frac = f"\\frac{{{top}}}{{{bottom}}}"
    spelt = chance.choice([f"{top}/{bottom}", f"\\dfrac{{{top * k}}}{{{bottom * k}}}", f"-\\frac{{{-top}}}{{{bottom}}}",
                           f"{top / bottom:.9f}" if abs(value) < 1000 else frac])
    return frac, spelt, f"\\frac{{{top + 1}}}{{{bottom}}}"


def decimal(chance):
    digits = chance.randint(1, 8)
    a = chance.randint(1, 10**6) / 10**digits
    text = f"{a:.{digits}f}"
    value = fractions.Fraction(text)
    spelt = chance.choice([text + "0", f"\\frac{{{value.numerator}}}{{{value.denominator}}}", f"{text}"])
    return text, spelt, f"{a + 10**-digits:.{digits}f}"


def root(chance):
    a, b = chance.randint(2, 12), chance.choice([2, 3, 5, 6, 7, 10])
    spelt = chance.choice([f"\\sqrt{{{a * a * b}}}", f"\\sqrt{{{b}}}\\cdot {a}", f"\\frac{{{a * b}}}{{\\sqrt{{{b}}}}}",
                           f"{a * math.sqrt(b):.8f}"])
    return f"{a}\\sqrt{{{b}}}", spelt, f"{a + 1}\\sqrt{{{b}}}"


def constant(chance):
    a, b = chance.randint(1, 9), chance.randint(2, 9)
    name, value = chance.choice([("\\pi", math.pi), (f"\\ln {b}", math.log(b)), ("e", math.e)])
    spelt = chance.choice([f"{name} \\cdot {a}", f"{a * value:.8f}", f"\\frac{{{2 * a}{name}}}{{2}}"])
    return f"{a}{name}", spelt, chance.choice([f"{a * value:.2f}", f"{a + 1}{name}"])


def polynomial(chance):
    a, b = chance.randint(1, 9), chance.randint(1, 9)
    expanded = f"x^2+{a + b}x+{a * b}"
    spelt = chance.choice([f"(x+{a})(x+{b})", f"{a * b}+{a + b}x+x^2", f"x(x+{a + b})+{a * b}"])
    return expanded, spelt, f"(x+{a})(x-{b})"


def power(chance):
    a, b = chance.randint(2, 9), chance.randint(2, 24)
    return f"{a}^{{{b}}}", chance.choice([str(a**b), f"{a}\\cdot {a}^{{{b - 1}}}"]), str(a**b + 1)


def point(chance):
    a, b = chance.randint(-9, 9), chance.randint(1, 9)
    return f"({a},{b})", chance.choice([f"\\left({a}, {b}\\right)", f"({2 * a}/2, {b}.0)"]), f"({b},{a + 20})"


def several(chance):
    items = chance.sample(range(-20, 20), chance.randint(2, 4))
    other = chance.sample(items, len(items))
    return ("\\{" + ",".join(map(str, items)) + "\\}", "\\{" + ", ".join(map(str, other)) + "\\}",
            "\\{" + ",".join(map(str, items[:-1] + [items[-1] + 50])) + "\\}")


def interval(chance):
    a = chance.randint(-9, 9)
    b = a + chance.randint(1, 9)
    return f"[{a},{b})", f"\\left[{a}, {b}\\right)", f"[{a},{b}]"


def percent(chance):
    a = chance.randint(1, 99)
    return f"{a}\\%", chance.choice([f"{a}\\%", f"\\frac{{{a}}}{{100}}", f"{a / 100}"]), f"{a + 1}\\%"


def sentence(chance):
    a = number(chance)
    said = chance.choice(["The answer is {}.", "So we get \\boxed{{{}}}.", "Therefore $x = {}$.", "It follows that the sum is ${}$."])
    return str(a), said.format(a), said.format(a + 1)


KINDS = [whole, fraction, decimal, root, constant, polynomial, power, point, several, interval, percent, sentence]


def pairs():
    chance = random.Random(7)
    for i in range(PAIRS):
        kind = KINDS[i % len(KINDS)]
        solution, same, other = kind(chance)
        yield {"kind": kind.__name__, "solution": solution, "said": same if chance.random() < 0.5 else other}


def theirs(row, math_verify):
    def read(text):
        bare = not any(mark in text for mark in ("boxed", "$", "nswer", "####"))
        return math_verify.parse(f"${text}$" if bare else text, parsing_timeout=None)
    try:
        return bool(math_verify.verify(read(row["solution"]), read(row["said"]), timeout_seconds=None))
    except Exception:  # what it cannot read it does not find right
        return False


def compared(rows, math_verify):
    said = subprocess.run([os.environ["APUS_MATH_DRIVER"]], input="".join(json.dumps(row) + "\n" for row in rows), text=True,
                          capture_output=True, check=True).stdout.split()
    assert len(said) == len(rows), (len(said), len(rows))
    return [(row, ours == "1", theirs(row, math_verify)) for row, ours in zip(rows, said)]


def main():
    folder = sys.argv[3]
    try:
        import math_verify
    except ImportError:
        print("SKIPPED: math-verify is missing: pip install math-verify")
        return 77
    logging.disable(logging.CRITICAL)
    rows = list(pairs())
    result = compared(rows, math_verify)
    by_kind = collections.Counter(row["kind"] for row, ours, peer in result if ours != peer)
    for row, ours, peer in result:
        if ours != peer:
            print(f"{row['kind']}: ours {ours}, math-verify {peer}: {row['said']} | {row['solution']}")
    alike = sum(ours == peer for _, ours, peer in result) / len(result)
    right = sum(ours for _, ours, _ in result) / len(result)
    print(f"{len(result)} pairs, {right:.1%} of them right: {alike:.2%} alike; others {dict(by_kind)}")
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "../reward/math_answers.jsonl"), encoding="utf-8") as file:
        table = compared([json.loads(line) for line in file], math_verify)
    with open(os.path.join(folder, "table.txt"), "w", encoding="utf-8") as out:
        for row, ours, peer in table:
            if ours != peer:
                out.write(f"ours {ours}, math-verify {peer}: {row['said']} | {row['solution']}\n")
    print(f"the table of tests/reward: {sum(ours == peer for _, ours, peer in table)} of {len(table)} alike; others in {folder}/table.txt")
    return 0 if alike >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
