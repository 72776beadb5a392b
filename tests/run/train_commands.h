// SPDX-License-Identifier: Apache-2.0
// apus sft as a command line gives it, on a tiny model of its own.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/lines.h"
#include "cli/init.h"
#include "cli/train.h"
#include "run/runner.h"
#include "tests/paths.h"

namespace apus::test {

class TrainCommands : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir() = std::filesystem::temp_directory_path() / str("apus-train-commands-", ::getpid());
    InitOptions o;
    o.config = o.tokenizer = island().string();
    o.output_dir = (dir() / "model").string();
    o.torch_dtype = "float32";
    o.common.seed = 5;
    ASSERT_EQ(apus_run_command("init", &o), 0);
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(dir()); }
  static std::filesystem::path& dir() {
    static std::filesystem::path path;
    return path;
  }
  static std::filesystem::path island() { return source_dir() / "examples/island"; }

  // What the program does with a command line, less its own error handling.
  template <class Options>
  static Options parsed(const std::vector<std::string>& arguments, Options options = Options()) {
    OptionTable table = OptionTable::of(options);
    table.parse(arguments);
    options.resolve(table);
    options.check();
    if constexpr (requires { options.fetch(); }) options.fetch();
    return options;
  }
  static std::vector<std::string> sft_words(const std::string& out, std::vector<std::string> more) {
    std::vector<std::string> words = {"--model",
                                      (dir() / "model").string(),
                                      "--output_dir",
                                      (dir() / out).string(),
                                      "--add_version",
                                      "false",
                                      "--device",
                                      "cpu",
                                      "--max_steps",
                                      "2",
                                      "--per_device_train_batch_size",
                                      "2",
                                      "--gradient_accumulation_steps",
                                      "1",
                                      "--report_to",
                                      "none"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  static void sft(const std::string& out, const std::vector<std::string>& more) {
    const auto options = parsed<TrainRun>(sft_words(out, more));
    ASSERT_EQ(apus_run_command("train", &options), 0);
  }
  static std::vector<Json> lines(const std::filesystem::path& path) {
    std::vector<Json> out;
    LineReader reader(path.string());
    for (std::string line; reader.next(line);) out.push_back(Json::parse(line));
    return out;
  }
};

}  // namespace apus::test
