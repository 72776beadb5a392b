// SPDX-License-Identifier: Apache-2.0
#include "models/spec/hearing_spec.h"

#include <algorithm>

#include "base/error.h"
#include "models/spec/cascade_spec.h"
#include "models/spec/conformer_spec.h"

namespace apus {

namespace {
int64_t halved(int64_t n) { return (n + 1) / 2; }

class HearingParts {
 public:
  explicit HearingParts(const HearingSpec& spec) : s_(spec) {}

  std::vector<TowerPart> all() {
    if (s_.front == HearingSpec::Front::Bare)
      return {{TowerPart::Kind::Linear, s_.projections.front(), {s_.out, s_.mels}, false, {}}};
    if (line()) {
      table("conv1", {s_.width, s_.mels, 3});
      table("conv2", {s_.width, s_.width, 3});
      if (s_.has_speech_marks) add(TowerPart::Kind::Idle, "audio_bos_eos_token", {2, s_.out}, false);
      if (s_.position_table) add(TowerPart::Kind::Idle, "embed_positions", {(s_.chunk - s_.tail) / 2, s_.width}, false);
    } else {
      table("conv2d1", {s_.channels, 1, 3, 3});
      table("conv2d2", {s_.channels, s_.channels, 3, 3});
      table("conv2d3", {s_.channels, s_.channels, 3, 3});
      linear("conv_out", s_.channels * halved(halved(halved(s_.mels))), s_.width, false);
    }
    for (int64_t i = 0; i < s_.layers; ++i) layer(str("layers.", i, "."));
    norm(s_.last_norm);
    int64_t in = s_.joined_width();
    for (size_t i = 0; i < s_.projections.size(); ++i) {
      const int64_t out = i + 1 == s_.projections.size() ? s_.out : s_.inner > 0 ? s_.inner : in;
      parts_.push_back({TowerPart::Kind::Linear, s_.projections[i], {out, in}, s_.projection_bias});
      in = out;
    }
    return std::move(parts_);
  }

 private:
  bool line() const { return s_.front == HearingSpec::Front::Line; }
  void add(TowerPart::Kind kind, const std::string& name, std::vector<int64_t> shape, bool bias) {
    parts_.push_back({kind, s_.name + "." + name, std::move(shape), bias, {NormKind::MeanAndBias, 1e-5}});
  }
  void table(const std::string& name, std::vector<int64_t> shape) {
    add(TowerPart::Kind::Table, name, std::move(shape), true);
  }
  void linear(const std::string& name, int64_t in, int64_t out, bool bias = true) {
    add(TowerPart::Kind::Linear, name, {out, in}, bias);
  }
  void norm(const std::string& name) { add(TowerPart::Kind::Norm, name, {s_.width}, false); }
  void layer(const std::string& l) {
    norm(l + "self_attn_layer_norm");
    linear(l + "self_attn.q_proj", s_.width, s_.width);
    linear(l + "self_attn.k_proj", s_.width, s_.width, !line());
    linear(l + "self_attn.v_proj", s_.width, s_.width);
    linear(l + "self_attn.out_proj", s_.width, s_.width);
    norm(l + "final_layer_norm");
    linear(l + "fc1", s_.width, s_.ffn);
    linear(l + "fc2", s_.ffn, s_.width);
  }

  const HearingSpec& s_;
  std::vector<TowerPart> parts_;
};
}  // namespace

int64_t HearingSpec::rows_of_chunk(int64_t frames) const {
  frames = std::max<int64_t>(frames - tail, 0);
  return front == Front::Line ? halved(frames) : halved(halved(halved(frames)));
}

int64_t HearingSpec::tokens(int64_t frames) const {
  if (front == Front::Bare) return frames;
  if (conformer) return conformer->tokens;
  if (cascade) return cascade->halved(frames);
  const int64_t rows = frames / chunk * rows_of_chunk(chunk) + rows_of_chunk(frames % chunk);
  if (beside > 0) return rows / beside;
  return front == Front::Line ? rows / 2 : rows;
}

std::vector<TowerPart> parts_of(const HearingSpec& spec) {
  if (spec.cascade) return parts_of(*spec.cascade);
  return spec.conformer ? parts_of(*spec.conformer) : HearingParts(spec).all();
}

HearingSpec hearing_of(const ConformerSpec& spec) {
  HearingSpec s{.front = HearingSpec::Front::Conformer, .name = spec.name, .mels = spec.bands};
  s.width = spec.width, s.layers = spec.layers, s.heads = spec.heads, s.ffn = 4 * spec.width;
  s.out = spec.embedder.out, s.chunk = 16, s.layers_name = "conformer";
  s.conformer = std::make_shared<const ConformerSpec>(spec);
  return s;
}

HearingSpec hearing_of(const CascadeSpec& spec) {
  HearingSpec s{.front = HearingSpec::Front::Cascade, .name = spec.tower(), .mels = spec.bands};
  s.width = spec.width, s.layers = spec.layers, s.heads = spec.heads, s.ffn = spec.ffn;
  s.out = spec.out, s.chunk = int64_t{1} << spec.halvings, s.layers_name = "encoders";
  s.cascade = std::make_shared<const CascadeSpec>(spec);
  return s;
}

namespace {
// Sizes of the layers and the bands.
HearingSpec read_ears(const Config& a, HearingSpec::Front front) {
  HearingSpec s{.front = front};
  s.mels = a.integer("num_mel_bins", 128), s.width = a.integer("d_model", 1280);
  s.layers = a.integer("encoder_layers", 32), s.heads = a.integer("encoder_attention_heads", 20);
  s.ffn = a.integer("encoder_ffn_dim", 5120);
  require(s.mels > 0 && s.layers > 0 && s.layers <= 4096 && s.heads > 0 && s.width > 2 && s.width % s.heads == 0 &&
              s.width % 2 == 0 && s.ffn > 0,
          Fault::Model, "config.json: audio_config: num_mel_bins ", s.mels, ", encoder_layers ", s.layers,
          ", encoder_attention_heads ", s.heads, ", d_model ", s.width, " do not fit together");
  const std::string act = a.text("activation_function", "gelu");
  require(act == "gelu", Fault::Model, "config.json: audio_config: activation_function '", act,
          "' is not known in this family, only gelu");
  return s;
}
}  // namespace

HearingSpec read_hearing(const Config& a, HearingSpec::Front front) {
  const bool line = front == HearingSpec::Front::Line;
  HearingSpec s = read_ears(a, front);
  s.out = a.integer("output_dim", 3584), s.chunk = 2 * a.integer("n_window", 100);
  s.has_speech_marks = line;
  if (line) {
    s.projections = {s.name + ".proj"};
  } else {
    s.projections = {s.name + ".proj1", s.name + ".proj2"};
    s.channels = a.integer("downsample_hidden_size", 480);
    s.chunks_seen = s.chunk > 0 ? a.integer("n_window_infer", 400) / s.chunk : 0;
  }
  require(s.out > 0 && s.chunk > 0 && s.chunk <= 1 << 20 && (line || (s.channels > 0 && s.chunks_seen > 0)),
          Fault::Model, "config.json: audio_config: output_dim ", s.out, ", n_window ", s.chunk / 2,
          line ? "" : str(", downsample_hidden_size ", s.channels, ", n_window_infer (at least 2 n_window)"),
          " do not fit together");
  return s;
}

namespace {
// Whisper's own names and positions; `positions`: rows of half a minute.
HearingSpec read_whisper(const Config& a, int64_t out, int64_t& positions) {
  HearingSpec s = read_ears(a, HearingSpec::Front::Line);
  positions = a.integer("max_source_positions", 1500);
  require(positions > 0 && positions <= 1 << 16, Fault::Model, "config.json: audio_config: max_source_positions is ",
          positions);
  s.name = "model.audio_tower", s.out = out;
  s.position_table = true, s.last_norm = "layer_norm";
  return s;
}
}  // namespace

HearingSpec read_whole_hearing(const Config& a, int64_t out) {
  int64_t positions = 0;
  HearingSpec s = read_whisper(a, out, positions);
  s.tail = 2, s.chunk = 2 * positions + s.tail;
  s.projections = {"model.multi_modal_projector.linear"};
  return s;
}

HearingSpec read_filled_hearing(const Config& a, int64_t out) {
  // Its files have the general names of the sizes; both are read.
  Json said = a.json();
  for (const auto& [own, usual] : {std::pair{"d_model", "hidden_size"},
                                   {"encoder_layers", "num_hidden_layers"},
                                   {"encoder_attention_heads", "num_attention_heads"},
                                   {"encoder_ffn_dim", "intermediate_size"}})
    if (said.contains(usual)) said[own] = said[usual];
  int64_t positions = 0;
  HearingSpec s = read_whisper(Config(said), out, positions);
  s.chunk = 2 * positions;
  s.beside = s.ffn / s.width;
  require(s.ffn % s.width == 0 && positions % s.beside == 0, Fault::Model,
          "config.json: audio_config: rows of hidden_size ", s.width, " are put side by side to intermediate_size ",
          s.ffn, " numbers, which divides neither that nor max_source_positions ", positions, " evenly");
  s.projections = {"model.multi_modal_projector.linear_1", "model.multi_modal_projector.linear_2"};
  s.projection_bias = false, s.inner = out;
  return s;
}

HearingSpec read_half_minute_hearing(const Config& c) {
  int64_t positions = 0;
  HearingSpec s = read_whisper(c, c.integer("d_model", 384), positions);
  s.name = "model.encoder", s.chunk = 2 * positions, s.beside = 1, s.beside_text = true;
  return s;
}

HearingSpec read_bare_hearing(const Config& a, int64_t out, const std::string& projection) {
  HearingSpec s{.front = HearingSpec::Front::Bare};
  s.mels = s.width = a.integer("audio_embed_dim", 640), s.out = out, s.eps = a.number("rms_norm_eps", 1e-6);
  require(s.mels > 0 && s.mels <= 1 << 20, Fault::Model, "config.json: audio_config: audio_embed_dim is ", s.mels);
  s.name = projection.substr(0, projection.rfind('.')), s.projections = {projection};
  return s;
}

}  // namespace apus
