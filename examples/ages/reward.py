#!/usr/bin/env python3
"""1 for exactly {"name": ..., "age": ...} of the row, 0.5 for JSON with both right, 0.1 for any JSON object, else 0."""
import json, sys

for line in sys.stdin:
    row = json.loads(line)
    reward = 0.0
    try:
        said = json.loads(row["completion"])
        if isinstance(said, dict):
            right = {"name": row["name"], "age": row["age"]}
            reward = 1.0 if said == right else 0.5 if right.items() <= said.items() else 0.1
    except ValueError:
        pass
    print(reward)
