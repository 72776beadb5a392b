// SPDX-License-Identifier: Apache-2.0
#include "algos/options/environment.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"

namespace apus {
namespace {

std::string said(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

double from_environment(const char* name, double otherwise) {
  const std::string text = said(name);
  if (text.empty()) return otherwise;
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  require(*end == 0, Fault::Usage, name, "=", text, " in the environment: a number is wanted");
  return value;
}

int64_t from_environment(const char* name, int64_t otherwise) {
  const double value = from_environment(name, static_cast<double>(otherwise));
  require(value == static_cast<double>(static_cast<int64_t>(value)), Fault::Usage, name, "=", said(name),
          " in the environment: a whole number is wanted");
  return static_cast<int64_t>(value);
}

bool from_environment(const char* name, bool otherwise) {
  std::string text = said(name);
  if (text.empty()) return otherwise;
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const char* yes : {"1", "true", "t", "yes", "y", "on"})
    if (text == yes) return true;
  for (const char* no : {"0", "false", "f", "no", "n", "off"})
    if (text == no) return false;
  fail(Fault::Usage, name, "=", text, " in the environment: true or false is wanted");
}

std::string from_environment(const char* name, const char* otherwise) {
  const std::string text = said(name);
  return text.empty() ? otherwise : text;
}

}  // namespace apus
