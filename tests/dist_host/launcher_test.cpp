// SPDX-License-Identifier: Apache-2.0
// The launcher with ranks that do little: their numbers, the first failure, signals, and that nobody is left behind.
#include "dist/launch/launcher.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/clock.h"
#include "tests/folder.h"
#include "tests/rank_body.h"
#include "tests/refusal.h"

namespace apus {
namespace {
namespace fs = std::filesystem;
using test::RankBody;
using test::run_ranks;

int my_rank() { return std::atoi(std::getenv("RANK")); }
void pause_s(double seconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(static_cast<int>(seconds * 1000)));
}

const RankBody numbers("launcher.numbers", [](const auto& arguments) {
  const RankEnvironment e = read_rank(process_environment());
  write_file_atomic(fs::path(arguments[0]) / str(e.rank), str(e.world, " ", e.local_rank, " ", e.local_world, " ",
                                                              e.from, " ", std::getenv("OMP_NUM_THREADS") != nullptr));
  EXPECT_FALSE(read_launch(process_environment()));
  std::fprintf(stderr, "rank %d speaks\n", e.rank);
});

TEST(Launcher, NumbersItsRanksAndKeepsTheirOutputApart) {
  const test::Folder folder;
  const test::Ranks r = run_ranks(3, "launcher.numbers", {folder.path.string()});
  EXPECT_EQ(r.code, 0) << r.said;
  for (const char* rank : {"0", "1", "2"}) EXPECT_EQ(read_file(folder.path / rank), str("3 ", rank, " 3 apus 1"));
  EXPECT_NE(r.said.find("rank 0 speaks"), std::string::npos);
  EXPECT_EQ(r.said.find("rank 1 speaks"), std::string::npos);
}

const RankBody failing("launcher.failing", [](const auto&) {
  if (my_rank() == 0) {  // what a loss of a peer looks like: known first, but no cause
    tell_launcher(Fault::Comm, "lost rank 1");
    std::exit(6);
  }
  pause_s(0.3);
  require(my_rank() != 1, Fault::Data, "row 7 is broken");
  pause_s(600);
});

TEST(Launcher, TellsTheCauseOnceAndEndsTheRest) {
  const Stopwatch watch;
  const test::Ranks r = run_ranks(3, "launcher.failing");
  EXPECT_EQ(r.code, exit_code(Fault::Data)) << r.said;
  EXPECT_NE(r.said.find("rank 1: row 7 is broken"), std::string::npos) << r.said;
  EXPECT_EQ(r.said.find("lost rank 1"), std::string::npos) << r.said;
  EXPECT_LT(watch.seconds(), 30);
}

const RankBody stopped("launcher.stopped", [](const auto&) {
  if (my_rank() == 1) pause_s(0.5);
  std::exit(128 + SIGTERM);  // as asked by ranks of another machine, which somebody signalled
});

TEST(Launcher, AStopThatWasAskedForElsewhereIsNoFailure) {
  const test::Ranks r = run_ranks(2, "launcher.stopped");
  EXPECT_EQ(r.code, 128 + SIGTERM) << r.said;
  EXPECT_EQ(r.said.find("ERROR"), std::string::npos) << r.said;
  EXPECT_NE(r.said.find("have stopped, as those of another one were asked to"), std::string::npos) << r.said;
}

const RankBody teller("launcher.teller", [](const auto&) {
  require(my_rank() != 1, Fault::Io, "rank 0: cannot write x");
  pause_s(600);
});

TEST(Launcher, LeavesTheNameOfTheRankThatATextIsAbout) {
  const test::Ranks r = run_ranks(2, "launcher.teller");
  EXPECT_EQ(r.code, exit_code(Fault::Io)) << r.said;
  EXPECT_EQ(r.said.find("rank 1: rank 0"), std::string::npos) << r.said;
}

TEST(Launcher, NamesAMachineThatDoesNotResolve) {
  const LaunchPlan plan{.nodes = 2, .node = 1, .address = "no-such-machine.invalid"};
  const Stopwatch watch;
  const std::string text =
      test::refusal(Fault::Comm, [&] { launch({.plan = plan, .argv = {"ranks"}, .log_dir = "/tmp"}); });
  test::expect_says(text, "'no-such-machine.invalid' (MASTER_ADDR) does not resolve on this machine");
  EXPECT_LT(watch.seconds(), 60);
}

const RankBody killed("launcher.killed", [](const auto&) {
  std::fprintf(stderr, "last words\n");
  if (my_rank() == 1) ::raise(SIGKILL);
  pause_s(600);
});

TEST(Launcher, NamesARankThatWasKilled) {
  const test::Ranks r = run_ranks(2, "launcher.killed");
  EXPECT_EQ(r.code, 128 + SIGKILL);
  EXPECT_NE(r.said.find("rank 1 was ended by signal 9"), std::string::npos) << r.said;
  EXPECT_NE(r.said.find("last words"), std::string::npos) << r.said;
}

const RankBody waiting("launcher.waiting", [](const auto& arguments) {
  write_file_atomic(fs::path(arguments[0]) / str(my_rank()), str(::getpid()));
  pause_s(600);
});

bool alive(pid_t process) {  // a zombie without a parent that asks is gone
  std::error_code code;
  if (::kill(process, 0) != 0) return false;
  const std::string stat =
      fs::exists(str("/proc/", process, "/stat"), code) ? read_file(str("/proc/", process, "/stat")) : "";
  return !stat.empty() && stat.find(") Z ") == std::string::npos;
}

// A launcher of its own process, so that it can be signalled.
int signalled_launcher(int signal, const fs::path& dir) {
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    Launch plan{
        .plan = {.ranks = 2}, .argv = {"ranks", "--rank", "launcher.waiting", dir.string()}, .log_dir = dir / "logs"};
    ::_exit(launch(plan));
  }
  while (!fs::exists(dir / "0") || !fs::exists(dir / "1")) pause_s(0.02);
  ::kill(launcher, signal);
  int status = 0;
  ::waitpid(launcher, &status, 0);
  const Stopwatch watch;
  for (const char* rank : {"0", "1"}) {
    const pid_t process = std::atoi(read_file(dir / rank).c_str());
    while (alive(process) && watch.seconds() < 20) pause_s(0.02);
    EXPECT_FALSE(alive(process)) << "rank " << rank << " was left behind";
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(Launcher, PassesSignalsOn) {
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) {
    const test::Folder folder;
    EXPECT_EQ(signalled_launcher(signal, folder.path), 128 + signal);
  }
}

TEST(Launcher, LeavesNoOrphanWhenItIsKilled) {
  const test::Folder folder;
  EXPECT_EQ(signalled_launcher(SIGKILL, folder.path), 128 + SIGKILL);
}

}  // namespace
}  // namespace apus
