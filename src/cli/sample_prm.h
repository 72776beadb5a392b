// SPDX-License-Identifier: Apache-2.0
// --prm_model of `apus sample`: what a process reward model makes of each candidate. Step by step where answers are cut
// into steps: the worst of them counts.
#pragma once

#include "cli/sample.h"
#include "reward/plugins.h"

namespace apus {

// Whether --prm_model is a program or one of --external_plugins, and no folder of a model.
bool prm_is_function(const SampleOptions& o, Plugins* plugins);

// Beginnings of an answer, each ending where a step does; `separator` empty: the whole answer alone.
std::vector<std::string> step_ends(const std::string& answer, const std::string& separator);

// Of each answer of each question.
std::vector<std::vector<double>> process_scores(const SampleOptions& o, const std::vector<SampleOptions::Asked>& asked,
                                                const std::shared_ptr<Plugins>& plugins);

}  // namespace apus
