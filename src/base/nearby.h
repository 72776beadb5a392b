// SPDX-License-Identifier: Apache-2.0
// "did you mean" for paths.
#pragma once

#include <filesystem>
#include <string>

namespace apus {

// "; did you mean DIR/NAME?" with the entries of its folder that are called almost so, else nothing.
std::string nearby(const std::filesystem::path& missing);

}  // namespace apus
