// SPDX-License-Identifier: Apache-2.0
// Modelfiles: the form of a chat found by rendering its template, and what ollama is told of it.
#include "checkpoint/ollama.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "tests/folder.h"
#include "tests/paths.h"

namespace apus {
namespace {
namespace fs = std::filesystem;

TEST(Ollama, TheTemplateIsThatOfTheChatInGo) {
  const auto form = turn_form(ChatTemplate::from_text(
      "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n'}}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
      "test"));
  ASSERT_TRUE(form.has_value());
  EXPECT_EQ(go_template(*form),
            "{{ if .System }}<|im_start|>system\n{{ .System }}<|im_end|>\n{{ else }}{{ end }}{{ if .Prompt "
            "}}<|im_start|>user\n"
            "{{ .Prompt }}<|im_end|>\n<|im_start|>assistant\n{{ end }}{{ .Response }}<|im_end|>\n");
}

TEST(Ollama, WhatStandsWithoutASystemPromptIsFound) {
  const auto form = turn_form(
      ChatTemplate::from_text("{% if messages[0]['role'] != 'system' %}S: be kind\n{% endif %}"
                              "{% for m in messages %}{{ m['role'][0] | upper }}: {{ m['content'] }}\n{% endfor %}"
                              "{% if add_generation_prompt %}A: {% endif %}",
                              "test"));
  ASSERT_TRUE(form.has_value());
  EXPECT_EQ(form->without_system, "S: be kind\n");
  EXPECT_EQ(form->before_prompt, "U: ");
  EXPECT_EQ(form->after_prompt, "\nA: ");
}

TEST(Ollama, AChatOfAnotherFormHasNoTemplate) {
  EXPECT_FALSE(turn_form(ChatTemplate::from_text("{{ messages | length }}", "test")).has_value());
  EXPECT_FALSE(turn_form(ChatTemplate::from_text("{{ raise_exception('no') }}", "test")).has_value());
}

TEST(Ollama, AModelfileNamesWeightsTemplateStopsAndSampling) {
  const test::Folder folder;
  const fs::path from = test::source_dir() / "tests/data/gguf/llama_q8_0/hf_checkpoint";
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"}) fs::copy_file(from / file, folder.path / file);
  write_file_atomic(
      folder.path / "chat_template.jinja",
      "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n'}}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}");
  write_file_atomic(folder.path / "generation_config.json",
                    R"({"eos_token_id": [578, 576], "temperature": 0.7, "top_k": 20, "repetition_penalty": 1.05})");
  std::string note;
  const std::string text = modelfile(folder.path, folder.path / "a.gguf", ChatTemplate::find(folder.path), &note);
  EXPECT_EQ(text.substr(0, text.find('\n')), "FROM " + (folder.path / "a.gguf").string());
  EXPECT_NE(text.find("\nTEMPLATE \"\"\"{{ if .System }}<|im_start|>system\n"), std::string::npos) << text;
  const std::string end =
      "PARAMETER stop \"<|im_end|>\"\nPARAMETER stop \"<|endoftext|>\"\nPARAMETER temperature 0.7\nPARAMETER top_k 20\n"
      "PARAMETER repeat_penalty 1.05\n";
  EXPECT_TRUE(text.ends_with(end)) << text;
  EXPECT_EQ(note, "");
  modelfile(folder.path, folder.path, std::nullopt, &note);
  EXPECT_NE(note, "");
}

}  // namespace
}  // namespace apus
