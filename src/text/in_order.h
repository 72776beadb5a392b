// SPDX-License-Identifier: Apache-2.0
// What tokenizer.json calls a Sequence: several steps, each applied to what the one before it left.
#pragma once

#include <memory>
#include <vector>

#include "text/token_json.h"

namespace apus {

template <class Step, class Subject>
class InOrder : public Step {
 public:
  using Steps = std::vector<std::unique_ptr<const Step>>;
  explicit InOrder(Steps steps) : steps_(std::move(steps)) {}
  InOrder(const std::vector<JsonPart>& parts, std::unique_ptr<const Step> (*make)(const JsonPart&)) {
    for (const JsonPart& part : parts) steps_.push_back(make(part));
  }
  void apply(Subject& subject) const override {
    for (const auto& step : steps_) step->apply(subject);
  }

 protected:
  Steps steps_;
};

}  // namespace apus
