// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_settings.h"

#include <algorithm>
#include <cmath>
#include <numbers>

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
    add(own("attention.layer_norm_rms_epsilon"), GgufValue::f32(spec.norm.eps));
    add(own("rope.freq_base"), GgufValue::f32(spec.ropes[0].theta));
    if (config_.find("head_dim") || s.head_dim * s.heads != s.hidden)
      for (const char* key : {"attention.key_length", "attention.value_length"})
        add(own(key), GgufValue::u32(s.head_dim));
    if (!out_.family->neighbours) return;
    add(own("vocab_size"), GgufValue::u32(s.vocab));
    add(own("rope.dimension_count"), GgufValue::u32(s.head_dim));
  }

  void rope(const RopeSpec& rope) {
    if (rope.type == "default") return;
    if (rope.type == "llama3") return void(out_.rope_factors = llama3_factors(rope));
    if (rope.type == "longrope" && rope.short_factor == rope.long_factor && rope.attention_factor == 1)
      return void(out_.rope_factors.assign(rope.short_factor.begin(), rope.short_factor.end()));
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

  // Settings that change answers and that readers of the file would not know of.
  void refuse_what_is_lost(const DecoderSpec& spec) const {
    const auto lost = [&](bool is, const char* what) {
      require(!is, Fault::Model, where_, ": ", what, ", which a GGUF file of the architecture ",
              out_.family->architecture, " cannot say");
    };
    lost(spec.act != Activation::Silu, "its activation is not silu");
    lost(std::any_of(spec.window.begin(), spec.window.end(), [](int64_t w) { return w > 0; }),
         "some of its layers look back through a window only");
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
