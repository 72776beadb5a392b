// SPDX-License-Identifier: Apache-2.0
// What --deepspeed, --fsdp and their files ask for; what they cannot have is refused by key.
#include "train/options/sharding_options.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "tests/folder.h"
#include "tests/refusal.h"

namespace apus {
namespace {

struct Asked {
  Sharding sharding;
  std::string notes;
  std::vector<ShardingOptions::Claim> claims;
};

Asked asked(const std::optional<std::string>& deepspeed, const std::optional<std::string>& fsdp = {},
            const Json& config = {}) {
  ShardingOptions o;
  OptionTable table;
  o.deepspeed = deepspeed, o.fsdp = fsdp, o.fsdp_config = config;
  o.resolve(table);
  std::string notes;
  for (const std::string& note : table.notes) notes += note + "\n";
  return {o.sharding(), notes, o.claims()};
}

void expect_refused(const std::string& says, const std::function<void()>& what) {
  test::expect_says(test::refusal(Fault::Usage, what), says);
}

TEST(ShardingOptions, Words) {
  EXPECT_EQ(asked({}).sharding.stage, 0);
  for (int stage = 0; stage <= 3; ++stage) EXPECT_EQ(asked("zero" + std::to_string(stage)).sharding.stage, stage);
  EXPECT_TRUE(asked("zero2_offload").sharding.on_host);
  EXPECT_EQ(asked("zero3_offload").sharding.stage, 3);
  EXPECT_EQ(asked({}, "fsdp2").sharding.stage, 3);
  EXPECT_TRUE(asked({}, "full_shard auto_wrap").sharding.release_after_forward);
  EXPECT_FALSE(asked({}, "shard_grad_op auto_wrap").sharding.release_after_forward);
  EXPECT_FALSE(asked({}, "fsdp2", {{"reshard_after_forward", false}}).sharding.release_after_forward);
  EXPECT_TRUE(asked({}, "full_shard offload").sharding.on_host);
  expect_refused("not both", [] { asked("zero1", "fsdp2"); });
  expect_refused("zero9 is no file here; possible: zero0", [] { asked("zero9"); });
  EXPECT_EQ(asked({}, "full_shard").sharding.group, std::nullopt);
  EXPECT_EQ(asked({}, "hybrid_shard auto_wrap").sharding.group, 0) << "those of a machine";
  EXPECT_FALSE(asked({}, "hybrid_shard_zero2").sharding.release_after_forward);
  EXPECT_EQ(asked({}, "fsdp2", {{"fsdp_sharding_strategy", "HYBRID_SHARD"}}).sharding.group, 0);
  expect_refused("'some_shard' is not possible", [] { asked({}, "some_shard"); });
  ShardingOptions small;
  OptionTable table;
  small.deepspeed = "zero3", small.shard_group_size = 4;
  small.resolve(table);
  EXPECT_EQ(small.sharding().group, 4);
  small.deepspeed = "zero2";
  expect_refused("--shard_group_size is of weights", [&] { small.resolve(table); });
  expect_refused("belongs to --fsdp", [] { asked({}, {}, {{"fsdp_version", 2}}); });
  EXPECT_EQ(asked({}, "fsdp2", {{"activation_cpu_offload", true}}).sharding.stage, 3) << "a note says what is done";
  expect_refused("must be true or false", [] { asked({}, "fsdp2", {{"reshard_after_forward", "perhaps"}}); });
}

TEST(ShardingOptions, DeepSpeedFiles) {
  const test::Folder folder;
  const std::string path = (folder.path / "ds.json").string();
  const auto file = [&](const Json& content) {
    write_file_atomic(path, content.dump());
    return asked(path);
  };
  const Asked a = file({{"bf16", {{"enabled", "auto"}}},
                        {"gradient_accumulation_steps", "auto"},
                        {"gradient_clipping", 0.5},
                        {"zero_optimization",
                         {{"stage", 2},
                          {"reduce_bucket_size", 2e8},
                          {"overlap_comm", false},
                          {"offload_optimizer", {{"device", "cpu"}, {"pin_memory", true}}}}}});
  EXPECT_EQ(a.sharding.stage, 2);
  EXPECT_TRUE(a.sharding.on_host);
  EXPECT_EQ(a.sharding.bucket_elements, 200'000'000);
  ASSERT_EQ(a.claims.size(), 1u);
  EXPECT_EQ(a.claims[0].key, "gradient_clipping");
  EXPECT_NE(a.notes.find("bf16, zero_optimization.overlap_comm"), std::string::npos) << a.notes;
  const auto zero = [&](const Json& content) { return [&, content] { file({{"zero_optimization", content}}); }; };
  expect_refused("stage must be 0, 1, 2 or 3, it is 4", zero({{"stage", 4}}));
  expect_refused("stage must be", zero({{"stage", "two"}}));
  expect_refused("offload_optimizer.device is 'nvme'",
                 zero({{"stage", 2}, {"offload_optimizer", {{"device", "nvme"}}}}));
  expect_refused("give offload_param too", zero({{"stage", 3}, {"offload_optimizer", {{"device", "cpu"}}}}));
  expect_refused("without offload_optimizer", zero({{"stage", 3}, {"offload_param", {{"device", "cpu"}}}}));
  expect_refused("must hold an object", zero(7));
  const Json plain = {{"stage", 1}};
  expect_refused("'optimizer' is chosen by options", [&] {
    file({{"optimizer", {{"type", "AdamW"}}}, {"zero_optimization", plain}});
  });
  expect_refused("must be a number", [&] { file({{"gradient_clipping", "much"}, {"zero_optimization", plain}}); });
  expect_refused("has no zero_optimization", [&] { file({{"learning_rate", 1e-4}}); });
  expect_refused("zero_optimization has no stage", zero(Json::object()));
  expect_refused("must hold an object", [&] { file(Json::array({1})); });
  write_file_atomic(path, "{\"zero_optimization\": ");
  expect_refused("ds.json", [&] { asked(path); });
}

TEST(ShardingOptions, FsdpFiles) {
  const test::Folder folder;
  const std::string path = (folder.path / "fsdp.json").string();
  const Json content = {{"fsdp", "full_shard auto_wrap"},
                        {"fsdp_config",
                         {{"fsdp_version", 2},
                          {"reshard_after_forward", true},
                          {"auto_wrap_policy", "TRANSFORMER_BASED_WRAP"},
                          {"cpu_ram_efficient_loading", true},
                          {"state_dict_type", "SHARDED_STATE_DICT"},
                          {"activation_checkpointing", true}}}};
  write_file_atomic(path, content.dump());
  const Asked a = asked({}, path);
  EXPECT_EQ(a.sharding.stage, 3);
  EXPECT_TRUE(a.sharding.release_after_forward);
  EXPECT_NE(a.notes.find("activation_checkpointing: --gradient_checkpointing decides"), std::string::npos) << a.notes;
  EXPECT_NE(a.notes.find("auto_wrap_policy, state_dict_type"), std::string::npos) << a.notes;
  expect_refused("possible: fsdp2", [&] { asked({}, (folder.path / "none.json").string()); });
  write_file_atomic(path, R"({"zero_optimization": {"stage": 3}})");
  expect_refused("has neither fsdp nor fsdp_config", [&] { asked({}, path); });
}

}  // namespace
}  // namespace apus
