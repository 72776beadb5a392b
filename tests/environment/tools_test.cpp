// SPDX-License-Identifier: Apache-2.0
// Environments whose tools run what the model wrote: Python, SQL, and search.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "base/error.h"
#include "environment/environment.h"
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
