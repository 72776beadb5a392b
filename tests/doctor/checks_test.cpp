// SPDX-License-Identifier: Apache-2.0
// The doctor on machines that do not exist.
#include "doctor/checks.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "doctor/comm_checks.h"
#include "tests/doctor/fake_machine.h"
#include "tests/paths.h"

namespace apus {
namespace {
using State = Check::State;
using test::FakeMachine;

Check found(const std::vector<Check>& checks, const std::string& what) {
  for (const Check& c : checks)
    if (c.what == what) return c;
  ADD_FAILURE() << "no check " << what;
  return {};
}
std::vector<Check> ascend(const FakeMachine& m) { return ascend_checks(m.host, python_facts(m.host)); }

TEST(Doctor, BareMachineIsSound) {
  FakeMachine m;
  const auto checks = ascend(m);
  ASSERT_EQ(checks.size(), 1u);
  EXPECT_EQ(checks[0].state, State::Skipped);
  EXPECT_EQ(found(nvidia_checks(m.host, {}), "NVIDIA GPU").state, State::Skipped);
  for (const Check& c : host_checks(m.host, {})) EXPECT_EQ(c.state, State::Ok) << c.what << ": " << c.found;
  EXPECT_EQ(found(torch_checks(m.host, python_facts(m.host)), "Python").state, State::Skipped);
}

TEST(Doctor, SoundAscendNode) {
  FakeMachine m;
  m.make_ascend();
  m.npu_smi = read_file(test::source_dir() / "tests/doctor/data/npu-smi-info-a2.txt");
  const auto checks = ascend(m);
  for (const Check& c : checks)
    EXPECT_TRUE(c.state == State::Ok || c.state == State::Skipped) << c.what << ": " << c.found << " / " << c.hint;
  EXPECT_NE(found(checks, "CANN toolkit").found.find("8.3.RC1"), std::string::npos);
  EXPECT_NE(found(checks, "libhccl.so").found.find("/usr/local/Ascend/ascend-toolkit/8.3.RC1/lib64/libhccl.so"),
            std::string::npos);
  EXPECT_NE(found(checks, "npu:7").found.find("64.00 GiB"), std::string::npos);
  EXPECT_TRUE(sound({{"Ascend", checks}}));
}

TEST(Doctor, MissingSymbolIsNamedWithLibraryAndVersions) {
  FakeMachine m;
  m.make_ascend(
      "8.0.RC1", "24.1.rc1",
      test::without(test::kHcclSymbols, {"HcclCommInitRootInfoConfig", "HcclCreateSubCommConfig", "HcclAllGatherV"}));
  const Check c = found(ascend(m), "libhccl.so");
  EXPECT_EQ(c.state, State::Fail);
  EXPECT_NE(c.found.find("HcclCommInitRootInfoConfig"), std::string::npos) << c.found;
  EXPECT_NE(c.found.find("/usr/local/Ascend/ascend-toolkit/8.0.RC1/lib64/libhccl.so"), std::string::npos) << c.found;
  EXPECT_NE(c.found.find("CANN found: 8.0.RC1"), std::string::npos) << c.found;
  EXPECT_NE(c.wanted.find("CANN 8.3.RC1"), std::string::npos) << c.wanted;
  EXPECT_NE(c.wanted.find("8.0.RC2"), std::string::npos) << c.wanted;
  EXPECT_NE(c.hint.find("set_env.sh"), std::string::npos);
}

TEST(Doctor, OlderCopyFirstInThePathIsTold) {
  FakeMachine m;
  m.make_ascend();
  m.file("/opt/old/lib64/libhccl.so",
         test::shared_library(test::without(test::kHcclSymbols, {"HcclCommInitRootInfoConfig"})));
  m.host.env["LD_LIBRARY_PATH"] = "/opt/old/lib64:" + m.host.env["LD_LIBRARY_PATH"];
  const Check c = found(ascend(m), "libhccl.so");
  EXPECT_EQ(c.state, State::Fail);
  EXPECT_NE(c.found.find("/opt/old/lib64/libhccl.so"), std::string::npos) << c.found;
  EXPECT_NE(c.found.find("2 copies"), std::string::npos) << c.found;
  EXPECT_NE(c.hint.find("older libhccl.so stands before"), std::string::npos) << c.hint;
}

TEST(Doctor, CannAndTorchNpuAreGradedByTheTable) {
  const auto grade = [](const std::string& cann, const std::string& driver = "25.3.rc1") {
    FakeMachine m;
    m.make_ascend(cann, driver);
    return found(ascend(m), "torch_npu");
  };
  EXPECT_EQ(grade("8.3.RC1").state, State::Ok);
  EXPECT_EQ(grade("8.2.RC1").state, State::Warn);  // declared compatible
  const Check old = grade("8.0.RC1");
  EXPECT_EQ(old.state, State::Fail);
  EXPECT_EQ(old.wanted, "CANN 8.3.RC1");
  EXPECT_NE(old.hint.find("torch_npu 2.2.0"), std::string::npos) << old.hint;
  EXPECT_EQ(grade("9.0.0").state, State::Fail);
}

TEST(Doctor, DriverIsComparedWithCann) {
  const auto grade = [](const std::string& cann, const std::string& driver) {
    FakeMachine m;
    m.make_ascend(cann, driver);
    return found(ascend(m), "driver for this CANN").state;
  };
  EXPECT_EQ(grade("8.3.RC1", "25.3.rc1"), State::Ok);
  EXPECT_EQ(grade("8.3.RC1", "23.0.3"), State::Fail);
  EXPECT_EQ(grade("8.3.RC1", "26.0.RC1"), State::Warn);
  EXPECT_EQ(grade("8.5.1", "25.5.0"), State::Ok);
}

TEST(Doctor, UnmountedDevicesAreAFailure) {
  FakeMachine m;
  m.make_ascend();
  for (int i = 0; i < 8; ++i) m.remove("/dev/davinci" + std::to_string(i));
  m.remove("/dev/hisi_hdc");
  m.file("/sys/bus/pci/devices/0000:c1:00.0/vendor", "0x19e5\n");
  m.file("/sys/bus/pci/devices/0000:c1:00.0/class", "0x120000\n");
  const Check c = found(ascend(m), "NPU devices");
  EXPECT_EQ(c.state, State::Fail);
  EXPECT_NE(c.found.find("1 on the PCI bus"), std::string::npos) << c.found;
  EXPECT_NE(c.found.find("/dev/hisi_hdc"), std::string::npos) << c.found;
  EXPECT_NE(c.hint.find("--device /dev/davinci0"), std::string::npos);
}

TEST(Doctor, UnsourcedEnvironmentIsTheCommonestFailure) {
  FakeMachine m;
  m.make_ascend();
  m.host.env.erase("ASCEND_HOME_PATH");
  m.host.env.erase("LD_LIBRARY_PATH");
  const auto checks = ascend(m);
  EXPECT_EQ(found(checks, "CANN toolkit").state, State::Ok);  // it is installed
  EXPECT_EQ(found(checks, "CANN environment").state, State::Fail);
  EXPECT_NE(found(checks, "CANN environment").hint.find("set_env.sh"), std::string::npos);
  EXPECT_EQ(found(checks, "libascendcl.so").state, State::Fail);
}

TEST(Doctor, TorchOfAnotherKindBesideTorchNpu) {
  FakeMachine m;
  m.make_ascend();
  m.file("/opt/site/torch/version.py", "__version__ = '2.7.1+cu126'\ncuda = '12.6'\n");
  EXPECT_NE(found(ascend(m), "torch_npu").hint.find("Two accelerators"), std::string::npos);
  m.file("/opt/site/torch/version.py", "cuda = None\n");
  m.python =
      R"({"version": "3.12.1", "torch": ["2.6.0+cpu", "/opt/site/torch"], "torch_npu": ["2.7.1", "/opt/site/torch_npu"]})";
  EXPECT_EQ(found(ascend(m), "torch_npu").wanted, "torch 2.7.1");
  // 3.12 has no wheel of 2.6.
  EXPECT_EQ(found(torch_checks(m.host, python_facts(m.host)), "Python").state, State::Warn);
  m.python = "not json";
  EXPECT_EQ(found(ascend(m), "torch_npu").found, "not installed");
  m.file("/usr/local/lib/libtorch_npu.so", test::shared_library({"_ZN9torch_npu8init_npuEa"}));
  EXPECT_EQ(found(ascend(m), "torch_npu").found, "self-built (/usr/local/lib/libtorch_npu.so)");
}

TEST(Doctor, SickAndFullDevicesAreTold) {
  FakeMachine m;
  m.make_ascend();
  m.npu_smi = read_file(test::source_dir() / "tests/doctor/data/npu-smi-info-a3.txt");
  const auto checks = ascend(m);
  EXPECT_EQ(found(checks, "npu:14").state, State::Fail);
  EXPECT_EQ(found(checks, "npu:15").state, State::Ok);
  m.npu_smi = "";
  EXPECT_EQ(found(ascend(m), "npu-smi").state, State::Fail);
}

TEST(Doctor, VisibilityLists) {
  FakeMachine m;
  const auto grade = [&](const std::string& list, int present = 8) {
    m.host.env["ASCEND_RT_VISIBLE_DEVICES"] = list;
    return visibility_check(m.host, "ASCEND_RT_VISIBLE_DEVICES", present, true).state;
  };
  EXPECT_EQ(grade("0,1,2"), State::Ok);
  EXPECT_EQ(grade("2,1"), State::Warn);
  EXPECT_EQ(grade(""), State::Warn);
  EXPECT_EQ(grade("0,8"), State::Fail);
  EXPECT_EQ(grade("0,8", -1), State::Ok);  // how many there are is not known
  EXPECT_EQ(grade("0,0"), State::Fail);
  EXPECT_EQ(grade("0, 1"), State::Fail);
  EXPECT_EQ(grade("0,"), State::Fail);
  EXPECT_EQ(grade("all"), State::Fail);
  EXPECT_EQ(grade("99999999999999"), State::Fail);
  m.host.env["NPROC_PER_NODE"] = "4";
  EXPECT_EQ(grade("0,1"), State::Warn);
  EXPECT_EQ(grade("0,1,2,3"), State::Ok);
}

TEST(Doctor, ReferenceBlasIsNamedAsTheReasonForSlowness) {
  FakeMachine m;
  m.host.program = "/opt/apus/bin/apus";
  m.file("/opt/apus/lib/libapus.so",
         test::shared_library({"apus_run_command"}, {"libtorch_cpu.so.1.13", "libc10.so.1.13"}));
  m.link("/usr/lib/x86_64-linux-gnu/libtorch_cpu.so.1.13", "libtorch_cpu.so.1.13.1");
  m.file("/usr/lib/x86_64-linux-gnu/libtorch_cpu.so.1.13.1",
         test::shared_library({"x"}, {"libblas.so.3"}, "", "libtorch_cpu.so.1.13"));
  m.file("/usr/lib/x86_64-linux-gnu/libc10.so.1.13",
         test::shared_library({"_ZN3c105ErrorC1ENSt7__cxx1112basic_stringE"}));
  m.link("/usr/lib/x86_64-linux-gnu/libc10.so", "libc10.so.1.13");
  m.link("/usr/lib/x86_64-linux-gnu/libblas.so.3", "/etc/alternatives/libblas.so.3-x86_64-linux-gnu");
  m.link("/etc/alternatives/libblas.so.3-x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu/blas/libblas.so.3");
  m.file("/usr/lib/x86_64-linux-gnu/blas/libblas.so.3", "");
  auto checks = torch_checks(m.host, {});
  ASSERT_EQ(found(checks, "libtorch").state, State::Ok) << found(checks, "libtorch").found;
  EXPECT_NE(found(checks, "libtorch").found.find("1.13, CPU build"), std::string::npos)
      << found(checks, "libtorch").found;
  EXPECT_NE(found(checks, "C++ ABI of libtorch").found.find("ABI=1"), std::string::npos);
  const Check slow = found(checks, "BLAS under libtorch");
  EXPECT_EQ(slow.state, State::Warn);
  EXPECT_NE(slow.found.find("reference BLAS (/usr/lib/x86_64-linux-gnu/blas/libblas.so.3)"), std::string::npos)
      << slow.found;
  EXPECT_NE(slow.hint.find("slower"), std::string::npos);
  m.remove("/etc/alternatives/libblas.so.3-x86_64-linux-gnu");
  m.link("/etc/alternatives/libblas.so.3-x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu/openblas-pthread/libblas.so.3");
  m.file("/usr/lib/x86_64-linux-gnu/openblas-pthread/libblas.so.3", "");
  EXPECT_EQ(found(torch_checks(m.host, {}), "BLAS under libtorch").state, State::Ok);
  m.remove("/usr/lib/x86_64-linux-gnu/libc10.so.1.13");
  const Check lost = found(torch_checks(m.host, {}), "libtorch");
  EXPECT_EQ(lost.state, State::Fail);
  EXPECT_NE(lost.found.find("libc10.so.1.13"), std::string::npos) << lost.found;
}

TEST(Doctor, HostLimits) {
  FakeMachine m;
  m.host.open_files = 1024, m.host.memory_free = 1 << 20, m.host.now = 0;
  m.host.space_of = [](const Host::Path&) { return Space{int64_t{64} << 20, int64_t{1} << 20}; };
  m.host.port_is_free = [](int port) { return port != 29500; };
  m.host.env["OMP_NUM_THREADS"] = "1000";
  m.file("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  const auto checks = host_checks(m.host, {});
  for (const char* what : {"memory", "cores", "open files", "shared memory", "huge pages", "ports"})
    EXPECT_EQ(found(checks, what).state, State::Warn) << what;
  EXPECT_EQ(found(checks, "clock").state, State::Fail);
  EXPECT_EQ(found(checks, "disk for outputs").state, State::Fail);
  EXPECT_NE(found(checks, "ports").found.find("29500 taken"), std::string::npos);
  EXPECT_FALSE(sound({{"Machine", checks}}));
}

TEST(Doctor, CoresThisShellMayUse) {
  const auto state = [](const std::string& allowed, const std::string& online) {
    FakeMachine m;
    m.file("/proc/self/status", "Cpus_allowed_list:\t" + allowed + "\n");
    m.file("/sys/devices/system/cpu/online", online + "\n");
    return found(host_checks(m.host, {}), "CPU affinity").state;
  };
  EXPECT_EQ(state("0-7,16-23", "0-63"), State::Ok);
  EXPECT_EQ(state("5", "0-63"), State::Warn);
  EXPECT_EQ(state("0", "0"), State::Ok);
  EXPECT_EQ(state("", ""), State::Skipped);
  EXPECT_EQ(state("x-y,,-", "0-3"), State::Skipped);
}

TEST(Doctor, WhatAContainerMissesOfItsHost) {
  FakeMachine m;
  m.make_ascend();
  EXPECT_EQ(found(ascend(m), "container mounts").state, State::Skipped);
  m.file("/.dockerenv", "");
  const Check c = found(ascend(m), "container mounts");
  EXPECT_EQ(c.state, State::Warn);
  EXPECT_NE(c.hint.find("-v /usr/local/dcmi:/usr/local/dcmi"), std::string::npos) << c.hint;
  m.file("/usr/local/dcmi/libdcmi.so", ""), m.file("/etc/ascend_install.info", "x");
  EXPECT_EQ(found(ascend(m), "container mounts").state, State::Ok);
  m.remove("/usr/local/Ascend/driver");
  EXPECT_EQ(found(ascend(m), "container mounts").state, State::Fail);
}

TEST(Doctor, FirmwareOfAnotherReleaseThanTheDriver) {
  FakeMachine m;
  m.make_ascend();
  m.file("/usr/local/Ascend/firmware/version.info", "Version=7.8.0.2.212\n");
  EXPECT_EQ(found(ascend(m), "NPU firmware").state, State::Ok);
  m.file("/usr/local/Ascend/firmware/version.info", "Version=7.1.0.6.220\n");
  const Check c = found(ascend(m), "NPU firmware");
  EXPECT_EQ(c.state, State::Warn);
  EXPECT_EQ(c.wanted, "7.8.0.2.212 with driver 25.3.rc1");
}

TEST(Doctor, TorchNpuOfTheOtherAbi) {
  FakeMachine m;
  m.file("/usr/lib/libc10.so", test::shared_library({"_ZN3c105ErrorC1ENSt7__cxx1112basic_stringE"}));
  const auto abi = [&] { return found(torch_checks(m.host, {}), "C++ ABI of libtorch"); };
  EXPECT_EQ(abi().state, State::Ok);
  m.file("/usr/lib/libtorch_npu.so", test::shared_library({"_ZN9torch_npu8init_npuEa"}));
  EXPECT_EQ(abi().state, State::Ok);  // it does not tell
  m.file("/usr/lib/libtorch_npu.so", test::shared_library({"_ZN9torch_npu8init_npuERKSs"}));
  EXPECT_EQ(abi().state, State::Fail);
  EXPECT_NE(abi().hint.find("_GLIBCXX_USE_CXX11_ABI=1"), std::string::npos);
}

TEST(Doctor, NvidiaDriverAndLibraryMustAgree) {
  FakeMachine m;
  m.file("/dev/nvidia0", "");
  m.file("/proc/driver/nvidia/version",
         "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Tue Jan 14 00:00:00 UTC 2025\n");
  m.file("/usr/lib/x86_64-linux-gnu/libcuda.so.570.86.15", test::shared_library({"cuInit"}));
  m.link("/usr/lib/x86_64-linux-gnu/libcuda.so.1", "libcuda.so.570.86.15");
  m.file("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.560.35.03", test::shared_library({"nvmlInit_v2"}));
  m.link("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", "libnvidia-ml.so.560.35.03");
  PythonFacts python;
  python.torch_cuda = "12.6";
  auto checks = nvidia_checks(m.host, python);
  EXPECT_EQ(found(checks, "libcuda.so.1").state, State::Ok) << found(checks, "libcuda.so.1").hint;
  EXPECT_EQ(found(checks, "libnvidia-ml.so.1").state, State::Fail);
  EXPECT_EQ(found(checks, "driver for torch's CUDA").state, State::Ok);
  python.torch_cuda = "13.0";
  EXPECT_EQ(found(nvidia_checks(m.host, python), "driver for torch's CUDA").state, State::Fail);
}

TEST(Doctor, ReportsAsTableAndJson) {
  const std::vector<Section> sections{
      {"A", {{"one", State::Ok, "fine", "", ""}, {"two", State::Fail, "broken", "whole", "mend it"}}},
      {"B", {{"three", State::Skipped, "", "", ""}}}};
  const std::string text = checks_text(sections, Paint{}, 100);
  EXPECT_NE(text.find("FAIL  two"), std::string::npos) << text;
  EXPECT_NE(text.find("wanted: whole"), std::string::npos);
  EXPECT_NE(text.find("mend it"), std::string::npos);
  EXPECT_NE(text.find("1 check fails"), std::string::npos);
  EXPECT_EQ(text.find('\033'), std::string::npos);
  EXPECT_NE(checks_text(sections, Paint{true}, 100).find("\033[31m"), std::string::npos);
  const Json json = to_json(sections);
  EXPECT_EQ(json.at("sound"), false);
  const auto back = checks_from_json(json);
  ASSERT_EQ(back.size(), 3u);
  EXPECT_EQ(back[1].state, State::Fail);
  EXPECT_EQ(back[1].hint, "mend it");
  EXPECT_EQ(back[2].state, State::Skipped);
}

TEST(Comm, SlowPairsAndWrongResultsAreNamed) {
  const Json report = parse_json(R"({"sound": false, "collectives": [
    {"name": "all_reduce", "correct": true, "wrong": "", "latency_us": 20.5, "gb_s": 21.25},
    {"name": "broadcast", "correct": false, "wrong": "rank 2 got 1 instead of 3 at element 0", "latency_us": 9, "gb_s": 3},
    {"name": "barrier", "correct": true, "wrong": "", "latency_us": 9, "gb_s": 0}],
    "pair_gb_s": [[0, 20, 21], [20, 0, 4], [21, 4, 0]], "pair_us": [[0, 1, 1], [1, 0, 1], [1, 1, 0]]})",
                                 "report");
  const auto checks = comm_checks(report);
  ASSERT_EQ(checks.size(), 4u);
  EXPECT_EQ(checks[0].state, State::Ok);
  EXPECT_EQ(checks[0].found, "20.50 us, 21.25 GB/s");
  EXPECT_EQ(checks[1].state, State::Fail);
  EXPECT_NE(checks[1].found.find("rank 2"), std::string::npos);
  EXPECT_EQ(checks[3].state, State::Warn);
  EXPECT_NE(checks[3].found.find("slow: ranks 1 and 2 (4.00 GB/s)"), std::string::npos) << checks[3].found;
  EXPECT_EQ(comm_checks(parse_json(R"({"collectives": []})", "report")).size(), 0u);
}

TEST(Comm, SilentRanksAreNamedByWhatTheySaid) {
  const Check c = comm_failure(
      "[INFO:apus] rank 0 of 2\n\x1b[31m[ERROR:apus] rank 0: rank 1 did not answer within 60 s\x1b[0m\n", "/tmp/logs");
  EXPECT_EQ(c.state, State::Fail);
  EXPECT_EQ(c.found, "rank 0: rank 1 did not answer within 60 s");
  EXPECT_NE(c.hint.find("/tmp/logs"), std::string::npos);
  EXPECT_NE(comm_failure("", "x").found.find("without a result"), std::string::npos);
}

}  // namespace
}  // namespace apus
