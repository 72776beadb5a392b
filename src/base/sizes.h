// SPDX-License-Identifier: Apache-2.0
// Sizes as people write them.
#pragma once

#include <cstdint>
#include <string_view>

namespace apus {
// "5GB" and "5G" are 5e9 bytes, "5GiB" is 5 * 2^30, a bare number is bytes. `what` begins the message of an error.
int64_t parse_bytes(std::string_view text, std::string_view what);
}  // namespace apus
