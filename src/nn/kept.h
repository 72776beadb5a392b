// SPDX-License-Identifier: Apache-2.0
// What a layer that runs again in the backward pass keeps of its first run: results that are dear to compute and small
// to keep, those of its linear layers and of its attention, in the order of the calls. Norms, rotations, gates are made
// again from them.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "nn/step.h"

namespace apus {

struct KeptParts {
  bool attention = true;     // what attention gives and its log-sums
  bool feed_forward = true;  // what the feed-forward's linear layers give
};

class Kept {
 public:
  explicit Kept(KeptParts parts) : parts_(parts) {}
  Kept(KeptParts parts, std::vector<at::Tensor> values) : parts_(parts), values_(std::move(values)), again_(true) {}
  const KeptParts& parts() const { return parts_; }
  bool again() const { return again_; }  // this is the second run

  // First run: the place of a call's result, and the result when it is known.
  size_t reserve() {
    values_.emplace_back();
    return values_.size() - 1;
  }
  void put(size_t place, at::Tensor value) { values_[place] = std::move(value); }
  void add(at::Tensor value) { put(reserve(), std::move(value)); }
  std::vector<at::Tensor> values() && { return std::move(values_); }

  at::Tensor take() { return std::move(values_.at(next_++)); }  // second run: of the calls in the same order

  // Until its end nothing is kept when `part` is not.
  class Only {
   public:
    Only(const Step& s, bool KeptParts::*part) : kept_(s.kept), before_(kept_ && kept_->paused_) {
      if (kept_) kept_->paused_ = before_ || !(kept_->parts_.*part);
    }
    ~Only() {
      if (kept_) kept_->paused_ = before_;
    }
    Only(const Only&) = delete;
    Only& operator=(const Only&) = delete;

   private:
    Kept* kept_;
    bool before_;
  };

  static Kept* of(const Step& s) {
    return s.kept && !s.kept->paused_ ? s.kept : nullptr;
  }  // null: nothing is kept here

 private:
  KeptParts parts_;
  std::vector<at::Tensor> values_;
  size_t next_ = 0;
  bool again_ = false, paused_ = false;
};

}  // namespace apus
