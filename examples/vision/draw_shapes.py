#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pictures of a coloured shape each, and rows that ask where it is: draw_shapes.py FOLDER COUNT SEED

Writes FOLDER/pictures/*.png and FOLDER/rows.jsonl. A row's answer is a box in pixels; what becomes of it in the model's own words is
the program's work.
"""
import json
import os
import random
import struct
import sys
import zlib

SIDE = 96  # pixels
COLOURS = {"red": (220, 40, 40), "green": (40, 170, 60), "blue": (50, 80, 220), "yellow": (235, 205, 40)}
SHAPES = {
    "square": lambda x, y: True,
    "circle": lambda x, y: (2 * x - 1) ** 2 + (2 * y - 1) ** 2 <= 1,
    "triangle": lambda x, y: abs(2 * x - 1) <= y,
}


def png(pixels):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    lines = b"".join(b"\0" + bytes(channel for pixel in line for channel in pixel) for line in pixels)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b""))


def paint(pixels, box, shape, colour):
    left, top, right, bottom = box
    for y in range(top, bottom):
        for x in range(left, right):
            if SHAPES[shape]((x - left + 0.5) / (right - left), (y - top + 0.5) / (bottom - top)):
                pixels[y][x] = COLOURS[colour]


def picture(rng):
    """One shape somewhere: the pixels, its name and its box."""
    grey = rng.randrange(225, 256)
    pixels = [[(grey, grey, grey)] * SIDE for _ in range(SIDE)]
    size = rng.randrange(20, 60)
    left, top = rng.randrange(SIDE - size + 1), rng.randrange(SIDE - size + 1)
    colour, shape = rng.choice(sorted(COLOURS)), rng.choice(sorted(SHAPES))
    box = [left, top, left + size, top + size]
    paint(pixels, box, shape, colour)
    return pixels, f"{colour} {shape}", box


def main():
    folder, count, rng = sys.argv[1], int(sys.argv[2]), random.Random(int(sys.argv[3]))
    os.makedirs(f"{folder}/pictures", exist_ok=True)
    with open(f"{folder}/rows.jsonl", "w") as rows:
        for i in range(count):
            pixels, name, box = picture(rng)
            path = os.path.abspath(f"{folder}/pictures/{i}.png")
            with open(path, "wb") as file:
                file.write(png(pixels))
            rows.write(json.dumps({"messages": [{"role": "user", "content": "<image>Where is the <ref-object>?"},
                                                {"role": "assistant", "content": "<bbox>"}],
                                   "images": [path], "objects": {"ref": [name], "bbox": [box]}}) + "\n")


main()
