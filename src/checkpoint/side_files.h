// SPDX-License-Identifier: Apache-2.0
// The files of a checkpoint folder that are not weights: tokenizer, processor, generation settings.
#pragma once

#include <filesystem>

namespace apus {

// Copies them all but config.json, weights, their indices, and what a training run leaves beside (adapters, states).
void copy_side_files(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace apus
