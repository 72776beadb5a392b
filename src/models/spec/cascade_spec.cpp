// SPDX-License-Identifier: Apache-2.0
#include "models/spec/cascade_spec.h"

#include "base/error.h"

namespace apus {

int64_t CascadeSpec::halved(int64_t n) const {
  for (int64_t i = 0; i < halvings; ++i) n = (n + 1) / 2;
  return n;
}

namespace {
void expect_act(const Config& a, const char* key, const std::string& unsaid, const std::string& wanted) {
  const std::string act = a.text(key, unsaid);
  require(act == wanted || (wanted == "swish" && act == "silu"), Fault::Model, "config.json: audio_config: ", key, " '",
          act, "' is not supported, only ", wanted);
}

int64_t read_halvings(const Config& a) {
  const int64_t reduction = a.integer("time_reduction", 8);
  int64_t halvings = 0;
  for (int64_t n = reduction; n > 1 && n % 2 == 0; n /= 2) ++halvings;
  require(reduction > 1 && reduction == int64_t{1} << halvings && halvings <= 8, Fault::Model,
          "config.json: audio_config: time_reduction ", reduction, " is no power of 2 up to 256");
  return halvings;
}
}  // namespace

CascadeSpec read_cascade(const Config& a, int64_t out) {
  CascadeSpec s;
  s.bands = a.integer("input_size", 80), s.width = a.integer("hidden_size", 1024);
  s.layers = a.integer("num_blocks", 24), s.heads = a.integer("num_attention_heads", 16);
  s.ffn = a.integer("intermediate_size", 1536), s.channels = a.integer("nemo_conv_channels", 1024);
  s.halvings = read_halvings(a), s.taps = a.integer("kernel_size", 3);
  s.reach = a.integer("bias_max_distance", 1000), s.out = out;
  require(s.bands > 0 && s.bands <= 1 << 12 && s.layers > 0 && s.layers <= 4096 && s.heads > 0 && s.width > 0 &&
              s.width % s.heads == 0 && s.ffn > 0 && s.channels > 0 && s.taps > 0 && s.taps <= 1 << 10 && s.reach > 0 &&
              s.reach <= 1 << 20,
          Fault::Model, "config.json: audio_config: input_size ", s.bands, ", num_blocks ", s.layers,
          ", num_attention_heads ", s.heads, ", hidden_size ", s.width, ", kernel_size ", s.taps,
          " and bias_max_distance ", s.reach, " do not fit together");
  for (const char* key : {"ext_pw_out_channel", "depthwise_separable_out_channel"})
    require(a.integer(key, 1024) == s.width, Fault::Model, "config.json: audio_config: ", key, " ",
            a.integer(key, 1024), " is not hidden_size ", s.width, ": layers of other widths are not supported");
  const Json* chunk = a.find("chunk_size");
  require(a.integer("depthwise_multiplier", 1) == 1 && a.integer("downsample_rate", 1) == 1 &&
              (!chunk || *chunk == -1) && !a.flag("bias_symmetric", false),
          Fault::Model,
          "config.json: audio_config: depthwise_multiplier and downsample_rate must be 1, chunk_size -1 and "
          "bias_symmetric false: other models of this kind are not supported");
  for (const char* key : {"activation", "conv_activation", "conv_glu_type"}) expect_act(a, key, "swish", "swish");
  expect_act(a, "nemo_activation", "relu", "relu");
  return s;
}

namespace {
using Kind = TowerPart::Kind;

class CascadeParts {
 public:
  explicit CascadeParts(const CascadeSpec& spec) : s_(spec) {}
  // Bare ones come before those of modules.
  std::vector<TowerPart> all() {
    for (const char* each : {"mean", "invstd"}) put(Kind::Fixed, str("encoder_embedding.global_", each), {s_.bands});
    for (int64_t i = 0; i < s_.layers; ++i)
      for (const char* each : {"b1", "b2"}) put(Kind::Bare, str("encoders.", i, ".conv.glu.", each), {1, s_.width, 1});
    put(Kind::Table, "embed.conv.0", {s_.channels, 1, 3, 3}, true);
    for (int64_t i = 1; i < s_.halvings; ++i) {
      put(Kind::Table, str("embed.conv.", 3 * i - 1), {s_.channels, 1, 3, 3}, true);
      put(Kind::Table, str("embed.conv.", 3 * i), {s_.channels, s_.channels, 1, 1}, true);
    }
    linear("embed.out", s_.width, s_.channels * s_.halved(s_.bands));
    put(Kind::Table, "relative_attention_bias_layer.bias_values", {2 * s_.reach, s_.heads});
    for (int64_t i = 0; i < s_.layers; ++i) layer(str("encoders.", i, "."));
    for (const bool beside_pictures : {false, true}) {
      parts_.push_back({Kind::Linear, s_.projection(beside_pictures, false), {s_.out, s_.width}, true, {}});
      parts_.push_back({Kind::Linear, s_.projection(beside_pictures, true), {s_.out, s_.out}, true, {}});
    }
    return std::move(parts_);
  }

 private:
  void put(Kind kind, const std::string& name, std::vector<int64_t> shape, bool bias = false) {
    parts_.push_back({kind, s_.tower() + "." + name, std::move(shape), bias, {NormKind::MeanAndBias, 1e-5}});
  }
  void norm(const std::string& name) { put(Kind::Norm, name, {s_.width}); }
  void linear(const std::string& name, int64_t out, int64_t in) { put(Kind::Linear, name, {out, in}, true); }
  void feed_forward(const std::string& name) {
    norm(name + "layer_norm");
    linear(name + "gate_up_proj", 2 * s_.ffn, s_.width);
    linear(name + "down_proj", s_.width, s_.ffn);
  }
  void layer(const std::string& l) {
    feed_forward(l + "feed_forward_in.");
    for (const char* each : {"q_proj", "k_proj", "v_proj", "o_proj"})
      linear(str(l, "self_attn.", each), s_.width, s_.width);
    norm(l + "conv.layer_norm");
    put(Kind::Table, l + "conv.glu.ext_pw_conv_1d", {2 * s_.width, s_.width, 1}, true);
    put(Kind::Table, l + "conv.dw_sep_conv_1d.dw_conv", {s_.width, 1, s_.taps}, true);
    put(Kind::Table, l + "conv.dw_sep_conv_1d.pw_conv", {s_.width, s_.width, 1}, true);
    put(Kind::Table, l + "conv.ext_pw_conv_1d", {s_.width, s_.width, 1}, true);
    feed_forward(l + "feed_forward_out.");
    norm(l + "layer_norm_att");
    norm(l + "layer_norm");
  }

  const CascadeSpec& s_;
  std::vector<TowerPart> parts_;
};
}  // namespace

std::vector<TowerPart> parts_of(const CascadeSpec& spec) { return CascadeParts(spec).all(); }

}  // namespace apus
