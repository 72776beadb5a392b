# SPDX-License-Identifier: Apache-2.0
# Sourced by tests of the program: checkpoints of random weights, `words` (dense) and `moe` (a mixture), in the current folder.
# make_tiny_models APUS DTYPE: the mixture's number format.
make_tiny_models() {
  "$1" init --preset tiny --output_dir words > made.log 2>&1
  cat > moe.json <<JSON
{"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
 "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
 "vocab_size": 2048, "max_position_embeddings": 4096, "torch_dtype": "$2"}
JSON
  "$1" init --config moe.json --tokenizer words --output_dir moe > made.log 2>&1
}
