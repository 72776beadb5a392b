// SPDX-License-Identifier: Apache-2.0
// What a model is given to read: the tokens of one forward, and the media that some of them stand for.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "media/media_item.h"

namespace apus {

// What towers made of the media for layers behind the embedding: added to these rows of what layer i gives.
struct LateFeatures {
  at::Tensor row_R;  // int64
  std::vector<at::Tensor> of_layer_RD;
};

struct Inputs {
  using Media = std::vector<std::vector<MediaItem>>;
  Inputs(at::Tensor ids, Media items = {}) : id_T(std::move(ids)), media(std::move(items)) {
    if (!media.empty()) late = std::make_shared<LateFeatures>();
  }

  // int64: the tokens of all sequences, one sequence behind the other.
  at::Tensor id_T;
  // For each sequence of the step its media, all of them, their tokens counted from the sequence's first one. (The step
  // may hold a part of the sequence only: Step::begin_q says where that begins.) Empty: there are none.
  Media media;
  // Where the step holds parts of sequences: the tokens of each that has media, from its first on.
  std::vector<std::span<const int32_t>> text;
  // Of each sequence that is two texts, where the second begins; 0: it is one. Empty: all are. For encoders.
  std::vector<int32_t> second;
  // embed() leaves it for Model::behind_layer(). Null: there are no media.
  std::shared_ptr<LateFeatures> late;
};

}  // namespace apus
