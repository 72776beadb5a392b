// SPDX-License-Identifier: Apache-2.0
// The groups of a seeing model that --freeze_llm, --freeze_vit and --freeze_aligner mean. No tensor library.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/spec/seeing_spec.h"

namespace apus {

struct FrozenGroups {
  bool llm = false, vit = true, aligner = true;
};

// Of a parameter or module. What joins tower and language model (the aligner) goes its own way, also where it lies
// inside the tower.
bool is_frozen(const SeeingSpec& spec, const FrozenGroups& frozen, const std::string& name);

// What --target_modules all-linear means: an expression for the names of all linear layers of the groups that are not
// frozen, but the head. Empty: all groups are frozen.
std::string all_linear_expression(const SeeingSpec& spec, const FrozenGroups& frozen,
                                  const std::vector<std::string>& linear_modules);

// Learning rates by the beginnings of parameters' names, the aligner's before the tower's, in which it may lie. What
// has none given learns at `usual`, as everything else does.
std::vector<std::pair<std::string, double>> rates_of_groups(const SeeingSpec& spec, double usual,
                                                            std::optional<double> vit, std::optional<double> aligner);

}  // namespace apus
