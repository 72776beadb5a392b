// SPDX-License-Identifier: Apache-2.0
// The NPU kind on the simulated node: what it says of itself, which operators are native, exhausted memory, f64 and
// mixed devices refused. Skipped where APUS_TEST_DEVICE is no npu.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "device/failure.h"
#include "ops/choices.h"
#include "ops/ops.h"
#include "tensor/noise.h"
#include "tests/golden.h"

namespace apus {
namespace {

class Npu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (golden::device_named().rfind("npu", 0) != 0) GTEST_SKIP() << "of the simulated NPU";
    choice = open_device(golden::device_named());
  }
  at::Tensor zeros(at::IntArrayRef size, at::ScalarType type = at::kFloat) const {
    return at::empty(size, at::TensorOptions(choice.device).dtype(type)).zero_();
  }
  DeviceChoice choice;
};

TEST_F(Npu, SaysWhatItIs) {
  EXPECT_STREQ(choice.kind->name(), "npu");
  EXPECT_EQ(choice.name(), "npu:0");
  EXPECT_EQ(choice.kind->count(), 8);
  EXPECT_EQ(choice.kind->label(3), "Ascend910B3");
  EXPECT_FALSE(choice.kind->supports(at::kDouble));
  EXPECT_TRUE(choice.kind->supports(at::kBFloat16));
  EXPECT_EQ(open_device("auto").kind, choice.kind) << "an NPU comes before the processor";
  EXPECT_EQ(open_device("npu:7").name(), "npu:7");
  EXPECT_THROW(open_device("npu:8"), Error);
}

TEST_F(Npu, CountsMemoryByDevice) {
  const Memory before = choice.kind->memory(5);
  EXPECT_EQ(before.total, int64_t{64} << 30);
  const at::Tensor there =
      at::empty({1 << 20}, at::TensorOptions(c10::Device(choice.kind->type(), 5)).dtype(at::kFloat));
  EXPECT_EQ(before.free - choice.kind->memory(5).free, 4 << 20);
}

TEST_F(Npu, RunsTheVendorsOperators) {
  for (const OpChoice& op : op_choices(*choice.kind)) {
    const bool expected =
        op.op.rfind("rms_norm", 0) == 0 || op.op.rfind("add_rms_norm", 0) == 0 || op.op.rfind("rope", 0) == 0 ||
        op.op.rfind("swiglu", 0) == 0 || op.op.rfind("attention", 0) == 0 || op.op == "paged_attention" ||
        op.op == "route_topk" || op.op.rfind("moe_ffn", 0) == 0 || op.op.rfind("grouped_linear", 0) == 0 ||
        op.op == "adamw" || op.op == "pack_linear" || op.op == "packed_linear" || op.op == "pack_codes" ||
        op.op.rfind("coded_", 0) == 0 || op.op == "plain_codes" || op.op == "store_kv" || op.op == "draw_tokens";
    EXPECT_EQ(op.native, expected) << op.op;
    if (op.op == "attention") {
      EXPECT_EQ(op.by, "npu_fusion_attention + npu_fusion_attention_grad");
    }
  }
}

TEST_F(Npu, ExhaustedMemoryIsExplained) {
  try {
    zeros({int64_t{20} << 30});
    FAIL() << "80 GiB on a device of 64";
  } catch (const std::exception& e) {
    const Error error = explained(e, choice.device, "Lower --this.");
    EXPECT_EQ(error.at.fault, Fault::Device);
    const std::string what = error.what();
    EXPECT_NE(what.find("out of memory on npu:0: 80.00 GiB more were asked for"), std::string::npos) << what;
    EXPECT_NE(what.find("of 64.00 GiB were free. Lower --this."), std::string::npos) << what;
    EXPECT_EQ(std::string(explained(e, "Lower --that.").what()).find("out of memory on npu:0: 80.00 GiB"), 0u);
  }
}

TEST_F(Npu, OtherErrorsStayWhatTheyAre) {
  EXPECT_EQ(explained(Error(Fault::Data, "x"), choice.device, "y").at.fault, Fault::Data);
  try {
    zeros({2, 3}).matmul(zeros({2, 3}));
    FAIL();
  } catch (const std::exception& e) {
    EXPECT_EQ(explained(e, choice.device, "y").at.fault, Fault::Bug);
  }
}

TEST_F(Npu, RefusesWhatRealOnesRefuse) {
  EXPECT_THROW(zeros({2}, at::kDouble), c10::Error);
  EXPECT_THROW(zeros({2}) + at::ones({2}), c10::Error);
}

// Heads of 128 take layout TND, others BSND; the reference is the same computation on the processor. Blocks of 128.
TEST_F(Npu, PagedAttentionInEveryLayout) {
  struct Shape {
    int64_t heads, head;
    std::vector<int32_t> q, k;
  };
  for (const Shape& s : {Shape{4, 128, {3, 1, 130}, {3, 300, 140}}, Shape{4, 64, {1, 1}, {5, 257}},
                         Shape{4, 64, {2, 2}, {2, 200}}, Shape{4, 64, {5, 1, 7}, {9, 129, 7}}}) {
    const auto cumulative = [](const std::vector<int32_t>& lengths) {
      std::vector<int32_t> out{0};
      for (const int32_t n : lengths) out.push_back(out.back() + n);
      return at::tensor(out, at::kInt);
    };
    const auto rows = cumulative(s.q)[-1].item<int64_t>();
    const auto random = [](at::IntArrayRef size, uint64_t seed) {
      return normal_noise(size, 0, 1, seed).to(at::kBFloat16);
    };
    const at::Tensor q = random({rows, s.heads, s.head}, 1), k = random({12, 128, 2, s.head}, 2),
                     v = random({12, 128, 2, s.head}, 3);
    const at::Tensor table =
        at::tensor({4, 2, 9, 7, 5, 1, 0, 3, 11}, at::kInt).view({3, 3}).narrow(0, 0, static_cast<int64_t>(s.q.size()));
    const auto on = [&](const c10::Device& d) {
      return ops::paged_attention(q.to(d), k.to(d), v.to(d), cumulative(s.q).to(d), cumulative(s.k).to(d), table.to(d),
                                  130, 300, {0.125, {true, 0}})
          .to(at::kCPU)
          .to(at::kFloat);
    };
    EXPECT_LT((on(choice.device) - on(at::kCPU)).abs().max().item<double>(), 0.02) << s.head;
  }
}

}  // namespace
}  // namespace apus
