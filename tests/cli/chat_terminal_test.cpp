// SPDX-License-Identifier: Apache-2.0
// The chat of `apus infer` as a person has it: the built program on a terminal of its own.
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "tests/paths.h"

namespace apus {
namespace {
namespace fs = std::filesystem;

const std::string kLine(50, '-');  // ends every answer
constexpr const char* kControlC = "\x03";
constexpr const char* kControlD = "\x04";

class Terminal {
 public:
  explicit Terminal(std::vector<std::string> command) {
    std::vector<char*> arguments;
    for (auto& a : command) arguments.push_back(a.data());
    arguments.push_back(nullptr);
    child_ = ::forkpty(&master_, nullptr, nullptr, nullptr);
    if (child_ == 0) {
      ::execv(arguments[0], arguments.data());
      ::_exit(127);
    }
  }
  ~Terminal() {
    if (child_ > 0 && !over_) ::kill(child_, SIGKILL), ::waitpid(child_, nullptr, 0);
    ::close(master_);
  }
  void type(const std::string& text) const {
    ASSERT_EQ(::write(master_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }

  // What is shown up to and with `text`, from where the last call ended; all there was if it does not come.
  std::string until(const std::string& text, int seconds = 120) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    while (seen_.find(text) == std::string::npos && std::chrono::steady_clock::now() < end)
      if (!read_some(200)) break;
    const size_t at = seen_.find(text);
    EXPECT_NE(at, std::string::npos) << "no '" << text << "' in: " << seen_;
    const size_t count = at == std::string::npos ? seen_.size() : at + text.size();
    const std::string shown = seen_.substr(0, count);
    seen_.erase(0, count);
    return shown;
  }
  void signal(int which) const { ::kill(child_, which); }
  void take_what_is_shown() {  // so that the program is not held up
    for (pollfd ready{master_, POLLIN, 0}; ::poll(&ready, 1, 0) > 0 && read_some(0);) {}
  }
  void anything() {
    for (int i = 0; i < 600 && seen_.empty(); ++i)
      if (!read_some(200)) break;
    EXPECT_FALSE(seen_.empty());
  }
  int exit_code() {
    int status = 0;
    while (read_some(200)) {}
    ::waitpid(child_, &status, 0);
    over_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  bool read_some(int milliseconds) {  // false: the program is gone
    pollfd ready{master_, POLLIN, 0};
    if (::poll(&ready, 1, milliseconds) == 0) return true;
    char bytes[4096];
    const ssize_t count = ::read(master_, bytes, sizeof bytes);
    if (count > 0) seen_.append(bytes, static_cast<size_t>(count));
    return count > 0;
  }
  int master_ = -1;
  pid_t child_ = -1;
  bool over_ = false;
  std::string seen_;
};

class ChatTerminal : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    program() = (test::binary_dir() / "apus").string();
    if (!fs::exists(program()) || !fs::exists(test::binary_dir() / "libapus.so")) return;
    dir() = fs::temp_directory_path() / str("apus-terminal-", ::getpid());
    Terminal init({program(), "init", "--preset", "tiny", "--output_dir", dir() / "model"});
    ASSERT_EQ(init.exit_code(), 0);
  }
  static void TearDownTestSuite() {
    if (!dir().empty()) fs::remove_all(dir());
  }
  void SetUp() override {
    if (dir().empty()) GTEST_SKIP() << "the program with its library is not built in " << test::binary_dir();
  }
  static std::string& program() {
    static std::string path;
    return path;
  }
  static fs::path& dir() {
    static fs::path path;
    return path;
  }
  static Terminal chat(std::vector<std::string> more) {
    std::vector<std::string> command{program(), "infer",         "--model", dir() / "model", "--device",
                                     "cpu",     "--temperature", "0",       "--result_path", dir() / "talk.jsonl"};
    command.insert(command.end(), more.begin(), more.end());
    fs::remove(dir() / "talk.jsonl");
    return Terminal(command);
  }
};

TEST_F(ChatTerminal, QuestionsSystemSeveralLinesHistoryAndControlD) {
  Terminal t = chat({"--max_new_tokens", "3"});
  t.until("<<< ");
  t.type("first question\r");
  t.until(kLine);
  t.until("<<< ");
  t.type("reset-system\r");
  t.until("<<<[S] ");
  t.type("You are terse.\r");
  t.until("begins anew");
  t.type("multi-line\r");
  t.until("<<<[M] ");
  t.type("one\rtwo#\r");
  t.until(kLine);
  t.until("<<<[M] ");
  t.type(" Single-Line \r");
  t.until("<<< ");
  t.type("\x1b[A\x1b[A\x1b[A\r");  // three lines up: single-line, two#, one
  t.until(kLine);
  t.until("<<< ");
  t.type(kControlD);
  EXPECT_EQ(t.exit_code(), 0);
  const std::string kept = read_file(dir() / "talk.jsonl");
  EXPECT_NE(kept.find("first question"), std::string::npos);
  EXPECT_NE(kept.find("You are terse."), std::string::npos);
  EXPECT_NE(kept.find("one\\ntwo\""), std::string::npos);
  EXPECT_NE(kept.find("{\"role\":\"user\",\"content\":\"one\"}"), std::string::npos) << kept;
}

TEST_F(ChatTerminal, ControlCEndsTheAnswerNotTheChat) {
  Terminal t = chat({"--max_new_tokens", "100000", "--stop_words", "no such text"});
  t.until("<<< ");
  t.type("talk long\r");
  t.until("\r\n");
  t.anything();  // the answer has begun
  t.type(kControlC);
  t.until(kLine);
  t.until("<<< ");
  t.type("exit\r");
  EXPECT_EQ(t.exit_code(), 0);
}

TEST_F(ChatTerminal, TerminatedInAnAnswerItKeepsWhatThereIs) {
  Terminal t = chat({"--max_new_tokens", "100000", "--stop_words", "no such text"});
  t.until("<<< ");
  t.type("talk long\r");
  t.until("\r\n");
  t.anything();
  t.signal(SIGTERM);
  EXPECT_EQ(t.exit_code(), 128 + SIGTERM);
  EXPECT_NE(read_file(dir() / "talk.jsonl").find("talk long"), std::string::npos);
}

// Drawn for every block that arrives; a picture that looks at all of the line would take minutes.
TEST_F(ChatTerminal, ALongLineCanBePasted) {
  Terminal t = chat({"--max_model_len", "64", "--max_new_tokens", "2"});
  t.until("<<< ");
  for (int i = 0; i < 200; ++i) {
    t.type(std::string(500, 'x'));
    t.take_what_is_shown();
  }
  t.type("\r");
  t.until("context of 64");
  t.until("<<< ");
  t.type(kControlD);
  EXPECT_EQ(t.exit_code(), 0);
}

TEST_F(ChatTerminal, AQuestionLongerThanTheContextIsRefusedAndTheChatGoesOn) {
  Terminal t = chat({"--max_model_len", "64", "--max_new_tokens", "2"});
  t.until("<<< ");
  std::string longer;
  for (int i = 0; i < 80; ++i) longer += str(i, " ");
  t.type(longer + "\r");
  t.until("context of 64");
  t.until("<<< ");
  t.type("short\r");
  t.until(kLine);
  t.until("<<< ");
  t.type(kControlC);  // at the prompt: the end
  EXPECT_EQ(t.exit_code(), 0);
}

TEST_F(ChatTerminal, UnwritableResultIsSaidBeforeTheChat) {
  Terminal t({program(), "infer", "--model", dir() / "model", "--device", "cpu", "--result_path",
              "/proc/no/such/place.jsonl"});
  t.until("/proc/no/such");
  EXPECT_EQ(t.exit_code(), 7);
}

TEST_F(ChatTerminal, ControlCKeepsFinishedRows) {
  constexpr int kRows = 3000;
  std::string rows;
  for (int i = 0; i < kRows; ++i) rows += str("{\"messages\": [{\"role\": \"user\", \"content\": \"row ", i, "\"}]}\n");
  write_file_atomic(dir() / "rows.jsonl", rows);
  const fs::path result = dir() / "rows.out.jsonl";
  Terminal t({program(), "infer", "--model", dir() / "model", "--device", "cpu", "--temperature", "0",
              "--max_new_tokens", "8", "--max_num_seqs", "2", "--val_dataset", dir() / "rows.jsonl", "--result_path",
              result, "--write_batch_size", "1"});
  for (int i = 0; i < 600 && (!fs::exists(result) || fs::file_size(result) == 0); ++i) ::usleep(100'000);
  t.type(kControlC);
  t.until("the same command goes on from there");
  EXPECT_EQ(t.exit_code(), 130);
  const std::string kept = read_file(result);
  const auto lines = std::count(kept.begin(), kept.end(), '\n');
  EXPECT_GT(lines, 0);
  EXPECT_LT(lines, kRows);
  EXPECT_TRUE(kept.ends_with("}\n"));
}

}  // namespace
}  // namespace apus
