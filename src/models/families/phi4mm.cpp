// SPDX-License-Identifier: Apache-2.0
// Phi-4-multimodal in its authors' own files: the same model in other words. The matrices of the text part stand below
// `base_layer`, the adapters for pictures and sounds beside them.
#include "base/error.h"
#include "models/families/phi4_multimodal.h"
#include "models/spec/family.h"
#include "models/spec/read_seeing.h"

namespace apus::families::phi4mm {

namespace {
void expect_of_phi(const Json& part, const char* where, const char* key, const Json& wanted) {
  const Json said = part.value(key, wanted);
  require(said == wanted, Fault::Model, "config.json: ", where, ": ", key, " is ", said.dump(), ", only ",
          wanted.dump(), " is supported");
}

// audio_processor's config, under the names of transformers.
Json hearing_says(const Config& c, const Json& embedding) {
  const Json processor = part_of(c, "audio_processor").json();
  expect_of_phi(processor, "audio_processor", "name", "cascades");
  Json audio = part_of(Config(processor), "config").json();
  expect_of_phi(audio, "audio_processor", "input_layer", "nemo_conv");
  expect_of_phi(audio, "audio_processor", "causal", true);
  expect_of_phi(audio, "audio_processor", "bias_in_glu", true);
  expect_of_phi(audio, "audio_processor", "batch_norm", false);
  expect_of_phi(audio, "audio_processor", "ext_pw_kernel_size", 1);
  for (const auto& [own, usual] : {std::pair{"attention_dim", "hidden_size"},
                                   {"attention_heads", "num_attention_heads"},
                                   {"linear_units", "intermediate_size"},
                                   {"depthwise_seperable_out_channel", "depthwise_separable_out_channel"}})
    if (audio.contains(own)) audio[usual] = audio[own];
  if (audio.contains("nemo_conv_settings"))
    audio["nemo_conv_channels"] = part_of(Config(audio), "nemo_conv_settings").integer("conv_channels", 1024);
  const Json bias = audio.value("relative_attention_bias_args", Json::object());
  expect_of_phi(bias, "audio_processor", "type", "t5");
  audio["bias_max_distance"] = Config(bias).integer("t5_bias_max_distance", 1000);
  audio["bias_symmetric"] = Config(bias).flag("t5_bias_symmetric", false);
  audio["downsample_rate"] = embedding.value("downsample_rate", 1);
  expect_of_phi(embedding, "embd_layer: audio_embd_layer", "use_qformer", false);
  expect_of_phi(embedding, "embd_layer: audio_embd_layer", "use_conv_downsample", false);
  expect_of_phi(embedding, "embd_layer: audio_embd_layer", "projection_cls", "mlp");
  return audio;
}

// The files do not describe their tower, which is always the same; one that is described is believed.
Json sight_says(const Config& c, const Json& embedding) {
  Json vision = c.find("vision_config") ? part_of(c, "vision_config").json() : Json::object();
  for (const auto& [key, wanted] : {std::pair<const char*, Json>{"hd_transform_order", "sub_glb"},
                                    {"use_hd_transform", true},
                                    {"with_learnable_separator", true},
                                    {"image_token_compression_cls", "avg_pool_2d"},
                                    {"projection_cls", "mlp"}})
    expect_of_phi(embedding, "embd_layer: image_embd_layer", key, wanted);
  if (embedding.contains("crop_size")) vision["crop_size"] = embedding["crop_size"];
  return vision;
}

// Own names are those of transformers.
std::vector<DiskForm> forms(int64_t layers, int64_t heard_layers) {
  DiskForm form;
  for (int64_t i = 0; i < layers; ++i)
    for (const char* each : {"self_attn.qkv_proj.", "self_attn.o_proj.", "mlp.gate_up_proj.", "mlp.down_proj."}) {
      const std::string own = str("model.layers.", i, ".", each);
      form.renames.push_back({own, own + "base_layer."});
    }
  const std::string ears = "model.embed_tokens_extend.audio_embed.encoder.encoders.";
  for (int64_t i = 0; i < heard_layers; ++i)
    for (const auto& [own, disk] : {std::pair{"self_attn.q_proj.", "self_attn.linear_q."},
                                    {"self_attn.k_proj.", "self_attn.linear_k."},
                                    {"self_attn.v_proj.", "self_attn.linear_v."},
                                    {"self_attn.o_proj.", "self_attn.linear_out."},
                                    {"feed_forward_in.gate_up_proj.", "feed_forward_in.net.0.linear."},
                                    {"feed_forward_in.down_proj.", "feed_forward_in.net.2."},
                                    {"feed_forward_out.gate_up_proj.", "feed_forward_out.net.0.linear."},
                                    {"feed_forward_out.down_proj.", "feed_forward_out.net.2."}})
      form.renames.push_back({str(ears, i, ".", own), str(ears, i, ".", disk)});
  form.inside = {{"image_embed.img_projection_up.", "image_embed.img_projection.0."},
                 {"image_embed.img_projection_down.", "image_embed.img_projection.2."},
                 {"image_embed.global_img_feature_extensor", "image_embed.glb_GN"},
                 {"image_embed.sub_img_feature_extensor", "image_embed.sub_GN"},
                 {"audio_embed.up_proj_for_speech.", "audio_embed.audio_projection.speech.0."},
                 {"audio_embed.down_proj_for_speech.", "audio_embed.audio_projection.speech.2."},
                 {"audio_embed.up_proj_for_vision_speech.", "audio_embed.audio_projection.vision.0."},
                 {"audio_embed.down_proj_for_vision_speech.", "audio_embed.audio_projection.vision.2."}};
  return {form};
}

DecoderSpec read(const Config& c) {
  const Json embedding = part_of(c, "embd_layer").json();
  const auto part = [&](const char* key) { return embedding.value(key, Json::object()); };
  if (c.find("img_processor")) {
    const Json eyes = part_of(c, "img_processor").json();
    expect_of_phi(eyes, "img_processor", "layer_idx", -2);
    expect_of_phi(eyes, "img_processor", "type_feature", "patch");
  }
  Json usual = c.json();
  usual["vision_config"] = sight_says(c, part("image_embd_layer"));
  usual["audio_config"] = hearing_says(c, part("audio_embd_layer"));
  for (const char* own : {"embd_layer", "audio_processor", "img_processor"}) usual.erase(own);
  return phi4_multimodal::read_phi4(Config(usual), forms);
}

Json embedding_says() {
  return {{"embedding_cls", "image_audio"},
          {"audio_embd_layer", {{"downsample_rate", 1}, {"projection_cls", "mlp"}}},
          {"image_embd_layer",
           {{"crop_size", 448},
            {"hd_transform_order", "sub_glb"},
            {"image_token_compression_cls", "avg_pool_2d"},
            {"projection_cls", "mlp"},
            {"use_hd_transform", true},
            {"with_learnable_separator", true}}}};
}

Json processor_says() {
  return {{"name", "cascades"},
          {"config",
           {{"attention_dim", 1024},
            {"attention_heads", 16},
            {"linear_units", 1536},
            {"num_blocks", 24},
            {"input_size", 80},
            {"kernel_size", 3},
            {"time_reduction", 8},
            {"ext_pw_out_channel", 1024},
            {"depthwise_seperable_out_channel", 1024},
            {"input_layer", "nemo_conv"},
            {"nemo_conv_settings", {{"conv_channels", 1024}}},
            {"relative_attention_bias_args", {{"t5_bias_max_distance", 500}, {"type", "t5"}}}}}};
}

// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"phi4-multimodal", 3072, 32, 24, 8, 0, 8192, 200064, 131072, 1e4, true},
};

const RegisterFamily phi4mm("phi4mm", {.title = "Phi-4-multimodal (its authors' files)",
                                       .architecture = "Phi4MMForCausalLM",
                                       .read = read,
                                       .says = {{"rms_norm_eps", 1e-5},
                                                {"original_max_position_embeddings", 4096},
                                                {"partial_rotary_factor", 0.75},
                                                {"embd_layer", embedding_says()},
                                                {"audio_processor", processor_says()}},
                                       .presets = presets});
}  // namespace

}  // namespace apus::families::phi4mm
