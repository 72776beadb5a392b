// SPDX-License-Identifier: Apache-2.0
// Names for datasets, and the names that self-cognition rows leave open.
#include "data/source/dataset_info.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/rows/self_name.h"
#include "data/source/datasets.h"
#include "tests/data/data_test_tools.h"

namespace apus {
namespace {

TEST(DatasetInfo, NamesPathsHubsAndColumns) {
  TemporaryFolder dir;
  dir.write("mine.jsonl", "{\"ask\": \"a\", \"say\": \"b\"}\n{\"ask\": \"c\", \"say\": \"d\"}\n");
  const auto file = dir.write(
      "info.json",
      R"([{"dataset_name": "mine", "dataset_path": "mine.jsonl", "columns": {"ask": "query", "say": "response"}},
    {"dataset_name": "both", "ms_dataset_id": "m/d", "hf_dataset_id": "h/d", "subsets": ["one"]}, {"hf_dataset_id": "only/hf"}])");
  const DatasetInfo info({file.string()});
  EXPECT_EQ(info.resolve(parse_dataset_ref("both#5"), true).ref.id, "h/d");
  EXPECT_EQ(info.resolve(parse_dataset_ref("both#5"), true).ref.count, 5);
  EXPECT_EQ(info.resolve(parse_dataset_ref("both"), false).ref.id, "m/d");
  EXPECT_EQ(info.resolve(parse_dataset_ref("both"), false).ref.subsets, std::vector<std::string>{"one"});
  EXPECT_EQ(info.resolve(parse_dataset_ref("both:two"), false).ref.subsets, std::vector<std::string>{"two"});
  EXPECT_EQ(info.resolve(parse_dataset_ref("only/hf"), false).ref.hub, DatasetRef::Hub::HuggingFace);
  EXPECT_EQ(info.resolve(parse_dataset_ref("other/set"), false).ref.id, "other/set");

  DatasetOptions options;
  options.train = {"mine"};
  options.known = info;
  RejectLog rejects({});
  const Datasets sets = load_datasets(options, rejects);
  ASSERT_EQ(sets.train.size(), 2u);
  EXPECT_EQ(sets.rows->row(0).value["messages"][1]["content"], "b");
}

TEST(DatasetInfo, WhatIsNotUnderstoodIsSaid) {
  TemporaryFolder dir;
  const auto error = [&](const std::string& text) -> std::string {
    try {
      DatasetInfo({dir.write("info.json", text).string()});
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(error("{}").find("a list of objects"), std::string::npos);
  EXPECT_NE(error(R"([{"dataset_name": "x"}])").find("needs dataset_path"), std::string::npos);
  EXPECT_NE(error(R"([{"dataset_path": "x", "messages": {}}])").find("'messages' is not honoured"), std::string::npos);
}

TEST(SelfName, IsPutByLanguage) {
  const SelfName names{{"小马", "Pony"}, {"我们", "Us"}};
  const auto put = [&](const char* text, const Json& tag) {
    Json messages = Json::array({{{"role", "user"}, {"content", text}}});
    put_names(messages, tag, names);
    return messages[0]["content"].get<std::string>();
  };
  EXPECT_EQ(put("I am {{NAME}} by {{AUTHOR}}, {{NAME}}.", "en"), "I am Pony by Us, Pony.");
  EXPECT_EQ(put("I am {{NAME}}.", nullptr), "I am Pony.");
  EXPECT_EQ(put("我是{{NAME}}。", nullptr), "我是小马。");
  EXPECT_EQ(put("{{NAME}}", "zh"), "小马");
  Json messages = Json::array({{{"role", "user"}, {"content", "{{NAME}}"}}});
  put_names(messages, nullptr, {{"One"}, {}});
  EXPECT_EQ(messages[0]["content"], "One");
}

}  // namespace
}  // namespace apus
