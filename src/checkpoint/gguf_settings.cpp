// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_settings.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "checkpoint/file_names.h"
#include "gguf/import.h"
#include "models/spec/family.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

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

class ShapeWriter {
 public:
  ShapeWriter(GgufSettings& settings, const DecoderSpec& spec, const std::string& where)
      : settings_(settings),
        form_(settings.family.form),
        spec_(spec),
        config_(settings.config),
        where_(where),
        out_(form_.architecture) {
    out_.all = std::move(settings.all);
  }
  void write() {
    shape();
    attention();
    rope(spec_.ropes[0]);
    mixture();
    for (const GgufKey& key : form_.keys)
      if (!out_.says(key.file))
        write_key(settings_.config, key, out_);  // what was not said of the model as it is understood
    if (form_.write) form_.write(settings_.config, out_);
    settings_.all = std::move(out_.all);
  }

 private:
  void whole(const char* name, int64_t value) { out_.own(name, GgufValue::u32(value)); }
  void number(const char* name, double value) { out_.own(name, GgufValue::f32(value)); }
  bool knows(const char* file) const {
    return std::any_of(form_.keys.begin(), form_.keys.end(), [&](const GgufKey& key) { return key.file == file; });
  }

  void shape() {
    const ModelShape& s = spec_.shape;
    whole("block_count", s.layers);
    whole("context_length", config_.integer("max_position_embeddings", s.max_positions));
    whole("embedding_length", s.hidden);
    int64_t ffn = config_.integer("intermediate_size", 0);
    for (const FeedForwardSpec& each : spec_.feed_forward)
      if (const auto* dense = std::get_if<DenseSpec>(&each)) ffn = dense->ffn;
    if (ffn > 0) whole("feed_forward_length", ffn);
    number(form_.eps.file.c_str(), spec_.norm.eps);
    if (form_.neighbours || form_.eps.config != "rms_norm_eps") whole("vocab_size", s.vocab);
  }

  void attention() {
    const ModelShape& s = spec_.shape;
    whole("attention.head_count", s.heads);
    whole("attention.head_count_kv", spec_.latent ? 1 : s.kv_heads);
    if (const auto& latent = spec_.latent) {
      if (latent->query_rank > 0) whole("attention.q_lora_rank", latent->query_rank);
      whole("attention.kv_lora_rank", latent->rank);
      whole("attention.key_length", latent->rank + latent->turned);
      whole("attention.value_length", latent->rank);
      whole("attention.key_length_mla", latent->still + latent->turned);
      whole("attention.value_length_mla", latent->value);
      whole("rope.dimension_count", latent->turned);
    } else if (config_.find("head_dim") || s.head_dim * s.heads != s.hidden) {
      whole("attention.key_length", s.head_dim);
      whole("attention.value_length", spec_.attention.value_dim > 0 ? spec_.attention.value_dim : s.head_dim);
    }
  }

  void rope(const RopeSpec& rope) {
    number("rope.freq_base", rope.theta);
    if (form_.neighbours || form_.turns_in_part || rope.dim != spec_.shape.head_dim)
      whole("rope.dimension_count", rope.dim);
    if (!rope.sections.empty()) {
      constexpr size_t kSections = 4;  // time, height, width, and one more
      GgufValue::Integers sections(rope.sections.begin(), rope.sections.end());
      sections.resize(kSections);
      out_.own("rope.dimension_sections", GgufValue::list(GgufKind::I32, std::move(sections)));
    }
    if (rope.type == "default") return;
    auto& factors = settings_.factors;
    if (rope.type == "llama3") return void(factors[kRopeFrequencies] = llama3_factors(rope));
    if (rope.type == "longrope" && rope.short_factor == rope.long_factor && rope.attention_factor == 1)
      return void(factors[kRopeFrequencies].assign(rope.short_factor.begin(), rope.short_factor.end()));
    if (rope.type == "longrope" && form_.two_factor_sets) {
      factors[kShortFactors].assign(rope.short_factor.begin(), rope.short_factor.end());
      factors[kLongFactors].assign(rope.long_factor.begin(), rope.long_factor.end());
      return number("rope.scaling.attn_factor", rope_frequencies(rope, 1).scale);
    }
    require(rope.type == "linear" || rope.type == "yarn", Fault::Model, where_, ": positions stretched by '", rope.type,
            "' have no place in a GGUF file of the architecture ", form_.architecture);
    out_.own("rope.scaling.type", GgufValue::text(rope.type));
    number("rope.scaling.factor", rope.factor);
    if (rope.type == "yarn") yarn(rope);
  }
  void yarn(const RopeSpec& rope) {
    whole("rope.scaling.original_context_length", static_cast<int64_t>(rope.original_positions));
    if (rope.beta_fast != 32) number("rope.scaling.yarn_beta_fast", rope.beta_fast);
    if (rope.beta_slow != 1) number("rope.scaling.yarn_beta_slow", rope.beta_slow);
    if (rope.mscale_all_dim != 0) number("rope.scaling.yarn_log_multiplier", 0.1 * rope.mscale_all_dim);
    if (rope.attention_factor != 0)
      number("rope.scaling.yarn_attn_factor", rope.attention_factor / (0.1 * std::log(rope.factor) + 1));
  }

  void mixture() {
    for (size_t i = 0; i < spec_.feed_forward.size(); ++i)
      if (const auto* m = std::get_if<MixtureSpec>(&spec_.feed_forward[i])) return mixture(*m, static_cast<int64_t>(i));
  }
  // What the family's files have of it; `first` is the first layer that is one.
  void mixture(const MixtureSpec& m, int64_t first) {
    const auto add = [&](const char* name, int64_t value) {
      if (knows(name)) whole(name, value);
    };
    add("expert_count", m.experts);
    add("expert_used_count", m.per_token);
    whole("expert_feed_forward_length", m.ffn);
    if (m.shared_ffn > 0) whole("expert_shared_feed_forward_length", m.shared_ffn);
    if (m.shared_ffn % m.ffn == 0) add("expert_shared_count", m.shared_ffn / m.ffn);
    add("leading_dense_block_count", first);
    if (m.router.groups > 1)
      add("expert_group_count", m.router.groups), add("expert_group_used_count", m.router.open_groups);
    if (knows("expert_weights_scale")) number("expert_weights_scale", m.router.scale);
    if (knows("expert_weights_norm")) out_.own("expert_weights_norm", GgufValue::flag(m.router.normalise));
    constexpr int64_t kSoftmax = 1, kSigmoid = 2;  // as files number them
    if (m.router.sigmoid || knows("expert_gating_func"))
      whole("expert_gating_func", m.router.sigmoid ? kSigmoid : kSoftmax);
  }

  GgufSettings& settings_;
  const GgufForm& form_;
  const DecoderSpec& spec_;
  const Config config_;
  const std::string& where_;
  GgufSettingsWriter out_;
};

}  // namespace

void write_key(const Json& config, const GgufKey& key, GgufSettingsWriter& out) {
  const auto found = config.find(key.config);
  if (found == config.end()) return;
  const Json& value = *found;
  if (key.kind == GgufKey::Whole && value.is_number())
    out.whole(key.file, value.get<int64_t>());
  else if (key.kind == GgufKey::Number && value.is_number())
    out.number(key.file, value.get<double>());
  else if (key.kind == GgufKey::Flag && value.is_boolean())
    out.own(key.file, GgufValue::flag(value.get<bool>()));
  else if (key.kind == GgufKey::Wholes && value.is_array())
    out.own(key.file, GgufValue::list(GgufKind::I32, value.get<GgufValue::Integers>()));
  else if (key.kind == GgufKey::Numbers && value.is_array())
    out.own(key.file, GgufValue::list(GgufKind::F32, value.get<GgufValue::Numbers>()));
}

void add_shape_settings(GgufSettings& settings, const DecoderSpec& spec, const std::string& where) {
  ShapeWriter(settings, spec, where).write();
}

GgufSettings gguf_settings(const fs::path& folder, const GgufMix& mix, const std::string& name) {
  const std::string where = folder.string();
  const fs::path path = folder / kModelConfigFile;
  GgufSettings out;
  out.whole = parse_json(read_file(path, 16 << 20), path.string(), Fault::Model);
  out.config = out.whole;
  const std::string type = Config(out.whole).text("model_type", "");
  out.seeing = tower_of_config(out.whole);
  out.family = out.seeing ? out.seeing->text(/*alone=*/false) : family_of_model_type(type, where);
  if (out.seeing && !out.seeing->tower.part.empty()) out.config = out.whole[out.seeing->tower.part];
  const DecoderSpec spec = describe_model(out.whole);
  const ModelShape& s = spec.shape;
  if (GgufForm& form = out.family.form; s.experts > 0 && !form.with_experts.empty())
    form.architecture = form.with_experts;
  out.facts = {.architecture = out.family.form.architecture,
               .layers = s.layers,
               .heads = s.heads,
               .kv_heads = s.kv_heads,
               .experts = s.experts,
               .tied = spec.tied};
  out.sizes = {s.layers, s.hidden, s.heads, s.kv_heads, s.head_dim};
  out.all = {{"general.architecture", GgufValue::text(out.facts.architecture)},
             {"general.type", GgufValue::text("model")},
             {"general.name", GgufValue::text(name)}};
  add_shape_settings(out, spec, where);
  if (out.seeing && out.seeing->tower.write_text) {
    GgufSettingsWriter writer(out.facts.architecture);
    out.seeing->tower.write_text(out.whole, writer);
    for (auto& each : writer.all) out.all.push_back(std::move(each));
  }
  out.all.emplace_back("general.quantization_version", GgufValue::u32(2));
  out.all.emplace_back("general.file_type", GgufValue::u32(mix.file_type));
  add_sources(out, spec, folder);
  if (!out.seeing) {  // otherwise with the tower's file (gguf_tower_settings)
    GgufHeader header = planned_header(out.all, out.sources, where);
    header.factors_of = out.factors;
    refuse_what_is_lost(out, spec, describe_model(config_of_gguf(header, family_of_file(header))), where);
  }
  for (auto& each : gguf_tokenizer(folder, s.vocab)) out.all.push_back(std::move(each));
  return out;
}

}  // namespace apus
