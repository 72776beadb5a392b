"""A checkpoint with random weights, made on the GPU: python3 make_model.py FOLDER 7b|0.5b|moe [TOKENIZER_FOLDER]

The shapes of Qwen2.5-7B, Qwen2.5-0.5B, and of eight layers of Qwen3-30B-A3B.
"""
import json
import pathlib
import shutil
import sys

import torch
from safetensors.torch import save_file

DENSE = {"7b": (3584, 18944, 28, 28, 4, 152064, False, 128), "0.5b": (896, 4864, 24, 14, 2, 151936, True, 64)}
COMMON = {"hidden_act": "silu", "max_position_embeddings": 32768, "rope_theta": 1000000.0, "rms_norm_eps": 1e-6,
          "torch_dtype": "bfloat16", "bos_token_id": 151643, "eos_token_id": 151645, "initializer_range": 0.02}


def numbers(*sizes):
    return (torch.randn(*sizes, device="cuda", dtype=torch.bfloat16) * 0.02).cpu()


def ones(size):
    return torch.ones(size, dtype=torch.bfloat16)


def attention(prefix, hidden, heads, kv_heads, size, bias):
    out = {f"{prefix}o_proj.weight": numbers(hidden, heads * size)}
    for name, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
        out[f"{prefix}{name}_proj.weight"] = numbers(count * size, hidden)
        if bias:
            out[f"{prefix}{name}_proj.bias"] = numbers(count * size)
    return out


def feed_forward(prefix, hidden, width):
    return {f"{prefix}gate_proj.weight": numbers(width, hidden), f"{prefix}up_proj.weight": numbers(width, hidden),
            f"{prefix}down_proj.weight": numbers(hidden, width)}


def norms(prefix, hidden):
    return {f"{prefix}input_layernorm.weight": ones(hidden), f"{prefix}post_attention_layernorm.weight": ones(hidden)}


def dense(hidden, width, layers, heads, kv_heads, vocab, tied, size):
    yield {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": hidden, "intermediate_size": width,
           "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
           "vocab_size": vocab, "tie_word_embeddings": tied, **COMMON}
    ends = {"model.embed_tokens.weight": numbers(vocab, hidden), "model.norm.weight": ones(hidden)}
    if not tied:
        ends["lm_head.weight"] = numbers(vocab, hidden)
    yield ends
    for i in range(layers):
        at = f"model.layers.{i}."
        yield {**attention(at + "self_attn.", hidden, heads, kv_heads, size, True),
               **feed_forward(at + "mlp.", hidden, width), **norms(at, hidden)}


def mixture(hidden=2048, width=768, layers=8, heads=32, kv_heads=4, vocab=151936, size=128, experts=128):
    yield {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": hidden,
           "intermediate_size": 6144, "moe_intermediate_size": width, "num_hidden_layers": layers,
           "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": size, "vocab_size": vocab,
           "num_experts": experts, "num_experts_per_tok": 8, "norm_topk_prob": True, "decoder_sparse_step": 1,
           "mlp_only_layers": [], "tie_word_embeddings": False, **COMMON}
    yield {"model.embed_tokens.weight": numbers(vocab, hidden), "model.norm.weight": ones(hidden),
           "lm_head.weight": numbers(vocab, hidden)}
    for i in range(layers):
        at = f"model.layers.{i}."
        layer = {**attention(at + "self_attn.", hidden, heads, kv_heads, size, False), **norms(at, hidden),
                 at + "self_attn.q_norm.weight": ones(size), at + "self_attn.k_norm.weight": ones(size),
                 at + "mlp.gate.weight": numbers(experts, hidden)}
        for e in range(experts):
            layer.update(feed_forward(f"{at}mlp.experts.{e}.", hidden, width))
        yield layer


def main():
    folder, kind = pathlib.Path(sys.argv[1]), sys.argv[2]
    torch.manual_seed(1)
    folder.mkdir(parents=True, exist_ok=True)
    parts = mixture() if kind == "moe" else dense(*DENSE[kind])
    (folder / "config.json").write_text(json.dumps(next(parts)))
    index = {}
    for n, part in enumerate(parts):
        name = f"model-{n:05d}.safetensors"
        save_file(part, folder / name, metadata={"format": "pt"})
        index.update({key: name for key in part})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    if len(sys.argv) > 3:
        shutil.copytree(sys.argv[3], folder, dirs_exist_ok=True)


main()
