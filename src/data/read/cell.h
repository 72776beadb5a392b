// SPDX-License-Identifier: Apache-2.0
// Cells of binary tables that JSON has no values for: dates, times and bytes become text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace apus {

std::string date_text(int64_t days);                        // since 1970: "2025-07-04"
std::string stamp_text(int64_t ticks, int64_t per_second);  // "2025-07-04T12:34:56.25"
std::string clock_text(int64_t ticks, int64_t per_second);  // "12:34:56.25"
std::string uuid_text(std::string_view bytes);              // 16 bytes
std::string bytes_text(std::string_view bytes);             // "data:application/octet-stream;base64,..."
double half_to_double(uint16_t bits);
double decimal_value(std::string_view big_endian, int scale);

}  // namespace apus
