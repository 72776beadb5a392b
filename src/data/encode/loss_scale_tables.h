// SPDX-License-Identifier: Apache-2.0
// The tables of weights that --loss_scale knows by name.
#pragma once

#include <map>
#include <string>

namespace apus {

// Name -> JSON. Two numbers: the weight of a word, and of what follows it until the table's next word. One: of what a
// pattern matches. A table of {"query", "response"} has one more rule: an answer to a question that holds one of the
// texts of "query" has that weight throughout.
inline const std::map<std::string, const char*>& loss_scale_tables() {
  static const std::map<std::string, const char*> tables = {
      // What models write instead of a thought, where an answer begins.
      {"ignore_empty_think", R"({"\\A<think>\\s*</think>\\s*": [0], "\\A</think>\\s*": [0], "\\A</mm:think>\\s*": [0],
                                 "\\A<\\|channel>thought\\n<channel\\|>": [0],
                                 "\\A<seed:think><seed:cot_budget_reflect>[^<]*</seed:cot_budget_reflect>\\n</seed:think>\\s*": [0]
                                })"},
      {"ignore_think_prefix", R"({"\\A<think>\\n?": [0]})"},
      {"hermes", R"({"(?s)<tool_call>.+?</tool_call>": [2]})"},
      {"react", R"({"Action:": [2, 2], "Action Input:": [2, 2], "Thought:": [1, 1],
                    "Final Answer:": [1, 1], "Observation:": [2, 0]})"},
      {"alpha_umi", R"({"Action:": [2, 2], "Action Input:": [2, 2], "Thought:": [1, 1],
                        "Final Answer:": [1, 1], "Observation:": [2, 0], "Next:": [2, 2]})"},
      {"qwen", R"({"✿FUNCTION✿:": [2, 2], "✿ARGS✿:": [2, 2], "✿RETURN✿:": [1, 1], "✿RESULT✿:": [2, 0]})"},
      {"agentflan", R"({"response": {"Name:": [1, 3], "Tool:": [1, 3], "Command": [1, 3], "Arguments:": [1, 3],
                                     "Action:": [1, 3], "ACTION:": [1, 3],
                                     "action input": [1, 3], "ACTION_INPUT:": [1, 3], "Action Input:": [1, 3],
                                     "Thought:": [1, 1], "Final Answer:": [1, 1], "Observation:": [2, 0]},
                        "query": {"What is the tool you want to use": [3],
                                  "What are the required parameter names": [3],
                                  "What is the value of": [3]}})"},
  };
  return tables;
}

}  // namespace apus
