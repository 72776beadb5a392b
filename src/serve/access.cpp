// SPDX-License-Identifier: Apache-2.0
#include "serve/access.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <nlohmann/json.hpp>

#include "serve/http_text.h"

namespace apus {

namespace {

bool same_key(const std::string& a, const std::string& b) {
  unsigned char digest_a[SHA256_DIGEST_LENGTH], digest_b[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(a.data()), a.size(), digest_a);
  SHA256(reinterpret_cast<const unsigned char*>(b.data()), b.size(), digest_b);
  return CRYPTO_memcmp(digest_a, digest_b, sizeof digest_a) == 0;  // takes the same time wherever they differ
}

std::string presented_key(const HttpCall& call) {
  const std::string header = call.header("authorization");
  const std::string scheme = lower(header.substr(0, header.find(' ')));
  const size_t key = header.find_first_not_of(' ', scheme.size());
  if (scheme == "bearer" && key != std::string::npos) return header.substr(key);
  return call.header("x-api-key");  // Anthropic's clients
}

bool anthropic(const HttpCall& call) { return call.path.starts_with("/v1/messages"); }

}  // namespace

void Access::check_key(const HttpCall& call) const {
  if (api_key.empty() && !keys) return;
  const std::string key = presented_key(call);
  if (key.empty())
    throw ApiError(401, "This server wants an API key: send it as \"Authorization: Bearer KEY\".", "",
                   "invalid_api_key");
  if (is_administrator(call) || (keys && keys->holder(key))) return;
  throw ApiError(401,
                 keys ? "The API key is none of those this server knows."
                      : "The API key is not the one this server was started with.",
                 "", "invalid_api_key");
}

bool Access::is_administrator(const HttpCall& call) const {
  return !api_key.empty() && same_key(presented_key(call), api_key);
}

std::string Access::person(const HttpCall& call) const {
  return keys ? keys->holder(presented_key(call)).value_or("") : "";
}

HttpAnswer error_answer(const HttpCall& call, const ApiError& error) {
  Json body = anthropic(call)                  ? anthropic_error(error)
              : call.path.starts_with("/api/") ? ollama_error(error)
                                               : openai_error(error);
  if (anthropic(call)) body["request_id"] = call.id;
  HttpAnswer answer{.status = error.status, .body = json_text(body)};
  if (error.status == 401) answer.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (error.retry_after > 0) answer.headers.emplace_back("Retry-After", std::to_string(error.retry_after));
  return answer;
}

void Access::allow_origin(const HttpCall& call, HttpAnswer& answer) const {
  const std::string origin = call.header("origin");
  if (origin.empty()) return;
  for (const auto& allowed : allowed_origins) {
    if (allowed != "*" && allowed != origin) continue;
    answer.headers.emplace_back("Access-Control-Allow-Origin", allowed);
    answer.headers.emplace_back("Access-Control-Expose-Headers", "X-Request-Id, Request-Id, Retry-After");
    if (allowed != "*") answer.headers.emplace_back("Vary", "Origin");
    return;
  }
}

std::optional<HttpAnswer> Access::preflight(const HttpCall& call) const {
  if (call.method != "OPTIONS") return std::nullopt;
  if (call.target == "*")  // what the server can do at all
    return HttpAnswer{.status = 204, .headers = {{"Allow", "GET, HEAD, OPTIONS, POST"}}};
  if (allowed_origins.empty()) return std::nullopt;
  // Clients' libraries send headers of their own (X-Stainless-..., anthropic-beta): whatever a page of an allowed
  // origin asks for is allowed.
  std::string headers = call.header("access-control-request-headers");
  if (headers.empty()) headers = "authorization, content-type, x-api-key, anthropic-version";
  return HttpAnswer{.status = 204,
                    .headers = {{"Access-Control-Allow-Methods", "GET, POST"},
                                {"Access-Control-Allow-Headers", headers},
                                {"Access-Control-Max-Age", "600"}}};
}

std::optional<HttpAnswer> Access::refused(const HttpCall& call, bool page) const {
  try {
    if (auto answer = preflight(call)) {
      allow_origin(call, *answer);
      return answer;
    }
    // It is put behind the other server's address: "@somewhere/" would make another one of it.
    if (!call.target.starts_with('/')) throw ApiError(400, "The target of a request must begin with a slash.");
    if (call.path != "/health" && call.path != "/ping" && !(page && call.path == "/")) check_key(call);
    if (call.method == "GET" || call.method == "POST" || call.method == "HEAD") return std::nullopt;
    HttpAnswer answer = error_answer(call, ApiError(405, str(call.method.substr(0, 16), " is not possible here")));
    answer.headers.emplace_back("Allow", "GET, HEAD, POST");
    return answer;
  } catch (const ApiError& error) {
    return error_answer(call, error);
  }
}

}  // namespace apus
