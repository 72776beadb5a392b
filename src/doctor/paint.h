// SPDX-License-Identifier: Apache-2.0
// Colours for reports on standard output: on a terminal, unless NO_COLOR is set or the terminal is dumb.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

namespace apus {

struct Paint {
  bool on = false;

  static Paint for_output() {
    const char* none = std::getenv("NO_COLOR");
    const char* term = std::getenv("TERM");
    return {::isatty(1) != 0 && !(none && *none) && !(term && std::string_view(term) == "dumb")};
  }
  std::string bold(const std::string& text) const { return with("1", text); }
  std::string dim(const std::string& text) const { return with("2", text); }
  std::string red(const std::string& text) const { return with("31", text); }
  std::string green(const std::string& text) const { return with("32", text); }
  std::string yellow(const std::string& text) const { return with("33", text); }

 private:
  std::string with(const char* code, const std::string& text) const {
    return on ? "\033[" + std::string(code) + "m" + text + "\033[0m" : text;
  }
};

}  // namespace apus
