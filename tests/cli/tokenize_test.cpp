// SPDX-License-Identifier: Apache-2.0
#include "cli/tokenize.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/assets.h"
#include "base/files.h"
#include "cli/command.h"

namespace apus {
namespace {
namespace fs = std::filesystem;

const char* const kTemplate =
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}: {{ m.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant:{% endif %}";

fs::path folder() {
  const fs::path dir = fs::path(testing::TempDir()) / "apus-tokenize";
  fs::create_directories(dir);
  write_file_atomic(dir / "tokenizer.json", asset("tokenizer/tokenizer.json"));
  write_file_atomic(dir / "chat_template.jinja", kTemplate);
  return dir;
}

struct Rows {
  explicit Rows(std::vector<std::string> arguments) {
    OptionTable table = OptionTable::of(options);
    arguments.insert(arguments.end(), {"--dataset", "-"});
    table.parse(arguments);
    options.resolve(table);
    options.check();
    tokenizer.emplace(options);
  }
  Json operator()(const std::string& row) { return tokenizer->row(row); }
  TokenizeOptions options;
  std::optional<RowTokenizer> tokenizer;
};

TEST(Tokenize, RowsOfEveryFormat) {
  Rows rows({"--tokenizer", folder().string()});
  const fs::path dir = folder();
  const auto all = [&](const std::string& name, const std::string& text) {
    write_file_atomic(dir / name, text);
    const auto reader = open_reader(dir / name);
    std::vector<Json> answers;
    while (auto answer = rows.tokenizer->next_of(*reader)) answers.push_back(*answer);
    return answers;
  };
  const Json expected = rows(R"({"text": "Hello world"})");
  const Json chat = rows(R"({"messages": [{"role": "user", "content": "x"}]})");
  const auto csv = all("rows.csv",
                       "text,messages,ids\nHello world,,\n,\"[{\"\"role\"\": \"\"user\"\", \"\"content\"\": "
                       "\"\"x\"\"}]\",\n,,\"[1, 2]\"\n,{,\n");
  ASSERT_EQ(csv.size(), 4u);
  EXPECT_EQ(csv[0], expected);
  EXPECT_EQ(csv[1], chat);
  EXPECT_EQ(csv[2]["ids"], Json({1, 2}));
  EXPECT_NE(csv[3]["error"].get<std::string>().find("key 'messages'"), std::string::npos) << csv[3];
  EXPECT_EQ(all("rows.json", R"([{"text": "Hello world"}])").at(0), expected);
  EXPECT_EQ(all("rows.txt", "Hello world\n").at(0), expected);
  EXPECT_THROW(all("cut.json", R"([{"text": "Hello world"})"), Error);  // rather than errors without an end
}

TEST(Tokenize, TextToIdsAndBack) {
  Rows rows({"--tokenizer", folder().string()});
  const Json there = rows(R"({"text": "Hello world, 2024\u00e9<|im_end|>!"})");
  ASSERT_FALSE(there.contains("error")) << there.dump();
  EXPECT_EQ(there["ids"].size(), there["tokens"].size());
  std::string joined;
  for (const auto& piece : there["pieces"]) joined += piece.get<std::string>();
  EXPECT_EQ(joined, there["text"]);
  const auto& pieces = there["pieces"];
  EXPECT_NE(std::find(pieces.begin(), pieces.end(), "<|im_end|>"), pieces.end()) << "an added token is one piece";
  EXPECT_EQ(rows(R"({"messages": null, "text": "a", "ids": null})")["text"], "a") << "as tables write empty cells";
  const Json back = rows(Json{{"ids", there["ids"]}}.dump());
  EXPECT_EQ(back["text"], there["text"]);
  Rows without({"--tokenizer", folder().string(), "--skip_special_tokens"});
  EXPECT_EQ(without(Json{{"ids", there["ids"]}}.dump())["text"], "Hello world, 2024\u00e9!");
}

TEST(Tokenize, Conversations) {
  Rows rows(
      {"--tokenizer", folder().string(), "--render_only", "true", "--chat_template_kwargs", R"({"bos_token": "<a>"})"});
  EXPECT_EQ(rows(R"({"messages": [{"role": "user", "content": "hi"}], "add_generation_prompt": true})"),
            Json::parse(R"({"text": "<a><|im_start|>user: hi<|im_end|><|im_start|>assistant:"})"));
  EXPECT_EQ(rows(R"({"messages": [], "chat_template_kwargs": {"bos_token": "<b>"}})")["text"], "<b>")
      << "a row's own come first";
  EXPECT_EQ(
      rows(R"({"messages": [{"role": "assistant", "content": "go on"}], "continue_final_message": true})")["text"],
      "<a><|im_start|>assistant: go on");
  Rows own({"--render_only", "--template", "chatml"});
  EXPECT_EQ(own(R"({"messages": [{"role": "user", "content": "hi"}]})")["text"], "<|im_start|>user\nhi<|im_end|>\n");
  EXPECT_THROW(Rows({"--render_only", "--template", "chatlm"}), Error);
  EXPECT_THROW(Rows({"--render_only", "--template", "chatml", "--chat_template", "{{ 1 }}"}), Error);
  Rows ids({"--tokenizer", folder().string()});
  EXPECT_GT(ids(R"({"messages": [{"role": "user", "content": "hi"}]})")["ids"].size(), 4u);
}

TEST(Tokenize, TheClockCanBeFixed) {
  Rows rows({"--render_only", "--chat_template", "{{ strftime_now('%d %b %Y %H:%M') }}"});
  EXPECT_EQ(rows(R"({"messages": [], "now": "2025-07-04T12:34:56"})")["text"], "04 Jul 2025 12:34");
  EXPECT_TRUE(rows(R"({"messages": [], "now": 5})").contains("error"));
}

TEST(Tokenize, BadRowsAreAnsweredInTheirPlace) {
  Rows rows({"--tokenizer", folder().string()});
  for (const char* row :
       {"not json", "[]", "{}", R"({"text": 5})", R"({"ids": ["a"]})", R"({"ids": [-1]})", R"({"ids": [99999999999]})",
        R"({"messages": [], "add_generation_prompt": "yes"})", R"({"messages": [], "chat_template_kwargs": []})"}) {
    EXPECT_TRUE(rows(row).contains("error")) << row;
  }
  EXPECT_EQ(rows.tokenizer->errors(), 9);
  EXPECT_EQ(rows(std::string("{\"text\": \"a\xFF\"}"))["text"], "a\xEF\xBF\xBD") << "bytes that are no UTF-8";
  Rows broken({"--render_only", "--chat_template", "{% if %}"});
  EXPECT_TRUE(broken(R"({"messages": []})").contains("error"));
  Rows raising({"--render_only", "--chat_template", "{{ raise_exception('only two') }}"});
  EXPECT_EQ(raising(R"({"messages": []})")["error"], "only two");
}

TEST(Tokenize, WhatIsNeededIsAskedFor) {
  const auto wrong = [](std::vector<std::string> arguments) {
    try {
      Rows rows(std::move(arguments));
    } catch (const Error& error) {
      return error.at.fault;
    }
    return Fault::Bug;
  };
  EXPECT_EQ(wrong({}), Fault::Usage);
  EXPECT_EQ(wrong({"--render_only"}), Fault::Usage);
  EXPECT_EQ(wrong({"--render_only", "--chat_template", "/nowhere.jinja"}), Fault::Io);
  EXPECT_EQ(wrong({"--tokenizer", "/nowhere"}), Fault::Io);
  EXPECT_EQ(wrong({"--tokenizer", testing::TempDir()}), Fault::Model) << "a folder without one";
}

}  // namespace
}  // namespace apus
