// SPDX-License-Identifier: Apache-2.0
// Nodes that are not the newest: chips without bf16, older CANN, versions of torch_npu that lack an operator or have it
// for gradients alone, devices in exclusive mode. Each in a process of its own, started in that node's environment.
#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "checkpoint/weights.h"
#include "dist/world.h"
#include "ops/choices.h"
#include "ops/ops.h"
#include "tensor/noise.h"
#include "tests/devices/sim_node.h"
#include "tests/rank_body.h"

namespace apus {
namespace {
using test::Environment;
using test::RankBody;
using test::run_ranks;

at::Tensor noise(at::IntArrayRef size, uint64_t seed, at::ScalarType type) {
  return normal_noise(size, 0, 1, seed).to(type);
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kCPU).to(at::kFloat) - b.to(at::kCPU).to(at::kFloat)).abs().max().item<double>();
}

// The operators that are the vendor's, of which it has to be asked whether they are there.
std::set<std::string> native(const DeviceKind& kind) {
  std::set<std::string> out;
  for (const OpChoice& op : op_choices(kind))
    if (op.native && !op.by.empty()) out.insert(op.op);
  return out;
}

// Attention with its gradient, and the mixture of experts with its own, on the device and on the processor.
void expect_right(c10::Device device, at::ScalarType type) {
  const at::Tensor cu = at::tensor({0, 5, 12}, at::kInt);
  const auto attend = [&](const c10::Device& d) {
    at::Tensor q = noise({12, 4, 64}, 1, type).to(d).requires_grad_(), k = noise({12, 2, 64}, 2, type).to(d),
               v = noise({12, 2, 64}, 3, type).to(d);
    ops::attention(q, k, v, cu.to(d), cu.to(d), 7, 7, {0.125, {true, 0}}).to(at::kFloat).square().sum().backward();
    return q.grad();
  };
  EXPECT_LT(difference(attend(device), attend(at::kCPU)), 0.05);
  const at::Tensor expert = at::tensor({0, 1, 2, 1, 0, 2}, at::kLong).view({3, 2});
  const auto experts = [&](const c10::Device& d) {
    at::Tensor x = (noise({3, 32}, 4, type) / 8).to(d).requires_grad_();
    ops::moe_ffn(x, noise({3, 2}, 5, type).to(d), expert.to(d), (noise({3, 64, 32}, 6, type) / 8).to(d),
                 (noise({3, 32, 32}, 7, type) / 8).to(d))
        .to(at::kFloat)
        .sum()
        .backward();
    return x.grad();
  };
  EXPECT_LT(difference(experts(device), experts(at::kCPU)), 0.05);
}

const RankBody reference("npu_node.reference", [](const auto& type) {
  const DeviceChoice choice = open_device("npu");
  EXPECT_EQ(native(*choice.kind), std::set<std::string>{});
  EXPECT_EQ(choice.kind->supports(at::kBFloat16), type[0] == "bfloat16");
  expect_right(choice.device, type[0] == "bfloat16" ? at::kBFloat16 : at::kFloat);
});

TEST(NpuNode, OlderChipsComputeByTheReference) {
  const Environment where("LD_LIBRARY_PATH", test::sim_folder("lib"));
  for (const char* soc : {"Ascend310P3", "Ascend910A", "Ascend910ProB"}) {
    const Environment chip("APUS_SIM_SOC", soc);
    const test::Ranks r = run_ranks(1, "npu_node.reference", {"float32"});
    EXPECT_EQ(r.code, 0) << soc << r.said;
  }
}

const RankBody no_bf16("npu_node.no_bf16", [](const auto&) {
  const DeviceChoice choice = open_device("npu");
  std::string note;
  const Json checkpoint{{"torch_dtype", "bfloat16"}};
  EXPECT_EQ(choose_dtype("", checkpoint, choice.device, &note), at::kHalf);
  EXPECT_EQ(note, "bfloat16 is not computed on npu; the weights are held as float16, whose largest number is 65504");
  EXPECT_EQ(choose_dtype("float32", checkpoint, choice.device, &note), at::kFloat);
});

TEST(NpuNode, Bf16CheckpointsBecomeF16WhereTheChipHasNoBf16) {
  const Environment where("LD_LIBRARY_PATH", test::sim_folder("lib")), chip("APUS_SIM_SOC", "Ascend310P3");
  const test::Ranks r = run_ranks(1, "npu_node.no_bf16");
  EXPECT_EQ(r.code, 0) << r.said;
}

// Arguments: operators that must be the vendor's, "-" before those that must not.
const RankBody some("npu_node.some", [](const auto& arguments) {
  const DeviceChoice choice = open_device("npu");
  const std::set<std::string> there = native(*choice.kind);
  for (const std::string& op : arguments)
    EXPECT_EQ(there.count(op[0] == '-' ? op.substr(1) : op), op[0] == '-' ? 0u : 1u) << op;
  expect_right(choice.device, at::kBFloat16);
});

TEST(NpuNode, OnlyWhatTheOperatorLibraryHasIsCalled) {
  const Environment where("LD_LIBRARY_PATH", test::sim_folder("old_opapi") + ":" + test::sim_folder("lib"));
  const test::Ranks r = run_ranks(
      1, "npu_node.some", {"attention", "attention_backward", "-moe_ffn", "-moe_ffn_backward", "-grouped_linear"});
  EXPECT_EQ(r.code, 0) << r.said;
}

TEST(NpuNode, ForwardOfTheExpertsAlone) {
  const Environment where("LD_LIBRARY_PATH", test::sim_folder("lib")),
      without("APUS_SIM_WITHOUT", "npu_moe_token_permute_grad,npu_moe_token_unpermute_grad");
  const test::Ranks r = run_ranks(1, "npu_node.some", {"moe_ffn", "-moe_ffn_backward"});
  EXPECT_EQ(r.code, 0) << r.said;
}

TEST(NpuNode, AnOperatorRegisteredForGradientsAlone) {
  const Environment where("LD_LIBRARY_PATH", test::sim_folder("lib")),
      only("APUS_SIM_AUTOGRAD_ONLY", "npu_moe_token_unpermute");
  const test::Ranks r = run_ranks(1, "npu_node.some", {"moe_ffn", "moe_ffn_backward"});
  EXPECT_EQ(r.code, 0) << r.said;
}

// Heads of 128; and more heads a key head than the operator takes.
const RankBody paged("npu_node.paged", [](const auto& type) {
  const DeviceChoice choice = open_device("npu");
  const at::ScalarType t = type[0] == "float16" ? at::kHalf : at::kBFloat16;
  const at::Tensor cu_q = at::tensor({0, 3, 4}, at::kInt), cu_k = at::tensor({0, 3, 200}, at::kInt),
                   table = at::tensor({1, 0, 2, 3}, at::kInt).view({2, 2});
  for (const auto& [heads, key_heads] : {std::pair{4, 2}, std::pair{128, 1}}) {
    const at::Tensor q = noise({4, heads, 128}, 1, t), k = noise({4, 128, key_heads, 128}, 2, t),
                     v = noise({4, 128, key_heads, 128}, 3, t);
    const auto on = [&](const c10::Device& d) {
      return ops::paged_attention(q.to(d), k.to(d), v.to(d), cu_q.to(d), cu_k.to(d), table.to(d), 3, 197,
                                  {0.088, {true, 0}});
    };
    EXPECT_LT(difference(on(choice.device), on(at::kCPU)), 0.02) << heads;
  }
});

TEST(NpuNode, PagedAttentionOfOlderCannAndOfF16) {
  const Environment where("LD_LIBRARY_PATH", test::sim_folder("lib"));
  for (const char* cann : {"8.2.RC1", "8.3.RC1", "9.0.0"})
    for (const char* type : {"bfloat16", "float16"}) {
      const Environment version("APUS_SIM_CANN", cann);
      const test::Ranks r = run_ranks(1, "npu_node.paged", {type});
      EXPECT_EQ(r.code, 0) << cann << type << r.said;
    }
}

const RankBody exclusive("npu_node.exclusive", [](const auto&) {
  World world({.device = "npu", .timeout_s = 20});
  const DeviceChoice& mine = world.device();
  EXPECT_TRUE(mine.kind->supports(at::kBFloat16));
  EXPECT_EQ(mine.kind->label(0), "Ascend910B3");
  EXPECT_GT(mine.kind->memory(mine.device.index()).free, 0);
  at::Tensor x = at::ones({4}).to(mine.device).requires_grad_();
  x.square().sum().backward();
  at::Tensor sum = x.grad().clone();
  world.devices().all_reduce(sum)->wait();
  EXPECT_EQ(sum.sum().item<float>(), 4 * 2 * 2);
});

TEST(NpuNode, NoRankTouchesAnothersDevice) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "apus-exclusive";
  std::filesystem::create_directories(folder);
  const Environment where("LD_LIBRARY_PATH", test::sim_folder("lib")), mode("APUS_SIM_EXCLUSIVE", folder.string()),
      tests("APUS_TEST_DEVICE", "cpu");  // the tests of the operators look at theirs in every process
  const test::Ranks r = run_ranks(2, "npu_node.exclusive");
  std::filesystem::remove_all(folder);
  EXPECT_EQ(r.code, 0) << r.said;
}

}  // namespace
}  // namespace apus
