// SPDX-License-Identifier: Apache-2.0
// The tensors that a file has for one quantised layer.
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "quant/matrix.h"
#include "tensor/stored_tensor.h"

namespace apus::quant {

// By what follows the layer's name and a dot: "weight", "weight.absmax", "qweight".
using Pieces = std::map<std::string, StoredTensor>;

// A layer's pieces, with the name that errors are told by.
struct StoredLayer {
  std::string name;
  Pieces pieces;

  const StoredTensor* find(const std::string& piece) const;
  // Checked to be there, of one of the types and of this many elements; -1: of any number. Fault::Model.
  const StoredTensor& need(const std::string& piece, std::initializer_list<DiskType> types, int64_t count) const;
  // The group of scales of each column: as the piece says where there is one, else by runs of `width`. Fault::Model.
  std::vector<int32_t> groups_of_columns(const std::string& piece, int64_t columns, int64_t groups,
                                         int64_t width) const;
  int64_t bytes() const;
};

extern const std::initializer_list<DiskType> kScaleTypes;  // F16, BF16, F32

}  // namespace apus::quant
