// SPDX-License-Identifier: Apache-2.0
// What the doctor is made of: symbol tables of libraries, version numbers, files below a root, isolated work.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>

#include "doctor/elf.h"
#include "doctor/isolated.h"
#include "doctor/libraries.h"
#include "doctor/versions.h"
#include "tests/doctor/fake_machine.h"

namespace apus {
namespace {
using test::FakeMachine;

TEST(Elf, SymbolsOfALibraryWithoutLoadingIt) {
  const std::string bytes =
      test::shared_library({"HcclAllReduce", "aclInit"}, {"libc.so.6", "libm.so.6"}, "$ORIGIN:/opt/lib");
  std::string why;
  const auto elf = Elf::parse(bytes, &why);
  ASSERT_TRUE(elf) << why;
  EXPECT_TRUE(elf->defines("HcclAllReduce"));
  EXPECT_FALSE(elf->defines("Hccl"));
  EXPECT_TRUE(elf->defines_one_with("Init"));
  EXPECT_EQ(elf->needed(), (std::vector<std::string>{"libc.so.6", "libm.so.6"}));
  EXPECT_EQ(elf->runpath(), "$ORIGIN:/opt/lib");
  EXPECT_STREQ(elf->machine(), "x86-64");
}

TEST(Elf, ARealLibrary) {
  const Host host = this_machine();
  const auto places = find_library(host, "libc.so.6");
  ASSERT_FALSE(places.empty());
  const LibraryFile libc = read_library(host.real(places.front()));
  ASSERT_TRUE(libc.elf) << libc.why_not;
  EXPECT_TRUE(libc.elf->defines("malloc"));
  EXPECT_FALSE(libc.elf->defines("HcclCommInitRootInfoConfig"));
  EXPECT_EQ(libc.elf->soname(), "libc.so.6");
}

TEST(Elf, EveryCutAndEveryChangedByteIsSurvived) {
  const std::string bytes = test::shared_library({"aclInit"}, {"libc.so.6"}, "/opt");
  std::string why;
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::string cut = bytes.substr(0, size);
    if (const auto elf = Elf::parse(cut, &why))
      elf->defines("aclInit");
    else
      EXPECT_FALSE(why.empty());
  }
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (const char value : {'\xff', '\x00', '\x80'}) {
      std::string changed = bytes;
      changed[i] = value;
      if (const auto elf = Elf::parse(changed, &why)) elf->defines_one_with("zz");
    }
  }
  EXPECT_FALSE(Elf::parse("", &why));
  EXPECT_FALSE(read_library("/nonexistent").elf);
}

TEST(Versions, OrderOfTheVendorsNumbers) {
  const std::vector<std::string> rising{
      "6.3.RC3", "6.3.RC3.1", "7.0.0",   "8.0.RC2.alpha002", "8.0.RC2", "8.0.RC3", "8.0.0",        "8.1.RC1.beta1",
      "8.1.RC1", "8.2.RC1",   "8.3.RC1", "8.3.RC2",          "8.5.0",   "8.5.1",   "9.0.0-beta.2", "9.0.0"};
  for (size_t i = 0; i + 1 < rising.size(); ++i) {
    EXPECT_TRUE(older(rising[i], rising[i + 1])) << rising[i] << " " << rising[i + 1];
    EXPECT_FALSE(older(rising[i + 1], rising[i])) << rising[i] << " " << rising[i + 1];
  }
  EXPECT_TRUE(older("2.5.1.dev20250228", "2.5.1"));
  EXPECT_TRUE(older("2.7.1", "2.7.1.post2"));
  EXPECT_EQ(compare_versions("25.3.rc1", "25.3.RC1"), std::strong_ordering::equal);
  EXPECT_EQ(compare_versions("24.1.rc1.b030", "24.1.RC1"), std::strong_ordering::equal);
  EXPECT_EQ(compare_versions("2.7.1+cpu", "2.7.1"), std::strong_ordering::equal);
  for (const char* bad : {"", "x", "..", "8..3", "RC1", "8 3", "unknown"}) EXPECT_FALSE(Version::parse(bad)) << bad;
}

TEST(Versions, TheTableOfWhatBelongsTogether) {
  EXPECT_EQ(row_of_torch_npu("2.7.1")->cann, "8.3.RC1");
  EXPECT_EQ(row_of_torch_npu("2.7.1.post2")->cann, "8.5.0");
  EXPECT_EQ(row_of_torch_npu("2.1.0.post17")->torch, "2.1.0");
  EXPECT_FALSE(row_of_torch_npu("3.0.0"));
  // Of several rows that of the CANN at hand.
  EXPECT_EQ(row_of_torch_npu("2.9.0")->cann, "8.5.0");
  EXPECT_EQ(row_of_torch_npu("2.9.0", "8.5.1")->cann, "8.5.1");
  EXPECT_EQ(row_of_torch_npu("2.10.0", "9.0.0")->cann, "9.0.0");
  EXPECT_EQ(row_of_torch_npu("2.10.0.post2")->cann, "9.0.1");
  EXPECT_EQ(packages_for_cann("8.2.RC1").size(), 3u);
  EXPECT_EQ(cann_compatible_with("7.2.0").size(), 7u);
  EXPECT_EQ(python_for_torch("2.7.1+cpu")->most, "3.13");
  EXPECT_EQ(driver_for_cann("8.5.1")->matched, "25.5.0");
  EXPECT_EQ(driver_for_cann("8.5.0")->supported.back(), "25.5");  // newer ones are listed from 8.5.2 on
  EXPECT_EQ(driver_for_cann("8.5.2")->supported.back(), "26.1");
  EXPECT_EQ(driver_for_cann("9.0.1")->matched, "25.5.1");
  EXPECT_FALSE(driver_for_cann("3.0.0"));
  EXPECT_EQ(firmware_of_driver("25.5.0"), "7.8.0.5.216");
  EXPECT_EQ(firmware_of_driver("24.1.rc3"), "7.5.0.1.129");
  EXPECT_EQ(firmware_of_driver("25.3.rc1.2"), "7.8.0.2.212");
  EXPECT_EQ(firmware_of_driver("25.4.0"), "");
  EXPECT_EQ(least_nvidia_driver("12.6"), "525.60");
}

TEST(Host, LinksStayBelowTheRoot) {
  FakeMachine m;
  m.file("/opt/real/file", "text\nmore");
  m.link("/etc/a", "/opt/real");
  m.link("/opt/up", "../opt/real/file");
  m.link("/loop", "/loop");
  m.link("/escape", "../../../../../../etc/passwd");
  EXPECT_EQ(m.host.resolved("/etc/a/file"), "/opt/real/file");
  EXPECT_EQ(m.host.first_line("/etc/a/file"), "text");
  EXPECT_EQ(m.host.first_line("/opt/up"), "text");
  EXPECT_FALSE(m.host.exists("/loop"));
  EXPECT_FALSE(m.host.exists("/escape"));
  EXPECT_FALSE(m.host.text("/opt"));
  EXPECT_EQ(m.host.text("/opt/real/file", 3), "tex");
}

TEST(Isolated, ResultsCrashesAndHangs) {
  EXPECT_EQ(run_isolated([] { return std::string(300000, 'x'); }, 20).text.size(), 300000u);
  const Isolated crash = run_isolated(
      []() -> std::string {
        ::signal(SIGSEGV, SIG_DFL);
        if (::write(2, "last words", 10) == 10) ::raise(SIGKILL);
        return "";
      },
      20);
  EXPECT_EQ(crash.end, Isolated::End::Crashed);
  EXPECT_EQ(crash.signal, SIGKILL);
  EXPECT_EQ(crash.said, "last words");
  EXPECT_EQ(run_isolated([]() -> std::string { throw std::runtime_error("no"); }, 20).said, "no");
  EXPECT_EQ(run_isolated(
                [] {
                  ::sleep(30);
                  return std::string();
                },
                0.2)
                .end,
            Isolated::End::Hung);
}

}  // namespace
}  // namespace apus
