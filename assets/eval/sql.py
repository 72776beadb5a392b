# SPDX-License-Identifier: Apache-2.0
# Behind TASK, a JSON object: makes a database in memory from its "schema" and runs its "query". Prints the rows; or, where
# there is "wanted", whether it gives the rows of that query: `same` or `other`.
import json
import re
import sqlite3
import sys

MOST_ROWS, MOST_TEXT = 50, 200


def rows_of(task, query, most):
    database = sqlite3.connect(":memory:")
    database.executescript(task["schema"])
    cursor = database.execute(query.strip().rstrip(";"))
    names = [column[0] for column in cursor.description or ()]
    return names, cursor.fetchmany(most)


def shown(value):
    text = "NULL" if value is None else str(value)
    return text if len(text) <= MOST_TEXT else text[:MOST_TEXT] + "..."


def main(task):
    try:
        if "wanted" in task:
            rows, wanted = (rows_of(task, task[name], 100000)[1] for name in ("query", "wanted"))
            if not re.search(r"\border\s+by\b", task["wanted"], re.IGNORECASE):
                rows, wanted = sorted(rows, key=repr), sorted(wanted, key=repr)
            print("same" if rows == wanted else "other")
            return
        names, rows = rows_of(task, task["query"], MOST_ROWS + 1)
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        print(f"error: {error}" if "wanted" not in task else "other")
        return
    print(" | ".join(names) if names else "done")
    for row in rows[:MOST_ROWS]:
        print(" | ".join(map(shown, row)))
    if len(rows) > MOST_ROWS:
        print(f"... only the first {MOST_ROWS} rows are shown")


main(json.loads(TASK))
