// SPDX-License-Identifier: Apache-2.0
#include "cli/sample_prm.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "base/error.h"
#include "base/lines.h"
#include "cli/heavy.h"
#include "reward/external.h"

namespace apus {

namespace {

constexpr double kNoScore = std::numeric_limits<double>::infinity();

// A text that is judged: the answer's beginning up to the end of one of its steps.
struct Part {
  size_t question, answer;
  std::string text;
};

std::vector<Part> parts_of(const std::vector<SampleOptions::Asked>& asked, const std::string& separator) {
  std::vector<Part> parts;
  for (size_t q = 0; q < asked.size(); ++q)
    for (size_t a = 0; a < asked[q].answers.size(); ++a)
      for (std::string& text : step_ends(asked[q].answers[a].get<std::string>(), separator))
        parts.push_back({q, a, std::move(text)});
  return parts;
}

Json question_row(const SampleOptions::Asked& one) {
  Json row = one.row;
  if (!row.contains("solution") && !one.label.empty()) row["solution"] = one.label;
  return row;
}

// A program, or a plugin's function: asked for a question's parts at once.
std::vector<double> scores_of_function(const SampleOptions& o, const std::vector<SampleOptions::Asked>& asked,
                                       const std::vector<Part>& parts, const std::shared_ptr<Plugins>& plugins) {
  const std::string& name = *o.prm_model;
  std::unique_ptr<Reward> judge;
  if (is_program(name))
    judge = std::make_unique<ExternalReward>(program_command(name), o.reward);
  else
    judge = std::make_unique<PluginReward>(name, plugins, o.reward, "prm");
  std::vector<double> out;
  for (size_t first = 0; first < parts.size();) {
    const Json row = question_row(asked[parts[first].question]);
    std::vector<RewardInput> inputs;
    for (; first < parts.size() && parts[first].question == parts[first - inputs.size()].question; ++first)
      inputs.push_back({.completion = parts[first].text, .row = &row});
    for (const double score : judge->score(inputs)) out.push_back(score);
  }
  return out;
}

// The model is asked as `apus infer` asks one with a head of one number, which it must have.
std::vector<double> scores_of_model(const SampleOptions& o, const std::vector<SampleOptions::Asked>& asked,
                                    const std::vector<Part>& parts) {
  const std::string rows = o.result_file() + ".steps.jsonl", results = o.result_file() + ".scores.jsonl";
  LineWriter out(rows);
  for (size_t i = 0; i < parts.size(); ++i) {
    Json messages = asked[parts[i].question].row["messages"];
    messages.push_back({{"role", "assistant"}, {"content", parts[i].text}});
    out.write(json_text({{"messages", std::move(messages)}, {"sample_part", i}}));
  }
  out.close();
  InferOptions infer;
  OptionTable flags = OptionTable::of(infer);
  flags.set("model", *o.prm_model), flags.set("val_dataset", Json::array({rows})), flags.set("result_path", results);
  flags.set("task_type", "seq_cls"), flags.set("resume", false);
  infer.model.device = o.infer.model.device, infer.model.use_hf = o.infer.model.use_hf,
  infer.model.hub_token = o.infer.model.hub_token;
  infer.resolve(flags);
  infer.check();
  infer.fetch();
  run_heavy("infer", static_cast<const InferOptions*>(&infer));
  std::vector<double> scores(parts.size(), NAN);
  LineReader in(results);
  for (std::string line; in.next(line);) {
    const Json record = parse_json(line, str(results, ":", in.number()));
    const auto part = record.value("sample_part", int64_t{-1});
    const Json numbers = record.value("logits", Json::array());
    require(numbers.size() == 1, Fault::Usage, "--prm_model ", *o.prm_model, " gives ", numbers.size(),
            " numbers for a text: a reward is one");
    if (part >= 0 && part < static_cast<int64_t>(scores.size())) scores[static_cast<size_t>(part)] = numbers[0];
  }
  std::error_code code;
  std::filesystem::remove(rows, code), ResultFile({.path = results, .resume = false}).forget();
  return scores;
}

}  // namespace

bool prm_is_function(const SampleOptions& o, Plugins* plugins) {
  return is_program(*o.prm_model) || (plugins && plugins->has("prms", *o.prm_model));
}

std::vector<std::string> step_ends(const std::string& answer, const std::string& separator) {
  std::vector<std::string> out;
  for (size_t at = separator.empty() ? std::string::npos : answer.find(separator); at != std::string::npos;
       at = answer.find(separator, at + separator.size()))
    if (at > 0 && at + separator.size() < answer.size()) out.push_back(answer.substr(0, at));
  out.push_back(answer);
  return out;
}

std::vector<std::vector<double>> process_scores(const SampleOptions& o, const std::vector<SampleOptions::Asked>& asked,
                                                const std::shared_ptr<Plugins>& plugins) {
  const std::vector<Part> parts = parts_of(asked, o.prm_step_separator);
  const std::vector<double> scores = prm_is_function(o, plugins.get()) ? scores_of_function(o, asked, parts, plugins)
                                                                       : scores_of_model(o, asked, parts);
  std::vector<std::vector<double>> out;
  for (const SampleOptions::Asked& one : asked) out.emplace_back(one.answers.size(), kNoScore);
  for (size_t i = 0; i < parts.size(); ++i) {
    double& lowest = out[parts[i].question][parts[i].answer];
    lowest = std::isnan(scores[i]) ? -kNoScore : std::min(lowest, scores[i]);
  }
  return out;
}

}  // namespace apus
