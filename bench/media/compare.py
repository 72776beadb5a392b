#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compare.py MEDIA_BENCH [WIDTHxHEIGHT]: the patches of one JPEG by us and by Pillow with numpy, in turn on one core, and
the ratio of the best times of both. What transformers' processor does with a picture, without its other work."""
import io
import json
import os
import random
import subprocess
import sys
import tempfile
import time

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
import numpy as np
from PIL import Image

bench = sys.argv[1]
width, height = map(int, (sys.argv[2] if len(sys.argv) > 2 else "1024x768").split("x"))
mean = np.array([0.48145466, 0.4578275, 0.40821073], dtype=np.float32)
deviation = np.array([0.26862954, 0.26130258, 0.27577711], dtype=np.float32)


def picture():
    """Slopes, edges and some noise, as photographs have them."""
    draw = random.Random(3)
    small = Image.new("RGB", (64, 48))
    small.putdata([tuple(draw.randrange(256) for _ in range(3)) for _ in range(64 * 48)])
    smooth = np.asarray(small.resize((width, height), Image.BICUBIC), dtype=np.int16)
    noise = np.random.default_rng(3).integers(-8, 9, smooth.shape)
    return Image.fromarray(np.clip(smooth + noise, 0, 255).astype(np.uint8))


def patches(data):
    image = Image.open(io.BytesIO(data)).convert("RGB")
    w, h = (max(28, round(side / 28) * 28) for side in image.size)
    pixels = np.asarray(image.resize((w, h), Image.BICUBIC), dtype=np.float32)
    pixels = ((pixels / 255 - mean) / deviation).transpose(2, 0, 1)
    both = np.stack([pixels, pixels]).reshape(1, 2, 3, h // 28, 2, 14, w // 28, 2, 14)
    return np.ascontiguousarray(both.transpose(0, 3, 6, 4, 7, 2, 1, 5, 8)).reshape(h * w // 196, -1)


with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "picture.jpg")
    picture().save(path, quality=90)
    data = open(path, "rb").read()
    ours, theirs = [], []
    for _ in range(5):
        ours.append(json.loads(subprocess.check_output([bench, path, "10"])))
        for _ in range(10):
            begin = time.perf_counter()
            patches(data)
            theirs.append(1000 * (time.perf_counter() - begin))
best = {key: min(run[key] for run in ours) for key in ours[0]}
print("ours:           %.2f ms a picture of %d x %d (decoding %.2f, resizing %.2f)" % (
    best["all_ms"], width, height, best["decode_ms"], best["resize_ms"]))
print("Pillow + numpy: %.2f ms" % min(theirs))
print("ratio:          %.2f" % (min(theirs) / best["all_ms"]))
