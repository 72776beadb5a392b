#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pillow_check.py DRIVER FOLDER: 300 pictures of odd sizes, modes and formats, read and resized by Pillow and by us.
Byte for byte the same. Exit code 77, with a word, where there is no Pillow."""
import os
import random
import struct
import subprocess
import sys

try:
    from PIL import Image, features
except ImportError:
    print("skipped: no Pillow (Debian: python3-pil)")
    sys.exit(77)

driver, folder = sys.argv[1:3]
os.makedirs(folder, exist_ok=True)
draw = random.Random(5)


def pixels(width, height):
    """Smooth parts, edges and noise."""
    image = Image.new("RGB", (width, height))
    kind = draw.randrange(3)
    noise = draw.randrange(1 << 24)
    data = []
    for y in range(height):
        for x in range(width):
            if kind == 0 or (x // 7 + y // 5) % 4 == 0:
                noise = (noise * 1103515245 + 12345) & 0x7FFFFFFF
                data.append((noise >> 4 & 255, noise >> 12 & 255, noise >> 20 & 255))
            elif kind == 1:
                data.append((x * 255 // width, y * 255 // height, (x + y) * 3 % 256))
            else:
                data.append((255, 0, 128) if (x // 9) % 2 else (0, 250, 30))
    image.putdata(data)
    return image


def written(number):
    """A picture in a file, in one of the forms that there are."""
    width, height = draw.choice([1, 2, 3, 5, 17, 31, 64, 97, 130]), draw.choice([1, 2, 4, 7, 16, 33, 50, 88, 121])
    image = pixels(width, height)
    alpha = image.copy()
    alpha.putalpha(pixels(width, height).convert("L"))
    forms = {
        "jpg": [(image, dict(quality=draw.randrange(30, 100))), (image, dict(quality=90, subsampling=0)),
                (image, dict(quality=85, subsampling=1)), (image.convert("L"), {}), (image, dict(progressive=True)),
                (image.convert("CMYK"), dict(quality=92)), (image, dict(quality=75, optimize=True))],
        "png": [(image, {}), (alpha, {}), (image.convert("L"), {}), (image.convert("1"), {}),
                (image.quantize(draw.choice([2, 4, 16, 200])), {}), (alpha.convert("LA"), {}),
                (image.quantize(7), dict(transparency=2))],
        "bmp": [(image, {}), (image.convert("L"), {}), (image.convert("1"), {}), (image.quantize(60), {}), (alpha, {})],
        "gif": [(image.quantize(draw.choice([2, 13, 256])), dict(interlace=draw.randrange(2))), (image.convert("L"), {}),
                (image.quantize(30), dict(transparency=4))],
        "webp": [(image, dict(quality=80)), (image, dict(lossless=True)), (alpha, dict(lossless=True, exact=True))],
    }
    tight = [dict(compression=c) for c in ("raw", "tiff_lzw", "tiff_adobe_deflate", "packbits")]
    if not features.check("libtiff"):
        tight = [{}]
    forms["tif"] = [(shape, draw.choice(tight)) for shape in (
        image, alpha, image.convert("L"), image.convert("1"), image.quantize(40), image.convert("CMYK"))]
    if not features.check("webp"):
        del forms["webp"]
    ending = draw.choice(sorted(forms))
    shape, options = draw.choice(forms[ending])
    path = os.path.join(folder, "%03d.%s" % (number, ending))
    shape.save(path, **options)
    return path


orders, wanted = [], []
for number in range(300):
    path = written(number)
    image = Image.open(path).convert("RGB")
    width, height, filter = 0, 0, "bicubic"
    if number % 2:
        width, height, filter = draw.randrange(1, 150), draw.randrange(1, 150), draw.choice(["bicubic", "bilinear"])
        image = image.resize((width, height), Image.BICUBIC if filter == "bicubic" else Image.BILINEAR)
    orders.append("%s %d %d %s" % (path, width, height, filter))
    wanted.append(image)

ours = subprocess.run([driver], input=("\n".join(orders) + "\n").encode(), stdout=subprocess.PIPE)
at, bad = 0, 0
for order, image in zip(orders, wanted):
    width, height = struct.unpack_from("<II", ours.stdout, at)
    data = ours.stdout[at + 8: at + 8 + width * height * 3]
    at += 8 + width * height * 3
    if (width, height) == image.size and data == image.tobytes():
        continue
    bad += 1
    worst = max((abs(a - b) for a, b in zip(data, image.tobytes())), default=-1)
    print("differs: %s (ours %d x %d, Pillow %d x %d; by up to %d)" % (order, width, height, *image.size, worst))
print("%d of %d pictures differ" % (bad, len(orders)) if bad else "%d pictures are the same" % len(orders))
sys.exit(bool(bad))
