// SPDX-License-Identifier: Apache-2.0
// What the tests of the processor's kernels share: a fixture for each instruction set path, and how far results may be
// from the reference bodies in f64.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include <optional>
#include <tuple>

#include "device/device.h"
#include "devices/cpu/kernels/isa.h"
#include "tests/devices/amx_emulation.h"

namespace apus::cpu {

using Pair = std::tuple<at::Tensor, at::Tensor>;
using Triple = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// ||a - b|| / ||b||
inline double error(const at::Tensor& a, const at::Tensor& b) {
  return ((a.to(at::kDouble) - b.to(at::kDouble)).norm() / (b.to(at::kDouble).norm() + 1e-30)).item<double>();
}
// Of one rounding to the type and of sums in f32.
inline double tolerance(at::ScalarType type) { return type == at::kFloat ? 2e-6 : 6e-3; }

template <class Signature>
auto op(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

class CpuKernels : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    open_device("cpu").kind->seed(11);
    if (GetParam() == Isa::Amx && test::AmxEmulation::possible()) emulation_.emplace();
    if (GetParam() > machine_isa()) GTEST_SKIP() << "this machine has no " << isa_name(GetParam());
    before_ = cap_isa(GetParam());
  }
  void TearDown() override {
    if (GetParam() <= machine_isa()) cap_isa(before_);
  }
  Isa before_ = Isa::Generic;
  std::optional<test::AmxEmulation> emulation_;
};

const at::ScalarType kTypes[] = {at::kFloat, at::kBFloat16};

}  // namespace apus::cpu
