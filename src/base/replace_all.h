// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace apus {

// Every `from` in the text becomes `to`, in one pass; an empty `from` is nowhere.
inline void replace_all(std::string& text, std::string_view from, std::string_view to) {
  if (from.empty()) return;
  size_t at = text.find(from);
  if (at == std::string::npos) return;
  std::string made;
  size_t done = 0;
  for (; at != std::string::npos; at = text.find(from, done)) {
    made.append(text, done, at - done).append(to);
    done = at + from.size();
  }
  text = made.append(text, done);
}

}  // namespace apus
