// SPDX-License-Identifier: Apache-2.0
// Bodies of multipart/form-data, as browsers and OpenAI's clients send files. Pure: bytes in, parts or an ApiError out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace apus {

// Views of the body.
struct FormPart {
  std::string name, file;  // file: its name; empty: the part is a plain value
  std::string_view value;
};

bool is_form_data(std::string_view content_type);
// ApiError 400 for what is no such body, and for more than 64 parts.
std::vector<FormPart> read_form_data(std::string_view content_type, std::string_view body);

}  // namespace apus
