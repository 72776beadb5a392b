// SPDX-License-Identifier: Apache-2.0
// How one placeholder of a format wants its value: width, sign, digits.
#pragma once

#include "text/jinja/value.h"

namespace apus::jinja {

constexpr int64_t kWidest = 1 << 20;

struct FormatSpec {  // of one placeholder
  std::string fill = " ";
  char align = 0, sign = '-', type = 0;
  bool alternate = false, zero = false, has_sign = false;
  char grouping = 0;
  int64_t width = 0, precision = -1;
};

std::string pad(std::string text, const FormatSpec& spec, char default_align, std::string_view sign = "");
std::string format_real(double value, FormatSpec spec);
std::string format_integer(const Value& value, FormatSpec spec);
std::string format_value(Heap& heap, const Value& value, std::string_view spec);  // Python's format(value, spec)

}  // namespace apus::jinja
