// SPDX-License-Identifier: Apache-2.0
// {{NAME}} and {{AUTHOR}} in rows that teach a model who it is, as in ms-swift's self-cognition data.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace apus {

// Each is empty (nothing is replaced), one text, or two: the Chinese and the English one.
struct SelfName {
  std::vector<std::string> name, author;
  bool empty() const { return name.empty() && author.empty(); }
};

// In all message texts. Rows with "tag": "zh", or Chinese characters where there is no tag, take the Chinese ones.
void put_names(Json& messages, const Json& tag, const SelfName& names);

}  // namespace apus
