// SPDX-License-Identifier: Apache-2.0
// A checkpoint with stretched positions or more tokens: what its config and tokenizer say then.
#include "checkpoint/adapted_folder.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tests/folder.h"

namespace apus {
namespace {

TEST(AdaptedFolder, RopeScalingReachesTheLengthThatIsAskedFor) {
  const Json config = {{"max_position_embeddings", 32768}, {"rope_theta", 1e6}};
  const Json yarn = with_rope_scaling(config, "yarn", 100000);
  EXPECT_EQ(yarn["rope_scaling"]["factor"], 4.0);
  EXPECT_EQ(yarn["rope_scaling"]["original_max_position_embeddings"], 32768);
  EXPECT_EQ(yarn["max_position_embeddings"], 131072);
  EXPECT_EQ(with_rope_scaling(yarn, "yarn", 100000), yarn) << "a checkpoint that was saved so stays as it is";
  EXPECT_EQ(with_rope_scaling(config, "linear", 1000)["rope_scaling"]["factor"], 1.0);
  const Json dynamic = with_rope_scaling(config, "dynamic", 65536);
  EXPECT_EQ(dynamic["max_position_embeddings"], 32768) << "dynamic begins at the context in the file";
  EXPECT_EQ(with_rope_scaling(config, R"({"type": "linear", "factor": 3})", {})["rope_scaling"]["factor"], 3);
  EXPECT_THROW(with_rope_scaling(config, "yarn", {}), Error);
  EXPECT_THROW(with_rope_scaling(Json::object(), "yarn", 5), Error);
  const Json newer = {{"max_position_embeddings", 100}, {"rope_parameters", {{"rope_theta", 5e5}}}};
  EXPECT_EQ(with_rope_scaling(newer, "yarn", 200)["rope_parameters"]["rope_theta"], 5e5);
}

TEST(AdaptedFolder, TokensGetTheNextIds) {
  Json tokenizer = {{"model", {{"vocab", {{"a", 0}, {"b", 1}}}}},
                    {"added_tokens", Json::array({{{"id", 2}, {"content", "<s>"}}})}};
  Json config = {{"added_tokens_decoder", Json::object()}};
  EXPECT_EQ(add_special_tokens(tokenizer, config, {"<x>", "<s>", "<y>", "b", "<x>"}), 5);
  ASSERT_EQ(tokenizer["added_tokens"].size(), 4u);
  EXPECT_EQ(tokenizer["added_tokens"][1]["content"], "<x>");
  EXPECT_EQ(tokenizer["added_tokens"][1]["id"], 3);
  EXPECT_EQ(tokenizer["added_tokens"][2]["id"], 4);
  EXPECT_EQ(tokenizer["added_tokens"][3]["id"], 1) << "a plain token becomes a special one";
  EXPECT_TRUE(config["added_tokens_decoder"].contains("3"));
}

TEST(AdaptedFolder, TokensMayStandInAFile) {
  const test::Folder folder;
  std::ofstream(folder.path / "tokens.txt") << "<a>\r\n\n<b>";
  EXPECT_EQ(listed_tokens({"<c>", (folder.path / "tokens.txt").string()}),
            (std::vector<std::string>{"<c>", "<a>", "<b>"}));
}

}  // namespace
}  // namespace apus
