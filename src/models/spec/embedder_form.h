// SPDX-License-Identifier: Apache-2.0
// How Gemma 3n brings what its towers make to the decoder's width: a norm, a matrix, a norm without weights. Tokens of
// the kind's own have rows in a table, which come there by the same matrix. Beside a SeeingSpec; no tensor library.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/spec/config.h"
#include "models/spec/seeing_spec.h"

namespace apus {

struct EmbedderForm {
  std::string name;
  // Of the vocabulary so many tokens, from `first` on, have rows of `width` numbers here.
  int64_t first = 0, count = 0, width = 0;
  int64_t out = 0;  // the decoder's width
  double eps = 1e-6;
};

std::vector<TowerPart> parts_of(const EmbedderForm& form);

// vocab_offset, vocab_size, hidden_size and rms_norm_eps of a tower's part of config.json. `first`: the offset, where
// the part has none.
EmbedderForm read_embedder(const Config& tower, const std::string& name, int64_t first, int64_t width, int64_t out);

}  // namespace apus
