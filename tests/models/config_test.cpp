// SPDX-License-Identifier: Apache-2.0
// config.json with one thing changed at random: a model or a clear error, never a crash, a hang or endless memory.
#include "models/config.h"

#include <nlohmann/json.hpp>

#include "base/random.h"
#include "models/presets.h"
#include "tests/golden.h"

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
