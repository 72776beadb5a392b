// SPDX-License-Identifier: Apache-2.0
#include "base/wrap.h"

namespace apus {

std::string wrapped(std::string_view text, size_t first, size_t rest, size_t width) {
  std::string out(first, ' ');
  size_t used = first, start = 0;
  bool empty = true;
  while ((start = text.find_first_not_of(' ', start)) != std::string_view::npos) {
    const size_t end = std::min(text.find(' ', start), text.size());
    const std::string_view word = text.substr(start, end - start);
    if (!empty && used + 1 + word.size() > width) {
      out.append("\n").append(rest, ' ');
      used = rest;
      empty = true;
    }
    if (!empty) out += ' ';
    out += word;
    used += word.size() + (empty ? 0 : 1);
    empty = false;
    start = end;
  }
  return out + "\n";
}

std::string two_columns(std::string_view left, std::string_view right, size_t column, size_t width) {
  std::string out = "  " + std::string(left);
  while (out.ends_with(' ')) out.pop_back();
  const std::string text = wrapped(right, column, column, width);
  if (out.size() + 2 > column) return out + "\n" + text;
  return out + text.substr(out.size());
}

}  // namespace apus
