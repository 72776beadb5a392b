// SPDX-License-Identifier: Apache-2.0
// The formats of strings that JSON schema knows, as patterns.
#pragma once

#include <optional>
#include <string>

namespace apus::guide {

std::optional<std::string> format_pattern(const std::string& format);
std::string known_formats();

}  // namespace apus::guide
