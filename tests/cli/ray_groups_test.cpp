// SPDX-License-Identifier: Apache-2.0
// The file of a run on a Ray cluster: which programs there are, on how many devices, with which flags.
#include "cli/ray_groups.h"

#include <gtest/gtest.h>

#include "base/nearest.h"
#include "tests/refusal.h"

namespace apus {
namespace {

const std::string kShared = "rlhf_type: grpo\nmodel: m\ndataset:\n  - a\n  - b\nvllm_engine_kwargs: {\"x\": 1}\n";

RayGroups groups(const std::string& text, const std::vector<std::string>& further = {}) {
  return ray_groups(parse_config(kShared + text, true, "run.yaml"), "run.yaml", further);
}
std::string refused(const std::string& text) {
  return test::refusal(Fault::Usage, [&] { groups(text); });
}

TEST(RayGroups, ServersHaveDevicesOfTheirOwn) {
  const RayGroups all = groups(
      "train:\n  gpus: 4\n  output_dir: out\n  max_restarts: 2\nrollout:\n  gpus: 4\n  vllm_tensor_parallel_size: 2\n"
      "teacher:\n  gpus: 2\n  model: t\n  vllm_engine_kwargs: {\"max_logprobs\": 64}\n",
      {"--use_ray", "true", "--config", "run.yaml", "--model", "other"});
  EXPECT_EQ(all.trainer.devices, 4);
  EXPECT_EQ(all.output, "out");
  EXPECT_EQ(all.restarts, 2);
  EXPECT_EQ(join(all.trainer.arguments, " "),
            "megatron rlhf --rlhf_type grpo --model m --dataset a b --vllm_engine_kwargs {\"x\":1} "
            "--output_dir out --vllm_mode server --model other");
  ASSERT_EQ(all.servers.size(), 2);
  EXPECT_EQ(all.servers[0].copies, 2);
  EXPECT_EQ(all.servers[0].devices, 2);
  EXPECT_EQ(all.servers[0].address_flag, "--vllm_server_base_url");
  EXPECT_EQ(join(all.servers[0].arguments, " "), "rollout --model other --vllm_tensor_parallel_size 2");
  EXPECT_EQ(all.servers[1].copies, 1);
  EXPECT_EQ(all.servers[1].devices, 2);
  EXPECT_EQ(join(all.servers[1].arguments, " "), "deploy --model t --data_parallel_size 2");
  EXPECT_EQ(all.servers[1].address_flag, "--teacher_model_server");
}

TEST(RayGroups, RolesOfOneGroupShareTheirs) {
  const RayGroups all =
      groups("colocate_groups: [[train, rollout]]\ntrain:\n  gpus: 2\nrollout:\n  gpus: 2\n  vllm_max_model_len: 64\n");
  EXPECT_TRUE(all.servers.empty());
  EXPECT_NE(join(all.trainer.arguments, " ").find("--vllm_mode colocate --vllm_max_model_len 64"), std::string::npos);
}

TEST(RayGroups, WhatDoesNotFitIsRefused) {
  test::expect_says(refused("rollout:\n  gpus: 1\n"), "wants a block 'train'");
  test::expect_says(refused("train:\n  lr: 1\n"), "lacks 'gpus'");
  test::expect_says(refused("train:\n  gpus: none\n"), "must be a number above 0");
  test::expect_says(refused("colocate_groups: [[train, rollout]]\ntrain:\n  gpus: 2\nrollout:\n  gpus: 4\n"),
                    "give the same number");
  test::expect_says(refused("train:\n  gpus: 2\nrollout:\n  gpus: 3\n  vllm_tensor_parallel_size: 2\n"), "no multiple");
  test::expect_says(refused("train:\n  gpus: 2\nteacher:\n  gpus: 1\n"), "lacks 'model'");
  test::expect_says(
      refused("colocate_groups: [[train, teacher]]\ntrain:\n  gpus: 1\nteacher:\n  gpus: 1\n  model: t\n"),
      "is --teacher_model");
}

TEST(RayGroups, TheDriverIsToldAllOfIt) {
  const std::string text = "ENV:\n  A: b\nmodel: m\ntrain:\n  gpus: 1\nrollout:\n  gpus: 1\n";
  const ConfigFile file = parse_config(text, true, "run.yaml");
  const Json plan = ray_plan(ray_groups(file, "run.yaml", {}), "/bin/apus", "/work", file);
  EXPECT_EQ(plan["program"], "/bin/apus");
  EXPECT_EQ(plan["environment"], (Json{{"A", "b"}}));
  EXPECT_EQ(plan["servers"][0]["arguments"], (Json{"rollout", "--model", "m"}));
  EXPECT_EQ(plan["trainer"]["devices"], 1);
}

}  // namespace
}  // namespace apus
