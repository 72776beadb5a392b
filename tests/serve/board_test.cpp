// SPDX-License-Identifier: Apache-2.0
// Which runs the board lists, which lines it gives, and that it gives nothing else.
#include "serve/board.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "tests/folder.h"

namespace apus {
namespace {

namespace fs = std::filesystem;

struct Kept : Responder {
  HttpAnswer answer;
  void send(HttpAnswer a) override { answer = std::move(a); }
  void begin(HttpAnswer) override {}
  void write(std::string) override {}
  void end() override {}
  void on_gone(std::function<void()>) override {}
};

HttpAnswer board_answer(const fs::path& root, const std::string& path, const std::string& query = "") {
  auto call = std::make_shared<HttpCall>();
  call->method = "GET", call->path = path, call->query = query;
  const auto reply = std::make_shared<Kept>();
  Board(root).serve(call, reply);
  return reply->answer;
}

void write_run(const fs::path& folder, const std::string& lines) {
  fs::create_directories(folder);
  std::ofstream(folder / "logging.jsonl") << lines;
}

TEST(Board, ListsRunsAndGivesTheirLines) {
  const test::Folder root;
  write_run(root.path / "a" / "v0-1", "{\"loss\": 2.5, \"global_step/max_steps\": \"5/10\"}\n{\"loss\": 1");
  std::ofstream(root.path / "a" / "v0-1" / "args.json") << R"({"model": "/m/qwen", "tuner_type": "lora"})";
  write_run(root.path / "b", "{\"loss\": 1}\n{\"model_parameter_info\": \"x\", \"global_step\": 10}\n");
  write_run(root.path / "b" / "checkpoint-10", "{}\n");
  std::ofstream(root.path / "secret.txt") << "nobody's business";
  const Json list = Json::parse(board_answer(root.path, "/runs").body)["runs"];
  ASSERT_EQ(list.size(), 2u) << list;
  for (const Json& run : list) {
    if (run["name"] == "b") {
      EXPECT_TRUE(run["ended"]);
      continue;
    }
    EXPECT_EQ(run["name"], "a/v0-1");
    EXPECT_FALSE(run["ended"]);
    EXPECT_GE(run["age"], 0) << "seconds since its last line";
    EXPECT_EQ(run["loss"], 2.5);
    EXPECT_EQ(run["model"], "/m/qwen");
  }
  const Json part = Json::parse(board_answer(root.path, "/lines", "run=a%2Fv0-1&from=0").body);
  ASSERT_EQ(part["lines"].size(), 1u) << "half a line is not one yet";
  std::ofstream(root.path / "a" / "v0-1" / "logging.jsonl", std::ios::app) << ".5}\n";
  const Json rest = Json::parse(
      board_answer(root.path, "/lines", "run=a/v0-1&from=" + std::to_string(part["next"].get<int64_t>())).body);
  ASSERT_EQ(rest["lines"].size(), 1u);
  EXPECT_EQ(rest["lines"][0]["loss"], 1.5);
  EXPECT_EQ(board_answer(root.path, "/").content_type, "text/html; charset=utf-8");
}

TEST(Board, GivesNothingElse) {
  const test::Folder root;
  write_run(root.path / "in" / "a", "{}\n");
  write_run(root.path / "out", "{\"loss\": 1}\n");
  for (const char* name : {"..%2Fout", "../out", "/etc", "a/../../out", ""})
    EXPECT_EQ(board_answer(root.path / "in", "/lines", std::string("run=") + name).status, 404) << name;
  EXPECT_EQ(board_answer(root.path, "/secret.txt").status, 404);
  EXPECT_EQ(Json::parse(board_answer(root.path / "in", "/lines", "run=a&from=-5").body)["lines"].size(), 1u);
  EXPECT_EQ(Json::parse(board_answer(root.path / "in", "/lines", "run=a&from=999").body)["lines"].size(), 0u);
}

}  // namespace
}  // namespace apus
