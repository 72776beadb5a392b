#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a Qwen2 checkpoint (bf16 safetensors, as `apus init` makes it) as GGUF, so that llama.cpp runs the same weights.

Usage: to_gguf.py MODEL_DIR OUT.gguf          (needs nothing but Python's standard library)
"""
import json
import mmap
import os
import struct
import sys

F32, BF16 = 0, 30
ALIGN = 32
NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}


def gguf_name(name):
    if name == "model.embed_tokens.weight":
        return "token_embd.weight"
    if name == "model.norm.weight":
        return "output_norm.weight"
    if name == "lm_head.weight":
        return "output.weight"
    _, _, layer, rest = name.split(".", 3)
    part, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{NAMES[part]}.{kind}"


def tensors(folder):
    """(name, shape, bytes) of every tensor of a folder with one or several shards."""
    for file in sorted(f for f in os.listdir(folder) if f.endswith(".safetensors")):
        with open(os.path.join(folder, file), "rb") as f:
            data = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        length = struct.unpack("<Q", data[:8])[0]
        for name, entry in json.loads(data[8:8 + length]).items():
            if name == "__metadata__":
                continue
            assert entry["dtype"] == "BF16", f"{name}: only bf16 checkpoints are converted"
            begin, end = entry["data_offsets"]
            yield name, entry["shape"], memoryview(data)[8 + length + begin:8 + length + end]


def widened(raw):  # bf16 -> f32
    return b"".join(b"\0\0" + bytes(raw[i:i + 2]) for i in range(0, len(raw), 2))


def text(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def metadata(config):
    arch = "qwen2"
    values = [
        ("general.architecture", 8, arch), ("general.name", 8, "bench"), ("general.alignment", 4, ALIGN),
        (f"{arch}.block_count", 4, config["num_hidden_layers"]), (f"{arch}.context_length", 4, config["max_position_embeddings"]),
        (f"{arch}.embedding_length", 4, config["hidden_size"]), (f"{arch}.feed_forward_length", 4, config["intermediate_size"]),
        (f"{arch}.attention.head_count", 4, config["num_attention_heads"]),
        (f"{arch}.attention.head_count_kv", 4, config["num_key_value_heads"]),
        (f"{arch}.attention.layer_norm_rms_epsilon", 6, config["rms_norm_eps"]), (f"{arch}.rope.freq_base", 6, config["rope_theta"]),
        ("tokenizer.ggml.model", 8, "gpt2"), ("tokenizer.ggml.pre", 8, "qwen2"),
        ("tokenizer.ggml.eos_token_id", 4, config["vocab_size"] - 1), ("tokenizer.ggml.bos_token_id", 4, config["vocab_size"] - 1),
    ]
    out = b""
    for key, kind, value in values:
        out += text(key) + struct.pack("<I", kind)
        out += text(value) if kind == 8 else struct.pack("<I" if kind == 4 else "<f", value)
    # The benchmark speaks in token ids; the loader still wants a vocabulary of the right size.
    vocab = config["vocab_size"]
    out += text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, vocab) + b"".join(text(f"t{i}") for i in range(vocab))
    out += text("tokenizer.ggml.token_type") + struct.pack("<IIQ", 9, 5, vocab) + struct.pack("<i", 1) * vocab
    out += text("tokenizer.ggml.merges") + struct.pack("<IIQ", 9, 8, 1) + text("t 1")
    return len(values) + 3, out


def main(folder, path):
    with open(os.path.join(folder, "config.json")) as f:
        config = json.load(f)
    assert config["model_type"] == "qwen2", "only Qwen2 checkpoints are converted"
    infos, payloads, offset = b"", [], 0
    for name, shape, raw in tensors(folder):
        kind = BF16 if len(shape) == 2 else F32
        size = len(raw) * (1 if kind == BF16 else 2)
        infos += text(gguf_name(name)) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", d) for d in reversed(shape))
        infos += struct.pack("<IQ", kind, offset)
        payloads.append((kind, raw, -size % ALIGN))
        offset += size + -size % ALIGN
    count, values = metadata(config)
    with open(path, "wb") as out:
        out.write(b"GGUF" + struct.pack("<IQQ", 3, len(payloads), count) + values + infos)
        out.write(b"\0" * (-out.tell() % ALIGN))
        for kind, raw, padding in payloads:
            out.write(raw if kind == BF16 else widened(raw))
            out.write(b"\0" * padding)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
