# SPDX-License-Identifier: Apache-2.0
"""Reads samples.bin as `apus export --to_cached_dataset true` writes it (src/data/encode/sample_store.cpp)."""
import struct


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, size):
        self.at += size
        return self.data[self.at - size:self.at]

    def value(self, form):
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))[0]

    def runs(self, form):
        out = []
        for _ in range(self.value("I")):
            length = self.value("I")
            out += [self.value(form)] * length
        return out

    def text(self):
        return self.take(self.value("I")).decode("utf-8")


def read(path):
    """[{"ids", "labels", "weights" (None: all 1), "channel"}] in their order."""
    with open(path, "rb") as file:
        data = file.read()
    assert data[:8] == b"APUSDAT2", "another version of samples.bin"
    count = struct.unpack("<Q", data[-8:])[0]
    entry = struct.Struct("<qiiiB")
    start = len(data) - 12 - count * entry.size
    out = []
    for number in range(count):
        offset, size, *_ = entry.unpack_from(data, start + number * entry.size)
        body = Reader(data[offset:offset + size])
        length = body.value("I")
        ids = list(struct.unpack(f"<{length}i", body.take(4 * length)))
        trained, weights = body.runs("B"), body.runs("f")
        labels = [i if t else -100 for i, t in zip(ids, trained)]
        out.append({"ids": ids, "labels": labels, "weights": weights or None, "channel": body.text()})
    return out
