// SPDX-License-Identifier: Apache-2.0
// Where rows are to be steady, a row of bf16 gets the same bits alone, among few and among many, and a label the same
// log-probability from an engine's logits as from the trainer's head.
#include <ATen/ops/cat.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include "ops/logit_logprob.h"
#include "ops/ops.h"
#include "ops/steady_rows.h"
#include "tests/devices/cpu_kernels.h"

namespace apus::cpu {
namespace {

const int64_t kShapes[][2] = {{64, 48}, {48, 64}, {75, 33}, {896, 260}, {1100, 40}};  // inputs, outputs
const int64_t kRows[] = {1, 3, 16, 17, 96, 130, 300};

// Without AVX2 products of f32 are libtorch's.
std::vector<at::ScalarType> types() {
  if (isa() == Isa::Generic) return {at::kBFloat16};
  return {at::kBFloat16, at::kFloat};
}

TEST_P(CpuKernels, SteadyLinearGivesARowTheSameBitsInAnyCompany) {
  const ops::SteadyRows steady(true);
  for (const auto type : types())
    for (const auto& [in, out] : kShapes) {
      const at::Tensor x = at::randn({300, in}).to(type), w = at::randn({out, in}).to(type),
                       b = at::randn({out}).to(type), all = ops::linear(x, w, b);
      for (const int64_t rows : kRows)
        EXPECT_TRUE(ops::linear(x.narrow(0, 0, rows), w, b).equal(all.narrow(0, 0, rows))) << rows << " of " << in;
    }
}

TEST_P(CpuKernels, WideLinearIsWhatLinearRounds) {
  const ops::SteadyRows steady(true);
  for (const auto& [in, out] : kShapes) {
    const at::Tensor x = at::randn({130, in}).to(at::kBFloat16), w = at::randn({out, in}).to(at::kBFloat16),
                     b = at::randn({out}).to(at::kBFloat16), wide = ops::wide_linear(x, w, b);
    EXPECT_EQ(wide.scalar_type(), at::kFloat);
    EXPECT_TRUE(wide.to(at::kBFloat16).equal(ops::linear(x, w, b))) << in;
  }
}

TEST_P(CpuKernels, SteadyHeadGivesTheLogProbabilitiesOfAnEnginesLogits) {
  const ops::SteadyRows steady(true);
  for (const auto type : types())
    for (const int64_t width : {48, 64, 896})
      for (const int64_t words : {1100, 2048})
        for (const double softcap : {0.0, 30.0}) {
          const at::Tensor x = at::randn({130, width}).to(type), w = at::randn({words, width}).mul(0.1).to(type),
                           label = at::randint(words, {130}, at::kLong);
          ops::HeadFactors factors{x, w};
          factors.softcap = softcap;
          const at::Tensor trained = ops::head_logprob(factors, label, 0.9, false).logprob_T;
          for (const int64_t rows : {1, 5, 16}) {
            std::vector<at::Tensor> answered;
            for (int64_t i = 0; i < 130; i += rows) {
              const int64_t n = std::min(rows, 130 - i);
              const at::Tensor logits = ops::softcapped(ops::wide_linear(x.narrow(0, i, n), w, {}), softcap);
              answered.push_back(ops::logit_logprob(logits, label.narrow(0, i, n), 0.9));
            }
            EXPECT_TRUE(at::cat(answered).equal(trained))
                << width << ", " << words << " words, " << rows << " rows, bent to " << softcap << ", " << type
                << " off by " << (at::cat(answered) - trained).abs().max();
          }
        }
}

}  // namespace
}  // namespace apus::cpu
