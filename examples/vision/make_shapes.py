#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`make_shapes.py FOLDER` draws pictures of coloured shapes and writes, with nothing but Python's own library:
small/            config.json, tokenizer and preprocessor_config.json of a Qwen3-VL of two million weights
names.jsonl       4000 rows: what is in a picture, or how far right and down something is, in thousandths
where.jsonl       2000 rows: the box around a shape, as <bbox> with pixels in `objects`
heldout.jsonl     100 rows like those of where.jsonl, of pictures that are in no other file
pictures/         96 x 96 pixels each"""
import json
import pathlib
import random
import re
import struct
import sys
import zlib

SIDE = 96
COLOURS = {"red": (220, 40, 40), "green": (40, 170, 60), "blue": (50, 80, 220), "yellow": (235, 200, 40), "black": (20, 20, 20)}
SHAPES = ["circle", "square", "triangle"]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>",
           "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>"]
TEMPLATE = ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.content is string %}{{ m.content }}{% else %}"
            "{% for part in m.content %}{% if part.type == 'image' %}{{ '<|vision_start|><|image_pad|><|vision_end|>' }}"
            "{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
chance = random.Random(11)


def inside(shape, x, y, box):
    """Whether the middle of a pixel belongs to the shape that fills this box."""
    left, top, right, bottom = box
    x, y = (x + 0.5 - left) / (right - left), (y + 0.5 - top) / (bottom - top)
    if shape == "circle":
        return (x - 0.5) ** 2 + (y - 0.5) ** 2 <= 0.25
    return shape == "square" or abs(x - 0.5) * 2 <= y


def scene():
    """Two or three shapes that do not touch, no two alike: [(colour, shape, box)]."""
    kinds = chance.sample([(c, s) for c in COLOURS for s in SHAPES], chance.choice([2, 3]))
    out = []
    for colour, shape in kinds:
        while True:
            size = chance.randrange(24, 44)
            left, top = chance.randrange(0, SIDE - size), chance.randrange(0, SIDE - size)
            box = [left, top, left + size, top + size]
            if all(box[2] <= b[0] or b[2] <= box[0] or box[3] <= b[1] or b[3] <= box[1] for _, _, b in out):
                break
            if chance.random() < 0.02:  # no room is left
                return scene()
        out.append((colour, shape, box))
    return out


def png(shapes):
    rows = b""
    for y in range(SIDE):
        line = bytearray(b"\xff" * (3 * SIDE))
        for colour, shape, (left, top, right, bottom) in shapes:
            if top <= y < bottom:
                for x in range(left, right):
                    if inside(shape, x, y, (left, top, right, bottom)):
                        line[3 * x:3 * x + 3] = bytes(COLOURS[colour])
        rows += b"\0" + bytes(line)
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def named(colour, shape):
    return f"the {colour} {shape}"


def name_row(shapes):
    colour, shape, box = chance.choice(shapes)
    if chance.random() < 0.3:
        listed = sorted(shapes, key=lambda s: s[2][0])  # from left to right
        return "What is there?", " ".join(f"{c} {s}" for c, s, _ in listed), None
    across, down = ((a + b) * 500 // SIDE for a, b in ((box[0], box[2]), (box[1], box[3])))
    return f"How far right and down is {named(colour, shape)}?", f"({across},{down})", None


def where_row(shapes):
    colour, shape, box = chance.choice(shapes)
    return f"Where is {named(colour, shape)}?", "<bbox>", {"ref": [named(colour, shape)], "bbox": [box]}


def write_rows(folder, name, count, make):
    with open(folder / f"{name}.jsonl", "w") as out:
        for i in range(count):
            shapes = scene()
            picture = folder / "pictures" / f"{name}_{i}.png"
            picture.write_bytes(png(shapes))
            question, answer, objects = make(shapes)
            row = {"messages": [{"role": "user", "content": "<image>" + question}, {"role": "assistant", "content": answer}],
                   "images": [f"pictures/{picture.name}"]}
            out.write(json.dumps(row | ({"objects": objects} if objects else {})) + "\n")


def write_model(folder):
    words = sorted({p + w for w in "What is there How far right and down Where the user assistant".split() + SHAPES +
                    list(COLOURS) for p in ("", "\u0120")})
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = [chr(b) for b in printable] + [chr(256 + i) for i in range(256 - len(printable))]
    vocab = {token: i for i, token in enumerate(letters + words)}
    ids = {token: len(vocab) + i for i, token in enumerate(SPECIAL)}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": r" ?\p{L}+|\n|."}, "behavior": "Isolated", "invert": False}
    files = {
        "tokenizer.json": {
            "version": "1.0", "truncation": None, "padding": None, "normalizer": None,
            "added_tokens": [{"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
                              "normalized": False, "special": True} for token, i in ids.items()],
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]}, "post_processor": level, "decoder": level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
                      "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False, "ignore_merges": True,
                      "vocab": vocab, "merges": []}},
        "tokenizer_config.json": {"tokenizer_class": "Qwen2Tokenizer", "model_max_length": 512, "eos_token": "<|im_end|>",
                                  "pad_token": "<|endoftext|>", "chat_template": TEMPLATE},
        "preprocessor_config.json": {
            "image_processor_type": "Qwen2VLImageProcessorFast", "patch_size": 16, "merge_size": 2, "temporal_patch_size": 2,
            "size": {"shortest_edge": SIDE * SIDE, "longest_edge": 4 * SIDE * SIDE},
            "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]},
        "config.json": {
            "architectures": ["Qwen3VLForConditionalGeneration"], "model_type": "qwen3_vl", "torch_dtype": "float32",
            "tie_word_embeddings": True, "image_token_id": ids["<|image_pad|>"], "video_token_id": ids["<|video_pad|>"],
            "vision_start_token_id": ids["<|vision_start|>"], "vision_end_token_id": ids["<|vision_end|>"],
            "text_config": {
                "model_type": "qwen3_vl_text", "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
                "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 384, "vocab_size": len(vocab) + len(ids),
                "max_position_embeddings": 512, "rope_theta": 10000.0, "rms_norm_eps": 1e-6, "hidden_act": "silu",
                "initializer_range": 0.05, "rope_scaling": {"rope_type": "default", "mrope_section": [8, 4, 4],
                                                           "mrope_interleaved": True},
                "eos_token_id": ids["<|im_end|>"], "pad_token_id": ids["<|endoftext|>"], "tie_word_embeddings": True},
            "vision_config": {
                "model_type": "qwen3_vl", "depth": 4, "hidden_size": 128, "num_heads": 4, "intermediate_size": 256,
                "out_hidden_size": 128, "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2, "in_channels": 3,
                "num_position_embeddings": 36, "hidden_act": "gelu_pytorch_tanh", "deepstack_visual_indexes": [1, 2],
                "initializer_range": 0.05}}}
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def main():
    folder = pathlib.Path(sys.argv[1])
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    (folder / "small").mkdir(exist_ok=True)
    write_model(folder / "small")
    for name, count, make in (("names", 4000, name_row), ("where", 2000, where_row), ("heldout", 100, where_row)):
        write_rows(folder, name, count, make)


main()
