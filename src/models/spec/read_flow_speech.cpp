// SPDX-License-Identifier: Apache-2.0
// How Qwen2.5-Omni speaks: a talker that says one code at a time, and a flow that makes sound of them.
#include <algorithm>

#include "base/error.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_seeing.h"
#include "models/spec/speech_spec.h"

namespace apus {

namespace {
using PartKind = TowerPart::Kind;

DecoderSpec read_flow_talker(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.kv_heads = 4, .ffn = 18944, .head_dim = 128});
  spec.attention.qkv_bias = true;
  spec.window = read_windows(c, spec.shape.layers, if_asked(c, Slides::Above));
  spec.backbone = "talker.model", spec.embed_name = "", spec.head_name = "talker.codec_head";
  return spec;
}

std::set<int64_t> layers_of(const Config& c, const char* key, const std::vector<int64_t>& unsaid) {
  const auto all = c.integers(key, unsaid);
  return {all.begin(), all.end()};
}

void add_convolution(std::vector<TowerPart>& parts, const std::string& name, int64_t in, int64_t out, int64_t reach,
                     bool bias = true) {
  parts.push_back({PartKind::Table, name, {out, in, reach}, bias});
}

FlowSpec read_flow(const Config& c, const std::string& name) {
  FlowSpec f{.name = name};
  f.layers = c.integer("num_hidden_layers", c.integer("depth", 22));
  f.hidden = c.integer("hidden_size", c.integer("dim", 1024));
  f.heads = c.integer("num_attention_heads", c.integer("heads", 16)), f.head_dim = c.integer("head_dim", 64);
  f.block = c.integer("block_size", 24);
  f.ahead = layers_of(c, "look_ahead_layers", {10}), f.behind = layers_of(c, "look_backward_layers", {0, 20});
  f.words = c.integer("num_embeds", 8193) + 1, f.repeats = c.integer("repeats", 2), f.bands = c.integer("mel_dim", 80);
  f.voice = c.integer("enc_emb_dim", 192), f.most_rows = c.integer("max_position_embeddings", 32768);
  f.rope = read_rope(c, f.head_dim, f.most_rows);
  require(f.layers > 0 && f.hidden > 0 && f.heads > 0 && f.head_dim > 0 && f.head_dim % 2 == 0 && f.block > 0 &&
              f.repeats > 0 && f.bands > 0 && f.words > 1 && f.voice > 0,
          Fault::Model, "config.json: dit_config has a size that is no size");
  return f;
}

void add_flow_parts(const Config& c, int64_t manner, FlowSpec& f) {
  const int64_t code = c.integer("emb_dim", 512), wide = f.heads * f.head_dim,
                feed = c.integer("ff_mult", 2) * f.hidden;
  const auto linear = [&](const std::string& name, int64_t in, int64_t out) {
    f.parts.push_back({PartKind::Linear, f.name + name, {out, in}, /*bias=*/true});
  };
  linear(".time_embed.time_mlp.0", kTimeWidth, f.hidden), linear(".time_embed.time_mlp.2", f.hidden, f.hidden);
  f.parts.push_back({PartKind::Table, f.name + ".text_embed.codec_embed", {f.words, code}});
  linear(".input_embed.proj", f.bands + manner + f.voice + code, f.hidden);
  for (int64_t i = 0; i < f.layers; ++i) {
    const std::string block = str(".transformer_blocks.", i);
    linear(block + ".attn_norm.linear", f.hidden, 6 * f.hidden);
    for (const char* each : {".attn.to_q", ".attn.to_k", ".attn.to_v"}) linear(block + each, f.hidden, wide);
    linear(block + ".attn.to_out.0", wide, f.hidden);
    linear(block + ".ff.ff.0", f.hidden, feed), linear(block + ".ff.ff.3", feed, f.hidden);
  }
  linear(".norm_out.linear", f.hidden, 2 * f.hidden), linear(".proj_out", f.hidden, f.bands);
}

void add_snake(WaveSpec& w, const std::string& name, int64_t channels) {
  w.parts.push_back({PartKind::Bare, name + ".act.alpha", {channels}});
  w.parts.push_back({PartKind::Bare, name + ".act.beta", {channels}});
}

// A net behind a stretch: three sums of two convolutions, with a snake before each.
void add_net(WaveSpec& w, const std::string& name, int64_t channels, int64_t reach, size_t sums) {
  for (size_t i = 0; i < sums; ++i) {
    add_convolution(w.parts, str(name, ".convs1.", i), channels, channels, reach);
    add_convolution(w.parts, str(name, ".convs2.", i), channels, channels, reach);
  }
  for (size_t i = 0; i < 2 * sums; ++i) add_snake(w, str(name, ".activations.", i), channels);
}

std::vector<std::vector<int64_t>> read_dilations(const Json* told, size_t nets) {
  if (!told) return std::vector<std::vector<int64_t>>(nets, {1, 3, 5});
  std::vector<std::vector<int64_t>> out;
  for (const Json& net : *told) {
    out.emplace_back();
    for (const Json& by : net) {
      require(by.is_number_integer() && by > 0 && by <= 64, Fault::Model,
              "config.json: resblock_dilation_sizes is to be a list of lists of whole numbers above 0");
      out.back().push_back(by);
    }
  }
  return out;
}

// BigVGAN.
WaveSpec read_wave(const Config& c, const std::string& name) {
  WaveSpec w{.name = name, .rates = c.integers("upsample_rates", {5, 3, 2, 2, 2, 2}), .dilations = {}, .parts = {}};
  const auto reaches = c.integers("resblock_kernel_sizes", {3, 7, 11}),
             stretches = c.integers("upsample_kernel_sizes", {11, 7, 4, 4, 4, 4});
  w.dilations = read_dilations(c.find("resblock_dilation_sizes"), reaches.size());
  const int64_t widest = c.integer("upsample_initial_channel", 1536), bands = c.integer("mel_dim", 80);
  const size_t sums = 3;  // of each net
  require(stretches.size() == w.rates.size() && !w.rates.empty() && w.rates.size() < 16 &&
              (widest >> w.rates.size()) > 0 && w.dilations.size() == reaches.size() && !reaches.empty() &&
              std::all_of(w.dilations.begin(), w.dilations.end(), [&](const auto& d) { return d.size() == sums; }) &&
              std::all_of(w.rates.begin(), w.rates.end(), [](int64_t by) { return by > 0 && by <= 64; }),
          Fault::Model, "config.json: the sizes of bigvgan_config do not belong together");
  add_convolution(w.parts, name + ".conv_pre", bands, widest, 7);
  for (size_t i = 0; i < w.rates.size(); ++i) {
    const std::string up = str(name, ".ups.", i, ".0");
    const int64_t in = widest >> i, out = in / 2;
    w.parts.push_back({PartKind::Table, up, {in, out, stretches[i]}});
    w.parts.push_back({PartKind::Bare, up + ".bias", {out}});
    for (size_t j = 0; j < reaches.size(); ++j)
      add_net(w, str(name, ".resblocks.", i * reaches.size() + j), out, reaches[j], sums);
  }
  const int64_t last = widest >> w.rates.size();
  add_snake(w, name + ".activation_post", last);
  add_convolution(w.parts, name + ".conv_post", last, 1, 7, /*bias=*/false);
  return w;
}

void read_words(const Config& whole, const Config& c, SpeechSpec& spec) {
  spec.text = {c.integer("tts_text_start_token_id", 151860), c.integer("tts_text_end_token_id", 151861),
               c.integer("tts_text_pad_token_id", 151859)};
  spec.code.begin = c.integer("tts_codec_start_token_id", 8293),
  spec.code.end = c.integer("tts_codec_end_token_id", 8294);
  spec.code.none = c.integer("tts_codec_pad_token_id", 8292);
  const int64_t mask = c.integer("tts_codec_mask_token_id", 8296), words = spec.talker.shape.vocab;
  const auto known = [&](int64_t word) { return static_cast<int32_t>(word); };
  for (const int64_t word : {spec.code.begin, spec.code.end, spec.code.none, mask})
    require(word >= 0 && word < words, Fault::Model, "config.json: the talker's mark ", word, " lies outside its ",
            words, " words");
  spec.ends = {known(spec.code.none), known(spec.code.end)};
  spec.said = {known(mask), known(spec.code.none), known(spec.code.begin)};
  for (int64_t word = 0; word < words; ++word)
    if (word == spec.code.begin || (word >= spec.flow->flow.words && word != spec.code.none && word != spec.code.end))
      spec.unsaid.push_back(known(word));
  const Json* voices = whole.find(kVoicesFile);
  if (!voices) return;
  for (const auto& [name, word] : voices->items()) {
    require(word.is_number_integer() && word >= 0, Fault::Model, kVoicesFile, ": the bos_token of the voice '", name,
            "' is no word");
    spec.voices[name] = word.get<int64_t>();
  }
}
}  // namespace

std::shared_ptr<const SpeechSpec> read_flow_speech(const Config& whole) {
  if (!whole.find("talker_config") || !whole.flag("enable_audio_output", true)) return nullptr;
  const Config c = part_of(whole, "talker_config"), sound = part_of(whole, "token2wav_config"),
               flow = part_of(sound, "dit_config");
  auto spec = std::make_shared<SpeechSpec>();
  spec->reads_chat = true, spec->codes = 1;
  spec->talker = read_flow_talker(c);
  spec->text_width = c.integer("embedding_size", 3584);
  spec->first_top_p = 0.8, spec->first_top_k = 40;
  const int64_t words = spec->talker.shape.vocab, hidden = spec->talker.shape.hidden;
  spec->parts.push_back({PartKind::Table, "talker.model.embed_tokens", {words, spec->text_width}});
  spec->parts.push_back({PartKind::Linear, "talker.thinker_to_talker_proj", {hidden, spec->text_width}, /*bias=*/true});
  const std::string name = "token2wav.code2wav_dit_model";
  FlowVocoderSpec& v = spec->flow.emplace();
  v.flow = read_flow(flow, name);
  v.manner =
      read_manner(flow, name + ".input_embed.spk_encoder", v.flow.bands, {.channels = {256, 256, 256, 256, 768}});
  add_flow_parts(flow, v.manner.found, v.flow);
  v.wave = read_wave(part_of(sound, "bigvgan_config"), "token2wav.code2wav_bigvgan_model");
  read_words(whole, c, *spec);
  return spec;
}

}  // namespace apus
