// SPDX-License-Identifier: Apache-2.0
// Two runs never write in one folder, and a run that was killed locks nobody out.
#include "base/folder_lock.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "tests/folder.h"

namespace apus {
namespace {

// As another process sees it: its error, or "".
std::string locked_by_another(const std::filesystem::path& folder) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    std::string said;
    try {
      const FolderLock lock(folder);
    } catch (const Error& error) {
      said = str(static_cast<int>(error.at.fault == Fault::Usage), " ", error.what());
    }
    const bool told = ::write(ends[1], said.data(), said.size()) == static_cast<ssize_t>(said.size());
    ::_exit(told ? 0 : 1);
  }
  ::close(ends[1]);
  std::string said(4096, '\0');
  const ssize_t got = ::read(ends[0], said.data(), said.size());
  said.resize(got > 0 ? static_cast<size_t>(got) : 0);
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return said;
}

TEST(FolderLock, NamesTheProcessThatHoldsIt) {
  const test::Folder folder;
  {
    const FolderLock lock(folder.path);
    const std::string said = locked_by_another(folder.path);
    EXPECT_TRUE(said.starts_with("1 ")) << said;  // Fault::Usage
    EXPECT_NE(said.find(str("another run writes in this folder (process ", ::getpid(), " on ")), std::string::npos)
        << said;
  }
  EXPECT_EQ(locked_by_another(folder.path), "");
  EXPECT_FALSE(std::filesystem::exists(folder.path / ".lock"));
}

TEST(FolderLock, EndsWithAKilledProcess) {
  const test::Folder folder;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const FolderLock lock(folder.path);
    const bool told = ::write(ends[1], "x", 1) == 1;
    ::pause();
    ::_exit(told ? 0 : 1);
  }
  char c;
  ASSERT_EQ(::read(ends[0], &c, 1), 1);
  EXPECT_THROW(FolderLock(folder.path), Error);
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(std::filesystem::exists(folder.path / ".lock"));
  EXPECT_NO_THROW(FolderLock(folder.path));
  ::close(ends[0]), ::close(ends[1]);
}

}  // namespace
}  // namespace apus
