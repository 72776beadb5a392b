// SPDX-License-Identifier: Apache-2.0
#include "serve/api_error.h"

#include <nlohmann/json.hpp>

namespace apus {

namespace {

// What the two APIs call an error of a status.
struct ErrorType {
  int status;
  const char *openai, *anthropic;
};
constexpr ErrorType kErrorTypes[] = {
    {401, "authentication_error", "authentication_error"}, {403, "permission_error", "permission_error"},
    {404, "not_found_error", "not_found_error"},           {413, "invalid_request_error", "request_too_large"},
    {429, "rate_limit_error", "rate_limit_error"},         {503, "service_unavailable_error", "overloaded_error"}};

ErrorType error_type(int status) {
  for (const ErrorType& type : kErrorTypes)
    if (type.status == status) return type;
  if (status >= 500) return {status, "server_error", "api_error"};
  return {status, "invalid_request_error", "invalid_request_error"};
}

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

}  // namespace

ApiError api_error(const Error& error) { return ApiError(http_status(error.at.fault), error.what()); }

Json openai_error(const ApiError& e) {
  return {{"error",
           {{"message", e.what()},
            {"type", error_type(e.status).openai},
            {"param", text_or_null(e.param)},
            {"code", text_or_null(e.code)}}}};
}

Json anthropic_error(const ApiError& e) {
  return {{"type", "error"}, {"error", {{"type", error_type(e.status).anthropic}, {"message", e.what()}}}};
}

Json ollama_error(const ApiError& error) { return {{"error", error.what()}}; }

}  // namespace apus
