// SPDX-License-Identifier: Apache-2.0
// On the device that APUS_TEST_DEVICE names. The simulated NPU brings such a copy only when it is waited for.
#include "tensor/late_copy.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "tests/ops/devices.h"

namespace apus {
namespace {

TEST(LateCopy, IsThereWhenItWasWaitedFor) {
  const at::Tensor wanted = at::arange(6, at::kFloat).view({2, 3});
  at::Tensor there = wanted.to(ops::test::device().device);
  LateCopy first(there), second(there.narrow(0, 1, 1));
  there = at::Tensor();
  EXPECT_TRUE(at::equal(second.wait(), wanted.narrow(0, 1, 1)));
  EXPECT_TRUE(at::equal(first.wait(), wanted));
  EXPECT_TRUE(at::equal(first.wait(), wanted)) << "again";
}

}  // namespace
}  // namespace apus
