// SPDX-License-Identifier: Apache-2.0
// A head of numbers as config.json tells of it: HuggingFace's ...ForSequenceClassification, and those for tokens,
// ...ForTokenClassification.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"

namespace apus {

struct ScoreHead {
  int64_t labels = 1;
  std::string problem_type;  // single_label_classification, multi_label_classification, regression
  bool each_token = false;   // labels of each token, not of the text
};

// Of a model that labels words: a word has one of several.
ScoreHead word_head(int64_t labels);
// Where the file does not say it.
std::string usual_problem(int64_t labels);

// Nothing when the architecture is another one. A file of this architecture that names no labels has two.
std::optional<ScoreHead> score_head_of(const Json& config);

// What a result with this number is called: id2label.
std::string label_name(const Json& config, int64_t label);

// The config.json of a model with that head, made of a causal model's or of another such head's. Names of labels stay
// where their number does.
Json with_score_head(Json config, const ScoreHead& head);

}  // namespace apus
