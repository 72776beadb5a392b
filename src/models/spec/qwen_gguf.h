// SPDX-License-Identifier: Apache-2.0
// What the GGUF files of Qwen's towers have in common.
#pragma once

#include "gguf/form.h"

namespace apus {

// `up` and `down`: names of the feed-forward's matrices in a block. `merger`: names in the merger of its norm and its
// two matrices. `qkv`: queries, keys and values are one matrix in the file.
struct QwenTowerNames {
  std::string up, down, norm, first, second;
  bool qkv = false;
};
GgufTower qwen_tower(const std::string& projector, const std::string& architecture, const std::string& text,
                     const QwenTowerNames& names);

}  // namespace apus
