// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/error.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_seeing.h"
#include "models/spec/speech_spec.h"

namespace apus {

namespace {
using Kind = TowerPart::Kind;

// Settings of decoders without words of their own, which read_decoder asks for.
Json without_words(const Config& config) {
  Json all = config.json();
  all["vocab_size"] = 1;
  return all;
}

DecoderSpec read_talker(const Config& talker) {
  const Config text = part_of(talker, "text_config");
  DecoderSpec spec = read_decoder(text, {.kv_heads = 2, .ffn = 2048});
  spec.attention.qk_norm = QkNorm::Head;
  spec.attention.qkv_bias = spec.attention.out_bias = text.flag("attention_bias", false);
  for (RopeSpec& rope : spec.ropes) rope.interleaved_sections = true;
  const bool told = text.find("num_experts") || text.find("num_local_experts");
  const MixtureSpec mixture{.experts = told ? read_expert_count(text) : 128,
                            .per_token = text.integer("num_experts_per_tok", 8),
                            .ffn = text.integer("moe_intermediate_size", 384),
                            .shared_ffn = text.integer("shared_expert_intermediate_size"),
                            .router = {.normalise = text.flag("norm_topk_prob", false)}};
  use_experts(text, spec, mixture, [](int64_t) { return true; });
  spec.backbone = "talker.model", spec.embed_name = "codec_embedding", spec.head_name = "talker.codec_head";
  return spec;
}

DecoderSpec read_finisher(const Config& c) {
  const Json settings = without_words(c);
  DecoderSpec spec = read_decoder(Config(settings), {.kv_heads = 8, .ffn = 3072, .head_dim = 128});
  spec.attention.qk_norm = QkNorm::Head;
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  spec.backbone = "talker.code_predictor.model", spec.embed_name = "", spec.head = Head::None;
  return spec;
}

// What each further code of a frame is looked up in, and what it is said by.
void add_finisher_parts(SpeechSpec& spec, int64_t words) {
  for (int64_t i = 0; i + 1 < spec.codes; ++i) {
    const std::string in = "talker.code_predictor.";
    spec.parts.push_back({Kind::Table, str(in, "model.codec_embedding.", i), {words, spec.talker.shape.hidden}});
    spec.parts.push_back({Kind::Linear, str(in, "lm_head.", i), {words, spec.finisher.shape.hidden}});
  }
}

void add_projection(SpeechSpec& spec, const std::string& name, int64_t between) {
  spec.parts.push_back({Kind::Linear, name + ".linear_fc1", {between, spec.text_width}, /*bias=*/true});
  spec.parts.push_back({Kind::Linear, name + ".linear_fc2", {spec.talker.shape.hidden, between}, /*bias=*/true});
}

DecoderSpec read_vocoder_layers(const Config& c, const std::string& name) {
  const Json settings = without_words(c);
  DecoderSpec spec =
      read_decoder(Config(settings),
                   {.kv_heads = c.integer("num_attention_heads", 16), .positions = 8000, .ffn = 3072, .eps = 1e-5});
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  std::fill(spec.window.begin(), spec.window.end(), c.integer("sliding_window", 72));
  spec.backbone = name + ".pre_transformer", spec.embed_name = "", spec.head = Head::None;
  return spec;
}

// A snake's two numbers a channel.
void add_snake(VocoderSpec& v, const std::string& name, int64_t channels) {
  v.parts.push_back({Kind::Bare, name + ".alpha", {channels}});
  v.parts.push_back({Kind::Bare, name + ".beta", {channels}});
}

// A transposed convolution, whose weight begins with what it reads.
void add_widening(VocoderSpec& v, const std::string& name, int64_t in, int64_t out, int64_t reach) {
  v.parts.push_back({Kind::Table, name, {in, out, reach}});
  v.parts.push_back({Kind::Bare, name + ".bias", {out}});
}

// What stretches time before the decoder of sound: a convolution, and a block that mixes neighbours.
void add_stretch(VocoderSpec& v, const std::string& name, int64_t width, int64_t by) {
  add_widening(v, name + ".0.conv", width, width, by);
  v.parts.push_back({Kind::Table, name + ".1.dwconv.conv", {width, 1, 7}, /*bias=*/true});
  v.parts.push_back({Kind::Norm, name + ".1.norm", {width}, false, {NormKind::MeanAndBias, 1e-6}});
  v.parts.push_back({Kind::Linear, name + ".1.pwconv1", {4 * width, width}, /*bias=*/true});
  v.parts.push_back({Kind::Linear, name + ".1.pwconv2", {width, 4 * width}, /*bias=*/true});
  v.parts.push_back({Kind::Bare, name + ".1.gamma", {width}});
}

// A block of the decoder of sound: a stretch to half the channels, and three sums of two convolutions.
void add_sound_block(VocoderSpec& v, const std::string& name, int64_t in, int64_t rate) {
  const int64_t out = in / 2;
  add_snake(v, name + ".block.0", in);
  add_widening(v, name + ".block.1.conv", in, out, 2 * rate);
  for (int64_t i = 2; i < 5; ++i) {
    const std::string unit = str(name, ".block.", i);
    add_snake(v, unit + ".act1", out), add_snake(v, unit + ".act2", out);
    v.parts.push_back({Kind::Table, unit + ".conv1.conv", {out, out, 7}, /*bias=*/true});
    v.parts.push_back({Kind::Table, unit + ".conv2.conv", {out, out, 1}, /*bias=*/true});
  }
}

// All that stands behind the layers; `width`: of what they give.
void add_sound_parts(VocoderSpec& v, const Config& c, int64_t width) {
  for (size_t i = 0; i < v.stretches.size(); ++i) add_stretch(v, str(v.name, ".upsample.", i), width, v.stretches[i]);
  const int64_t widest = c.integer("decoder_dim", 1536);
  const auto blocks = std::ssize(v.rates);
  require(blocks < 16 && widest >> blocks > 0, Fault::Model, "config.json: decoder_dim ", widest,
          " cannot be halved by each of ", blocks, " upsample_rates");
  const std::string decoder = v.name + ".decoder.";
  v.parts.push_back({Kind::Table, decoder + "0.conv", {widest, width, 7}, /*bias=*/true});
  for (int64_t i = 0; i < blocks; ++i)
    add_sound_block(v, str(decoder, i + 1), widest >> i, v.rates[static_cast<size_t>(i)]);
  add_snake(v, str(decoder, blocks + 1), widest >> blocks);
  v.parts.push_back({Kind::Table, str(decoder, blocks + 2, ".conv"), {1, widest >> blocks, 7}, /*bias=*/true});
}

void read_rates(const Config& c, VocoderSpec& v) {
  v.stretches = c.find("upsampling_ratios") ? c.integers("upsampling_ratios") : std::vector<int64_t>{2, 2};
  v.rates = c.find("upsample_rates") ? c.integers("upsample_rates") : std::vector<int64_t>{8, 5, 4, 3};
  for (const auto* each : {&v.stretches, &v.rates})
    for (const int64_t by : *each)
      require(by > 0 && by <= 64, Fault::Model, "config.json: a stretch of time by ", by, " is none that is known");
}

void add_layer_scales(VocoderSpec& v) {
  for (int64_t i = 0; i < v.layers.shape.layers; ++i)
    for (const char* branch : {"self_attn", "mlp"})
      v.parts.push_back({Kind::Bare,
                         str(v.layers.backbone, ".layers.", i, ".", branch, "_layer_scale.scale"),
                         {v.layers.shape.hidden}});
}

VocoderSpec read_qwen3_vocoder(const Config& c) {
  VocoderSpec v{.name = "code2wav", .layers = read_vocoder_layers(c, "code2wav")};
  v.words = c.integer("codebook_size", 2048), v.books = c.integer("num_quantizers", 16);
  read_rates(c, v);
  const int64_t width = v.layers.shape.hidden;
  v.parts.push_back({Kind::Table, "code2wav.code_embedding", {v.words * v.books, width}});
  add_layer_scales(v);
  add_sound_parts(v, c, width);
  return v;
}

// Words of the talker, by name; absent: none.
std::map<std::string, int64_t> named_words(const Json* words, const SpeechSpec& spec) {
  std::map<std::string, int64_t> out;
  if (!words || !words->is_object()) return out;
  for (const auto& [name, word] : words->items()) {
    require(word.is_number_integer() && word >= 0 && word < spec.talker.shape.vocab, Fault::Model, "config.json: '",
            name, "' is no word of the talker's ", spec.talker.shape.vocab);
    out[name] = word.get<int64_t>();
  }
  return out;
}

void read_marks(const Config& whole, const Config& talker, SpeechSpec& spec) {
  spec.text = {whole.integer("tts_bos_token_id", 151672), whole.integer("tts_eos_token_id", 151673),
               whole.integer("tts_pad_token_id", 151671)};
  spec.code = {.begin = talker.integer("codec_bos_id", 4197),
               .end = talker.integer("codec_eos_token_id", 4198),
               .none = talker.integer("codec_pad_id", 4196),
               .no_thought = talker.integer("codec_nothink_id", 4203),
               .thought_begin = talker.integer("codec_think_bos_id", 4204),
               .thought_end = talker.integer("codec_think_eos_id", 4205),
               .thought = talker.integer("codec_think_id", 4202)};
}

// A dialect's name, or false.
std::map<std::string, std::string> read_dialects(const Json* of_voices, const SpeechSpec& spec) {
  std::map<std::string, std::string> out;
  if (!of_voices || !of_voices->is_object()) return out;
  for (const auto& [voice, dialect] : of_voices->items()) {
    if (!dialect.is_string()) continue;
    require(spec.languages.count(dialect.get<std::string>()), Fault::Model, "config.json: the dialect of the voice '",
            voice, "' is no language of codec_language_id");
    out[voice] = dialect.get<std::string>();
  }
  return out;
}

DecoderSpec read_lone_talker(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.kv_heads = 2, .ffn = 2048});
  spec.attention.qk_norm = QkNorm::Head;
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  for (RopeSpec& rope : spec.ropes) rope.interleaved_sections = true;
  spec.backbone = "talker.model", spec.embed_name = "codec_embedding", spec.head_name = "talker.codec_head";
  return spec;
}

void add_residual_books(VocoderSpec& v, int64_t width, int64_t wide) {
  for (int64_t i = 0; i < v.books; ++i) {
    const std::string book = i == 0 ? str(v.name, ".quantizer.rvq_first.vq.layers.0._codebook.")
                                    : str(v.name, ".quantizer.rvq_rest.vq.layers.", i - 1, "._codebook.");
    v.parts.push_back({Kind::Bare, book + "embedding_sum", {v.words, width}});
    v.parts.push_back({Kind::Bare, book + "cluster_usage", {v.words}});
  }
  for (const char* kind : {"first", "rest"})
    v.parts.push_back({Kind::Table, str(v.name, ".quantizer.rvq_", kind, ".output_proj"), {wide, width, 1}});
}

VocoderSpec read_12hz_vocoder(const Config& c) {
  VocoderSpec v{
      .name = "decoder", .layers = read_vocoder_layers(c, "decoder"), .residual = true, .cuts_beginning = false};
  v.words = c.integer("codebook_size", 2048), v.books = c.integer("num_quantizers", 16);
  read_rates(c, v);
  const int64_t wide = c.integer("codebook_dim", 512), latent = c.integer("latent_dim", 1024),
                hidden = v.layers.shape.hidden;
  add_residual_books(v, wide / 2, wide);
  v.parts.push_back({Kind::Table, "decoder.pre_conv.conv", {latent, wide, 3}, /*bias=*/true});
  v.parts.push_back({Kind::Linear, "decoder.pre_transformer.input_proj", {hidden, latent}, /*bias=*/true});
  v.parts.push_back({Kind::Linear, "decoder.pre_transformer.output_proj", {latent, hidden}, /*bias=*/true});
  add_layer_scales(v);
  add_sound_parts(v, c, latent);
  return v;
}

// At the end of the talker's words stand marks; of them only the one that ends speech may be said.
void fill_words(SpeechSpec& spec) {
  const int64_t kMarks = 1024, words = spec.talker.shape.vocab;
  spec.ends = {static_cast<int32_t>(spec.code.end)};
  for (int64_t word = std::max<int64_t>(0, words - kMarks); word < words; ++word)
    if (word != spec.code.end) spec.unsaid.push_back(static_cast<int32_t>(word));
}

void check_marks(SpeechSpec& spec) {
  const auto& code = spec.code;
  for (const int64_t word : {code.begin, code.end, code.none, code.no_thought, code.thought_begin, code.thought_end})
    require(word >= 0 && word < spec.talker.shape.vocab, Fault::Model, "config.json: the talker's mark ", word,
            " lies outside its ", spec.talker.shape.vocab, " words");
  fill_words(spec);
  require(spec.codes >= 2 && spec.codes <= 64 && spec.codes == spec.vocoder.books, Fault::Model,
          "config.json: the talker says ", spec.codes, " codes a frame, the vocoder reads ", spec.vocoder.books);
}
}  // namespace

std::shared_ptr<const SpeechSpec> read_qwen3_speech(const Config& whole) {
  if (!whole.find("talker_config") || !whole.flag("enable_audio_output", true)) return nullptr;
  const Config c = part_of(whole, "talker_config"), finisher = part_of(c, "code_predictor_config");
  auto spec = std::make_shared<SpeechSpec>();
  spec->talker = read_talker(c), spec->finisher = read_finisher(finisher);
  spec->codes = c.integer("num_code_groups", 32);
  spec->text_width = c.integer("thinker_hidden_size", 2048), spec->sees_layer = c.integer("accept_hidden_layer", 18);
  read_marks(whole, c, *spec);
  spec->turn = whole.integer("im_start_token_id", 151644);
  spec->user = whole.integer("user_token_id", 872), spec->assistant = whole.integer("assistant_token_id", 77091);
  spec->voices = named_words(c.find("speaker_id"), *spec);
  const int64_t between = part_of(c, "text_config").integer("intermediate_size", 2048);
  for (const char* name : {"talker.text_projection", "talker.hidden_projection"}) add_projection(*spec, name, between);
  add_finisher_parts(*spec, finisher.integer("vocab_size", 2048));
  spec->vocoder = read_qwen3_vocoder(part_of(whole, "code2wav_config"));
  check_marks(*spec);
  return spec;
}

std::shared_ptr<const SpeechSpec> read_qwen3_tts(const Config& whole) {
  const Config c = part_of(whole, "talker_config"), finisher = part_of(c, "code_predictor_config");
  const std::string kind = whole.text("tokenizer_type", "qwen3_tts_tokenizer_12hz");
  require(kind == "qwen3_tts_tokenizer_12hz", Fault::Model, "config.json: sound is told by ", kind,
          ", and only qwen3_tts_tokenizer_12hz is known");
  auto spec = std::make_shared<SpeechSpec>();
  spec->alone = true;
  spec->talker = read_lone_talker(c), spec->finisher = read_finisher(finisher);
  spec->codes = c.integer("num_code_groups", 32), spec->text_width = c.integer("text_hidden_size", 2048);
  spec->rest_temperature = 0.9, spec->rest_top_p = 1, spec->least_codes = 2;
  read_marks(whole, c, *spec);
  spec->voices = named_words(c.find("spk_id"), *spec),
  spec->languages = named_words(c.find("codec_language_id"), *spec);
  spec->dialects = read_dialects(c.find("spk_is_dialect"), *spec);
  spec->parts.push_back({Kind::Table, "talker.model.text_embedding", {c.integer("text_vocab_size"), spec->text_width}});
  add_projection(*spec, "talker.text_projection", spec->text_width);
  add_finisher_parts(*spec, finisher.integer("vocab_size", 2048));
  const int64_t from = spec->talker.shape.hidden, to = spec->finisher.shape.hidden;
  if (from != to)
    spec->parts.push_back({Kind::Linear, "talker.code_predictor.small_to_mtp_projection", {to, from}, /*bias=*/true});
  spec->vocoder = read_12hz_vocoder(part_of(part_of(whole, kVocoderFolder), "decoder_config"));
  if (whole.text("tts_model_type", "") == "base") spec->clone = read_clone(whole, from, spec->codes);
  check_marks(*spec);
  return spec;
}

}  // namespace apus
