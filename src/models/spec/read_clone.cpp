// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "models/spec/clone_spec.h"
#include "models/spec/config.h"
#include "models/spec/read_seeing.h"
#include "models/spec/speech_spec.h"

namespace apus {

int64_t SoundCoderSpec::samples_per_frame() const {
  return 2 * std::accumulate(rates.begin(), rates.end(), int64_t{1}, std::multiplies<>());
}

namespace {
using PartKind = TowerPart::Kind;

void add_convolution(SoundCoderSpec& s, const std::string& name, int64_t in, int64_t out, int64_t reach) {
  s.parts.push_back({PartKind::Table, s.name + name, {out, in, reach}, /*bias=*/true});
}

void add_narrowing(const Config& c, SoundCoderSpec& s, int64_t width) {
  int64_t channels = c.integer("num_filters", 64), at = 1;
  const int64_t compress = c.integer("compress", 2);
  require(channels > 0 && compress > 0 && channels % compress == 0, Fault::Model, "encoder_config: num_filters ",
          channels, " is to be divisible by compress ", compress);
  const auto layer = [&](int64_t i) { return str(".encoder.layers.", i); };
  add_convolution(s, layer(0) + ".conv", 1, channels, c.integer("kernel_size", 7));
  for (const int64_t rate : s.rates) {
    const int64_t small = channels / compress;
    add_convolution(s, layer(at) + ".block.1.conv", channels, small, c.integer("residual_kernel_size", 3));
    add_convolution(s, layer(at) + ".block.3.conv", small, channels, 1);
    add_convolution(s, layer(at + 2) + ".conv", channels, 2 * channels, 2 * rate);
    channels *= 2, at += 3;
  }
  add_convolution(s, layer(at + 1) + ".conv", channels, width, c.integer("last_kernel_size", 3));
}

void add_layers(const Config& c, SoundCoderSpec& s, int64_t width) {
  const int64_t wide = s.heads * s.head_dim, feed = c.integer("intermediate_size", 2048);
  const double eps = c.number("norm_eps", 1e-5);
  for (int64_t i = 0; i < s.layers; ++i) {
    const std::string in = str(s.name, ".encoder_transformer.layers.", i, ".");
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"})
      s.parts.push_back({PartKind::Norm, in + norm, {width}, false, {NormKind::MeanAndBias, eps}});
    for (const char* each : {"q_proj", "k_proj", "v_proj"})
      s.parts.push_back({PartKind::Linear, in + "self_attn." + each, {wide, width}});
    s.parts.push_back({PartKind::Linear, in + "self_attn.o_proj", {width, wide}});
    s.parts.push_back({PartKind::Linear, in + "mlp.fc1", {feed, width}});
    s.parts.push_back({PartKind::Linear, in + "mlp.fc2", {width, feed}});
    for (const char* branch : {"self_attn", "mlp"})
      s.parts.push_back({PartKind::Bare, in + branch + "_layer_scale.scale", {width}});
  }
}

void add_books(const Config& c, SoundCoderSpec& s, int64_t width) {
  const int64_t words = c.integer("codebook_size", 2048), narrow = c.integer("codebook_dim", 256);
  s.projects = c.integer("vector_quantization_hidden_dimension", 256) != width;
  for (int64_t book = 0; book < s.books; ++book) {
    const std::string in = book == 0 ? ".quantizer.semantic_residual_vector_quantizer.layers.0"
                                     : str(".quantizer.acoustic_residual_vector_quantizer.layers.", book - 1);
    s.parts.push_back({PartKind::Bare, s.name + in + ".codebook.embed_sum", {words, narrow}});
    s.parts.push_back({PartKind::Bare, s.name + in + ".codebook.cluster_usage", {words}});
  }
  if (s.projects)
    for (const char* kind : {"semantic", "acoustic"})
      s.parts.push_back({PartKind::Table,
                         str(s.name, ".quantizer.", kind, "_residual_vector_quantizer.input_proj"),
                         {narrow, width, 1}});
}

SoundCoderSpec read_coder(const Config& c, int64_t books) {
  SoundCoderSpec s{.name = "encoder", .rates = c.integers("upsampling_ratios", {8, 6, 5, 4}), .parts = {}};
  std::reverse(s.rates.begin(), s.rates.end());
  const int64_t width = c.integer("hidden_size", 512);
  s.layers = c.integer("num_hidden_layers", 8), s.heads = c.integer("num_attention_heads", 8), s.books = books;
  s.head_dim = c.integer("head_dim", s.heads > 0 ? width / s.heads : 0);
  s.window = c.integer("sliding_window", 250),
  s.rope = read_rope(c, s.head_dim, c.integer("max_position_embeddings", 8000));
  const auto narrows = [](int64_t rate) { return rate > 0 && rate <= 64; };
  require(std::all_of(s.rates.begin(), s.rates.end(), narrows) && s.rates.size() < 12 && s.heads > 0 &&
              s.head_dim > 0 && s.head_dim % 2 == 0,
          Fault::Model, "encoder_config: a size is none");
  require(c.integer("num_key_value_heads", s.heads) == s.heads && c.integer("num_residual_layers", 1) == 1 &&
              c.integer("num_semantic_quantizers", 1) == 1 && c.flag("use_causal_conv", true) &&
              !c.flag("use_conv_shortcut", false) && !c.flag("attention_bias", false) &&
              c.text("pad_mode", "constant") == "constant" && c.text("hidden_act", "gelu") == "gelu",
          Fault::Model, "encoder_config of ", kVocoderFolder,
          " has settings other than Qwen3-TTS' own, which are not known here");
  require(books <= c.integer("num_quantizers", 32), Fault::Model, "encoder_config has ",
          c.integer("num_quantizers", 32), " books, and the talker says ", books, " codes a frame");
  add_narrowing(c, s, width);
  add_layers(c, s, width);
  s.parts.push_back({PartKind::Table, s.name + ".downsample.conv", {width, width, 4}});
  add_books(c, s, width);
  return s;
}
}  // namespace

CloneSpec read_clone(const Config& whole, int64_t width, int64_t codes) {
  const Config manner = part_of(whole, "speaker_encoder_config");
  CloneSpec spec{.bands = manner.integer("mel_dim", 128), .manner = {}, .coder = {}};
  require(manner.integer("sample_rate", kSpeechRate) == kSpeechRate, Fault::Model,
          "config.json: recordings of another rate than ", kSpeechRate, " a second are not known");
  spec.manner = read_manner(
      manner, "speaker_encoder", spec.bands,
      {.channels = {512, 512, 512, 512, 1536}, .divided = 8, .found = 1024, .squeezed = 128, .asking = 128});
  require(spec.manner.found == width, Fault::Model, "config.json: speaker_encoder_config.enc_dim is ",
          spec.manner.found, ", and the talker's rows have ", width, " numbers");
  spec.coder = read_coder(part_of(part_of(whole, kVocoderFolder), "encoder_config"), codes);
  return spec;
}

}  // namespace apus
