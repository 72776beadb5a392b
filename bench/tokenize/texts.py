#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Three texts for tokenize_bench and peer.js, from what every Debian machine and this repository hold: English (manuals,
licences, documents), Chinese (translated messages), code (Python's library and this repository's sources).
usage: texts.py OUTDIR       Nothing is downloaded; the sizes are printed."""
import gettext
import glob
import gzip
import os
import re
import sys

LIMIT = 2_000_000  # bytes of each text
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def read(path):
    opened = gzip.open(path, "rb") if path.endswith(".gz") else open(path, "rb")
    with opened as f:
        return f.read().decode("utf-8", "ignore")


def english():
    for path in sorted(glob.glob("/usr/share/common-licenses/*") + glob.glob(ROOT + "/**/*.md", recursive=True)):
        if not os.path.islink(path):
            yield read(path)
    for path in sorted(glob.glob("/usr/share/doc/*/README*") + glob.glob("/usr/share/doc/*/NEWS*") + glob.glob("/usr/share/perl/*/pod/*.pod")):
        yield read(path)


def chinese():
    for path in sorted(glob.glob("/usr/share/locale/zh_CN/LC_MESSAGES/*.mo")):
        with open(path, "rb") as f:
            try:
                catalog = gettext.GNUTranslations(f)._catalog
            except (OSError, UnicodeError, ValueError):
                continue
        for text in catalog.values():
            wide = len(re.findall("[\u3400-\u9fff]", text))
            if wide * 2 > len(text):  # mostly Chinese
                yield text.rstrip("\n") + "\n"


def code():
    for path in sorted(glob.glob(ROOT + "/src/**/*.cpp", recursive=True)):
        yield read(path)
    for path in sorted(glob.glob("/usr/lib/python3*/*.py")):
        yield read(path)


def main():
    out = sys.argv[1]
    os.makedirs(out, exist_ok=True)
    for name, parts in (("english", english()), ("chinese", chinese()), ("code", code())):
        text, size = [], 0
        for part in parts:
            if size >= LIMIT:
                break
            text.append(part)
            size += len(part.encode())
        data = "".join(text).encode()[:LIMIT].decode("utf-8", "ignore")
        with open(f"{out}/{name}.txt", "w", encoding="utf-8") as f:
            f.write(data)
        print(f"{name} {len(data.encode())} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    main()
