// SPDX-License-Identifier: Apache-2.0
#include "models/spec/score_head.h"

#include <nlohmann/json.hpp>

#include "models/spec/config.h"

namespace apus {
namespace {

const std::string kOfTexts = "ForSequenceClassification", kOfTokens = "ForTokenClassification";

std::string usual_name(int64_t label) { return "LABEL_" + std::to_string(label); }

}  // namespace

ScoreHead word_head(int64_t labels) { return {labels, "single_label_classification", true}; }

std::string usual_problem(int64_t labels) { return labels == 1 ? "regression" : "single_label_classification"; }

std::optional<ScoreHead> score_head_of(const Json& config) {
  const Config c(config);
  bool of_texts = false, of_tokens = false;
  for (const std::string& name : c.texts("architectures"))
    of_texts |= name.ends_with(kOfTexts), of_tokens |= name.ends_with(kOfTokens);
  if (!of_texts && !of_tokens) return std::nullopt;
  const Json* names = c.find("id2label");
  const int64_t labels = c.integer("num_labels", names && names->is_object() ? std::ssize(*names) : 2);
  if (of_tokens) return word_head(labels);
  return ScoreHead{labels, c.text("problem_type", usual_problem(labels))};
}

std::string label_name(const Json& config, int64_t label) {
  const Json* names = Config(config).find("id2label");
  const auto found = names && names->is_object() ? names->find(std::to_string(label)) : Json::const_iterator();
  return names && names->is_object() && found != names->end() && found->is_string() ? found->get<std::string>()
                                                                                    : usual_name(label);
}

Json with_score_head(Json config, const ScoreHead& head) {
  const std::optional<ScoreHead> before = score_head_of(config);
  for (std::string name : Config(config).texts("architectures")) {
    for (const std::string& other :
         {std::string("ForCausalLM"), std::string("ForMaskedLM"), std::string("ForPreTraining"),
          std::string("LMHeadModel"), kOfTexts, kOfTokens, std::string("Model")})
      if (name.ends_with(other)) {
        name = name.substr(0, name.size() - other.size()) + (head.each_token ? kOfTokens : kOfTexts);
        break;
      }
    config["architectures"] = Json::array({name});
  }
  if (!before || before->labels != head.labels || !config.contains("id2label")) {
    config["id2label"] = config["label2id"] = Json::object();
    for (int64_t i = 0; i < head.labels; ++i)
      config["id2label"][std::to_string(i)] = usual_name(i), config["label2id"][usual_name(i)] = i;
  }
  config.erase("num_labels");  // id2label says it
  config["problem_type"] = head.problem_type;
  if (!config.contains("pad_token_id") || config["pad_token_id"].is_null()) {
    const Json end = config.value("eos_token_id", Json());
    config["pad_token_id"] = end.is_array() && !end.empty() ? end[0] : end;
  }
  return config;
}

}  // namespace apus
