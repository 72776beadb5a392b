// SPDX-License-Identifier: Apache-2.0
// What is known of families without the tensor library: the table, the presets, and what a config.json may not say.
#include "models/spec/family.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "base/files.h"
#include "models/spec/canvas_spec.h"
#include "models/spec/config_parts.h"
#include "models/spec/conformer_spec.h"
#include "models/spec/hearing_spec.h"
#include "models/spec/mobile_spec.h"
#include "models/spec/presets.h"
#include "models/spec/seeing_spec.h"
#include "models/spec/speech_spec.h"
#include "plan/model_facts.h"
#include "tests/paths.h"
#include "tests/refusal.h"

namespace apus {
namespace {
namespace fs = std::filesystem;

// Nothing else knows their names: adding one is one file. So it is of models that give no words, only speech.
TEST(Families, EachIsOneFile) {
  std::set<std::string> files;
  for (const auto& entry : fs::directory_iterator(test::source_dir() / "src/models/families"))
    if (entry.path().extension() == ".cpp" && !only_speaks({{"model_type", entry.path().stem().string()}}))
      files.insert(entry.path().filename().string());
  std::set<std::string> expected;
  for (const std::string& name : known_models()) expected.insert(name + ".cpp");
  EXPECT_EQ(files, expected);
}

TEST(Families, StandInOneTable) {
  const std::string table = family_table();
  std::istringstream lines(table);
  size_t rows = 0, width = 0;
  for (std::string line; std::getline(lines, line); ++rows) {
    EXPECT_TRUE(width == 0 || line.size() == width) << line;
    width = line.size();
  }
  EXPECT_EQ(rows, known_models().size() + 2);
  for (const std::string& name : known_models()) EXPECT_NE(table.find("\n| " + name + " "), std::string::npos) << name;
  EXPECT_LE(width, 120u);
}

TEST(Families, EachHasAShapeToStartFrom) {
  std::set<std::string> types, names;
  for (const std::string& name : preset_names()) {
    EXPECT_TRUE(names.insert(name).second) << name;
    const Json config = preset_config(name);
    types.insert(config.at("model_type").get<std::string>());
    EXPECT_EQ(describe_model(config, natural_head(config)).shape.layers,
              text_settings(config).at("num_hidden_layers").get<int64_t>())
        << name;
  }
  const auto known = known_models();
  EXPECT_EQ(types, std::set<std::string>(known.begin(), known.end()));
}

// A dry run and a plan look no further than this.
TEST(Families, APlanRefusesWhatTheModelWould) {
  const Json plain = preset_config("tiny");
  const std::vector<std::pair<const char*, Json>> strange = {
      {"hidden_act", "relu6"},
      {"is_causal", false},
      {"layer_types", {"linear_attention"}},
      {"architectures", {"Qwen2ForTokenClassification"}},
      {"rope_scaling", {{"rope_type", "spiral"}}},
      {"quantization_config", {{"quant_method", "quip"}}},
      {"num_attention_heads", 7},
      {"intermediate_size", 0},
      {"rms_norm_eps", "small"},
  };
  for (const auto& [key, value] : strange) {
    Json config = plain;
    config[key] = value;
    config["use_sliding_window"] = true;
    const std::string said = test::refusal(Fault::Model, [&] { model_facts(config); });
    EXPECT_NE(said.find("config.json"), std::string::npos) << key << ": " << said;
  }
}

TEST(Families, ADescriptionIsPlainData) {
  Json config = preset_config("tiny-moe");
  config["mlp_only_layers"] = {1};
  const DecoderSpec spec = describe_model(config);
  ASSERT_EQ(spec.feed_forward.size(), 3u);
  EXPECT_EQ(std::get<MixtureSpec>(spec.feed_forward[0]).per_token, 2);
  EXPECT_EQ(std::get<DenseSpec>(spec.feed_forward[1]).ffn, 384);
  EXPECT_EQ(spec.attention.qk_norm, QkNorm::Head);
  EXPECT_EQ(spec.shape.experts, 8);
  EXPECT_EQ(spec.backbone, "model");
}

// Rotary scalings that reach beyond the number in the file lengthen the plan's context, as they do the model's.
TEST(Families, ThePlansContextIsTheScaledOne) {
  Json config = preset_config("tiny");
  config["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 2048}};
  EXPECT_EQ(model_facts(config).positions, 8192);
}

// As transformers has it; ctest's label `peers` compares whole models.
TEST(Families, TakeTheirOwnDefaults) {
  const auto without = [](const char* preset, const char* key) {
    Json config = preset_config(preset);
    config.erase(key);
    return describe_model(config);
  };
  EXPECT_EQ(without("exaone4-32b", "sliding_window").window[0], 4096);
  EXPECT_EQ(describe_model(preset_config("exaone4-1.2b")).window[0], 0);  // it says null
  EXPECT_EQ(without("olmo3-7b", "rope_theta").ropes[0].theta, 5e5);
  EXPECT_EQ(without("falcon-h1-0.5b", "rope_theta").ropes[0].theta, 1e4);
}

TEST(Families, ReadWhatFewFilesSay) {
  const auto with = [](const char* preset, const char* key, const Json& value) {
    Json config = preset_config(preset);
    config[key] = value;
    return describe_model(config);
  };
  EXPECT_EQ(with("gemma3-1b", "final_logit_softcapping", 30.0).logit_softcap, 30);
  EXPECT_EQ(with("gemma3-1b", "final_logit_softcapping", nullptr).logit_softcap, 0);
  EXPECT_TRUE(std::get<DenseSpec>(with("smollm3-3b", "mlp_bias", true).feed_forward[0]).bias);
  EXPECT_FALSE(std::get<DenseSpec>(with("smollm3-3b", "mlp_bias", false).feed_forward[0]).bias);
}

// Two families of Ling share a model_type with another each: the class says which.
TEST(Families, TellLingByItsClass) {
  const auto state = [](const char* preset) { return describe_model(preset_config(preset)).state.value(); };
  EXPECT_TRUE(std::holds_alternative<KimiDeltaForm>(state("ling-3.0-flash")));
  EXPECT_TRUE(std::holds_alternative<TurnedLightningForm>(state("ling-2.6-flash")));
  EXPECT_FALSE(std::get<MixtureSpec>(describe_model(preset_config("ling-lite")).feed_forward[0]).router.sigmoid);
  EXPECT_TRUE(std::get<MixtureSpec>(describe_model(preset_config("ling-mini-2.0")).feed_forward[1]).router.sigmoid);
}

// Keys of MiniMax's and Ling's own code that no checkpoint sets, and one that all have.
TEST(Families, RefuseOtherLightningAttention) {
  const std::vector<std::tuple<const char*, const char*, Json>> others = {
      {"minimax-text-01", "postnorm", false},
      {"minimax-text-01", "shared_intermediate_size", {0, 8}},
      {"minimax-text-01", "attn_type_list", {0, 2}},
      {"minimax-m1", "attn_type_list", nullptr},
      {"minimax-m1", "rotary_dim", 256},
      {"ling-2.6-flash", "linear_silu", true},
      {"ling-2.6-flash", "score_function", "softmax"},
      {"ling-2.6-flash", "group_norm_size", 3},
  };
  for (const auto& [preset, key, value] : others) {
    Json config = preset_config(preset);
    config[key] = value;
    const std::string said = test::refusal(Fault::Model, [&] { describe_model(config); });
    EXPECT_NE(said.find(key), std::string::npos) << preset << ": " << said;
  }
}

// Of the tower's queries and keys: a number of its own in transformers' layout, the tower's in OpenGVLab's.
TEST(Families, InternVlNormalisesQueriesByRms) {
  for (const auto& [preset, flag, eps] :
       {std::tuple{"internvl3-8b-hf", "use_qk_norm", 1e-6}, {"internvl3-8b", "qk_normalization", 1e-3}}) {
    Json config = preset_config(preset);
    config["vision_config"][flag] = true, config["vision_config"]["layer_norm_eps"] = 1e-3;
    int64_t norms = 0;
    for (const TowerPart& part : parts_of(describe_model(config).seeing->vision)) {
      if (!part.name.ends_with("q_norm") && !part.name.ends_with("k_norm")) continue;
      ++norms;
      EXPECT_EQ(part.norm.kind, NormKind::Rms) << part.name;
      EXPECT_EQ(part.norm.eps, eps) << part.name;
    }
    EXPECT_EQ(norms, 2 * config["vision_config"]["num_hidden_layers"].get<int64_t>());
  }
}

// Files of the hub and those that transformers writes call settings otherwise, and count layers that are not there.
TEST(Families, BothStylesOfMolmo2AreOne) {
  const Json hub = preset_config("molmo2-8b");
  Json other = hub;
  other["vision_config"] = {{"model_type", "molmo2_vision"}};
  other.erase("vit_config");
  other["adapter_config"].erase("vit_layers");
  other["adapter_config"]["vision_feature_layer"] = {24, -7};
  const DecoderSpec one = describe_model(hub), two = describe_model(other);
  for (const DecoderSpec* spec : {&one, &two}) {
    const VisionSpec& v = spec->seeing->vision;
    EXPECT_EQ(v.taken_layers, (std::vector<int64_t>{24, 18}));
    EXPECT_EQ(v.layers, 25);
    EXPECT_EQ(v.unread_layers, 0);
    EXPECT_EQ(v.table_side, 27);
    EXPECT_EQ(spec->seeing->media_words.count, 128);
    EXPECT_EQ(parts_of(*spec->seeing).size(), parts_of(*one.seeing).size());
  }
  Json olmo = preset_config("molmo2-o-7b");
  olmo["text_config"]["rope_scaling"] = {
      {"rope_type", "yarn"}, {"factor", 8.0}, {"original_max_position_embeddings", 8192}};
  olmo["text_config"]["rope_scaling_layers"] = {3, 7};
  const DecoderSpec scaled = describe_model(olmo);
  EXPECT_EQ(scaled.rope_of[3], 0);
  EXPECT_EQ(scaled.rope_of[4], 1);
  EXPECT_EQ(scaled.ropes[1].type, "default");
  EXPECT_EQ(scaled.attention.qk_norm, QkNorm::AllHeads);
  EXPECT_EQ(scaled.norms.after_attention, "attn_norm");
  olmo["adapter_config"]["vit_layers"] = {-30};
  test::expect_says(test::refusal(Fault::Model, [&] { describe_model(olmo); }), "none of the tower's 27 layers");
}

TEST(Families, BothStylesOfHunyuanOcrAreOne) {
  const Json nested = preset_config("hunyuan-ocr-1b");
  Json flat = {{"model_type", "hunyuan_vl"}, {"vision_config", nested["vision_config"]}};
  const Json text = nested.contains("text_config") ? nested["text_config"] : nested;
  for (const auto& [key, value] : text.items())
    if (key != "model_type" && key != "vision_config" && key != "head_dim" && key != "vocab_size") flat[key] = value;
  flat["attention_head_dim"] = 128, flat["org_vocab_size"] = 120818;
  const Json turned = {{"rope_type", "dynamic"},
                       {"rope_theta", 1e4},
                       {"alpha", 1000.0},
                       {"factor", 1.0},
                       {"mrope_section", {16, 16, 16, 16}}};
  Json other = {{"model_type", "hunyuan_vl"}, {"vision_config", nested["vision_config"]}, {"text_config", text}};
  other["text_config"].erase("rope_scaling"), other["text_config"]["rope_parameters"] = turned;
  const DecoderSpec whole = describe_model(nested);
  EXPECT_EQ(whole.ropes[0].sections, std::vector<int64_t>(4, 16));
  EXPECT_GT(whole.ropes[0].theta, 1e7);  // 1e4 stretched by alpha
  for (const Json& each : {flat, other}) {
    const DecoderSpec spec = describe_model(each);
    EXPECT_EQ(spec.ropes[0].theta, whole.ropes[0].theta);
    EXPECT_EQ(spec.ropes[0].sections, whole.ropes[0].sections);
    EXPECT_EQ(spec.shape.head_dim, 128);
    EXPECT_EQ(spec.shape.vocab, 120818);
    EXPECT_TRUE(spec.tied);
    EXPECT_EQ(spec.seeing->vision.table_side, 128);
  }
  Json none = nested;
  (none.contains("text_config") ? none["text_config"] : none)["rope_scaling"].erase("xdrope_section");
  test::expect_says(test::refusal(Fault::Model, [&] { describe_model(none); }), "xdrope_section");
}

TEST(Families, BothStylesOfErnieVlAreOne) {
  const Json own = preset_config("ernie4.5-vl-28b-a3b");
  const DecoderSpec one = describe_model(own), two = describe_model(preset_config("ernie4.5-vl-28b-a3b-hf"));
  for (const DecoderSpec* spec : {&one, &two}) {
    EXPECT_EQ(spec->ropes[0].sections, (std::vector<int64_t>{22, 22, 20}));
    EXPECT_TRUE(spec->ropes[0].time_last);
    EXPECT_TRUE(spec->tied);
    EXPECT_TRUE(std::holds_alternative<DenseSpec>(spec->feed_forward[0]));
    const auto& mixture = std::get<MixtureSpec>(spec->feed_forward[27]);
    EXPECT_EQ(mixture.ffn, 1536);
    EXPECT_EQ(mixture.shared_ffn, 3072);
    EXPECT_EQ(mixture.of_media().ffn, 512);
    EXPECT_EQ(spec->seeing->image_token, 100295);
    EXPECT_EQ(spec->seeing->vision.ffn, 5120);
    EXPECT_EQ(parts_of(*spec->seeing).size(), parts_of(*one.seeing).size());
  }
  // The second kind's experts, routers and correction as files have them.
  const DiskForm& form = one.seeing->forms[0];
  const std::string layer = "model.language_model.layers.3.mlp.";
  for (const auto& [name, disk] :
       {std::pair<std::string, std::string>{"experts.3.up_proj.weight", "experts.3.up_proj.weight"},
        {"vision_experts.3.up_proj.weight", "experts.67.up_proj.weight"},
        {"gate.weight", "gate.weight"},
        {"vision_gate.weight", "gate.weight_1"},
        {"shared_experts.up_proj.weight", "shared_experts.up_proj.weight"}}) {
    EXPECT_EQ(form.disk_name(layer + name), "model.layers.3.mlp." + disk);
    EXPECT_EQ(form.own_name("model.layers.3.mlp." + disk), layer + name);
  }
  EXPECT_EQ(form.disk_name("model.vision_tower.blocks.1.mlp.fc1.weight"), "vision_model.blocks.1.mlp.fc1.weight");
  EXPECT_EQ(form.disk_name("model.resampler_model.spatial_linear.ln.bias"),
            "model.resampler_model.spatial_linear.3.bias");
  Json unlike = own;
  unlike["moe_num_experts"] = {64, 32};
  test::expect_says(test::refusal(Fault::Model, [&] { describe_model(unlike); }), "64 and 32");
}

// Llama 3.2 Vision: every fifth layer reads pictures, and the cache holds nothing of it.
TEST(Families, Llama32VisionIsRead) {
  const Json config = preset_config("llama3.2-11b-vision");
  const DecoderSpec spec = describe_model(config);
  ASSERT_TRUE(spec.pictures && spec.seeing && spec.seeing->canvas);
  EXPECT_EQ(spec.pictures->layers, (std::vector<int64_t>{3, 8, 13, 18, 23, 28, 33, 38}));
  EXPECT_EQ(spec.shape.cached[3].heads, 0);
  EXPECT_EQ(spec.shape.cached[4].heads, 8);
  EXPECT_EQ(spec.shape.picture_rows, 4 * 1601);
  EXPECT_EQ(spec.more_words, 8);
  EXPECT_EQ(spec.ropes[0].theta, 5e5);
  EXPECT_EQ(spec.seeing->canvas->filled_rows(), 1608);
  const DiskForm& form = spec.seeing->forms[0];
  for (const auto& [own, disk] :
       {std::pair<std::string, std::string>{"model.language_model.layers.3.cross_attn_attn_gate",
                                            "language_model.model.layers.3.cross_attn_attn_gate"},
        {"lm_head.weight", "language_model.lm_head.weight"},
        {"model.vision_model.class_embedding", "vision_model.class_embedding"},
        {"model.multi_modal_projector.bias", "multi_modal_projector.bias"}}) {
    EXPECT_EQ(form.disk_name(own), disk);
    EXPECT_EQ(form.own_name(disk), own);
  }
  // What files leave out is what the class takes.
  Json bare = config;
  bare["text_config"] = {{"model_type", "mllama_text_model"}}, bare["vision_config"] = Json::object();
  const DecoderSpec taken = describe_model(bare);
  EXPECT_EQ(taken.shape.layers, 40);
  EXPECT_EQ(taken.pictures->layers, spec.pictures->layers);
  EXPECT_EQ(taken.seeing->canvas->side, 448);
  const auto refusal = [&](const char* part, const char* key, const Json& value) {
    Json other = config;
    other[part][key] = value;
    return test::refusal(Fault::Model, [&] { describe_model(other); });
  };
  test::expect_says(refusal("text_config", "cross_attention_layers", {3, 40}), "40 layers");
  test::expect_says(refusal("vision_config", "vision_output_dim", 1280), "7680");
  test::expect_says(refusal("vision_config", "supported_aspect_ratios", {{1, 1}}), "supported_aspect_ratios");
}

// Sizes of Voxtral's encoder have either of two names, and the text part the 3B model's sizes where the file is silent.
TEST(Families, VoxtralIsReadInBothStyles) {
  Json config = preset_config("voxtral-mini-3b");
  const DecoderSpec whole = describe_model(config);
  EXPECT_EQ(whole.seeing->hearing->beside, 4);
  EXPECT_EQ(whole.seeing->hearing->tokens(6000), 750);
  config["text_config"] = {{"model_type", "llama"}};
  config["audio_config"] = {{"d_model", 1280}, {"encoder_ffn_dim", 5120}};
  const DecoderSpec sparse = describe_model(config);
  EXPECT_EQ(sparse.shape.vocab, 131072);
  EXPECT_EQ(sparse.shape.head_dim, 128);
  EXPECT_EQ(sparse.ropes[0].theta, 1e8);
  EXPECT_EQ(parts_of(*sparse.seeing).size(), parts_of(*whole.seeing).size());
  config["audio_config"]["encoder_ffn_dim"] = 4000;
  test::expect_says(test::refusal(Fault::Model, [&] { describe_model(config); }), "side by side");
}

// The file's general names are the encoder's sizes; its decoder may have fewer layers.
TEST(Families, WhisperHasTwoHalves) {
  const DecoderSpec turbo = describe_model(preset_config("whisper-large-v3-turbo"));
  EXPECT_EQ(turbo.shape.layers, 4);
  EXPECT_EQ(turbo.seeing->hearing->layers, 32);
  EXPECT_EQ(turbo.seeing->hearing->mels, 128);
  EXPECT_EQ(turbo.shape.picture_rows, 1500);
  EXPECT_TRUE(turbo.shape.reads_pictures(3) && turbo.sound && turbo.hands_on_more());
  const DecoderSpec bare = describe_model({{"model_type", "whisper"}, {"num_hidden_layers", 9}});
  EXPECT_EQ(bare.shape.layers, 4);
  EXPECT_EQ(bare.seeing->sound_token, 50257);
  const std::map<std::string, Json> wrong{
      {"scale_embedding", true}, {"decoder_start_token_id", 60000}, {"d_model", 385}};
  for (const auto& [key, value] : wrong) {
    Json config = {{"model_type", "whisper"}};
    config[key] = value;
    test::refusal(Fault::Model, [&] { describe_model(config); });
  }
}

// Files say a width and a share of sparse gates for each layer, or leave them and the sizes of the class out; rotary
// settings stand in both styles.
TEST(Families, Gemma3nIsReadInBothStyles) {
  Json config = preset_config("gemma3n-e4b-sees");
  const DecoderSpec whole = describe_model(config);
  EXPECT_EQ(whole.heads_in(34).borrows, 19);
  EXPECT_EQ(whole.heads_in(33).borrows, 18);
  EXPECT_EQ(whole.heads_in(19).borrows, -1);
  EXPECT_EQ(std::get<DenseSpec>(whole.feed_forward[9]).sparsity, 0.95);
  EXPECT_EQ(std::get<DenseSpec>(whole.feed_forward[10]).sparsity, 0);
  EXPECT_EQ(whole.altup->bound, 120);
  EXPECT_EQ(whole.seeing->hearing->tokens(2997), 188);
  EXPECT_EQ(whole.seeing->hearing->conformer->kept(2997), 188);
  EXPECT_EQ(whole.seeing->mobile->stages[2].size(), 37u);
  EXPECT_EQ(whole.seeing->mobile->stages[3].size(), 39u);
  EXPECT_EQ(whole.seeing->mobile->pixels_a_cell(), 256);
  config["text_config"] = {{"model_type", "gemma3n_text"},
                           {"intermediate_size", std::vector<int64_t>(35, 16384)},
                           {"altup_coef_clip", nullptr},
                           {"rope_parameters",
                            {{"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}},
                             {"full_attention", {{"rope_type", "default"}, {"rope_theta", 1e6}}}}}};
  config.erase("vision_config"), config.erase("audio_config");
  const DecoderSpec sparse = describe_model(config);
  EXPECT_EQ(sparse.shape.vocab, 262400);
  EXPECT_EQ(sparse.shape.layers, 35);
  EXPECT_EQ(sparse.altup->bound, 0);
  for (const size_t i : {size_t{0}, size_t{1}}) EXPECT_EQ(sparse.ropes[i].theta, whole.ropes[i].theta);
  EXPECT_EQ(sparse.rope_of, whole.rope_of);
  EXPECT_EQ(sparse.window, whole.window);
  EXPECT_EQ(parts_of(*sparse.seeing).size(), parts_of(*whole.seeing).size());
  const auto refusal = [&](const char* part, const Json& value) {
    Json other = preset_config("gemma3n-e4b-sees");
    other[part].update(value);
    return test::refusal(Fault::Model, [&] { describe_model(other); });
  };
  test::expect_says(refusal("text_config", {{"intermediate_size", {1, 2}}}), "2 numbers for 35 layers");
  test::expect_says(refusal("text_config", {{"num_kv_shared_layers", 31}}), "there is none");
  test::expect_says(refusal("vision_config", {{"architecture", "mobilenetv5_base"}}), "only mobilenetv5_300m_enc");
  test::expect_says(refusal("vision_config", {{"model_args", {{"channel_multiplier", 0.5}}}}), "channel_multiplier");
  test::expect_says(refusal("audio_config", {{"vocab_size", 64}}), "fills up sounds");
}

// Of both kinds of files, and of those that leave out what is the class' own, one model is made.
TEST(Families, Phi4MultimodalIsReadInBothStyles) {
  Json config = preset_config("phi4-multimodal-hf");
  const DecoderSpec whole = describe_model(config), own = describe_model(preset_config("phi4-multimodal"));
  config["vision_config"] = Json::object(), config["audio_config"] = {{"bias_max_distance", 500}};
  const DecoderSpec sparse = describe_model(config);
  const auto known = parts_of(*whole.seeing);
  for (const DecoderSpec* other : {&own, &sparse}) {
    const auto parts = parts_of(*other->seeing);
    ASSERT_EQ(parts.size(), known.size());
    for (size_t i = 0; i < parts.size(); ++i) {
      EXPECT_EQ(parts[i].name, known[i].name);
      EXPECT_EQ(parts[i].shape, known[i].shape);
    }
    EXPECT_EQ(other->seeing->image_token, 200010);
    EXPECT_EQ(other->seeing->sound_token, 200011);
    EXPECT_EQ(other->ropes, whole.ropes);
    EXPECT_EQ(other->seeing->vision.layers, 26);
    EXPECT_EQ(other->seeing->vision.unread_layers, 1);
    EXPECT_EQ(other->seeing->hearing->tokens(99), 13);
  }
  const DiskForm& form = own.seeing->forms.front();
  const std::string home = "model.embed_tokens_extend.";
  for (const auto& [name, disk] :
       {std::pair{std::string("model.layers.31.self_attn.o_proj.weight"),
                  std::string("model.layers.31.self_attn.o_proj.base_layer.weight")},
        {home + "image_embed.img_projection_up.bias", home + "image_embed.img_projection.0.bias"},
        {home + "image_embed.sub_img_feature_extensor", home + "image_embed.sub_GN"},
        {home + "image_embed.img_processor.encoder.layers.3.self_attn.q_proj.weight",
         home + "image_embed.img_processor.encoder.layers.3.self_attn.q_proj.weight"},
        {home + "audio_embed.down_proj_for_vision_speech.weight",
         home + "audio_embed.audio_projection.vision.2.weight"},
        {home + "audio_embed.encoder.encoders.23.self_attn.o_proj.bias",
         home + "audio_embed.encoder.encoders.23.self_attn.linear_out.bias"},
        {home + "audio_embed.encoder.encoders.1.feed_forward_in.gate_up_proj.weight",
         home + "audio_embed.encoder.encoders.1.feed_forward_in.net.0.linear.weight"}}) {
    EXPECT_EQ(form.disk_name(name), disk);
    EXPECT_EQ(form.own_name(disk), name);
  }
  const auto refusal = [&](const char* preset, const Json& patch) {
    Json other = preset_config(preset);
    other.merge_patch(patch);
    return test::refusal(Fault::Model, [&] { describe_model(other); });
  };
  test::expect_says(refusal("phi4-multimodal-hf", {{"vision_config", {{"crop_size", 384}}}}), "crop_size 384");
  test::expect_says(refusal("phi4-multimodal-hf", {{"audio_config", {{"chunk_size", 16}}}}), "chunk_size -1");
  test::expect_says(refusal("phi4-multimodal-hf", {{"audio_config", {{"time_reduction", 6}}}}), "no power of 2");
  test::expect_says(refusal("phi4-multimodal-hf", {{"audio_config", {{"activation", "gelu"}}}}), "only swish");
  test::expect_says(refusal("phi4-multimodal", {{"audio_processor", {{"name", "whisper"}}}}), "cascades");
  test::expect_says(refusal("phi4-multimodal", {{"img_processor", {{"layer_idx", -1}}}}), "layer_idx is -1");
}

// The first files of Llava and those that came after it leave out what is their text part's class' own.
TEST(Families, TextPartsTakeTheSizesOfTheirClass) {
  Json gemma = preset_config("gemma3-4b");
  gemma["text_config"] = {{"model_type", "gemma3_text"},
                          {"hidden_size", 2560},
                          {"intermediate_size", 10240},
                          {"num_hidden_layers", 34},
                          {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
                          {"sliding_window", 1024}};
  const DecoderSpec seen = describe_model(gemma), whole = describe_model(preset_config("gemma3-4b"));
  EXPECT_EQ(seen.shape.heads, 8);
  EXPECT_EQ(seen.shape.kv_heads, 4);
  EXPECT_EQ(seen.shape.vocab, 262208);
  EXPECT_EQ(seen.ropes, whole.ropes);
  EXPECT_TRUE(seen.tied);
  EXPECT_EQ(seen.seeing->vision.merge, 4);

  Json llava = preset_config("llava-1.5-7b");
  llava["text_config"] = {{"model_type", "llama"}, {"rms_norm_eps", 1e-5}, {"vocab_size", 32064}};
  EXPECT_EQ(describe_model(llava).shape.hidden, 4096);
  EXPECT_EQ(describe_model(llava).seeing->vision.layers, 23);
  EXPECT_EQ(describe_model(llava).seeing->vision.unread_layers, 1);
  llava["text_config"]["model_type"] = "mistral";
  EXPECT_EQ(describe_model(llava).shape.kv_heads, 8);
  EXPECT_EQ(std::get<DenseSpec>(describe_model(llava).feed_forward[0]).ffn, 14336);

  llava["vision_feature_select_strategy"] = "full";
  test::expect_says(test::refusal(Fault::Model, [&] { describe_model(llava); }), "only 'default'");
  llava["vision_feature_layer"] = {-2, -5};
  test::expect_says(test::refusal(Fault::Model, [&] { describe_model(llava); }), "vision_feature_layer");
  llava["vision_config"]["model_type"] = "sam";
  test::expect_says(test::refusal(Fault::Model, [&] { describe_model(llava); }), "siglip_vision_model");
}

// transformers 5 writes either name; without one, no number is guessed that the weights tell.
TEST(Families, ExpertsAreCountedByEitherName) {
  for (const char* preset : {"qwen3-30b-a3b", "qwen3-vl-30b-a3b", "qwen3-omni-30b-a3b", "qwen3-next-80b-a3b"}) {
    Json config = preset_config(preset);
    Json& text = config.contains("text_config") ? config["text_config"] : config;
    ASSERT_TRUE(text.contains("num_experts")) << preset;
    const int64_t count = text["num_experts"].get<int64_t>();
    text.erase("num_experts");
    test::expect_says(test::refusal(Fault::Model, [&] { describe_model(config); }), "'num_experts' is missing");
    text["num_local_experts"] = count;
    EXPECT_EQ(describe_model(config).shape.experts, count) << preset;
  }
}

}  // namespace
}  // namespace apus
