// SPDX-License-Identifier: Apache-2.0
// Wrapping of help texts. Widths are in bytes: help is ASCII.
#pragma once

#include <string>
#include <string_view>

namespace apus {

// Words on lines of at most `width`; the first line is indented by `first`, the others by `rest`. Ends with a newline.
std::string wrapped(std::string_view text, size_t first, size_t rest, size_t width);
// "  left    right", right wrapped from `column` on; a long left part stands on its own line.
std::string two_columns(std::string_view left, std::string_view right, size_t column, size_t width);

}  // namespace apus
