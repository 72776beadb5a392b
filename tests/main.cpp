// SPDX-License-Identifier: Apache-2.0
// The tests' main.
#include <gtest/gtest.h>

#include "tests/paths.h"
#include "tests/rank_body.h"

std::filesystem::path apus::test::source_dir() { return APUS_SOURCE_DIR; }
std::filesystem::path apus::test::binary_dir() { return APUS_BINARY_DIR; }

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc >= 3 && std::string(argv[1]) == "--rank") return apus::test::run_rank_body(argv[2], {argv + 3, argv + argc});
  return RUN_ALL_TESTS();
}
