// SPDX-License-Identifier: Apache-2.0
// The options of training a classifier of texts (--task_type seq_cls).
#pragma once

#include <optional>
#include <string>

#include "base/options.h"
#include "models/spec/score_head.h"

namespace apus {

struct SeqClsOptions {
  std::optional<int64_t> num_labels;
  std::optional<std::string> problem_type;
  void fields(OptionTable& v);
  // What was not given is what the checkpoint says, where it is a classifier already; -> what that is.
  Json take_from(const Json& config, const std::string& folder);
  ScoreHead score_head() const;
};

}  // namespace apus
