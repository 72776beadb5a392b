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

std::filesystem::path gguf_folder(const std::filesystem::path& file);

}  // namespace apus
