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

# make_seeing_models APUS DATA: `qwen3_vl` and `qwen3_vl_moe`, which read pictures, and seen.jsonl, rows with none to three of them. DATA: tests/data.
make_seeing_models() {
  local data=$2 name file
  python3 - "$data" <<'P'
import json, os, shutil, sys
data = sys.argv[1]
text = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 144, "vocab_size": 608,
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 10000, "hidden_act": "silu",
        "rope_scaling": {"mrope_interleaved": True, "mrope_section": [4, 2, 2], "rope_type": "default"}}
experts = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 40, "decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": True}
tower = {"depth": 3, "hidden_size": 32, "intermediate_size": 72, "num_heads": 2, "in_channels": 3, "patch_size": 4, "spatial_merge_size": 2, "temporal_patch_size": 2,
         "num_position_embeddings": 36, "out_hidden_size": 64, "hidden_act": "gelu_pytorch_tanh", "deepstack_visual_indexes": [0, 2]}
template = """{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{% if p.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
for name, architecture, more in (("qwen3_vl", "Qwen3VLForConditionalGeneration", {}), ("qwen3_vl_moe", "Qwen3VLMoeForConditionalGeneration", experts)):
    os.makedirs(name + "_source")
    for file in ("tokenizer.json", "tokenizer_config.json"): shutil.copy(f"{data}/text/tokenizers/qwen2-small/{file}", name + "_source")
    open(name + "_source/chat_template.jinja", "w").write(template)
    json.dump({"model_type": name, "architectures": [architecture], "text_config": {**text, **more, "model_type": name + "_text"}, "vision_config": tower, "tie_word_embeddings": False,
               "image_token_id": 588, "video_token_id": 589, "vision_start_token_id": 585, "vision_end_token_id": 586}, open(name + "_source/config.json", "w"))
    json.dump({"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 4, "merge_size": 2, "temporal_patch_size": 2, "min_pixels": 256, "max_pixels": 4096,
               "image_mean": [0.5] * 3, "image_std": [0.5] * 3}, open(name + "_source/preprocessor_config.json", "w"))
pictures = [f"{data}/media/pictures/{name}" for name in ("clear.png", "alpha.png", "grey.jpg")]
with open("seen.jsonl", "w") as rows:
    for i in range(24):
        seen = pictures[:i % 4]
        rows.write(json.dumps({"messages": [{"role": "user", "content": "<image>" * len(seen) + f"question {i}"}, {"role": "assistant", "content": f"an answer, {i}"}], "images": seen}) + "\n")
P
  for name in qwen3_vl qwen3_vl_moe; do
    "$1" init --config ${name}_source/config.json --tokenizer ${name}_source --output_dir $name --torch_dtype float32 --seed 3 > init.log 2>&1 || { cat init.log >&2; return 1; }
    for file in preprocessor_config.json chat_template.jinja; do cp -n ${name}_source/$file $name/; done
  done
}
