// SPDX-License-Identifier: Apache-2.0
// What a layer that runs a second time, in the backward pass, remembers of its first run: results that are dear to
// compute and small to keep. All others are computed again from them.
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "base/error.h"

namespace apus {

class Module;  // nn/module.h

enum class ResultKind {
  Product,      // of a linear layer
  FeedForward,  // of a linear layer in the wide part of a feed-forward
  // Of a linear layer, then added to something and read by nobody else: its values do not matter the second time.
  OnlyAdded,
  Attention,
};

class Memo {
 public:
  struct Kinds {
    bool product = true, feed_forward = true, attention = true;
  };
  static constexpr Kinds kNothing{false, false, false};
  explicit Memo(Kinds kinds) : kinds_(kinds) {}
  bool keeps(ResultKind kind) const {
    return kind == ResultKind::Attention     ? kinds_.attention
           : kind == ResultKind::FeedForward ? kinds_.feed_forward
                                             : kinds_.product;
  }

  // First run: what a call of `of` gave.
  void remember(const Module& of, std::vector<at::Tensor> results) { calls_[&of].push_back(std::move(results)); }

  void begin_second_run() { again_ = true; }
  bool again() const { return again_; }  // this is the second run
  // Second run: what the same call of `of` gave, the first after the first. It is handed over, so that it is freed as
  // soon as the second run has done with it.
  std::vector<at::Tensor> recall(const Module& of) {
    auto& calls = calls_[&of];
    require(!calls.empty(), Fault::Bug, "a layer's second run asks for a result that its first run did not leave");
    std::vector<at::Tensor> results = std::move(calls.front());
    calls.pop_front();
    return results;
  }

 private:
  Kinds kinds_;
  bool again_ = false;
  std::map<const Module*, std::deque<std::vector<at::Tensor>>> calls_;
};

}  // namespace apus
