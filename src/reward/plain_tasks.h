// SPDX-License-Identifier: Apache-2.0
// The known questions as lm-evaluation-harness puts them in its tasks of the same names: plain text that the model goes
// on with, no chat template. Its way of finding the answer, and its metrics' names. No tensor library.
#pragma once

#include "reward/benchmark.h"

namespace apus {

struct PlainMetric {
  const char* name;
  // Of what the model wrote; null where choices are compared:
  // "acc" by their likelihood, "acc_norm" by that per character.
  double (*judge)(const BenchmarkItem& item, const Json& row, const std::string& text) = nullptr;
};

struct PlainTask {
  const char* name;  // a Benchmark's
  PlainQuestion (*read)(const BenchmarkItem& item, const Json& row);
  std::vector<PlainMetric> metrics;  // the first one counts
  int64_t examples = 0;              // before each question, where nothing else is said
  // What the model writes ends at the first of these texts, which are not part of it.
  std::vector<std::string> until = {};
  int64_t max_tokens = 256;
};

// Fault::Usage with those that there are.
const PlainTask& plain_task(const std::string& name);

// Examples with their answers, the question, and the beginning of what choice `choice` would go on with.
std::string plain_prompt(const BenchmarkItem& item, const std::vector<BenchmarkItem>& examples, size_t choice = 0);
// The text before the first of `until`.
std::string text_until(const std::string& text, const std::vector<std::string>& until);

}  // namespace apus
