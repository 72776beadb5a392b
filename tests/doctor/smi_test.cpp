// SPDX-License-Identifier: Apache-2.0
// Recorded answers of the vendors' tools, and of the simulated one.
#include "doctor/smi.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "doctor/inventory.h"
#include "doctor/tables.h"
#include "tests/paths.h"

namespace apus {
namespace {
constexpr int64_t kMegabyte = int64_t{1} << 20;

std::string recorded(const char* name) { return read_file(test::source_dir() / "tests/doctor/data" / name); }

TEST(NpuSmi, EightCardsOfOneChip) {
  const auto all = parse_npu_smi(recorded("npu-smi-info-a2.txt"));
  ASSERT_EQ(all.size(), 8u);
  EXPECT_EQ(all[0].name, "910B3");
  EXPECT_EQ(all[0].health, "OK");
  EXPECT_EQ(all[0].power_w, 101.8);
  EXPECT_EQ(all[0].temperature_c, 43);
  EXPECT_EQ(all[0].utilisation, 0);
  EXPECT_EQ(all[0].memory_used, 3318 * kMegabyte);
  EXPECT_EQ(all[0].memory_total, 65536 * kMegabyte);
  EXPECT_EQ(all[0].driver, "24.1.rc1.b030");
  EXPECT_EQ(all[7].index, 7);
  EXPECT_EQ(all[7].memory_used, 3315 * kMegabyte);
}

TEST(NpuSmi, TwoDiesACardAreTwoDevices) {
  const auto all = parse_npu_smi(recorded("npu-smi-info-a3.txt"));
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[1].index, 1);
  EXPECT_EQ(all[1].power_w, -1);
  EXPECT_EQ(all[2].index, 14);
  EXPECT_EQ(all[2].health, "Alarm");
  EXPECT_EQ(all[2].utilisation, 97);
  EXPECT_EQ(all[2].memory_used, 15503 * kMegabyte);
  EXPECT_EQ(all[3].index, 15);
  EXPECT_EQ(all[3].memory_total, 65536 * kMegabyte);
}

TEST(NpuSmi, InferenceCardsHaveNoHbmColumn) {
  const auto all = parse_npu_smi(recorded("npu-smi-info-310p.txt"));
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].name, "310P3");
  EXPECT_EQ(all[0].power_w, -1);
  EXPECT_EQ(all[0].utilisation, 3);
  EXPECT_EQ(all[0].memory_used, 1529 * kMegabyte);
  EXPECT_EQ(all[1].index, 1);
  EXPECT_EQ(all[1].health, "Warning");
  EXPECT_EQ(all[1].memory_used, 26838 * kMegabyte);
}

// What other drivers and chips print: wider columns, "used/ total" without a blank, CRLF, a field more.
std::vector<Status> one_device(const std::string& first, const std::string& second) {
  return parse_npu_smi("+-----+\r\n| npu-smi 26.0.rc2     Version: 26.0.rc2   |\r\n+=====+\r\n" + first + "\r\n" +
                       second +
                       "\r\n+=====+\r\n| NPU   Chip | Process id | Process name | Process memory(MB) |\r\n"
                       "| 0     0    | 692318     | python3      | 12417              |\r\n");
}

TEST(NpuSmi, EveryReleaseAndChip) {
  const auto wide = one_device(
      "| 7     Ascend910           | OK            | -                    53                      0    / 0        |",
      "| 1     15                  | 0000:83:00.0  | 4                    0    / 0                15503/ 65536     |");
  ASSERT_EQ(wide.size(), 1u);
  EXPECT_EQ(wide[0].index, 15);
  EXPECT_EQ(wide[0].driver, "26.0.rc2");
  EXPECT_EQ(wide[0].memory_used, 15503 * kMegabyte);
  const auto four =
      one_device("| 3      | 950PR            | OK            | 211.0       41                0     / 0  |",
                 "|        |                  | NA            | 7           0    / 0    4096  / 131072   |");
  ASSERT_EQ(four.size(), 1u);
  EXPECT_EQ(four[0].index, 3);
  EXPECT_EQ(four[0].name, "950PR");
  EXPECT_EQ(four[0].utilisation, 7);
  EXPECT_EQ(four[0].memory_total, 131072 * kMegabyte);
  const auto old = one_device("| 0     910B        | OK    | 70.0    34       0    / 0       |",
                              "| 0                 | 0000:C1:00.0 | 0  1197 / 13553   1365 / 32768  |");
  ASSERT_EQ(old.size(), 1u);
  EXPECT_EQ(old[0].memory_total, 32768 * kMegabyte);
  const auto no_hbm = one_device("| 0     310P3       | OK    | 15.8    42       0    / 0       |",
                                 "| 0     0           | 0000:82:00.0 | 0  1074 / 21534   0    / 0      |");
  ASSERT_EQ(no_hbm.size(), 1u);
  EXPECT_EQ(no_hbm[0].memory_used, 1074 * kMegabyte);
  const auto untold = one_device("| 0       310      | Alarm  | 12.8       61        0     / 969     |",
                                 "| 0       0        | NA     | NA         NA/ 7759                  |");
  ASSERT_EQ(untold.size(), 1u);
  EXPECT_EQ(untold[0].health, "Alarm");
  EXPECT_EQ(untold[0].utilisation, -1);
  EXPECT_EQ(untold[0].memory_used, -1);
  EXPECT_EQ(untold[0].memory_total, 7759 * kMegabyte);
}

TEST(NpuSmi, SixteenDies) {
  std::string text = "| npu-smi 25.2.1   Version: 25.2.1 |\n";
  for (int card = 0; card < 8; ++card)
    for (int die = 0; die < 2; ++die)
      text += str("| ", card, "     Ascend910  | OK  | ", die ? "-" : "165.3", "  36   0    / 0  |\n| ", die, "     ",
                  2 * card + die, "  | 0000:9D:00.0  | 0   0    / 0   3143 / 65536  |\n+-----+\n");
  const auto all = parse_npu_smi(text);
  ASSERT_EQ(all.size(), 16u);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(all[static_cast<size_t>(i)].index, i);
}

TEST(NpuSmi, WhateverElseIsNoDevice) {
  for (const char* text :
       {"", "|", "| 0 910B3 | OK |", "| 0 910B3 | OK | 1 2 |", "dcmi module initialize failed. ret is -8005",
        "| 0 | a | b |\n| 0 | a | b |", "| 99999999999999999999 910B3 | OK | 1 2 |\n| 0 | x | 0 |"})
    EXPECT_TRUE(parse_npu_smi(text).empty()) << text;
}

TEST(Topology, FullMeshOfEight) {
  const Topology t = parse_topology(recorded("npu-smi-topo-a2.txt"));
  ASSERT_EQ(t.names.size(), 8u);
  EXPECT_EQ(t.names[3], "NPU3");
  for (size_t i = 0; i < 8; ++i)
    for (size_t j = 0; j < 8; ++j) EXPECT_EQ(t.link[i][j], i == j ? "X" : "HCCS");
  EXPECT_EQ(t.cpu_affinity[0], "144-167");
  EXPECT_EQ(t.cpu_affinity[7], "48-71");
  ASSERT_EQ(t.legend.size(), 7u);
  EXPECT_EQ(t.legend[5].first, "HCCS");
  EXPECT_EQ(t.legend[5].second, "Connection traversing HCCS.");
}

TEST(Topology, NetworkCardsAreNoDevices) {
  const Topology t = parse_topology(recorded("nvidia-topo.txt"));
  ASSERT_EQ(t.names, (std::vector<std::string>{"GPU0", "GPU1", "GPU2", "GPU3"}));
  EXPECT_EQ(t.link[0], (std::vector<std::string>{"X", "NV18", "NV18", "NV18"}));
  EXPECT_EQ(t.cpu_affinity[2], "48-95,144-191");
  EXPECT_EQ(t.legend.size(), 5u);
}

TEST(Topology, DiesAndCardsWithoutAffinity) {
  const Topology t = parse_topology(
      "\t   Phy-ID12   Phy-ID13   NIC0     NIC1\nPhy-ID12   X          SIO        PIX      SYS\n"
      "Phy-ID13   SIO        X          HCCS_SW  SYS\nNIC0       PIX        HCCS_SW    X        SYS\n\nLegend:\n\n"
      "  HCCS_SW = Connection traversing HCCS through a switch\n");
  ASSERT_EQ(t.names, (std::vector<std::string>{"Phy-ID12", "Phy-ID13"}));
  EXPECT_EQ(t.link[1], (std::vector<std::string>{"SIO", "X"}));
  EXPECT_EQ(t.cpu_affinity[0], "");
  ASSERT_EQ(t.legend.size(), 1u);
}

TEST(Topology, AffinityOfEveryRelease) {
  const auto affinity = [](const std::string& rest, const std::string& header = "CPU Affinity\tNUMA Affinity") {
    const Topology t = parse_topology("\t\x1b[4mGPU0\tGPU1\tmlx5_0\t" + header + "\x1b[0m\r\nGPU0\t X \tNV12\t" + rest +
                                      "\r\nGPU1\tNV12\t X \tSYS\t0-31\t0\t\tN/A\r\n");
    return t.names.size() == 2 && t.link[0][1] == "NV12" ? t.cpu_affinity[0] : "no matrix";
  };
  EXPECT_EQ(affinity("PIX\t0-23,48-71\t0"), "0-23,48-71");
  EXPECT_EQ(affinity("NODENODE\t48-63,176-191\t3\t\tN/A", "CPU Affinity\tNUMA Affinity\tGPU NUMA ID"), "48-63,176-191");
  EXPECT_EQ(affinity("PIX\t6,14,22,30\t3"), "6,14,22,30");
  EXPECT_EQ(affinity("PIX\t0-7, 16-23\t0"), "0-7,16-23");
  EXPECT_EQ(affinity("PIX\tN/A\t0"), "");
  EXPECT_EQ(affinity("PIX"), "");
  const Topology one = parse_topology("\tGPU0\tCPU Affinity\nGPU0\t X \t0-251\n");
  ASSERT_EQ(one.names.size(), 1u);
  EXPECT_EQ(one.cpu_affinity[0], "0-251");
}

TEST(Topology, RaggedMatricesBecomeSquare) {
  const Topology t = parse_topology("   NPU0 NPU1 NPU2\nNPU0 X SIO HCCS_SW 0-3,8-11\nNPU1 SIO\nNPU2 PHB PHB X\n");
  ASSERT_EQ(t.names.size(), 2u);  // the short row says nothing
  for (const auto& row : t.link) EXPECT_EQ(row.size(), 2u);
  EXPECT_EQ(t.link[0][1], "SIO");
  EXPECT_EQ(t.cpu_affinity[0], "0-3,8-11");
  EXPECT_TRUE(parse_topology("Legend:\n X = Self\n").names.empty());
}

TEST(NvidiaSmi, QueryRows) {
  const auto all = parse_nvidia_csv(recorded("nvidia-query.csv"));
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].name, "NVIDIA H200");
  EXPECT_EQ(all[0].power_w, 76.21);
  EXPECT_EQ(all[0].memory_total, 143771 * kMegabyte);
  EXPECT_EQ(all[0].driver, "570.86.15");
  EXPECT_EQ(all[1].power_w, -1);
  EXPECT_EQ(all[1].health, "OK");
  EXPECT_EQ(all[2].health, "Warning (3 uncorrected memory errors)");
  EXPECT_TRUE(parse_nvidia_csv("Failed to initialize NVML: Driver/library version mismatch\n").empty());
}

TEST(NvidiaSmi, UnitsAndLostDevices) {
  const auto all = parse_nvidia_csv(
      "index, name, power.draw [W], temperature.gpu, utilization.gpu [%], memory.total [MiB], memory.used [MiB], "
      "driver_version\n0, NVIDIA A100-SXM4-40GB, 42.18 W, 24, 3 %, 40960 MiB, 75 MiB, 535.161.08\n"
      "1, NVIDIA A100-SXM4-40GB, [Unknown Error], [Unknown Error], [Unknown Error], 40960 MiB, 75 MiB, 535.161.08\n");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].power_w, 42.18);
  EXPECT_EQ(all[0].utilisation, 3);
  EXPECT_EQ(all[0].memory_total, 40960 * kMegabyte);
  EXPECT_EQ(all[0].health, "OK");
  EXPECT_EQ(all[1].health.substr(0, 8), "Critical");
}

constexpr const char* kTable =
    "Fri Nov 21 10:00:00 2026\n+-----------------------------------------------------------------------------+\n"
    "| NVIDIA-SMI 535.161.08             Driver Version: 535.161.08   CUDA Version: 12.2     |\n"
    "|-----------------------------------------+----------------------+----------------------+\n"
    "| GPU  Name                 Persistence-M | Bus-Id        Disp.A | Volatile Uncorr. ECC |\n"
    "| Fan  Temp   Perf          Pwr:Usage/Cap |         Memory-Usage | GPU-Util  Compute M. |\n"
    "|                                         |                      |               MIG M. |\n"
    "|=========================================+======================+======================|\n"
    "|   0  NVIDIA A100-SXM4-40GB          On  | 00000000:07:00.0 Off |                   On |\n"
    "| N/A   24C    P0              42W / 400W |     75MiB / 40960MiB |     N/A      Default |\n"
    "|                                         |                      |              Enabled |\n"
    "+-----------------------------------------+----------------------+----------------------+\n"
    "|   1  GeForce RTX 2080 Ti           Off  | 00000000:0A:00.0  On |                  N/A |\n"
    "| 35%   61C    P2   120W / 250W |  10240MiB / 11019MiB |     97%      Default |\n"
    "|   2  Tesla V100-SXM2-32GB           On  | 00000000:0B:00.0 Off |                    2 |\n"
    "| N/A   35C    P0  ERR! / 300W |  0MiB / 32768MiB |      0%      Default |\n\n"
    "| MIG devices:                                                                          |\n"
    "|  0    5   0   0  |              25MiB /  9856MiB  | 28      0 |  2   0    1    0    0 |\n"
    "| Processes:                                                                            |\n"
    "|    0   N/A  N/A      1234      C   python                                     4096MiB |\n";

TEST(NvidiaSmi, TheTableForPeople) {
  const auto all = parse_nvidia_table(kTable);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].name, "NVIDIA A100-SXM4-40GB");
  EXPECT_EQ(all[0].driver, "535.161.08");
  EXPECT_EQ(all[0].power_w, 42);
  EXPECT_EQ(all[0].temperature_c, 24);
  EXPECT_EQ(all[0].utilisation, -1);
  EXPECT_EQ(all[0].memory_total, 40960 * kMegabyte);
  EXPECT_EQ(all[1].name, "GeForce RTX 2080 Ti");
  EXPECT_EQ(all[1].utilisation, 97);
  EXPECT_EQ(all[1].memory_used, 10240 * kMegabyte);
  EXPECT_EQ(all[1].health, "OK");
  EXPECT_EQ(all[2].health.substr(0, 8), "Critical");
  EXPECT_EQ(all[2].power_w, -1);
  EXPECT_TRUE(parse_nvidia_table("| 0 x | y | z |\n|||\n").empty());
}

TEST(NvidiaSmi, DividedDevicesAndOldDriversAreShown) {
  Host host = this_machine();
  const auto folder = std::filesystem::path(::testing::TempDir()) / "gpu-tools";
  std::filesystem::create_directories(folder);
  write_file_atomic(folder / "nvidia-smi", "");
  host.env["PATH"] = folder.string();
  host.run_file = [](const Host::Path&, const std::vector<std::string>& arguments, double) {
    if (arguments.empty()) return Ran{0, kTable};
    if (arguments[0] == "-L")
      return Ran{0,
                 "GPU 0: NVIDIA A100 (UUID: GPU-1)\n  MIG 3g.20gb     Device  0: (UUID: MIG-1)\n"
                 "  MIG 1g.5gb      Device  1: (UUID: MIG-2)\nGPU 1: GeForce (UUID: GPU-2)\n"};
    return Ran{6, "Field \"ecc.errors\" is not a valid field to query.\n"};
  };
  const auto groups = inventory(host);
  std::filesystem::remove_all(folder);
  for (const auto& group : groups) {
    if (group.kind != "cuda") continue;
    EXPECT_EQ(group.devices.size(), 3u);
    EXPECT_EQ(group.note, "cuda:0 is divided (MIG): 3g.20gb, 1g.5gb");
    return;
  }
  ADD_FAILURE() << "no GPUs";
}

Host with_tool(const std::string& path_of_tools) {  // this machine, with other tools first
  Host host = this_machine();
  host.env["PATH"] = path_of_tools + ":" + host.env["PATH"];
  return host;
}

TEST(Inventory, TheSimulatedNodeAnswersLikeTheVendorsTool) {
  const Host host = with_tool((test::source_dir() / "tests/sim").string());
  const auto groups = inventory(host);
  ASSERT_EQ(groups.front().kind, "npu");
  ASSERT_EQ(groups.front().devices.size(), 8u) << groups.front().note;
  EXPECT_EQ(groups.front().devices[5].index, 5);
  EXPECT_EQ(groups.front().devices[5].memory_total, int64_t{64} << 30);
  EXPECT_EQ(groups.back().kind, "cpu");
  const std::string text = devices_text(groups, Paint{});
  EXPECT_NE(text.find("npu:7"), std::string::npos) << text;
  EXPECT_NE(text.find("64.0"), std::string::npos) << text;
  const auto linked = links(host);
  EXPECT_EQ(linked.front().topology.names.size(), 8u);
  EXPECT_NE(links_text(linked, Paint{}).find("HCCS"), std::string::npos);
  EXPECT_EQ(to_json(linked).at("groups").at(0).at("link").at(0).at(1), "HCCS");
  EXPECT_EQ(to_json(groups).at("groups").at(0).at("devices").size(), 8u);
}

TEST(Inventory, ToolsThatFailAreReportedNotBelieved) {
  Host host = with_tool((test::source_dir() / "tests/sim").string());
  host.run_file = [](const Host::Path&, const std::vector<std::string>&, double) {
    return Ran{1, "dcmi module initialize failed. ret is -8005\n"};
  };
  EXPECT_NE(inventory(host).front().note.find("-8005"), std::string::npos);
  host.run_file = [](const Host::Path&, const std::vector<std::string>&, double) { return Ran{124, ""}; };
  EXPECT_NE(inventory(host).front().note.find("in time"), std::string::npos);
}

TEST(Host, ToolsAreEndedWhenTheyHang) {
  const Host host = this_machine();
  const auto slow = host.run("sleep", {"30"}, 0.2);
  ASSERT_TRUE(slow);
  EXPECT_EQ(slow->code, 124);
  const auto echo = host.run("sh", {"-c", "echo out; echo err >&2; exit 3"});
  EXPECT_EQ(echo->code, 3);
  EXPECT_EQ(echo->output, "out\nerr\n");
  EXPECT_FALSE(host.run("no-such-tool-anywhere", {}));
}

}  // namespace
}  // namespace apus
