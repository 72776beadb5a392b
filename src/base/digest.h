// SPDX-License-Identifier: Apache-2.0
// The beginning of a text's SHA-256, by which texts are told apart.
#pragma once

#include <cstddef>
#include <string>

namespace apus {

// In hexadecimal digits, two a byte; at most the 32 bytes there are.
std::string hex_digest(const std::string& text, size_t bytes);

}  // namespace apus
