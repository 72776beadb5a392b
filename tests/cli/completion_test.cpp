// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "cli/shell_words.h"
#include "tests/refusal.h"
#include "tests/shell.h"

namespace apus {
namespace {

std::vector<std::string> words(const std::vector<std::string>& typed) { return completed(all_commands(), typed); }
bool has(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

TEST(Completion, KnowsCommandsFlagsAndValues) {
  EXPECT_EQ(words({"merg"}), std::vector<std::string>{"merge-lora"});
  EXPECT_TRUE(has(words({""}), "sft"));
  EXPECT_EQ(words({"completion", "z"}), std::vector<std::string>{"zsh"});
  EXPECT_TRUE(has(words({"sft", "--lora_r"}), "--lora_rank"));
  EXPECT_FALSE(has(words({"infer", "--"}), "--attn_impl")) << "it changes nothing";
  EXPECT_EQ(words({"sft", "--model", "m", "--torch_dtype", "bf"}), std::vector<std::string>{"bfloat16"});
  EXPECT_EQ(words({"infer", "--stream", ""}), (std::vector<std::string>{"true", "false"}));
  EXPECT_TRUE(words({"infer", "--model", "a"}).empty()) << "a file, which the shell knows";
  EXPECT_TRUE(words({"no-such-command", "--x"}).empty());
  // Flags of the algorithm that is asked for.
  EXPECT_TRUE(has(words({"rlhf", "--rlhf_type", "grpo", "--num_gen"}), "--num_generations"));
  EXPECT_FALSE(has(words({"rlhf", "--rlhf_type", "dpo", "--num_gen"}), "--num_generations"));
  EXPECT_TRUE(has(words({"megatron", "sft", "--lora_r"}), "--lora_rank"));
}

TEST(Completion, ScriptsAreReadByTheirShells) {
  // bash asks with the words up to the one that is typed, and the program itself answers.
  const auto bash = test::shell(str("bash -c 'apus() { ", test::program(), " \"$@\"; }; ",
                                    "source <(apus completion bash); COMP_WORDS=(apus merge-l); COMP_CWORD=1; _apus; ",
                                    "echo ${COMPREPLY[*]}'"));
  EXPECT_EQ(bash.out, "merge-lora\n");
  for (const char* shell : {"bash", "zsh", "fish"})
    EXPECT_NE(completion_script(shell).find("apus --complete"), std::string::npos) << shell;
  EXPECT_NE(test::refusal(Fault::Usage, [] { completion_script("tcsh"); }).find("bash, zsh or fish"),
            std::string::npos);
}

TEST(Manual, EachCommandHasAPageOfItsOptions) {
  const std::string all = manual_page(all_commands(), nullptr, "1");
  EXPECT_EQ(all.rfind(".TH APUS 1", 0), 0u);
  for (const Command* command : all_commands()) {
    const std::string page = manual_page(all_commands(), command, "1");
    EXPECT_NE(page.find(".SH NAME\n"), std::string::npos) << command->info.name;
    // A line that begins with a point is a request that man knows.
    for (size_t at = 0; (at = page.find("\n.", at)) != std::string::npos; ++at) {
      const std::string request = page.substr(at + 2, 2);
      EXPECT_TRUE(request == "SH" || request == "TP" || request == "B " || request == "BR" || request == "nf" ||
                  request == "fi")
          << command->info.name << ": ." << request;
    }
  }
  EXPECT_NE(manual_page(all_commands(), find_command("infer"), "1").find(".B \\-\\-max_new_tokens\n"),
            std::string::npos);
}

}  // namespace
}  // namespace apus
