// SPDX-License-Identifier: Apache-2.0
// The options of training a model that labels each word (--task_type token_cls).
#pragma once

#include <optional>

#include "base/options.h"
#include "models/spec/score_head.h"

namespace apus {

struct TokenClsOptions {
  std::optional<int64_t> num_labels;

  void fields(OptionTable& v);
  Json take_from(const Json& config, const std::string& folder);
  ScoreHead score_head() const { return word_head(num_labels.value_or(1)); }
};

}  // namespace apus
