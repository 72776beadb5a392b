// SPDX-License-Identifier: Apache-2.0
// Device names as users write them, the messages for wrong ones, and what the cpu says of itself.
#include "device/device.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/refusal.h"

namespace apus {
namespace {

std::string refusal(const std::string& wanted) {
  SCOPED_TRACE(wanted);
  return test::refusal(Fault::Usage, [&] { open_device(wanted); });
}

TEST(Device, CpuOpensByNameAndIndex) {
  for (const char* name : {"cpu", "cpu:0"}) {
    const DeviceChoice choice = open_device(name);
    EXPECT_EQ(choice.name(), "cpu");
    EXPECT_TRUE(choice.device.is_cpu());
    EXPECT_EQ(&kind_of(choice.device), choice.kind);
    EXPECT_EQ(device_name(choice.device), "cpu");
  }
}

TEST(Device, AKindThatThisBuildLacksIsExplained) {
  for (const auto& [name, why] : missing_kinds()) {
    const std::string said = test::refusal(Fault::Device, [&] { open_device(name + ":0"); });
    test::expect_says(said, "--device " + name + ":0: this apus was built with libtorch");
    test::expect_says(said, "scripts/build-wheel");
    test::expect_says(said, "usable here: ");
  }
  bool there = missing_kinds().count("cuda") > 0;
  for (const DeviceKind* kind : device_kinds()) there |= std::string(kind->name()) == "cuda";
  EXPECT_TRUE(there) << "in the build, or explained";
}

TEST(Device, AutoTakesTheHighestUsable) {
  const DeviceChoice choice = open_device("auto");
  for (DeviceKind* kind : device_kinds()) {
    std::string why_not;
    if (!kind->available(&why_not)) continue;
    EXPECT_EQ(choice.kind, kind);
    break;
  }
}

TEST(Device, WrongNamesSayWhatExists) {
  EXPECT_NE(refusal("cpux").find("(cpu?)"), std::string::npos);
  EXPECT_NE(refusal("toaster:1").find("cpu (1)"), std::string::npos);
  EXPECT_NE(refusal("cpu:7").find("has 1"), std::string::npos);
  refusal("cpu:");
  refusal("cpu:-1");
  refusal("cpu:1x");
  refusal("cpu:99999999999999");
}

TEST(Device, CpuSaysWhatItIs) {
  DeviceKind& cpu = *open_device("cpu").kind;
  const Memory memory = cpu.memory(0);
  EXPECT_GT(memory.total, int64_t{1} << 28);
  EXPECT_GT(memory.free, 0);
  EXPECT_LE(memory.free, memory.total);
  EXPECT_GT(memory.peak, 1 << 20);
  EXPECT_FALSE(cpu.label(0).empty());
  EXPECT_NE(cpu.library_version().find("libtorch"), std::string::npos);
  EXPECT_TRUE(cpu.supports(at::kBFloat16));
  EXPECT_FALSE(cpu.supports(at::kHalf));
  for (const Check& check : cpu.checks()) {
    EXPECT_FALSE(check.found.empty()) << check.what;
    if (check.state == Check::State::Warn) {
      EXPECT_FALSE(check.hint.empty()) << check.what;
    }
  }
}

TEST(Device, PeakFallsAfterReset) {
  DeviceKind& cpu = *open_device("cpu").kind;
  { at::rand({64 << 20}); }  // 256 MB, given back at once
  const int64_t high = cpu.memory(0).peak;
  cpu.release_cached();
  cpu.reset_peak(0);
  EXPECT_LT(cpu.memory(0).peak, high - (int64_t{200} << 20));
}

TEST(Device, SeedRepeats) {
  DeviceKind& cpu = *open_device("cpu").kind;
  cpu.seed(7);
  const at::Tensor a = at::rand({16});
  cpu.seed(7);
  EXPECT_TRUE(a.equal(at::rand({16})));
}

TEST(Comm, OneRank) {
  const auto comm = lone_comm();
  EXPECT_EQ(comm->size(), 1);
  const at::Tensor in = at::arange(6).view({2, 3}), out = at::empty({6}, in.options());
  comm->all_gather(out, in)->wait();
  EXPECT_TRUE(out.equal(at::arange(6)));
  comm->all_reduce(out)->wait();
  EXPECT_TRUE(out.equal(at::arange(6)));
  EXPECT_THROW(comm->send(out, 1), Error);
  EXPECT_THROW(comm->all_gather(at::empty({5}, in.options()), in), Error);
}

}  // namespace
}  // namespace apus
