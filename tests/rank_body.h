// SPDX-License-Identifier: Apache-2.0
// Tests of several processes: the test program starts itself again, as ranks that run a body by name.
//
//   const test::RankBody body("sums", [](const std::vector<std::string>& arguments) { ...EXPECT_EQ... });
//   TEST(Sums, AreRight) { EXPECT_EQ(test::run_ranks(2, "sums").code, 0); }
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/log.h"
#include "dist/launch/launcher.h"

namespace apus::test {

using Body = std::function<void(const std::vector<std::string>& arguments)>;

inline std::map<std::string, Body>& rank_bodies() {
  static std::map<std::string, Body> bodies;
  return bodies;
}

struct RankBody {
  RankBody(const char* name, Body body) { rank_bodies()[name] = std::move(body); }
};

// The main of a rank: failed expectations give 1, an Error its exit code, told to the launcher.
inline int run_rank_body(const std::string& name, const std::vector<std::string>& arguments) {
  try {
    rank_bodies().at(name)(arguments);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    tell_launcher(error.at.fault, error.what());
    return exit_code(error.at.fault);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 70;
  }
  return ::testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed() ? 1 : 0;
}

struct Ranks {
  int code;
  std::string said;  // by the launcher
};

inline Ranks run_ranks(int count, const std::string& body, const std::vector<std::string>& arguments = {}) {
  const auto dir = std::filesystem::temp_directory_path() / str("apus-ranks-", ::getpid());
  Launch plan{.plan = {.ranks = count}, .argv = {"ranks", "--rank", body}, .log_dir = dir, .grace_s = 3};
  plan.argv.insert(plan.argv.end(), arguments.begin(), arguments.end());
  ::testing::internal::CaptureStderr();
  const int code = launch(plan);
  Ranks result{code, ::testing::internal::GetCapturedStderr()};
  for (int r = 1; r < count && code == 1; ++r)
    result.said += str("\n-- rank ", r, "\n", read_file(dir / str("rank", r, ".log")));
  std::filesystem::remove_all(dir);
  return result;
}

}  // namespace apus::test
