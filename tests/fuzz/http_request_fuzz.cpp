// SPDX-License-Identifier: Apache-2.0
// Bodies of requests through the readers of both APIs: a call or an ApiError, nothing else.
// The first byte chooses the endpoint.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "serve/anthropic_request.h"
#include "serve/api_error.h"
#include "serve/fields.h"
#include "serve/http_text.h"
#include "serve/openai_request.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace apus;
  if (size < 1) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  HttpCall call;
  split_target(std::string(text), call);
  if (call.path.find('\n') != std::string::npos && text.find("\n") == std::string_view::npos) __builtin_trap();
  call.headers = {{"host", std::string(text)}, {"transfer-encoding", std::string(text)}};
  const bool accepted = head_fault(call, data[0] & 4).status == 0;
  if (accepted && text.find_first_of(", \r\n") != std::string_view::npos) __builtin_trap();
  try {
    const Json body = parse_foreign(text, "body");
    switch (data[0] % 4) {
      case 0:
        read_chat_request(body, {});
        break;
      case 1:
        read_completion_request(body, {});
        break;
      case 2:
        read_embedding_request(body);
        break;
      default:
        read_messages_request(body);
    }
  } catch (const ApiError& error) {
    if (error.status != 400 || !openai_error(error).contains("error")) __builtin_trap();
  }
  return 0;
}
