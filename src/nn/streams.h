// SPDX-License-Identifier: Apache-2.0
// A hidden state of several streams side by side (hyper-connections): what a branch reads is their sum, each weighed by
// the token, and what it gives goes back into each, weighed likewise, or into what their mixture is. At the end one
// more such sum makes one of them.
#pragma once

#include "nn/module.h"
#include "nn/streams_form.h"

namespace apus {

// Of one branch.
class StreamsMeet : public Module {
 public:
  StreamsMeet(const StreamsForm& form, int64_t hidden, double eps);
  struct Read {
    at::Tensor one_TD;   // what the branch reads
    at::Tensor back_TS;  // how much each stream takes of what it gives, f32
    at::Tensor mix_TSS;  // how much of each stream (the first of the two) goes on in each, f32; undefined: as they are
  };
  Read read(const at::Tensor& streams_TW) const;
  at::Tensor given_back(const at::Tensor& streams_TW, const Read& read, const at::Tensor& given_TD) const;

 private:
  const StreamsForm form_;
  const double eps_;
  Param &weight_, &base_, &scale_;
};

class StreamsEnd : public Module {
 public:
  StreamsEnd(const StreamsForm& form, int64_t hidden, double eps);
  at::Tensor operator()(const at::Tensor& streams_TW) const;

 private:
  const StreamsForm form_;
  const double eps_;
  Param &weight_, &base_, &scale_;
};

}  // namespace apus
