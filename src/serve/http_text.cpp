// SPDX-License-Identifier: Apache-2.0
#include "serve/http_text.h"

#include <cctype>
#include <cstdio>

#include "base/error.h"
#include "serve/openai_answer.h"

namespace apus {

const char* status_phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Payload Too Large";
    case 415:
      return "Unsupported Media Type";
    case 422:
      return "Unprocessable Entity";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 502:
      return "Bad Gateway";
    case 503:
      return "Service Unavailable";
    default:
      return "Status";
  }
}

std::string head_text(const HttpAnswer& answer, const std::string& id, bool keep_alive, int64_t length) {
  std::string text = str("HTTP/1.1 ", answer.status, " ", status_phrase(answer.status), "\r\n");
  if (answer.status != 204) text += "Content-Type: " + answer.content_type + "\r\n";
  if (!id.empty()) text += "X-Request-Id: " + id + "\r\nRequest-Id: " + id + "\r\n";  // OpenAI's clients, Anthropic's
  for (const auto& [name, value] : answer.headers) text += name + ": " + value + "\r\n";
  if (length >= 0 && answer.status != 204) text += str("Content-Length: ", length, "\r\n");
  if (length == kChunked) text += "Transfer-Encoding: chunked\r\n";
  return text + (keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n");
}

std::string chunk_text(const std::string& part) {
  char size[24];
  std::snprintf(size, sizeof size, "%zx\r\n", part.size());
  return size + part + "\r\n";
}

void split_target(const std::string& whole, HttpCall& call) {
  std::string target = whole;
  for (const std::string scheme : {"http://", "https://"}) {  // as clients write it that think of a proxy
    if (!whole.starts_with(scheme)) continue;
    const size_t slash = whole.find('/', scheme.size());
    target = slash == std::string::npos ? "/" : whole.substr(slash);
  }
  call.target = target;
  const size_t mark = target.find('?');
  call.query = mark == std::string::npos ? "" : target.substr(mark + 1);
  const std::string path = target.substr(0, mark);
  call.path.clear();
  for (size_t i = 0; i < path.size(); ++i) {
    const bool coded = path[i] == '%' && i + 2 < path.size() &&
                       std::isxdigit(static_cast<unsigned char>(path[i + 1])) &&
                       std::isxdigit(static_cast<unsigned char>(path[i + 2]));
    if (!coded) {
      call.path += path[i];
      continue;
    }
    const char c = static_cast<char>(std::stoi(path.substr(i + 1, 2), nullptr, 16));
    call.path += static_cast<unsigned char>(c) < 0x20 ? '?' : c;  // nothing that would break a line of the log
    i += 2;
  }
}

int uncodable_body(const HttpCall& call) {
  const auto is = [&](const char* name, std::string_view plain) {
    std::string value = call.header(name);
    for (char& c : value) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return value.empty() || value == plain;
  };
  if (!is("content-encoding", "identity")) return 415;
  return is("transfer-encoding", "chunked") ? 0 : 501;
}

std::string request_id(const std::string& given) {
  bool harmless = !given.empty() && given.size() <= 128;
  for (const char c : given)
    harmless &= std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
  return harmless ? given : random_id("", 32);
}

}  // namespace apus
