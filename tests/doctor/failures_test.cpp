// SPDX-License-Identifier: Apache-2.0
// The knowledge base on the literal messages: each gives the failure it belongs to, as the best match.
#include "doctor/failures.h"

#include <gtest/gtest.h>

#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/files.h"
#include "doctor/explain_report.h"
#include "tests/paths.h"

namespace apus {
namespace {

std::string best(const std::string& text) {
  const Explanation e = explain_text(text);
  return e.findings.empty() ? "nothing" : e.findings.front().failure->id;
}

std::vector<std::pair<std::string, std::string>> messages() {  // tests/doctor/messages.txt: "id<TAB>message"
  std::vector<std::pair<std::string, std::string>> rows;
  std::ifstream in(test::source_dir() / "tests/doctor/messages.txt");
  for (std::string line; std::getline(in, line);)
    if (const size_t tab = line.find('\t'); tab != std::string::npos && line[0] != '#')
      rows.emplace_back(line.substr(0, tab), line.substr(tab + 1));
  return rows;
}

TEST(Failures, LiteralMessagesAreRecognised) {
  const auto rows = messages();
  ASSERT_GE(rows.size(), 70u);
  for (const auto& [id, message] : rows) EXPECT_EQ(best("[INFO] step 1\n" + message + "\n"), id) << message;
}

TEST(Failures, EveryEntryHasAMessageACauseAndARemedy) {
  std::set<std::string> tested, ids;
  for (const auto& [id, message] : messages()) tested.insert(id);
  for (const Failure& f : known_failures()) {
    EXPECT_TRUE(ids.insert(f.id).second) << f.id << " twice";
    EXPECT_TRUE(tested.count(f.id)) << f.id << " has no message in messages.txt";
    EXPECT_FALSE(f.title.empty() || f.cause.empty() || f.remedy.empty() || f.match.empty()) << f.id;
    EXPECT_TRUE(f.weight >= 1 && f.weight <= 9) << f.id;
  }
  for (const auto& id : tested) EXPECT_TRUE(ids.count(id)) << id;
  EXPECT_GE(ids.size(), 68u);
}

TEST(Failures, TheSpecificOneComesBeforeTheEcho) {
  const std::string log =
      "[WARNING] aten::foo will fall back to run on the CPU\n"
      "[ERROR] EI0006: [PID: 12] Getting socket times out. Reason: Remote Rank did not send the data in time.\n"
      "Traceback (most recent call last):\n  File \"train.py\", line 10, in <module>\n"
      "RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB (NPU 0; 60.97 GiB total capacity)\n";
  const Explanation e = explain_text(log);
  ASSERT_EQ(e.findings.size(), 3u);
  EXPECT_EQ(e.findings[0].failure->id, "npu-oom");
  EXPECT_EQ(e.findings[0].line, 5);
  EXPECT_EQ(e.findings[1].failure->id, "hccl-socket-timeout");
  EXPECT_EQ(e.findings[2].failure->id, "cpu-fallback");
}

TEST(Failures, TerminalCodesAndProgressBarsDoNotHideAMessage) {
  EXPECT_EQ(best("Train: 3%|#  |\r\x1b[31mTorch not \x1b[1mcompiled with CUDA enabled\x1b[0m\r\n"),
            "cuda-not-compiled");
  EXPECT_EQ(plain_line("\x1b[31ma\x1b[0m\tb\x07"), "a b");
  const Explanation eight = explain_text(
      "rank 0: Failed to find function HcclCommInitRootInfoConfig\nrank 1: Failed to find function "
      "HcclCommInitRootInfoConfig");
  ASSERT_EQ(eight.findings.size(), 1u);
  EXPECT_EQ(eight.findings[0].count, 2);
  EXPECT_EQ(eight.lines, 2);
}

TEST(Failures, OrdinaryLogsAreSilent) {
  const std::string log =
      "[INFO:apus] {'loss': 7.779778, 'grad_norm': 7.33571093, 'learning_rate': 0.001, 'token_acc': 0.0, 'epoch': "
      "1.0}\n"
      "[INFO:apus] starting; checkpoint saved to out/checkpoint-10\n[INFO:apus] device npu:0 Ascend910B3, information: "
      "inf\n"
      "Loading checkpoint shards: 100%|####| 4/4\nmax_length 107002x, infinity of tokens: nano\n";
  const Explanation e = explain_text(log);
  for (const auto& f : e.findings) ADD_FAILURE() << f.failure->id << ": " << f.text;
}

TEST(Failures, MessagesBrokenOverLinesAreOne) {
  // By a terminal in the middle of a word, by a logger between words, with a margin, over three lines.
  for (const char* log :
       {"RuntimeError: operator call failed on rank 3, Failed to find function HcclComm\nInitRootInfoConfig, see "
        "above\n",
        "                    ERROR    the communicator cannot be made: Failed to find function\r\n"
        "                             HcclCommInitRootInfoConfig in the library\r\n",
        "worker: something went wrong while the communicator was made: Failed\nto find a symbol of the library, "
        "which is: Failed to find\nfunction HcclCommInitRootInfoConfig\n"})
    EXPECT_EQ(best(log), "hccl-symbol") << log;
  const Explanation e = explain_text(
      "first line of the log, which is an ordinary one\nRuntimeError: in the middle of it all: Torch not compiled\n"
      "with CUDA enabled\n[INFO] Failed to find function of the loss in this one\nHcclAllReduce is fast\n");
  ASSERT_EQ(e.findings.size(), 1u);
  EXPECT_EQ(e.findings[0].failure->id, "cuda-not-compiled");
  EXPECT_EQ(e.findings[0].line, 2);
  EXPECT_EQ(e.findings[0].count, 1);
  EXPECT_EQ(e.lines, 5);
}

TEST(Failures, PrefixesRanksAndLongLinesDoNotHideAMessage) {
  const std::string message = "RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB (NPU 0; 60.97 GiB total)";
  for (const std::string before : {"[rank7]: ", "(RayWorker pid=12, ip=10.0.0.1) ", "2026-11-22 01:02:03,004 ",
                                   "[ERROR] 2026-11-22-01:02:03 (PID:1, Device:0, RankID:0) ", "node1: | "})
    EXPECT_EQ(best("[ERROR] EI0006 Getting socket times out\n" + before + message + "\n"), "npu-oom") << before;
  EXPECT_EQ(best(std::string(1 << 20, 'x') + message + std::string(1 << 20, 'y')), "npu-oom");
  std::string wide;  // UTF-16, as some consoles write files
  for (const char c : message) wide += c, wide += '\0';
  EXPECT_EQ(best("\xff\xfe" + wide), "npu-oom");
}

TEST(Failures, UnknownLogsSayWhatToGather) {
  const Explanation e = explain_text("hello\nSomeError: the flux is reversed\n");
  EXPECT_TRUE(e.findings.empty());
  ASSERT_EQ(e.error_lines.size(), 1u);
  const std::string text = explanation_text(e, "-", Paint{}, 100);
  EXPECT_NE(text.find("no known failure"), std::string::npos);
  EXPECT_NE(text.find("flux"), std::string::npos);
  EXPECT_NE(text.find("plog"), std::string::npos);
  EXPECT_EQ(to_json(e).at("known"), false);
}

TEST(Failures, ReportsCauseAndRemedy) {
  const Explanation e = explain_text("RuntimeError: Failed to find function HcclCommInitRootInfoConfig");
  const std::string text = explanation_text(e, "log.txt", Paint{true}, 100);
  EXPECT_NE(text.find("8.0.RC2"), std::string::npos);
  EXPECT_NE(text.find("set_env.sh"), std::string::npos);
  EXPECT_NE(text.find("\033["), std::string::npos);
  EXPECT_EQ(explanation_text(e, "log.txt", Paint{}, 100).find('\033'), std::string::npos);
  EXPECT_EQ(to_json(e).at("findings").at(0).at("id"), "hccl-symbol");
}

TEST(Failures, HugeLogsAreBounded) {
  const std::string path = ::testing::TempDir() + "huge.log";
  {
    std::ofstream out(path);
    out << "ImportError: libhccl.so: cannot open shared object file: No such file or directory\n";
    for (int i = 0; i < 250000; ++i)
      out << "step " << i << " of many, with a line of the usual length and a loss of 1." << i << "\n";  // 19 MB
    out << "RuntimeError: Torch not compiled with CUDA enabled";
  }
  const std::clock_t start = std::clock();  // of this process: other work on the machine does not count
  const Explanation e = explain_log(path);
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 60);
  EXPECT_FALSE(e.middle_skipped);
  EXPECT_EQ(e.lines, 250002);
  ASSERT_EQ(e.findings.size(), 2u);
  EXPECT_EQ(e.findings[0].line, 1);
  EXPECT_EQ(e.findings[1].line, 250002);
  EXPECT_THROW(explain_log(path + ".missing"), Error);
  EXPECT_EQ(explain_text(std::string(100000, 'x') + "\n" + std::string(50, '\0')).findings.size(), 0u);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace apus
