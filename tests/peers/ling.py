# SPDX-License-Identifier: Apache-2.0
"""Ling for make_numbers.py, laid out and named as the checkpoints' own files. Ling 2.5: transformers' DeepSeek-V3, which has its latent
attention and its mixtures, with lightning attention in most layers. The first Ling: transformers' Llama with mixtures."""
from types import SimpleNamespace

import torch
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaMLP

from own_files import slopes, write_own_files

SAME_WORDS = ("vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads rms_norm_eps first_k_dense_replace n_group "
              "topk_group moe_intermediate_size routed_scaling_factor kv_lora_rank q_lora_rank qk_rope_head_dim v_head_dim qk_nope_head_dim "
              "num_experts_per_tok max_position_embeddings pad_token_id eos_token_id tie_word_embeddings").split()
FIRST_WORDS = ("vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads rms_norm_eps "
               "max_position_embeddings pad_token_id eos_token_id tie_word_embeddings").split()
NAMES = ((".self_attn.o_proj.", ".attention.dense."), (".self_attn.", ".attention."), ("gate.e_score_correction_bias", "gate.expert_bias"),
         ("model.embed_tokens.", "model.word_embeddings."))


class Lightning(torch.nn.Module):
    def __init__(self, said, layer):
        super().__init__()
        self.heads, self.size, self.groups = said["num_attention_heads"], said["head_dim"], said["group_norm_size"]
        hidden, width, self.eps = said["hidden_size"], said["num_attention_heads"] * said["head_dim"], said["rms_norm_eps"]
        self.query_key_value = torch.nn.Linear(hidden, 3 * width, bias=said.get("use_qkv_bias", False))
        self.query_layernorm = torch.nn.RMSNorm(self.size, eps=self.eps)
        self.key_layernorm = torch.nn.RMSNorm(self.size, eps=self.eps)
        self.g_proj = torch.nn.Linear(hidden, width, bias=False)
        self.g_norm = torch.nn.Module()
        self.g_norm.weight = torch.nn.Parameter(torch.ones(width))
        self.dense = torch.nn.Linear(width, hidden, bias=said.get("use_bias", False))
        self.fades = torch.tensor(slopes(self.heads)) * (1 - (layer - 1) / (said["num_hidden_layers"] - 1) + 1e-5)
        turned = int(self.size * said["partial_rotary_factor"])
        self.speeds = said["rope_theta"] ** -(torch.arange(0, turned, 2) / turned)

    def turn(self, x):
        """x [B, T, N, H]: the first numbers of each head, the first half of them with the second."""
        angle = torch.arange(x.shape[1])[:, None] * self.speeds
        cos, sin, n = angle.cos()[:, None], angle.sin()[:, None], len(self.speeds)
        one, other, still = x[..., :n], x[..., n:2 * n], x[..., 2 * n:]
        return torch.cat([one * cos - other * sin, other * cos + one * sin, still], -1)

    def forward(self, hidden_states, **_):
        batch, length, _ = hidden_states.shape
        q, k, v = self.query_key_value(hidden_states).view(batch, length, 3, self.heads, self.size).unbind(2)
        q, k = self.turn(self.query_layernorm(q)), self.turn(self.key_layernorm(k))
        ago = torch.arange(length)[:, None] - torch.arange(length)
        kept = torch.where(ago >= 0, torch.exp(-self.fades[:, None, None] * ago), 0.0)
        y = torch.einsum("nts,bnts,bsnh->btnh", kept, torch.einsum("btnh,bsnh->bnts", q, k) * self.size ** -0.5, v)
        parts = y.reshape(batch, length, self.groups, -1)
        y = (parts * torch.rsqrt(parts.pow(2).mean(-1, keepdim=True) + self.eps)).flatten(2) * self.g_norm.weight
        return self.dense(y * torch.sigmoid(self.g_proj(hidden_states))), None


def make_ling(wanted):
    said = {key: wanted[key] for key in SAME_WORDS}
    config = DeepseekV3Config(**said, n_routed_experts=wanted["num_experts"], n_shared_experts=wanted["num_shared_experts"],
                              num_key_value_heads=wanted["num_attention_heads"], norm_topk_prob=True, attention_bias=wanted.get("use_qkv_bias", False),
                              rope_parameters={"rope_type": "default", "rope_theta": wanted["rope_theta"]}, rope_interleave=True)
    config._attn_implementation = "eager"
    model = DeepseekV3ForCausalLM(config).float()
    layers, every = wanted["num_hidden_layers"], wanted["layer_group_size"]
    for i, layer in enumerate(model.model.layers):
        if (i + 1) % every and i < layers // every * every:
            layer.self_attn = Lightning(wanted, i)
    return write_own_files(model, wanted, NAMES)


class Mixture(torch.nn.Module):
    """Experts by shares of one, and a block for every token."""

    def __init__(self, said):
        super().__init__()
        block = lambda width: LlamaMLP(SimpleNamespace(hidden_size=said["hidden_size"], intermediate_size=width, mlp_bias=False, hidden_act="silu"))
        self.gate = torch.nn.Linear(said["hidden_size"], said["num_experts"], bias=False)
        self.experts = torch.nn.ModuleList(block(said["moe_intermediate_size"]) for _ in range(said["num_experts"]))
        self.shared_experts = block(said["moe_intermediate_size"] * said["num_shared_experts"])
        self.taken = said["num_experts_per_tok"]

    def forward(self, x):
        best = self.gate(x).softmax(-1).topk(self.taken, -1)
        counts = torch.zeros(*x.shape[:-1], len(self.experts)).scatter(-1, best.indices, best.values / best.values.sum(-1, keepdim=True))
        return self.shared_experts(x) + sum(expert(x) * counts[..., i, None] for i, expert in enumerate(self.experts))


class Columns(torch.nn.Linear):
    """Each column at length one; a gradient takes the lengths as they are."""

    def forward(self, x):
        return torch.nn.functional.linear(x, self.weight / (self.weight.norm(dim=0, keepdim=True) + 1e-7).detach())


def make_first_ling(wanted):
    config = LlamaConfig(**{key: wanted[key] for key in FIRST_WORDS}, rope_parameters={"rope_type": "default", "rope_theta": wanted["rope_theta"]})
    config._attn_implementation = "eager"
    model = LlamaForCausalLM(config).float()
    for layer in model.model.layers:
        layer.mlp = Mixture(wanted)
    model.lm_head = Columns(wanted["hidden_size"], wanted["vocab_size"], bias=False)
    return write_own_files(model, wanted, NAMES, joined={"query_key_value": ("q_proj", "k_proj", "v_proj")})
