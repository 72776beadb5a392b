// SPDX-License-Identifier: Apache-2.0
// Programs that a model wrote: which pass, and what they cannot do.
#include "reward/run_code.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "reward/benchmark.h"
#include "tests/folder.h"

namespace apus {
namespace {

class RunCode : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("python3 -c pass >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no python3 here";
    static const std::string why_not = [] {  // a kernel or a container that lets nobody give up system calls
      try {
        run_python("pass");
      } catch (const Error& e) {
        return std::string(e.what());
      }
      return std::string();
    }();
    if (!why_not.empty()) GTEST_SKIP() << why_not;
  }
  // Why it did not pass.
  static std::string why(const std::string& program) {
    const CodeRun run = run_python(program, {.seconds = 1});
    EXPECT_FALSE(run.passed) << program;
    return run.why;
  }
};

TEST_F(RunCode, PassesWhenItComesToItsEnd) {
  EXPECT_TRUE(run_python("import math, re, random, hashlib, collections, itertools\nprint(math.pi)\n").passed);
  EXPECT_NE(why("assert 1 == 2, \"it's\"").find("AssertionError"), std::string::npos);
  why("import os; os._exit(0)");
}

TEST_F(RunCode, IsBounded) {
  EXPECT_NE(why("while True: pass"), "");
  EXPECT_NE(why("while True: print('x' * 1000)").find("bytes"), std::string::npos);
  EXPECT_NE(why("x = [0] * 10**10").find("MemoryError"), std::string::npos);
}

constexpr const char* kAttempts = R"(
import ctypes, os, socket, subprocess
libc = ctypes.CDLL(None, use_errno=True)
def ring():  # io_uring_setup, a way around other calls
    if libc.syscall(425, 8, 0) < 0: raise PermissionError(ctypes.get_errno())
def tried(attempt):
    try: attempt()
    except PermissionError: return False
    return True
assert open(name).read() == 'words'
done = [i for i, attempt in enumerate([
    lambda: open(name, 'w'), lambda: open(name, 'r+'), lambda: open(name + '2', 'x'), lambda: os.remove(name),
    lambda: os.rename(name, name + '2'), lambda: os.chmod(name, 0), lambda: os.truncate(name, 0), lambda: os.mkdir(name + 'd'),
    os.fork, lambda: subprocess.run(['true']), lambda: os.execv('/bin/true', ['true']), lambda: socket.socket(),
    lambda: os.kill(os.getppid(), 0), ring]) if tried(attempt)]
assert not done, done
)";

TEST_F(RunCode, CanNeitherWriteNorStartNorReachAnything) {
  const test::Folder folder;
  const std::filesystem::path file = folder.path / "kept";
  std::ofstream(file) << "words";
  const CodeRun run = run_python("name = '" + file.string() + "'\n" + kAttempts);
  EXPECT_TRUE(run.passed) << run.why;
  EXPECT_EQ(std::filesystem::file_size(file), 5u);
}

const Json kRow = {
    {"task_id", "T/0"},
    {"prompt",
     "from typing import List\n\ndef half(n: int) -> int:\n    return n // 2\n\ndef halves(n: List[int]) "
     "-> List[int]:\n    \"\"\" Half of each. \"\"\"\n"},
    {"canonical_solution", "    return [half(i) for i in n]\n"},
    {"test", "def check(candidate):\n    assert candidate([4, 7]) == [2, 3]\n"},
    {"entry_point", "halves"}};

TEST_F(RunCode, AnswersOfHumaneval) {
  const Benchmark& set = benchmark_named("humaneval");
  const BenchmarkItem item = set.read(kRow);
  EXPECT_NE(item.question.find("def halves"), std::string::npos);
  const auto mark = [&](const std::string& answer) { return set.judge(item, kRow, answer); };
  const std::string body = "[half(i) for i in n]\n";
  EXPECT_EQ(mark(kRow["canonical_solution"]), 1) << "the body alone";
  EXPECT_EQ(mark("<think>x</think>Here:\n```python\ndef halves(n):\n    return " + body + "```\nIt halves."), 1);
  EXPECT_EQ(mark("```\nprint(1)\n```\n```python\ndef halves(n: List[int]):\n    return " + body), 1) << "cut off";
  EXPECT_EQ(mark("```python\ndef halves(n):\n    return n\n```"), 0);
  EXPECT_THROW(set.read({{"prompt", "x"}}), Error);
}

}  // namespace
}  // namespace apus
