// SPDX-License-Identifier: Apache-2.0
#include "base/sizes.h"

#include <charconv>
#include <string>

#include "base/error.h"

namespace apus {

int64_t parse_bytes(std::string_view text, std::string_view what) {
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string unit;
  for (const char* c = end; c != text.data() + text.size(); ++c) {
    if (*c != ' ') unit += static_cast<char>(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
  }
  const bool binary = unit.size() == 3 && unit.ends_with("IB");
  double scale = 0;
  if (unit.empty() || unit == "B") {
    scale = 1;
  } else if (binary || unit.size() == 1 || (unit.size() == 2 && unit[1] == 'B')) {
    const size_t power = std::string_view("KMGT").find(unit[0]) + 1;  // 0: not found
    for (size_t i = 0; i < power; ++i) scale = (scale == 0 ? 1 : scale) * (binary ? 1024 : 1000);
  }
  const double bytes = value * scale;
  require(code == std::errc() && scale > 0 && bytes >= 1 && bytes < 9e18, Fault::Usage, what, ": '", text,
          "' is no size; write 500MB, 5GB or 5GiB");
  return static_cast<int64_t>(bytes);
}

}  // namespace apus
