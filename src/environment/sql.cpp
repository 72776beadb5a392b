// SPDX-License-Identifier: Apache-2.0
// A database that the model may ask: sql(query), on SQLite in memory, made anew for every query from the row's column
// "schema" (statements that make and fill it). A turn without a call is the answer, a query, worth 1 when it gives the
// rows of the query in the column "solution": in that order where the latter has one.
#include "base/assets.h"
#include "base/error.h"
#include "environment/called_tools.h"
#include "environment/environment.h"
#include "reward/run_code.h"

namespace apus {
namespace {

constexpr size_t kMostSqlQueries = 8;  // of a turn
constexpr CodeLimits kSqlLimits{.seconds = 5, .memory = int64_t{1} << 30};

class Sql final : public Episode {
 public:
  Sql(const Json& row, uint64_t) {
    const Json *schema = column(row, {"schema"}), *solution = column(row, {"solution", "query", "answer"});
    require(schema && (schema->is_string() || schema->is_array()), Fault::Data,
            "sql: the row's column 'schema' must be the statements that make the database, a text or a list");
    require(solution && solution->is_string(), Fault::Data,
            "sql compares rows with those of the query in the column 'solution', and the row has none");
    if (schema->is_array())
      for (const Json& each : *schema) schema_ += column_text(each) + ";\n";
    else
      schema_ = schema->get<std::string>();
    solution_ = solution->get<std::string>();
    const CodeRun run = asked({{"query", solution_}});
    require(run.passed && run.printed.rfind("error: ", 0) != 0, Fault::Data,
            "sql: the row's query cannot be run: ", run.passed ? run.printed : run.why);
  }
  static Json tools() {
    return Json::parse(R"([{"type": "function", "function": {"name": "sql",
      "description": "runs a query on the database (SQLite), and gives the rows",
      "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}}}])");
  }
  EpisodeReply step(const EpisodeTurn& turn) override {
    const std::vector<ToolCall> calls = called_tools(turn.text, tools());
    if (calls.empty()) {
      const CodeRun run = asked({{"query", query_in(turn.text)}, {"wanted", solution_}});
      return {.reward = run.passed && run.printed == "same\n" ? 1.0 : 0.0, .done = true};
    }
    return replies_to(calls, kMostSqlQueries, tools(), [this](const Json& given) { return result_of(given); });
  }

 private:
  CodeRun asked(Json task) const {
    task["schema"] = schema_;
    return run_python("TASK = " + json_text(Json(json_text(task))) + "\n" + std::string(asset("eval/sql.py")),
                      kSqlLimits);
  }
  std::string result_of(const Json& given) const {
    const CodeRun run = asked({{"query", given["query"]}});
    return run.passed ? run.printed : "error: " + run.why;
  }
  // The last block between fences, or all of it.
  static std::string query_in(const std::string& answer) {
    const size_t close = answer.rfind("```");
    const size_t open = close == std::string::npos || close == 0 ? close : answer.rfind("```", close - 1);
    if (open == std::string::npos || open == close) return answer;
    const size_t line = answer.find('\n', open);
    return line == std::string::npos || line > close ? answer : answer.substr(line + 1, close - line - 1);
  }

  std::string schema_, solution_;
};

const RegisterEnvironment<Sql> sql("sql");

}  // namespace
}  // namespace apus
