// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_settings.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "checkpoint/file_names.h"
#include "models/spec/family.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

Json config_file(const fs::path& folder) {
  const fs::path path = folder / kModelConfigFile;
  return parse_json(read_file(path, 16 << 20), path.string(), Fault::Model);
}

// What Llama 3 multiplies its periods by.
std::vector<float> llama3_factors(const RopeSpec& rope) {
  std::vector<float> out;
  for (int64_t i = 0; i < rope.dim / 2; ++i) {
    const double period = std::pow(rope.theta, static_cast<double>(2 * i) / static_cast<double>(rope.dim)),
                 turns = rope.original_positions / (2 * std::numbers::pi * period),
                 smooth = std::clamp((turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor),
                                     0.0, 1.0);
    out.push_back(static_cast<float>(1 / ((1 - smooth) / rope.factor + smooth)));
  }
  return out;
}

// What of config.json the file says by itself, or by its tensors.
bool is_of_shape(const std::string& key) {
  static const std::set<std::string> kShape = {"model_type",
                                               "vocab_size",
                                               "hidden_size",
                                               "num_hidden_layers",
                                               "num_attention_heads",
                                               "num_key_value_heads",
                                               "head_dim",
                                               "intermediate_size",
                                               "max_position_embeddings",
                                               "original_max_position_embeddings",
                                               "rms_norm_eps",
                                               "rope_theta",
                                               "rope_scaling",
                                               "rope_parameters",
                                               "partial_rotary_factor",
                                               "tie_word_embeddings",
                                               "attention_bias",
                                               "attention_out_bias",
                                               "mlp_bias",
                                               "use_bias",
                                               "norm_topk_prob",
                                               "decoder_sparse_step",
                                               "mlp_only_layers"};
  return kShape.count(key) > 0 || key.find("expert") != std::string::npos || key.starts_with("moe_");
}

class Writer {
 public:
  Writer(const fs::path& folder, const GgufMix& mix)
      : where_(folder.string()), mix_(mix), json_(config_file(folder)), config_(json_) {}

  GgufSettings settings(const std::string& name) {
    const std::string type = config_.text("model_type", "");
    out_.family = &family_of_model_type(type, where_);
    const DecoderSpec spec = describe_model(json_);
    refuse_what_is_lost(spec);
    add("general.architecture", GgufValue::text(out_.family->architecture));
    add("general.type", GgufValue::text("model"));
    add("general.name", GgufValue::text(name));
    shape(spec);
    for (const GgufKey& key : out_.family->keys) {
      if (!config_.find(key.config)) continue;
      add(own(key.file),
          key.whole ? GgufValue::u32(config_.integer(key.config)) : GgufValue::f32(config_.number(key.config, 0)));
    }
    rope(spec.ropes[0]);
    experts(spec);
    add("general.quantization_version", GgufValue::u32(2));
    add("general.file_type", GgufValue::u32(mix_.file_type));
    out_.facts.architecture = out_.family->architecture;
    out_.facts.layers = spec.shape.layers, out_.facts.heads = spec.shape.heads,
    out_.facts.kv_heads = spec.shape.kv_heads;
    out_.facts.experts = spec.shape.experts, out_.facts.tied = spec.tied;
    return std::move(out_);
  }

 private:
  void add(const std::string& key, GgufValue value) { out_.all.emplace_back(key, std::move(value)); }
  std::string own(const char* key) const { return str(out_.family->architecture, ".", key); }

  void shape(const DecoderSpec& spec) {
    const ModelShape& s = spec.shape;
    add(own("block_count"), GgufValue::u32(s.layers));
    add(own("context_length"), GgufValue::u32(config_.integer("max_position_embeddings", s.max_positions)));
    add(own("embedding_length"), GgufValue::u32(s.hidden));
    if (config_.find("intermediate_size"))
      add(own("feed_forward_length"), GgufValue::u32(config_.integer("intermediate_size")));
    add(own("attention.head_count"), GgufValue::u32(s.heads));
    add(own("attention.head_count_kv"), GgufValue::u32(s.kv_heads));
    add(own(out_.family->eps.file), GgufValue::f32(spec.norm.eps));
    add(own("rope.freq_base"), GgufValue::f32(spec.ropes[0].theta));
    if (config_.find("head_dim") || s.head_dim * s.heads != s.hidden)
      for (const char* key : {"attention.key_length", "attention.value_length"})
        add(own(key), GgufValue::u32(s.head_dim));
    if (out_.family->neighbours) add(own("vocab_size"), GgufValue::u32(s.vocab));
    if (out_.family->neighbours || out_.family->turns_in_part)
      add(own("rope.dimension_count"), GgufValue::u32(spec.ropes[0].dim));
  }

  void rope(const RopeSpec& rope) {
    if (rope.type == "default") return;
    if (rope.type == "llama3") return void(out_.factors[kRopeFrequencies] = llama3_factors(rope));
    if (rope.type == "longrope" && rope.short_factor == rope.long_factor && rope.attention_factor == 1)
      return void(out_.factors[kRopeFrequencies].assign(rope.short_factor.begin(), rope.short_factor.end()));
    if (rope.type == "longrope" && out_.family->two_factor_sets) {
      out_.factors[kShortFactors].assign(rope.short_factor.begin(), rope.short_factor.end());
      out_.factors[kLongFactors].assign(rope.long_factor.begin(), rope.long_factor.end());
      return add(own("rope.scaling.attn_factor"), GgufValue::f32(rope_frequencies(rope, 1).scale));
    }
    require(rope.type == "linear" || rope.type == "yarn", Fault::Model, where_, ": positions stretched by '", rope.type,
            "' have no place in a GGUF file of the architecture ", out_.family->architecture);
    add(own("rope.scaling.type"), GgufValue::text(rope.type));
    add(own("rope.scaling.factor"), GgufValue::f32(rope.factor));
    if (rope.type == "yarn")
      add(own("rope.scaling.original_context_length"), GgufValue::u32(static_cast<int64_t>(rope.original_positions)));
  }

  void experts(const DecoderSpec& spec) {
    if (!out_.family->experts) return;
    const auto& mixture = std::get<MixtureSpec>(spec.feed_forward[0]);
    add(own("expert_count"), GgufValue::u32(mixture.experts));
    add(own("expert_used_count"), GgufValue::u32(mixture.per_token));
    add(own("expert_feed_forward_length"), GgufValue::u32(mixture.ffn));
    if (mixture.shared_ffn > 0) add(own("expert_shared_feed_forward_length"), GgufValue::u32(mixture.shared_ffn));
  }

  // config.json as whoever reads the file takes it to be.
  Json as_read(const DecoderSpec& spec) const {
    Json out = Json::object();
    for (const auto& [key, value] : json_.items())
      if (is_of_shape(key)) out[key] = value;
    for (const GgufKey& key : out_.family->keys)
      if (json_.contains(key.config)) out[key.config] = json_[key.config];
    if (out_.family->constants)
      out.update(out_.family->constants({spec.shape.layers, spec.shape.hidden, spec.shape.heads, spec.shape.head_dim}));
    return out;
  }

  // Settings that change answers and that readers of the file would not know of.
  void refuse_what_is_lost(const DecoderSpec& spec) const {
    const auto lost = [&](bool is, const char* what) {
      require(!is, Fault::Model, where_, ": ", what, ", which a GGUF file of the architecture ",
              out_.family->architecture, " cannot say");
    };
    const DecoderSpec seen = describe_model(as_read(spec));
    lost(spec.attention.qkv_bias != seen.attention.qkv_bias || spec.attention.out_bias != seen.attention.out_bias,
         "its matrices have biases where they usually have none, or none where they usually have them");
    lost(spec.act != seen.act, "its activation is not the usual one");
    lost(spec.window != seen.window, "its layers look back through other windows than is usual");
    lost(spec.rope_of != seen.rope_of || spec.ropes != seen.ropes,
         "its layers are told positions in another way than is usual");
    lost(spec.attention.scale != seen.attention.scale || spec.attention.softcap != seen.attention.softcap,
         "its attention scores are scaled in another way than is usual");
    lost(spec.logit_softcap != seen.logit_softcap || spec.logit_scale != seen.logit_scale ||
             spec.branch_scale != seen.branch_scale || spec.embedding_scale != seen.embedding_scale,
         "its logits, branches or embeddings are scaled in another way than is usual");
    for (const FeedForwardSpec& kind : spec.feed_forward) {
      const auto* mixture = std::get_if<MixtureSpec>(&kind);
      lost((mixture != nullptr) != out_.family->experts, "some of its layers have experts and others have none");
      lost(mixture && mixture->router.normalise != out_.family->normalised_experts,
           out_.family->normalised_experts ? "norm_topk_prob is false" : "norm_topk_prob is true");
    }
  }

  std::string where_;
  const GgufMix& mix_;
  Json json_;
  Config config_;
  GgufSettings out_;
};

}  // namespace

GgufSettings gguf_settings(const fs::path& folder, const GgufMix& mix, const std::string& name) {
  GgufSettings out = Writer(folder, mix).settings(name);
  const int64_t rows = Config(config_file(folder)).integer("vocab_size");
  for (auto& each : gguf_tokenizer(folder, rows)) out.all.push_back(std::move(each));
  return out;
}

}  // namespace apus
