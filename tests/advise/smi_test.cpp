// SPDX-License-Identifier: Apache-2.0
// Recorded answers of the vendors' tools, and of the simulated one.
#include "advise/smi.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "advise/inventory.h"
#include "advise/tables.h"
#include "base/files.h"
#include "tests/paths.h"

namespace apus {
namespace {
constexpr int64_t kMegabyte = int64_t{1} << 20;

std::string recorded(const char* name) { return read_file(test::source_dir() / "tests/advise/data" / name); }

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
