// SPDX-License-Identifier: Apache-2.0
// What one forward pass of training reads: sequences one after another, without padding.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/encode/sample.h"
#include "nn/inputs.h"
#include "nn/step.h"

namespace apus {

struct SharedPrefixes;  // train/shared_prefix.h

struct Batch {
  at::Tensor id_T;  // int64
  // int64: the token after each token, -100 where nothing is to be learnt.
  at::Tensor label_T;
  at::Tensor weight_T;  // f32: factor on each token's loss
  Step step;
  std::vector<std::string> channels;  // per sequence; empty: no channels
  std::vector<int64_t> groups;        // per sequence: the number of its group in this batch, ascending from 0
  // What the algorithm needs besides, by name: f32 [T], and f32 [S]. A sample without a column that others of the batch
  // have holds nan there.
  std::map<std::string, at::Tensor> token_columns, sequence_columns;
  std::map<std::string, at::Tensor> own;  // of the algorithm, in any shape; they stay on the host
  int64_t trained = 0;                    // labels that are not -100
  at::Tensor expert_TW;                   // int16: Sample::experts; undefined: none are told
  Inputs::Media media;                    // per sequence; empty: there are none

  // Where the beginnings of its sequences are computed once; null: they are computed as often as they stand there.
  std::shared_ptr<const SharedPrefixes> shared;

  Inputs inputs() const;

  Batch to(at::Device device) const;
};

// Samples one behind the other, on the host. The last token of a sample has no label, and the first one is none.
Batch collate(const std::vector<Sample>& samples);

}  // namespace apus
