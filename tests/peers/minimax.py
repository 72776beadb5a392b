# SPDX-License-Identifier: Apache-2.0
"""MiniMax-Text-01 and M1 in their authors' files for make_numbers.py: transformers' MiniMax, of whose heads a part turns, and whose
layers forget by the authors' tables."""
import torch
from transformers import MiniMaxConfig, MiniMaxForCausalLM
from transformers.models.glm4_moe.modeling_glm4_moe import apply_rotary_pos_emb
from transformers.models.minimax import modeling_minimax

from own_files import slopes, write_own_files

SAME_WORDS = ("vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim rms_norm_eps "
              "num_local_experts num_experts_per_tok max_position_embeddings pad_token_id eos_token_id tie_word_embeddings").split()


def make_minimax(wanted):
    sums = {f"{ours}_{which}_factor": wanted[f"layernorm_{theirs}_{which}"] for which in ("alpha", "beta")
            for ours, theirs in (("full_attn", "full_attention"), ("linear_attn", "linear_attention"), ("mlp", "mlp"))}
    config = MiniMaxConfig(**{key: wanted[key] for key in SAME_WORDS}, **sums, block_size=8, rope_parameters={"rope_type": "default",
                           "rope_theta": wanted["rope_theta"]}, layer_types=[("linear_attention", "full_attention")[n] for n in wanted["attn_type_list"]])
    config._attn_implementation = "eager"
    model = MiniMaxForCausalLM(config).float()
    modeling_minimax.apply_rotary_pos_emb = apply_rotary_pos_emb  # it turns as many numbers of a head as there are angles
    turned, layers = wanted["rotary_dim"], wanted["num_hidden_layers"]
    model.model.rotary_emb.inv_freq = wanted["rope_theta"] ** -(torch.arange(0, turned, 2) / turned)
    for i, layer in enumerate(model.model.layers):
        if wanted["attn_type_list"][i] == 0:
            state = layer.self_attn
            state.slope_rate = torch.tensor(slopes(state.num_attention_heads))[:, None, None] * (1 - i / (layers - 1) + 1e-5)
            state.query_decay, state.key_decay, state.diagonal_decay = state.decay_factors(state.slope_rate)
    return write_own_files(model, wanted, (), ("slope_rate", "_decay"))
