// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <cmath>
#include <cstdio>
#include <ctime>

namespace apus {

std::string local_time(const char* format) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  char text[128];
  return std::string(text, std::strftime(text, sizeof text, format, &parts));
}

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 3.6e8) return "?";
  char text[48];
  const auto whole = static_cast<long long>(seconds);
  if (seconds < 60) {
    std::snprintf(text, sizeof text, "%.1fs", seconds);
  } else if (whole < 3600) {
    std::snprintf(text, sizeof text, "%lld:%02lld", whole / 60, whole % 60);
  } else {
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60);
  }
  return text;
}

namespace {
// A number of at most nine digits at the begin, which is taken off.
std::optional<double> take_number(std::string_view& text) {
  const size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
  if (end == 0 || end > 9) return std::nullopt;
  const double value = std::stod(std::string(text.substr(0, end)));
  text.remove_prefix(end);
  return value;
}

// [days-]hours:minutes:seconds
std::optional<double> clock_time(std::string_view text) {
  double seconds = 0;
  std::optional<double> part = take_number(text);
  if (part && text.starts_with('-')) seconds = *part * 24, text.remove_prefix(1), part = take_number(text);
  for (int i = 0; i < 2; ++i) {
    if (!part || !text.starts_with(':')) return std::nullopt;
    seconds = (seconds + *part) * 60;
    text.remove_prefix(1), part = take_number(text);
  }
  return part && text.empty() ? std::optional(seconds + *part) : std::nullopt;
}
}  // namespace

std::optional<double> duration_of(std::string_view text) {
  if (text.find(':') != std::string_view::npos) return clock_time(text);
  double seconds = 0;
  for (const auto& [unit, size] : {std::pair{'d', 86400.0}, {'h', 3600.0}, {'m', 60.0}, {'s', 1.0}}) {
    const size_t end = text.find_first_not_of("0123456789");
    if (end == std::string_view::npos || text[end] != unit) continue;
    const auto number = take_number(text);
    if (!number) return std::nullopt;
    seconds += *number * size, text.remove_prefix(1);
  }
  return text.empty() && seconds > 0 ? std::optional(seconds) : std::nullopt;
}

std::string bytes_text(int64_t bytes) {
  static const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (std::fabs(value) >= 1024 && unit < 5) value /= 1024, ++unit;
  char text[48];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
  return text;
}

}  // namespace apus
