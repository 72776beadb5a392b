// SPDX-License-Identifier: Apache-2.0
// Tells checkpoints apart without reading all of them. No tensor library.
#pragma once

#include <filesystem>
#include <string>

namespace apus {

// Of all that answers depend on in the folder of a model or an adapter: settings, tokenizer and templates whole, of
// each file of weights its size, its beginning and blocks from all over it. Not of a run's state.
std::string checkpoint_digest(const std::filesystem::path& folder);

}  // namespace apus
