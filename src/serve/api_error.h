// SPDX-License-Identifier: Apache-2.0
// What a client is told when its request fails: a status, and the error object of the API it speaks.
#pragma once

#include <string>

#include "base/json.h"

namespace apus {

struct ApiError : std::runtime_error {
  ApiError(int status, const std::string& message, std::string param = "", std::string code = "")
      : std::runtime_error(message), status(status), param(std::move(param)), code(std::move(code)) {}
  int status;
  std::string param;    // the field at fault; empty: none
  std::string code;     // "model_not_found", "context_length_exceeded", ...
  int retry_after = 0;  // seconds; 0: not said
};

template <class... P>
[[noreturn]] void refuse(const std::string& param, const P&... why) {
  throw ApiError(400, str(why...), param);
}

ApiError api_error(const Error& error);       // by its fault
Json openai_error(const ApiError& error);     // {"error": {message, type, param, code}}
Json anthropic_error(const ApiError& error);  // {"type": "error", "error": {type, message}}
Json ollama_error(const ApiError& error);     // {"error": message}

}  // namespace apus
