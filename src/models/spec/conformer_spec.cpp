// SPDX-License-Identifier: Apache-2.0
#include "models/spec/conformer_spec.h"

#include "base/error.h"

namespace apus {

namespace {
std::array<std::array<int64_t, 2>, 2> read_pairs(const Config& a, const char* key, int64_t unsaid) {
  std::array<std::array<int64_t, 2>, 2> pairs{{{unsaid, unsaid}, {unsaid, unsaid}}};
  const Json* said = a.find(key);
  if (!said) return pairs;
  bool fits = said->is_array() && said->size() == 2;
  for (size_t i = 0; fits && i < 2; ++i) {
    const Json& own = (*said)[i];
    fits = own.is_array() && own.size() == 2 && own[0].is_number_integer() && own[1].is_number_integer();
    for (size_t k = 0; fits && k < 2; ++k) {
      pairs[i][k] = own[k].get<int64_t>();
      fits = pairs[i][k] > 0 && pairs[i][k] <= 64;
    }
  }
  require(fits, Fault::Model, "config.json: audio_config: ", key, " should be two pairs of whole numbers");
  return pairs;
}
}  // namespace

int64_t ConformerSpec::bands_behind(size_t convolutions) const {
  int64_t left = bands;
  for (size_t i = 0; i < convolutions; ++i) left = (left + 2 - sides[i][1]) / steps[i][1] + 1;
  return left;
}

int64_t ConformerSpec::rows(int64_t frames) const {
  for (const auto& step : steps) frames = (frames - 1) / step[0] + 1;
  return frames;
}

ConformerSpec read_conformer(const Config& a, int64_t out, int64_t tokens, int64_t last_word) {
  ConformerSpec s;
  s.embedder = read_embedder(a, "model.embed_audio", 262272, 1536, out);
  s.bands = a.integer("input_feat_size", 128), s.width = s.embedder.width, s.eps = s.embedder.eps;
  s.layers = a.integer("conf_num_hidden_layers", 12), s.heads = a.integer("conf_num_attention_heads", 8);
  s.before = std::max<int64_t>(0, a.integer("conf_attention_context_left", 13) - 1);
  s.behind = a.integer("conf_attention_context_right", 0);
  s.cap = a.number("conf_attention_logit_cap", 50), s.bound = a.number("gradient_clipping", 1e10);
  s.added = a.number("conf_residual_weight", 0.5);
  s.taps = a.integer("conf_conv_kernel_size", 5), s.every = a.integer("conf_reduction_factor", 4);
  const std::vector<int64_t> channels = a.integers("sscp_conv_channel_size", {128, 32});
  s.sides = read_pairs(a, "sscp_conv_kernel_size", 3), s.steps = read_pairs(a, "sscp_conv_stride_size", 2);
  s.group_eps = a.number("sscp_conv_group_norm_eps", 1e-3);
  s.tokens = tokens, s.nothing = last_word - s.embedder.first;
  require(s.bands > 0 && s.bands <= 1 << 12 && s.layers > 0 && s.layers <= 4096 && s.heads > 0 &&
              s.width % s.heads == 0 && s.width % 2 == 0 && s.before <= 1 << 12 && s.behind >= 0 &&
              s.behind <= 1 << 12 && s.cap > 0 && s.bound > 0 && s.taps > 0 && s.taps <= 1 << 10 && s.every > 0 &&
              channels.size() == 2 && channels[0] > 0 && channels[1] > 0 && s.tokens > 0 && s.tokens <= 1 << 16,
          Fault::Model, "config.json: audio_config: input_feat_size ", s.bands, ", ", s.layers, " layers, ", s.heads,
          " heads, hidden_size ", s.width, ", ", s.taps, " taps, conf_reduction_factor ", s.every,
          " and audio_soft_tokens_per_image ", s.tokens, " do not fit together");
  s.channels = {channels[0], channels[1]};
  require(s.bands_behind(2) > 0, Fault::Model, "config.json: audio_config: convolutions leave none of ", s.bands,
          " bands");
  require(s.nothing >= 0 && s.nothing < s.embedder.count, Fault::Model, "config.json: audio_config: of the ",
          s.embedder.count, " tokens from vocab_offset ", s.embedder.first, " on none is the vocabulary's last, ",
          last_word, ", which fills up sounds");
  return s;
}

namespace {
using Kind = TowerPart::Kind;

class ConformerParts {
 public:
  explicit ConformerParts(const ConformerSpec& spec) : s_(spec) {}
  // Bare ones come before those of modules.
  std::vector<TowerPart> all() {
    for (int64_t i = 0; i < s_.layers; ++i)
      put(Kind::Bare, str("conformer.", i, ".attention.attn.per_dim_scale"), {s_.head_size()});
    int64_t in = 1;
    for (const size_t i : {size_t{0}, size_t{1}}) {
      const std::string name = str("subsample_conv_projection.conv_", i, ".");
      put(Kind::Table, name + "conv", {s_.channels[i], in, s_.sides[i][0], s_.sides[i][1]});
      put(Kind::Table, name + "norm", {s_.channels[i]});
      in = s_.channels[i];
    }
    put(Kind::Linear, "subsample_conv_projection.input_proj_linear", {s_.width, in * s_.bands_behind(2)});
    for (int64_t i = 0; i < s_.layers; ++i) layer(str("conformer.", i, "."));
    for (TowerPart& part : parts_of(s_.embedder)) parts_.push_back(std::move(part));
    return std::move(parts_);
  }

 private:
  void put(Kind kind, const std::string& name, std::vector<int64_t> shape, NormSpec norm = {}) {
    parts_.push_back({kind, s_.name + "." + name, std::move(shape), false, norm});
  }
  void norm(const std::string& name, double eps = 1e-6) { put(Kind::Norm, name, {s_.width}, {NormKind::Rms, eps}); }
  void linear(const std::string& name, int64_t out, int64_t in) { put(Kind::Linear, name, {out, in}); }
  void feed_forward(const std::string& name) {
    norm(name + "pre_layer_norm");
    linear(name + "ffw_layer_1", 4 * s_.width, s_.width);
    linear(name + "ffw_layer_2", s_.width, 4 * s_.width);
    norm(name + "post_layer_norm");
  }
  void layer(const std::string& l) {
    feed_forward(l + "ffw_layer_start.");
    norm(l + "attention.pre_attn_norm");
    for (const char* each : {"q_proj", "k_proj", "v_proj", "relative_position_embedding.pos_proj"})
      linear(str(l, "attention.attn.", each), s_.width, s_.width);
    linear(l + "attention.post", s_.width, s_.width);
    norm(l + "attention.post_norm");
    norm(l + "lconv1d.pre_layer_norm", s_.eps);
    linear(l + "lconv1d.linear_start", 2 * s_.width, s_.width);
    put(Kind::Table, l + "lconv1d.depthwise_conv1d", {s_.width, 1, s_.taps});
    norm(l + "lconv1d.conv_norm", s_.eps);
    linear(l + "lconv1d.linear_end", s_.width, s_.width);
    feed_forward(l + "ffw_layer_end.");
    norm(l + "norm");
  }

  const ConformerSpec& s_;
  std::vector<TowerPart> parts_;
};
}  // namespace

std::vector<TowerPart> parts_of(const ConformerSpec& spec) { return ConformerParts(spec).all(); }

}  // namespace apus
