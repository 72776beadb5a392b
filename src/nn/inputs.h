// SPDX-License-Identifier: Apache-2.0
// What a model is given to read: the tokens of one forward, and the media that some of them stand for.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "base/media_span.h"

namespace apus {

struct Inputs {
  using Media = std::vector<std::vector<MediaSpan>>;
  Inputs(at::Tensor ids, Media spans = {}) : id_T(std::move(ids)), media(std::move(spans)) {}

  // int64: the tokens of all sequences, one sequence behind the other.
  at::Tensor id_T;
  // For each sequence of the step its media, all of them, their tokens counted from the sequence's first one. (The step
  // may hold a part of the sequence only: Step::begin_q says where that begins.) Empty: there are none.
  Media media;
};

}  // namespace apus
