// SPDX-License-Identifier: Apache-2.0
// LLaMA Pro: a model grows by copies of some of its layers, whose last matrices begin as 0, so that it says what it
// said; only they are trained. No tensor library.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace apus {

struct BlockExpansion {
  std::vector<int64_t> origin;  // of each layer of the larger model: the layer that it was, or is a copy of
  std::vector<int64_t> added;   // the copies

  // A copy behind each run of layers / groups layers. Fault::Usage where they cannot be divided so.
  static BlockExpansion of(int64_t layers, int64_t new_blocks, std::optional<int64_t> groups);
  // config.json of the larger model. Fault::Usage for what counts layers in another way than by their number.
  Json config(Json smaller) const;
  // The beginnings of the names of the copies' parameters.
  std::vector<std::string> added_names(const std::string& layer) const;
};

// Whether a matrix of a layer gives what is added to the residual: it is 0 at first, with its bias.
bool ends_block(const std::string& module);

}  // namespace apus
