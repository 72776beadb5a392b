// SPDX-License-Identifier: Apache-2.0
#include "serve/api_error.h"

#include <nlohmann/json.hpp>

namespace apus {

namespace {

const char* openai_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "service_unavailable_error";
    default:
      return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

const char* anthropic_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

}  // namespace

ApiError api_error(const Error& error) { return ApiError(http_status(error.at.fault), error.what()); }

Json openai_error(const ApiError& e) {
  return {{"error",
           {{"message", e.what()},
            {"type", openai_type(e.status)},
            {"param", text_or_null(e.param)},
            {"code", text_or_null(e.code)}}}};
}

Json anthropic_error(const ApiError& e) {
  return {{"type", "error"}, {"error", {{"type", anthropic_type(e.status)}, {"message", e.what()}}}};
}

}  // namespace apus
