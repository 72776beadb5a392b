// SPDX-License-Identifier: Apache-2.0
// Every shape of row that people bring comes out as the canonical one;
// what is of no use is refused with the right words.
#include "data/rows/normalize.h"

#include <gtest/gtest.h>

#include "data/rows/media_refs.h"
#include "tests/data/data_test_tools.h"

namespace apus {
namespace {

Row seventh_row(const std::string& text) {
  return {Json::parse(text), {std::make_shared<const std::string>("rows.jsonl"), 7, false}};
}
Json normal(const std::string& text, const NormalizeOptions& options = {}) {
  return normalize_row(seventh_row(text), options);
}
std::string refused(const std::string& text, const NormalizeOptions& options = {}) {
  return error_of([&] { normal(text, options); });
}

// "user: a | assistant: b"
std::string turns(const Json& row, const char* key = "messages") {
  std::string out;
  for (const auto& m : row[key])
    out += (out.empty() ? "" : " | ") + m["role"].get<std::string>() + ": " + m["content"].get<std::string>();
  return out;
}

TEST(Normalize, SaysWhichColumnsCouldBeTheQuestion) {
  std::vector<std::string> remarks;
  const auto note = [&](const std::string& text) { remarks.push_back(text); };
  const std::string refused =
      error_of([&] { normalize_row(seventh_row(R"({"question":"a","prompt":"b","answer":"c"})"), {}, note); });
  EXPECT_NE(refused.find("several columns could be the query: question, prompt. Say which one by --columns "
                         "'{\"question\": \"query\"}'"),
            std::string::npos)
      << refused;
  // Where the answer is not sure, the row may still be a question to answer.
  normalize_row(seventh_row(R"({"query":"a","answer":"b","solution":"c"})"), {}, note);
  ASSERT_EQ(remarks.size(), 1u);
  EXPECT_NE(remarks[0].find("several columns could be the response: answer, solution; none of them is used"),
            std::string::npos);
  // A conversation needs no question beside it.
  normalize_row(seventh_row(R"({"messages":[{"role":"user","content":"x"}],"question":"a","prompt":"b"})"), {}, {});
  normalize_row(seventh_row(R"({"query":"a","prompt":"b","answer":"c"})"), {}, note);
  normalize_row(seventh_row(R"({"question":"a","prompt":"b","answer":"c"})"), {.columns = {{"prompt", "query"}}}, note);
  EXPECT_EQ(remarks.size(), 1u);
}

TEST(Normalize, KnowsTheShapesOfRows) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":"a"},{"role":"assistant","content":"b"}]})",
       "system: s | user: a | assistant: b"},
      {R"({"conversations":[{"from":"human","value":"a"},{"from":"gpt","value":"b"}],"system":"s"})",
       "system: s | user: a | assistant: b"},
      {R"({"system":"s","conversation":[{"human":"a","assistant":"b"},{"human":"c","assistant":"d"}]})",
       "system: s | user: a | assistant: b | user: c | assistant: d"},
      {R"({"instruction":"do","input":"it","output":"done"})", "user: do\nit | assistant: done"},
      {R"({"instruction":"do","input":"","output":"done"})", "user: do | assistant: done"},
      {R"({"instruction":"do","input":null,"output":"done","system":""})", "user: do | assistant: done"},
      {R"({"instruction":"add","input":5,"output":7})", "user: add\n5 | assistant: 7"},
      {R"({"messages":[{"role":"user","content":"a"},{"role":"tool","content":{"b":[1.0,"é"],"c":null}}]})",
       "user: a | tool: {\"b\": [1.0, \"é\"], \"c\": null}"},
      {R"({"query":"a","response":"b","history":[["x","y"],["z","w"]],"system":"s"})",
       "system: s | user: x | assistant: y | user: z | assistant: w | user: a | assistant: b"},
      {R"({"query":"a","response":"b","history":"[['x', 'it\\'s']]"})",
       "user: x | assistant: it's | user: a | assistant: b"},
      {R"({"text":"only"})", "assistant: only"},
      {R"({"Question":"a","ANSWER":"b"})", "user: a | assistant: b"},
      {R"({"problem":"a","solution":"b","system_prompt":"s"})", "system: s | user: a | assistant: b"},
      {R"({"query":"a","response":["b","c"]})", "user: a | assistant: b"},
      {R"({"query":"a","prompt":"ignored","response":"b"})", "user: a | assistant: b"},
      {R"({"response":"b","answer":"c","query":"a"})", "user: a | assistant: b"},
      {R"({"prompt":[{"role":"user","content":"a"}],"completion":[{"role":"assistant","content":"b"}]})",
       "user: a | assistant: b"},
      {R"({"messages":"[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}]"})",
       "user: a | assistant: b"},
      {R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"assistant","content":"c"}]})",
       "user: a | assistant: bc"},
      {R"({"messages":[{"from":"user","value":"a"},{"from":"function_call","value":"{}"},{"from":"observation","value":"r"},{"from":"bot","value":"b"}]})",
       "user: a | tool_call: {} | tool_response: r | assistant: b"},
      {R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","reasoning_content":"hm","content":"b"}]})",
       "user: a | assistant: <think>\nhm\n</think>\n\nb"},
  };
  for (const auto& [row, wanted] : cases) EXPECT_EQ(turns(normal(row)), wanted) << row;
}

TEST(Normalize, RenamesAndKeepsColumns) {
  NormalizeOptions options;
  options.columns = {{"frage", "query"}, {"antwort", "response"}};
  EXPECT_EQ(turns(normal(R"({"frage":"a","antwort":"b"})", options)), "user: a | assistant: b");
  options = {};
  options.auto_mapping = false;
  EXPECT_NE(refused(R"({"question":"a","answer":"b"})", options).find("no column with a conversation"),
            std::string::npos);
  options = {};
  EXPECT_FALSE(normal(R"({"query":"a","response":"b","extra":1})", options).contains("extra"));
  options.keep_unused = true;
  EXPECT_EQ(normal(R"({"query":"a","response":"b","extra":1})", options)["extra"], 1);
  EXPECT_EQ(normal(R"({"query":"a","solution":"b"})")["solution"], "b");
  EXPECT_EQ(normal(R"({"query":"a","response":"b","label":"1","channel":"math","margin":0.5})")["label"], 1);
  EXPECT_EQ(normal(R"({"query":"a","response":"b","label":"True"})")["label"], true);
}

TEST(Normalize, KeepsLossMarks) {
  const Json row = normal(
      R"({"messages":[{"role":"user","content":"a","extra":1},{"role":"assistant","content":"b","loss":false},{"role":"user","content":"c"},{"role":"assistant","content":"d","loss":1,"loss_scale":0.5}]})");
  EXPECT_EQ(row["messages"][1]["loss"], false);
  EXPECT_EQ(row["messages"][3]["loss"], true);
  EXPECT_EQ(row["messages"][3]["loss_scale"], 0.5);
  EXPECT_FALSE(row["messages"][0].contains("extra"));
}

TEST(Normalize, ToolsOfOpenAiAndAnthropic) {
  const Json row = normal(R"({"tools":"[{\"name\":\"f\",\"parameters\":{}}]","messages":[{"role":"user","content":"a"},
    {"role":"assistant","content":"thinking","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"x\": 1}"}},{"function":{"name":"g","arguments":{"y":[2]}}}]},
    {"role":"tool","content":"r","tool_call_id":"1"},{"role":"assistant","content":"b"}]})");
  EXPECT_EQ(
      turns(row),
      R"(user: a | assistant: thinking | tool_call: {"name":"f","arguments":{"x":1}} | tool_call: {"name":"g","arguments":{"y":[2]}} | tool: r | assistant: b)");
  EXPECT_EQ(row["tools"], Json::parse(R"([{"type":"function","function":{"name":"f","parameters":{}}}])"));
  const Json blocks = normal(
      R"({"messages":[{"role":"user","content":[{"type":"text","text":"look "},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}]},
    {"role":"assistant","content":[{"type":"text","text":"I call"},{"type":"tool_use","id":"t","name":"f","input":{"x":1}}]},
    {"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"42"}]}]},{"role":"assistant","content":[{"type":"text","text":"done"}]}]})");
  EXPECT_EQ(
      turns(blocks),
      R"(user: look <image> | assistant: I call | tool_call: {"name":"f","arguments":{"x":1}} | tool: 42 | assistant: done)");
  EXPECT_EQ(blocks["images"], Json::parse(R"(["data:image/png;base64,AAAA"])"));
}

TEST(Normalize, MediaOfAllForms) {
  const Json parts = normal(
      R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://x/a.png"}},{"type":"image","image":"b.png"},{"type":"text","text":"what?"},
    {"type":"video","video":["f1.png","f2.png"]}]},{"role":"assistant","content":"c"}]})");
  EXPECT_EQ(turns(parts), "user: <image><image>what?<video> | assistant: c");
  EXPECT_EQ(parts["images"], Json::parse(R"(["http://x/a.png","b.png"])"));
  EXPECT_EQ(parts["videos"], Json::parse(R"([["f1.png","f2.png"]])"));
  EXPECT_EQ(normal(R"({"query":"<image>a","response":"b","image":"x.png"})")["images"], Json::parse(R"(["x.png"])"));
  EXPECT_EQ(normal(R"({"query":"<image>a","response":"b","image":{"bytes":null,"path":"x.png"}})")["images"],
            Json::parse(R"(["x.png"])"));
  EXPECT_EQ(normal(R"({"query":"<image>a","response":"b","images":"['x.png', 'y.png']"})")["images"],
            Json::parse(R"(["x.png","y.png"])"));
  const Json old =
      normal(R"({"query":"<image>a<img>y.png</img><img>a/y.png</img>b","response":"c","images":["x.png"]})");
  EXPECT_EQ(turns(old), "user: <image>a<img>y.png</img><image>b | assistant: c");  // what is no path stays as it is
  EXPECT_EQ(old["images"], Json::parse(R"(["x.png","a/y.png"])"));
  const Json boxes = normal(
      R"({"query":"<image>a","response":"b","images":["x.png"],"objects":"{\"ref\": [\"dog\"], \"bbox\": [[5, 1, 2, 9]]}"})");
  EXPECT_EQ(boxes["objects"]["bbox"], Json::parse("[[2,1,5,9]]"));
}

TEST(Normalize, Preferences) {
  const Json row = normal(
      R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"good"}],"rejected_response":"bad","margin":"2"})");
  EXPECT_EQ(turns(row, "rejected_messages"), "user: a | assistant: bad");
  EXPECT_EQ(row["margin"], 2);
  EXPECT_NE(refused(R"({"query":"a","response":"same","rejected_response":"same"})").find("same as the chosen"),
            std::string::npos);
  EXPECT_NE(refused(R"({"query":"a","response":"b","rejected_response":[{"role":"user","content":"x"}]})")
                .find("rejected_messages"),
            std::string::npos);
  EXPECT_EQ(
      normal(R"({"messages":[{"role":"user","content":"a"}],"positive_messages":[[{"role":"user","content":"p"}]]})")
          ["positive_messages"][0][0]["content"],
      "p");
}

TEST(Normalize, NamesFileLineKeyAndReason) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"messages":[]})", "rows.jsonl, line 7, key 'messages': must be a list of messages, is an empty list"},
      {R"({"messages":[{"role":"narrator","content":"a"}]})", "key 'messages[0].role': unknown role 'narrator'"},
      {R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":null}]})",
       "key 'messages[1].content': content is missing or null"},
      {R"({"messages":[{"content":"a"}]})", "has no role"},
      {R"({"messages":"a"})", "key 'messages': the text in it should be JSON, but is plain text"},
      {R"({"messages":"\"\\\"a\\\"\""})", "but is plain text"},
      {R"({"query":"a","response":"b","tools":"a"})", "key 'tools': the text in it should be JSON, but is plain text"},
      {R"({"foo":1,"bar":null})", "this row has foo, bar (null)"},
      {R"({"query":{"a":1},"response":"b"})", "key 'query': must be a text, is object"},
      {R"({"query":"a","response":"b","history":"[["})", "key 'history'"},
      {R"({"query":"a","response":"b","objects":{"bbox":[[1,2,3]]}})", "a box has 2 or 4 numbers"},
  };
  for (const auto& [row, words] : cases) EXPECT_NE(refused(row).find(words), std::string::npos) << refused(row);
}

TEST(Normalize, TheClassicMistakesHaveTheirOwnWords) {
  EXPECT_NE(
      refused(R"({"messages":[{"role":"user","content":"see","image":"/a/b.png"},{"role":"assistant","content":"c"}]})")
          .find("path of a medium stands inside the message"),
      std::string::npos);
  EXPECT_NE(
      refused(
          R"({"messages":[{"role":"user","content":"<image>/a/b.png what is it?"},{"role":"assistant","content":"c"}]})")
          .find("put it into the column 'images': [\"/a/b.png\"]"),
      std::string::npos);
  EXPECT_EQ(
      refused(
          R"({"messages":[{"role":"user","content":"<image> compare with /a/b.png"},{"role":"assistant","content":"c"}],"images":["x.png"]})"),
      "(no error)");
  const Row row = seventh_row(R"({"messages":[],"images":["missing/cat.png"]})");
  const std::string unreadable = error_of([&] { check_media_readable(row.value, "/somewhere", row.origin); });
  EXPECT_NE(unreadable.find("key 'images[0]': cannot read /somewhere/missing/cat.png: No such file"), std::string::npos)
      << unreadable;
  EXPECT_NE(unreadable.find("ROOT_IMAGE_DIR"), std::string::npos);
}

TEST(Normalize, WordsAndTheirLabels) {
  const Json row = normal(R"({"tokens": ["Anna", "sees", "Berlin"], "ner_tags": [1, 0, 5], "id": "0"})");
  EXPECT_EQ(turns(row), "user: Anna sees Berlin");
  EXPECT_EQ(row["label"], Json({1, 0, 5}));
}

}  // namespace
}  // namespace apus
