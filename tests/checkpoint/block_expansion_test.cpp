// SPDX-License-Identifier: Apache-2.0
// LLaMA Pro: which layers are copied where, in the config, in the names of tensors and in the files.
#include "checkpoint/block_expansion.h"

#include <gtest/gtest.h>

#include "tests/refusal.h"

namespace apus {
namespace {

TEST(BlockExpansion, CopiesStandBehindRuns) {
  const BlockExpansion two = BlockExpansion::of(6, 2, {});
  EXPECT_EQ(two.origin, (std::vector<int64_t>{0, 1, 2, 2, 3, 4, 5, 5}));
  EXPECT_EQ(two.added, (std::vector<int64_t>{3, 7}));
  EXPECT_EQ(BlockExpansion::of(4, 4, {}).origin, (std::vector<int64_t>{0, 0, 1, 1, 2, 2, 3, 3}));
  EXPECT_EQ(BlockExpansion::of(4, 4, 2).added, (std::vector<int64_t>{2, 5}));
  test::expect_says(test::refusal(Fault::Usage, [] { BlockExpansion::of(6, 4, {}); }),
                    "--llamapro_num_new_blocks 4 does not divide the 6 layers");
  test::expect_says(test::refusal(Fault::Usage, [] { BlockExpansion::of(6, 3, 4); }), "--llamapro_num_groups 4");
}

TEST(BlockExpansion, ConfigAndNames) {
  const BlockExpansion two = BlockExpansion::of(2, 1, {});
  const Json config = two.config({{"num_hidden_layers", 2},
                                  {"max_window_layers", 2},
                                  {"eos_token_id", {1, 2, 3}},
                                  {"layer_types", {"sliding_attention", "full_attention"}}});
  EXPECT_EQ(config["num_hidden_layers"], 3);
  EXPECT_EQ(config["max_window_layers"], 3);
  EXPECT_EQ(config["eos_token_id"].size(), 3u);
  EXPECT_EQ(config["layer_types"], (Json{"sliding_attention", "full_attention", "full_attention"}));
  test::expect_says(test::refusal(Fault::Usage,
                                  [&] {
                                    two.config({{"text_config", Json::object()}});
                                  }),
                    "read text only");
  EXPECT_EQ(two.added_names("model.layers."), std::vector<std::string>{"model.layers.2."});
  EXPECT_TRUE(ends_block("model.layers.0.self_attn.o_proj") && !ends_block("model.layers.0.mlp.up_proj"));
}

}  // namespace
}  // namespace apus
