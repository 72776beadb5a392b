// SPDX-License-Identifier: Apache-2.0
// config.json with one thing changed at random: a model or a clear error, never a crash, a hang or endless memory.
#include "models/spec/config.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <nlohmann/json.hpp>

#include "base/random.h"
#include "checkpoint/weights.h"
#include "models/spec/family.h"
#include "models/spec/presets.h"
#include "models/spec/seeing_spec.h"
#include "models/spec/vision_grid.h"
#include "nn/mlp.h"
#include "tests/models/golden_batch.h"

namespace apus {
namespace {

Json strange_value(Random& random) {
  static const std::vector<Json> values{nullptr,
                                        true,
                                        0,
                                        -1,
                                        1,
                                        3,
                                        7,
                                        1e300,
                                        -0.5,
                                        1e-320,
                                        65537,
                                        4096,
                                        int64_t{1} << 41,
                                        INT64_MIN,
                                        "",
                                        "yarn",
                                        "x",
                                        Json::array(),
                                        Json::array({1, "a"}),
                                        Json::object(),
                                        Json{{"rope_type", "llama3"}}};
  return values[random.below(values.size())];
}

TEST(ModelConfig, AnyOneStrangeValueGivesAModelOrAnError) {
  Random random(7);
  int models = 0, errors = 0;
  for (const char* preset : {"tiny", "tiny-moe", "llama3.2-1b", "mistral-7b"}) {
    const Json plain = preset_config(preset);
    std::vector<std::string> keys{"layer_types", "sliding_window", "rope_parameters", "head_dim", "max_window_layers"};
    for (const auto& [key, value] : plain.items()) keys.push_back(key);
    for (const auto& key : keys) {
      for (int round = 0; round < 12; ++round) {
        Json config = plain;
        config[key] = strange_value(random);
        if (config.contains("use_sliding_window")) config["use_sliding_window"] = true;
        try {
          make_model(config);
          ++models;
        } catch (const Error& e) {
          EXPECT_EQ(e.at.fault, Fault::Model) << key << " = " << config[key] << ": " << e.what();
          ++errors;
        }
      }
    }
  }
  EXPECT_GT(models, 100);
  EXPECT_GT(errors, 100);
}

// As the configuration classes of transformers have it where a file says nothing, or null.
TEST(ModelConfig, WhatAFileLeavesOutIsTheFamilysOwn) {
  Json config = preset_config("mistral-7b");
  const auto shape = [&] { return make_model(config)->shape(); };
  config.erase("num_key_value_heads");
  config.erase("max_position_embeddings");
  EXPECT_EQ(shape().kv_heads, 8);
  EXPECT_EQ(shape().max_positions, 131072);
  config["num_key_value_heads"] = nullptr;
  EXPECT_EQ(shape().kv_heads, 32);
  config = preset_config("llama3-8b");
  config.erase("num_key_value_heads");
  EXPECT_EQ(shape().kv_heads, 32);
  config = preset_config("tiny-moe");
  config.erase("intermediate_size");
  EXPECT_EQ(shape().experts, 8);
  config["num_experts"] = 0;
  EXPECT_EQ(shape().experts, 0);
}

std::string error_of(const Json& config) {
  try {
    make_model(config);
  } catch (const Error& e) {
    EXPECT_EQ(e.at.fault, Fault::Model) << e.what();
    return e.what();
  }
  return "";
}

TEST(ModelConfig, Activations) {
  const auto of = [](const char* name) {
    const Json file = {{"hidden_act", name}};
    return read_activation(Config(file));
  };
  EXPECT_EQ(of("swish"), Activation::Silu);
  EXPECT_EQ(of("gelu"), Activation::Gelu);
  EXPECT_EQ(of("gelu_new"), Activation::GeluTanh);
  EXPECT_EQ(of("gelu_pytorch_tanh"), Activation::GeluTanh);
  EXPECT_EQ(of("relu"), Activation::Relu);
  EXPECT_THROW(of("relu6"), Error);
  const Json nothing = Json::object();
  EXPECT_EQ(read_activation(Config(nothing)), Activation::Silu);
  Json experts = preset_config("tiny-moe");
  experts["hidden_act"] = "gelu";
  EXPECT_NE(error_of(experts).find("with experts, only silu"), std::string::npos);
}

// The same tensors under another activation are another model.
TEST(ModelConfig, TheActivationIsTheLayers) {
  const auto dir = golden::models() / "qwen2/checkpoint";
  Json config = read_model_config(dir);
  std::vector<at::Tensor> hidden;
  c10::AutoGradMode no_grad(false);
  for (const char* act : {"silu", "gelu", "gelu_new", "relu"}) {
    config["hidden_act"] = act;
    const auto model = make_model(config);
    load_weights(*model, TensorFolder(dir), {.device = golden::device()});
    Step step = packed_step({5}, golden::device());
    hidden.push_back(model->forward(golden::ids_tensor({1, 2, 3, 4, 5}, golden::device()), step).to(at::kCPU));
  }
  const auto apart = [&](size_t a, size_t b) { return (hidden[a] - hidden[b]).abs().max().item<double>(); };
  EXPECT_GT(apart(0, 1), 1e-2);
  EXPECT_GT(apart(0, 3), 1e-2);
  EXPECT_GT(apart(1, 2), 0);
  EXPECT_LT(apart(1, 2), 1e-2) << "two ways to write nearly the same";
}

TEST(ModelConfig, WhatWouldBeAnotherModelIsRefused) {
  const Json plain = preset_config("tiny");
  const auto with = [&](const char* key, const Json& value) {
    Json config = plain;
    config[key] = value;
    return error_of(config);
  };
  EXPECT_NE(with("is_causal", false).find("is_causal"), std::string::npos);
  EXPECT_NE(with("use_bidirectional_attention", true).find("later tokens"), std::string::npos);
  EXPECT_NE(with("architectures", {"Qwen2ForSequenceClassification"}).find("labels or scores"), std::string::npos);
  EXPECT_NE(with("architectures", {"Qwen2ForRewardModel"}).find("labels or scores"), std::string::npos);
  EXPECT_NE(with("quantization_config", {{"quant_method", "quip"}}).find("quip"), std::string::npos);
  for (const char* type : {"linear", "dynamic", "llama3", "yarn"})
    EXPECT_NE(with("rope_scaling", {{"type", type}}).find("lack 'factor'"), std::string::npos) << type;
  EXPECT_NE(with("rope_scaling", {{"rope_type", "llama3"}, {"factor", 8}}).find("low_freq_factor"), std::string::npos);
  EXPECT_EQ(with("rope_parameters", {{"rope_type", "linear"}, {"factor", 2}}), "");
  EXPECT_EQ(with("architectures", {"Qwen2Model"}), "") << "a bare backbone of a tied model";
  EXPECT_EQ(with("is_causal", true), "");
  EXPECT_EQ(with("auto_map", {{"AutoModelForCausalLM", "modeling_x.X"}}), "") << "said, not refused";
}

TEST(Towers, PositionsAreTakenFromATableByACubic) {
  // Of the table's own size: each entry stands for itself.
  const TablePlaces same = table_cubic({{1, 2, 2}}, 2, 2);
  ASSERT_EQ(same.entry.size(), 1u);
  EXPECT_EQ(same.entry[0], (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(same.share[0], (std::vector<float>(4, 1)));
  // Twice as many: a quarter before or behind each entry, whose neighbours beyond the edge are the edge itself.
  const TablePlaces twice = table_cubic({{1, 4, 4}}, 2, 2);
  std::vector<float> value(16, 0), sum(16, 0);
  for (size_t k = 0; k < twice.entry.size(); ++k)
    for (size_t n = 0; n < 16; ++n) {
      sum[n] += twice.share[k][n];
      value[n] += twice.share[k][n] * static_cast<float>(twice.entry[k][n] % 2);  // a table of its columns
    }
  for (size_t n = 0; n < 16; ++n) EXPECT_NEAR(sum[n], 1, 1e-6);
  // As torch's interpolate has it; the fifth patch is the third of the first row.
  EXPECT_NEAR(value[0], -0.10546875F, 1e-6);
  EXPECT_NEAR(value[1], 0.2265625F, 1e-6);
  EXPECT_NEAR(value[4], 0.7734375F, 1e-6);
}

TEST(Towers, WhatIsAnotherInternVlIsRefused) {
  const Json plain = preset_config("internvl3-2b");
  EXPECT_EQ(describe_model(plain).shape.vocab, 151674);
  EXPECT_EQ(describe_model(plain).seeing->vision.names.q_norm, nullptr);
  const auto with = [&](const Json& change) {
    Json config = plain;
    config.merge_patch(change);
    return error_of(config);
  };
  EXPECT_NE(with({{"ps_version", "v1"}}).find("first InternVL"), std::string::npos);
  EXPECT_NE(with({{"downsample_ratio", 0.25}}).find("downsample_ratio"), std::string::npos);
  EXPECT_NE(with({{"llm_config", {{"model_type", "internlm9"}}}}).find("'internlm9' is not known"), std::string::npos);
  EXPECT_NE(with({{"llm_config", {{"model_type", "internvl_chat"}}}}), "");
  EXPECT_NE(with({{"vision_config", {{"image_size", {448, 224}}}}}).find("the same number twice"), std::string::npos);
  EXPECT_NE(with({{"vision_config", {{"image_size", 100}}}}).find("do not fit together"), std::string::npos);
  EXPECT_EQ(with({{"vision_config", {{"qk_normalization", true}, {"norm_type", "rms_norm"}}}}), "");
}

TEST(Windows, EachFamilyHasItsRule) {
  const Json file = {{"sliding_window", 8}, {"max_window_layers", 2}, {"use_sliding_window", true}};
  const Config c(file);
  using Windows = std::vector<int64_t>;
  EXPECT_EQ(read_windows(c, 4, Slides::Never), (Windows{0, 0, 0, 0}));
  EXPECT_EQ(read_windows(c, 4, Slides::Always), (Windows{8, 8, 8, 8}));
  EXPECT_EQ(read_windows(c, 4, Slides::Above), (Windows{0, 0, 8, 8}));
  EXPECT_EQ(read_windows(c, 4, Slides::EvenBelow), (Windows{8, 0, 0, 0}));
  const Json typed = {{"sliding_window", 8}, {"layer_types", {"full_attention", "sliding_attention"}}};
  EXPECT_EQ(read_windows(Config(typed), 2, Slides::Above), (Windows{0, 8}));
  EXPECT_EQ(read_windows(Config(typed), 2, Slides::Always), (Windows{8, 8}));  // as Mistral does with such a file
  const Json unsaid = Json::object(), none = {{"sliding_window", nullptr}};
  EXPECT_EQ(read_windows(Config(unsaid), 1, Slides::Always), (Windows{4096}));
  EXPECT_EQ(read_windows(Config(none), 1, Slides::Always), (Windows{0}));
  EXPECT_EQ(if_asked(Config(typed), Slides::Always), Slides::Never);
}

}  // namespace
}  // namespace apus
