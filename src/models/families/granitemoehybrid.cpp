// SPDX-License-Identifier: Apache-2.0
// Granite 4: Mamba-2 layers and attention in a few; the four numbers; experts and a shared one, or the latter alone.
#include "gguf/words.h"
#include "models/families/granitemoeshared.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_state.h"

namespace apus::families::granitemoehybrid {

namespace {
// The sixth of ten layers looks at all tokens.
Json tenth_layers(int64_t layers) {
  Json types = Json::array();
  for (int64_t i = 0; i < layers; ++i) types.push_back(i % 10 == 5 ? "attention" : "mamba");
  return types;
}

DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.positions = 2048, .ffn = 8192});
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  use_multipliers(c, spec);
  const auto positions = c.text("position_embedding_type", "nope");
  if (positions != "rope") turn_only(spec, [](size_t) { return false; });
  const int64_t shared = c.integer("shared_intermediate_size", 1024);
  if (c.integer("num_local_experts", 8) > 0) {
    use_experts(c, spec, granite_mixture(c, c.integer("intermediate_size", 8192), shared),
                [](int64_t) { return true; });
  } else {
    spec.dense_name = "shared_mlp";
    spec.feed_forward.assign(spec.feed_forward.size(),
                             DenseSpec{.ffn = shared,
                                       .kind = FeedForwardKind::FusedGate,
                                       .names = {.up = "input_linear", .down = "output_linear"}});
  }
  MambaForm form = read_mamba(c, {.inner = c.integer("mamba_expand", 2) * spec.shape.hidden});
  form.norm_groups = form.groups;
  use_states(c, spec, form, read_layer_types(c, spec.shape.layers, [](int64_t) { return Keeps::State; }));
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"granite4-h-tiny", 1536, 40, 12, 4, 0, 512, 100352, 131072, 1e4, true, {}, {{"layer_types", tenth_layers(40)}}},
};

// How it stands in GGUF files.
const char* const kTurns = "rope.scaling.finetuned";
void read_gguf(const GgufSays& file, Json& config) {
  const int64_t inner = file.needed("ssm.inner_size");
  config["mamba_expand"] = inner / config["hidden_size"].get<int64_t>();
  config["mamba_d_head"] = inner / std::max<int64_t>(1, file.needed("ssm.time_step_rank"));
  config["mamba_conv_bias"] = true;
  config["position_embedding_type"] = file.flag(kTurns).value_or(true) ? "rope" : "nope";
  words::read_layers_of_attention(file, config, "attention", "mamba");
}
void write_gguf(const Json& config, GgufSettingsWriter& out) {
  require(config.value("num_local_experts", int64_t{8}) > 0, Fault::Model,
          "config.json: this family is not written as GGUF where it has no experts");
  out.whole("ssm.inner_size", config.value("mamba_expand", int64_t{2}) * config.value("hidden_size", int64_t{0}));
  const Json positions = config.value("position_embedding_type", Json());
  out.own(kTurns, GgufValue::flag(positions == "rope"));
  const Json types = config.value("layer_types", tenth_layers(config.value("num_hidden_layers", int64_t{0})));
  words::write_layers_of_attention(config, out, [&](int64_t i) { return words::attends(types, i); });
}

const GgufForm gguf = {.architecture = "granitehybrid",
                       .names = words::both(granite_gguf_names(), words::mamba_names("mamba")),
                       .keys = words::both(granite_gguf_keys(), {{"mamba_d_conv", "ssm.conv_kernel"},
                                                                 {"mamba_d_state", "ssm.state_size"},
                                                                 {"mamba_n_heads", "ssm.time_step_rank"},
                                                                 {"mamba_n_groups", "ssm.group_count"}}),
                       .read = read_gguf,
                       .write = write_gguf,
                       .neighbours = true};

const RegisterFamily granitemoehybrid("granitemoehybrid", {.title = "Granite 4",
                                                           .architecture = "GraniteMoeHybridForCausalLM",
                                                           .read = read,
                                                           .says = {{"num_local_experts", 64},
                                                                    {"num_experts_per_tok", 6},
                                                                    {"shared_intermediate_size", 1024},
                                                                    {"mamba_expand", 2},
                                                                    {"mamba_n_heads", 48},
                                                                    {"mamba_d_head", 64},
                                                                    {"mamba_n_groups", 1},
                                                                    {"mamba_d_state", 128},
                                                                    {"mamba_d_conv", 4},
                                                                    {"mamba_conv_bias", true},
                                                                    {"mamba_proj_bias", false},
                                                                    {"position_embedding_type", "nope"},
                                                                    {"embedding_multiplier", 12.0},
                                                                    {"attention_multiplier", 0.0078125},
                                                                    {"residual_multiplier", 0.22},
                                                                    {"logits_scaling", 6.0},
                                                                    {"rms_norm_eps", 1e-5}},
                                                           .presets = presets,
                                                           .gguf = gguf});
}  // namespace

}  // namespace apus::families::granitemoehybrid
