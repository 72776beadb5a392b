// SPDX-License-Identifier: Apache-2.0
#include "quant/pieces.h"

#include <algorithm>

#include "base/error.h"

namespace apus::quant {

const std::initializer_list<DiskType> kScaleTypes = {DiskType::F16, DiskType::BF16, DiskType::F32};

const StoredTensor* StoredLayer::find(const std::string& piece) const {
  const auto it = pieces.find(piece);
  return it == pieces.end() ? nullptr : &it->second;
}

const StoredTensor& StoredLayer::need(const std::string& piece, std::initializer_list<DiskType> types,
                                      int64_t count) const {
  const StoredTensor* found = find(piece);
  require(found, Fault::Model, "the checkpoint has no ", name, ".", piece, ", which its quantised weight needs");
  require(std::find(types.begin(), types.end(), found->type) != types.end(), Fault::Model, name, ".", piece, " is ",
          disk_name(found->type), ", and its format asks for ", disk_name(*types.begin()));
  require(count < 0 || found->count() == count, Fault::Model, name, ".", piece, " holds ", found->count(),
          " elements, and the layer's shape asks for ", count);
  return *found;
}

std::vector<int32_t> StoredLayer::groups_of_columns(const std::string& piece, int64_t columns, int64_t groups,
                                                    int64_t width) const {
  std::vector<int32_t> out(static_cast<size_t>(columns));
  const StoredTensor* given = find(piece);
  if (given) need(piece, {DiskType::I32}, columns);
  for (int64_t c = 0; c < columns; ++c) {
    const int64_t group = given ? given->at<int32_t>(c) : c / width;
    require(group >= 0 && group < groups, Fault::Model, name, ".", piece, " names the group ", group, " of ", groups);
    out[static_cast<size_t>(c)] = static_cast<int32_t>(group);
  }
  return out;
}

int64_t StoredLayer::bytes() const {
  int64_t sum = 0;
  for (const auto& [piece, tensor] : pieces) sum += tensor.bytes;
  return sum;
}

}  // namespace apus::quant
