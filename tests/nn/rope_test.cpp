// SPDX-License-Identifier: Apache-2.0
// Frequencies of every rotary type as transformers computes them, and the ways to write their settings.
#include "nn/rope.h"

#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "models/spec/config.h"

namespace apus {
namespace {

struct Expected {
  const char* config;
  int64_t length;
  double scale;
  std::vector<float> inverse;
};

TEST(Rope, FrequenciesOfEveryType) {
  const std::vector<Expected> all = {
      {R"({})", 0, 1, {1.0F, 0.215443447F, 0.046415884F, 0.00999999978F, 0.00215443433F, 0.000464158948F}},
      {R"({"rope_theta": 500000.0})",
       0,
       1,
       {1.0F, 0.112246193F, 0.0125992084F, 0.00141421345F, 0.000158740062F, 1.78179798e-05F}},
      {R"({"rope_scaling": {"type": "linear", "factor": 4.0}})",
       0,
       1,
       {0.25F, 0.0538608618F, 0.011603971F, 0.00249999994F, 0.000538608583F, 0.000116039737F}},
      {R"({"rope_scaling": {}, "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 777.0}})",
       0,
       1,
       {0.5F, 0.164904743F, 0.0543871522F, 0.0179373994F, 0.00591592444F, 0.00195112848F}},
      {R"({"rope_scaling": {"type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 8}})",
       50,
       1,
       {1.0F, 0.215443447F, 0.046415884F, 0.00999999978F, 0.00215443433F, 0.000464158948F}},
      {R"({"rope_scaling": {"type": "dynamic", "factor": 2.0}})",
       100,
       1,
       {1.0F, 0.185294077F, 0.0343338922F, 0.00636186777F, 0.00117881631F, 0.000218427769F}},
      {R"({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}})",
       0,
       1,
       {1.0F, 0.0330410488F, 0.00580198551F, 0.00124999997F, 0.000269304292F, 5.80198684e-05F}},
      {R"({"rope_parameters": {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.5, "high_freq_factor": 3.0, "rope_theta": 50000.0}})",
       0,
       1,
       {1.0F, 0.0558667108F, 0.00678604282F, 0.00111803401F, 0.000184201534F, 3.03481174e-05F}},
      {R"({"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}, "rope_theta": 1000000.0})",
       0,
       1.13862944,
       {1.0F, 0.0249999985F, 0.00249999971F, 0.000250000012F, 2.49999921e-05F, 2.50000085e-06F}},
      {R"({"rope_parameters": {"rope_type": "yarn", "factor": null, "original_max_position_embeddings": 16, "rope_theta": 10000.0, "mscale": 1.0}})",
       0,
       1.13862944,
       {1.0F, 0.0538608618F, 0.011603971F, 0.00249999994F, 0.000538608583F, 0.000116039737F}},
      {R"({"rope_scaling": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 16, "beta_fast": 16, "beta_slow": 2, "mscale": 0.707, "mscale_all_dim": 1.2}})",
       0,
       0.917956173,
       {1.0F, 0.0269304309F, 0.00580198551F, 0.00124999997F, 0.000269304292F, 5.80198684e-05F}},
      {R"({"rope_scaling": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 40, "truncate": false, "attention_factor": 1.3, "beta_fast": null}, "rope_theta": 100000.0})",
       0,
       1.3,
       {1.0F, 0.0183474906F, 0.00269304309F, 0.000395284733F, 5.8019843e-05F, 8.51615277e-06F}},
      {R"({"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 40}, "original_max_position_embeddings": 16})",
       0,
       1.06931472,
       {1.0F, 0.107721724F, 0.023207942F, 0.00499999989F, 0.00107721717F, 0.000232079474F}},
      {R"({"rope_scaling": {"type": "longrope", "short_factor": [1, 1.1, 1.2, 1.3, 1.4, 1.5], "long_factor": [1, 1.5, 2, 2.5, 3, 4], "original_max_position_embeddings": 16}})",
       16,
       1.22474487,
       {1.0F, 0.195857689F, 0.0386799015F, 0.0076923077F, 0.00153888157F, 0.000309439318F}},
      {R"({"rope_scaling": {"type": "longrope", "factor": 32.0, "short_factor": [1, 1.1, 1.2, 1.3, 1.4, 1.5], "long_factor": [1, 1.5, 2, 2.5, 3, 4], "original_max_position_embeddings": 16}})",
       17,
       1.5,
       {1.0F, 0.14362897F, 0.023207942F, 0.00400000019F, 0.000718144758F, 0.000116039737F}},
      {R"({"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 3.0, "rope_theta": 10000.0}, "sliding_attention": {"rope_type": "linear", "factor": 3.0, "rope_theta": 10000.0}}})",
       0,
       1,
       {0.333333343F, 0.0718144849F, 0.0154719613F, 0.00333333318F, 0.000718144758F, 0.000154719644F}},
  };
  for (const auto& e : all) {
    const Json json = Json::parse(e.config);
    const auto got = rope_frequencies(read_rope(Config(json), 12, 64), e.length);
    EXPECT_NEAR(got.scale, e.scale, 1e-6) << e.config;
    ASSERT_EQ(got.inverse.size(), e.inverse.size()) << e.config;
    for (size_t i = 0; i < e.inverse.size(); ++i) EXPECT_FLOAT_EQ(got.inverse[i], e.inverse[i]) << e.config << " " << i;
  }
}

TEST(Rope, SettingsThatCannotBeMeantAreRefused) {
  for (const char* config :
       {R"({"rope_scaling": {"type": "unheard"}})", R"({"rope_scaling": [1]})",
        R"({"rope_scaling": {"type": "longrope", "short_factor": [1, 2], "long_factor": [1, 2]}})",
        R"({"rope_scaling": {"type": "longrope", "short_factor": [1, 1, 1, 1, 1, 1]}})",
        R"({"rope_parameters": {"full_attention": {"rope_theta": 1e4}, "sliding_attention": {"rope_theta": 1e6}}})"}) {
    const Json json = Json::parse(config);
    EXPECT_THROW(read_rope(Config(json), 12, 64), Error) << config;
  }
}

// Tokens of an answer see the text as long as it was when they came: read in parts or computed again, nothing changes.
TEST(Rope, TablesThatFollowTheLengthDoNotDependOnTheSteps) {
  const Json json = {{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}};
  const RopeSpec spec = read_rope(Config(json), 12, 4);
  const auto tables = [&](std::vector<int64_t> positions, int32_t prompt) {
    Step step = packed_step({static_cast<int32_t>(positions.size())}, at::kCPU);
    step.position = step.position + positions.front();
    step.length_k = {prompt};
    fill_rope({spec}, step);
    return step.turns[0].cos;
  };
  const at::Tensor whole = tables({0, 1, 2, 3, 4, 5, 6, 7}, 6);
  EXPECT_TRUE(tables({0, 1, 2}, 6).equal(whole.narrow(0, 0, 3)));
  EXPECT_TRUE(tables({3, 4, 5}, 6).equal(whole.narrow(0, 3, 3)));
  EXPECT_TRUE(tables({6}, 6).equal(whole.narrow(0, 6, 1)));
  EXPECT_TRUE(tables({7}, 6).equal(whole.narrow(0, 7, 1)));
  EXPECT_FALSE(tables({0, 1, 2}, 5).equal(whole.narrow(0, 0, 3)));
  EXPECT_TRUE(tables({0, 1, 2}, 4).equal(tables({0, 1, 2}, 3)));
}

}  // namespace
}  // namespace apus
