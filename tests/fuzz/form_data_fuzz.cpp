// SPDX-License-Identifier: Apache-2.0
// Bodies of forms: parts that lie within the body, or an ApiError. The first line is the Content-Type.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "serve/api_error.h"
#include "serve/form_data.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace apus;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t line = std::min(text.find('\n'), text.size());
  const std::string type = "multipart/form-data; " + std::string(text.substr(0, line));
  const std::string_view body = text.substr(std::min(line + 1, text.size()));
  try {
    for (const FormPart& part : read_form_data(type, body)) {
      const bool inside = part.value.empty() || (part.value.data() >= body.data() &&
                                                 part.value.data() + part.value.size() <= body.data() + body.size());
      if (!inside || part.name.empty()) __builtin_trap();
    }
  } catch (const ApiError& error) {
    if (error.status != 400) __builtin_trap();
  }
  return 0;
}
