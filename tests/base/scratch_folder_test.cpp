// SPDX-License-Identifier: Apache-2.0
// Temporary folders of living processes stay, those of killed ones go.
#include "base/scratch_folder.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "base/error.h"
#include "base/files.h"
#include "tests/folder.h"

namespace apus {
namespace {
namespace fs = std::filesystem;

TEST(ScratchFolder, OfKilledProcessesGoWithTheNextOne) {
  const test::Folder temporary;
  const char* before = std::getenv("TMPDIR");
  const std::string kept = before ? before : "";
  ::setenv("TMPDIR", temporary.path.c_str(), 1);
  const pid_t child = ::fork();
  if (child == 0) {
    auto* const left = new ScratchFolder("apus-scratch-test");
    write_file_atomic(left->path() / "weights", "many");
    ::_exit(0);  // as a kill does it: nobody cleans up
  }
  ::waitpid(child, nullptr, 0);
  const fs::path dead = temporary.path / str("apus-scratch-test-", child), foreign = temporary.path / "apus-other-1";
  fs::create_directory(foreign);
  EXPECT_TRUE(fs::exists(dead / "weights"));
  {
    const ScratchFolder one("apus-scratch-test"), two("apus-scratch-other");
    EXPECT_FALSE(fs::exists(dead));
    EXPECT_TRUE(fs::exists(one.path())) << "the second one has taken the first for dead";
    EXPECT_TRUE(fs::exists(foreign)) << "it has no lock";
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(temporary.path), fs::directory_iterator()), 1);
  before ? ::setenv("TMPDIR", kept.c_str(), 1) : ::unsetenv("TMPDIR");
}

}  // namespace
}  // namespace apus
