// SPDX-License-Identifier: Apache-2.0
// Which parameters are trained.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nn/module.h"
#include "train/optimizer.h"

namespace apus {

struct FreezeRules {
  double ratio = 0;                                        // of all numbers, the first so many (from the embedding up)
  std::vector<std::string> frozen, trained;                // beginnings of names; `trained` are exceptions
  std::optional<std::string> frozen_regex, trained_regex;  // found anywhere in the name
};

// Sets Param::trainable by the parameters' full shapes, so it works before weights are loaded. A rule that means
// nothing is Fault::Usage.
void choose_trainable(Module& model, const FreezeRules& rules);

// The trainable parameters, now leaves of the tape. Tied ones appear once.
std::vector<NamedParam> trainable_params(Module& model);

struct ParamCount {
  int64_t all = 0, trainable = 0;
};
ParamCount count_params(Module& model);
// "Title: 494.0M Params (4.4M Trainable [0.89%])"
std::string param_info(const std::string& title, const ParamCount& count);

}  // namespace apus
