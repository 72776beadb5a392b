// SPDX-License-Identifier: Apache-2.0
// Bytes as text of 64 letters, and back.
#pragma once

#include <string>
#include <string_view>

namespace apus {

std::string base64(std::string_view bytes);
std::string from_base64(std::string_view text);  // Fault::Data when it is none

}  // namespace apus
