// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "cli/command.h"
#include "tests/paths.h"
#include "tests/refusal.h"

namespace apus {
namespace {

std::string shown(const std::vector<std::string>& words) {
  const auto instance = find_command("show")->make(words);
  instance->table.parse(words);
  instance->resolve(instance->table);
  testing::internal::CaptureStdout();
  const int code = instance->run();
  const std::string out = testing::internal::GetCapturedStdout();
  EXPECT_EQ(code, 0) << out;
  return out;
}

TEST(Show, SaysWhatAGgufFileIs) {
  const std::string file = (test::source_dir() / "tests/data/gguf/qwen2_q4_0/model.gguf").string();
  const std::string out = shown({"--model", file, "--weights", "false"});
  test::expect_says(out, "qwen2 (Qwen2ForCausalLM)");
  test::expect_says(out, "layers ");
  test::expect_says(out, "an answer ends with ");
}

TEST(Show, AFolderWithoutATokenizerIsShownAllTheSame) {
  const std::string out = shown(
      {"--model", (test::source_dir() / "tests/data/models/deepseek_v3/checkpoint").string(), "--weights", "false"});
  test::expect_says(out, "8 experts, 3 for a token");
  test::expect_says(out, "tokenizer      not read: ");
}

}  // namespace
}  // namespace apus
