// SPDX-License-Identifier: Apache-2.0
// LongLoRA's shifted sparse attention, in training alone: tokens look at their group of a sequence instead of all
// before them, and for the second half of the heads groups begin half a group earlier, so that neighbours are joined.
// Of packed sequences that is attention with other lengths.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace apus {

struct TokenGroups {
  struct Half {
    at::Tensor cu;  // [groups + 1] int32 cumulative lengths
    int64_t longest = 0;
  };
  Half plain, shifted;  // of the first half of the heads, and of the second
};

// Groups of `size` tokens; the last of a sequence, and of the shifted ones the first, may be shorter.
TokenGroups token_groups(const std::vector<int32_t>& lengths, int64_t size, at::Device device);

}  // namespace apus
