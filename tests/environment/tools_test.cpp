// SPDX-License-Identifier: Apache-2.0
// Environments whose tools run what the model wrote: Python, SQL, and search.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "base/base64.h"
#include "base/error.h"
#include "base/files.h"
#include "base/png.h"
#include "environment/environment.h"
#include "media/image.h"
#include "reward/run_code.h"
#include "tests/folder.h"
#include "tests/refusal.h"

namespace apus {
namespace {

class Talk {
 public:
  Talk(const std::string& name, const Json& row) {
    EnvironmentOptions options;
    options.environment = name;
    environment_ = make_environment(options);
    environment_->reset({{.episode = 1, .row = &row, .seed = 1}});
  }
  EpisodeReply says(const std::string& text) {
    return environment_->step({{.episode = 1, .turn = turn_++, .text = text, .tokens = {1}}}).at(0);
  }
  std::string calls(const std::string& tool, const std::string& argument, const std::string& value) {
    const Json call = {{"name", tool}, {"arguments", {{argument, value}}}};
    const EpisodeReply reply = says("<tool_call>\n" + call.dump() + "\n</tool_call>");
    EXPECT_FALSE(reply.done);
    return reply.messages.empty() ? "" : reply.messages.back()["content"].get<std::string>();
  }
  double worth(const std::string& answer) {
    const EpisodeReply reply = says(answer);
    EXPECT_TRUE(reply.done);
    return reply.reward;
  }
  const Environment& environment() const { return *environment_; }

 private:
  std::unique_ptr<Environment> environment_;
  int64_t turn_ = 0;
};

TEST(Zoom, ShowsPartsOfAPicture) {
  Picture drawn(20, 10, Rgb{255, 255, 255});
  drawn.box(10, 5, 10, 5, {9, 8, 7});
  const test::Folder folder;
  const std::string file = (folder.path / "drawn.png").string();
  write_file_atomic(file, drawn.png());
  const Json row = {{"images", {file}}, {"solution", "dark"}};
  Talk talk("zoom", row);
  const auto asks = [](const std::string& arguments) {
    return "<tool_call>\n{\"name\": \"image_zoom_in_tool\", \"arguments\": " + arguments + "}\n</tool_call>";
  };
  const EpisodeReply part = talk.says(asks("{\"bbox_2d\": [1000, 1000, 500, 500], \"label\": \"corner\"}"));
  ASSERT_EQ(part.images.size(), 1u);
  EXPECT_EQ(part.messages, tool_says("image_zoom_in_tool", "<image>"));
  const std::string uri = part.images[0].get<std::string>(), begin = "data:image/png;base64,";
  ASSERT_EQ(uri.rfind(begin, 0), 0u);
  const Image seen = decode_image(from_base64(uri.substr(begin.size())));
  EXPECT_EQ(std::pair(seen.width, seen.height), std::pair(int64_t{10}, int64_t{5}));
  EXPECT_EQ(std::vector<uint8_t>(seen.rgb.begin(), seen.rgb.begin() + 3), (std::vector<uint8_t>{9, 8, 7}));
  EXPECT_EQ(std::vector<uint8_t>(seen.rgb.end() - 3, seen.rgb.end()), (std::vector<uint8_t>{9, 8, 7}));
  for (const char* wrong :
       {"{\"bbox_2d\": [1, 2, 3]}", "{\"bbox_2d\": [5, 5, 5, 9]}", "{}", "{\"bbox_2d\": [0, 0, 9, 9], \"image\": 1}"}) {
    const EpisodeReply fault = talk.says(asks(wrong));
    EXPECT_TRUE(fault.images.empty()) << wrong;
    EXPECT_EQ(fault.messages.at(0)["content"].get<std::string>().rfind("error: ", 0), 0u) << wrong;
  }
  EXPECT_EQ(talk.worth("The answer is dark"), 1);
  const Json blind = {{"solution", "dark"}};
  test::expect_says(test::refusal(Fault::Data, [&] { Talk none("zoom", blind); }), "the row lacks images");
}

TEST(Geo3k, SaysWhatAnAnswerWouldBeWorth) {
  const Json row = {{"solution", "12"}};
  Talk talk("geo3k", row);
  const auto asks = [&](const std::string& answer) {
    return talk.says("<tool_call>\n" + Json{{"name", "calc_geo3k_reward"}, {"arguments", {{"answer", answer}}}}.dump() +
                     "\n</tool_call>");
  };
  EpisodeReply reply = asks("11");
  EXPECT_EQ(reply.messages, tool_says("calc_geo3k_reward", "Current parsed answer='11' reward=0.0"));
  EXPECT_EQ(reply.reward, -0.05) << "no better than nothing";
  reply = asks("12");
  EXPECT_EQ(reply.messages, tool_says("calc_geo3k_reward", "Current parsed answer='12' reward=1.0"));
  EXPECT_EQ(reply.reward, 0);
  EXPECT_EQ(talk.worth("\\boxed{12}"), 1);
}

TEST(SearchTool, FindsInAFolder) {
  const test::Folder folder;
  std::ofstream(folder.path / "lisbon.txt") << "Lisbon is the capital of Portugal.";
  std::ofstream(folder.path / "madrid.txt") << "Madrid is the capital of Spain.";
  const std::string name = "search:" + folder.path.string();
  EXPECT_EQ(environment_shown(name), "search");
  EXPECT_NO_THROW(check_environment(name));
  const Json row = {{"solution", {"Lisbon", "Lisboa"}}};
  Talk talk(name, row);
  EXPECT_EQ(talk.calls("search", "query", "Portugal's capital").find("[1] lisbon.txt: Lisbon is"), 0u);
  EXPECT_EQ(talk.calls("search", "query", "zebra"), "nothing found");
  EXPECT_EQ(talk.calls("search", "question", "x").find("error: "), 0u);
  EXPECT_EQ(talk.worth("I think <answer> The Lisbon. </answer>"), 1);
  EXPECT_EQ(Talk(name, row).worth("<answer>Lisbon or Porto</answer>"), 0);
  EXPECT_EQ(Talk(name, row).worth("It is lisboa."), 1);
  EXPECT_EQ(Talk(name, row).worth("It is Madrid."), 0);
  EXPECT_EQ(talk.environment().tools()[0]["function"]["name"], "search");
}

TEST(SearchTool, FindsInARowsDocuments) {
  const Json row = {{"solution", "blue"}, {"documents", {{{"title", "sky"}, {"text", "The sky is blue."}}}}};
  EXPECT_EQ(Talk("search", row).calls("search", "query", "sky"), "[1] sky: The sky is blue.");
  const Json bare = {{"solution", "blue"}};
  test::expect_says(test::refusal(Fault::Data, [&] { Talk("search", bare); }), "--environment search:FOLDER");
  const Json unsolved = {{"documents", {"x"}}};
  test::expect_says(test::refusal(Fault::Data, [&] { Talk("search", unsolved); }), "'solution'");
}

// With Python that can be confined.
class PythonTools : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("python3 -c 'import sqlite3' >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no python3 here";
    try {
      run_python("pass");
    } catch (const Error& e) {
      GTEST_SKIP() << e.what();
    }
  }
};

TEST_F(PythonTools, PythonPrintsAndIsTested) {
  const Json row = {{"tests", {"assert double(3) == 6", "assert double(-1) == -2"}}, {"entry_point", "double"}};
  Talk talk("python", row);
  EXPECT_EQ(talk.calls("python", "code", "print(2 ** 10)"), "1024\n");
  EXPECT_EQ(talk.calls("python", "code", "x = 1"), "nothing was printed");
  const std::string failed = talk.calls("python", "code", "print('so far'); 1 / 0");
  EXPECT_EQ(failed.find("so far\n"), 0u);
  EXPECT_NE(failed.find("ZeroDivisionError"), std::string::npos);
  EXPECT_NE(talk.calls("python", "code", "open('/tmp/written', 'w')").find("PermissionError"), std::string::npos);
  EXPECT_EQ(talk.worth("```python\ndef double(x):\n    return 2 * x\n```"), 1);
  EXPECT_EQ(Talk("python", row).worth("```python\ndef double(x):\n    return x + 3\n```"), 0);
  EXPECT_EQ(Talk("python", {{"solution", "1/2"}}).worth("So it is \\boxed{0.5}."), 1);
  const Json bare = Json::object();
  test::expect_says(test::refusal(Fault::Data, [&] { Talk("python", bare); }), "'tests'");
}

TEST_F(PythonTools, SqlComparesRows) {
  const Json row = {
      {"schema", "create table t(name text, age int); insert into t values ('Ann', 30), ('Bo', 20), ('Çel', 40);"},
      {"solution", "select name from t where age > 25"}};
  Talk talk("sql", row);
  EXPECT_EQ(talk.calls("sql", "query", "select * from t where age < 35 order by age"),
            "name | age\nBo | 20\nAnn | 30\n");
  EXPECT_EQ(talk.calls("sql", "query", "select name from t where age = 40"), "name\nÇel\n");
  EXPECT_EQ(talk.calls("sql", "query", "select height from t").find("error: no such column"), 0u);
  EXPECT_EQ(talk.calls("sql", "query", "delete from t"), "done\n");
  EXPECT_EQ(talk.worth("```sql\nselect name from t where age >= 30 order by name desc;\n```"), 1)
      << "made anew, in any order";
  EXPECT_EQ(Talk("sql", row).worth("select name from t"), 0);
  EXPECT_EQ(Talk("sql", row).worth("no idea"), 0);
  Json ordered = row;
  ordered["solution"] = "select name from t order by age";
  EXPECT_EQ(Talk("sql", ordered).worth("select name from t order by age desc"), 0);
  Json broken = row;
  broken["solution"] = "select x from nowhere";
  test::expect_says(test::refusal(Fault::Data, [&] { Talk("sql", broken); }), "no such table");
}

}  // namespace
}  // namespace apus
