// SPDX-License-Identifier: Apache-2.0
// The text of HTTP replies, and what is taken from request lines. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "serve/http.h"

namespace apus {

constexpr int64_t kChunked = -1, kUntilClose = -2;  // instead of a length

std::string lower(std::string text);  // of ASCII: names of headers, schemes, codings
const char* status_phrase(int status);
std::string head_text(const HttpAnswer& answer, const std::string& id, bool keep_alive, int64_t length);
std::string chunk_text(const std::string& part);
void split_target(const std::string& whole, HttpCall& call);  // path, percent-decoded, and query

// Why a request is refused whatever it asks for: a server or proxy before this one could read it in another way (two
// lengths, two hosts), or its body is encoded in a way that is not undone here.
// The connection ends with the answer.
struct HeadFault {
  int status = 0;  // 0: none
  std::string why;
};
HeadFault head_fault(const HttpCall& call, bool http1_0);
std::string request_id(const std::string& given);  // the client's when it is harmless, else a new one

}  // namespace apus
