// SPDX-License-Identifier: Apache-2.0
// The tests' main.
#include <gtest/gtest.h>

#include "tests/paths.h"
#include "tests/rank_body.h"

namespace {

// The folder of the build that this program lies in; a copied build folder finds itself.
std::filesystem::path build_of_this_program() {
  std::error_code code;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", code);
  const auto build = program.parent_path().parent_path();  // <build>/tests/<program>
  return !code && std::filesystem::exists(build / "CMakeCache.txt", code) ? build : APUS_BINARY_DIR;
}

}  // namespace

std::filesystem::path apus::test::source_dir() {
  std::error_code code;
  const auto beside = build_of_this_program().parent_path();
  return std::filesystem::exists(beside / "tests" / "paths.h", code) ? beside : APUS_SOURCE_DIR;
}
std::filesystem::path apus::test::binary_dir() { return build_of_this_program(); }

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc >= 3 && std::string(argv[1]) == "--rank") return apus::test::run_rank_body(argv[2], {argv + 3, argv + argc});
  return RUN_ALL_TESTS();
}
