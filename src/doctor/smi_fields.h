// SPDX-License-Identifier: Apache-2.0
// Lines, fields and words of what the vendors' tools print.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace apus::smi {

inline constexpr size_t kMostDevices = 1024;
inline constexpr int64_t kMegabyte = int64_t{1} << 20;

std::string_view trimmed(std::string_view text);
std::vector<std::string_view> split(std::string_view text, char at);
std::vector<std::string_view> words(std::string_view text);
std::vector<std::string> lines(std::string_view text);              // without terminal codes
std::vector<std::string_view> bar_fields(const std::string& line);  // between the bars of "| a | b |"; empty: no row

std::optional<int64_t> whole(std::string_view text);
double measure(std::string_view text);  // "76.21", "76.21 W", "51C"; -1 for "-", "NA", "[N/A]", "ERR!"

struct Usage {
  int64_t used = -1, total = -1;  // megabytes; -1: not told
};
// The last "used / total" of a field whose total is not 0, or else the last:
// "26838/ 32768", "38MiB / 40960MiB", "NA/ 44280".
std::optional<Usage> last_usage(std::string_view field);

}  // namespace apus::smi
