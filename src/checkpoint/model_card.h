// SPDX-License-Identifier: Apache-2.0
// README.md for a hub, of a folder that holds a model or an adapter: what it was trained from, on what, how, and with
// which figures, as the run's own files beside the weights tell. No tensor library.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace apus {

// Nothing: the folder's own README.md is somebody's, or it holds neither a model nor an adapter.
std::optional<std::string> card_of_folder(const std::filesystem::path& folder);

}  // namespace apus
