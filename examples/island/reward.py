#!/usr/bin/env python3
"""A reward program: one line of JSON an answer in, one number an answer out. Sentences are good, and short ones better."""
import json
import sys

for line in sys.stdin:
    answer = json.loads(line)["completion"].strip()
    print(float(answer.endswith(".")) - len(answer) / 200)
