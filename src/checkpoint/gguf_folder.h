// SPDX-License-Identifier: Apache-2.0
// A GGUF file as a checkpoint folder: its small files made of the settings, and a link to the file itself, kept in the
// user's cache. Whoever reads a checkpoint reads it as any other. No tensor library.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace apus {

// The GGUF file that a --model means: such a file, or a folder with one and nothing that is read before it.
// Fault::Usage where a folder has several.
std::optional<std::filesystem::path> gguf_meant(const std::string& model);

// That of a folder which a hub filled; of several, the one of this type ("Q4_K_M"), as hub/gguf_choice.h has it. Empty:
// the folder has none, or files that are read before it.
std::filesystem::path gguf_of_hub(const std::filesystem::path& folder, const std::string& type);

// The file beside it of a tower that sees (mmproj....gguf); empty: there is none. Of several the first by name, which
// is told.
std::filesystem::path tower_beside(const std::filesystem::path& file);

std::filesystem::path gguf_folder(const std::filesystem::path& file);

}  // namespace apus
