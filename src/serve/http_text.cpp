// SPDX-License-Identifier: Apache-2.0
#include "serve/http_text.h"

#include <cctype>
#include <cstdio>

#include "base/error.h"
#include "serve/openai_answer.h"

namespace apus {

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

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
    case 417:
      return "Expectation Failed";
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
    if (lower(whole.substr(0, scheme.size())) != scheme) continue;
    const size_t path = whole.find_first_of("/?", scheme.size());
    target = path == std::string::npos ? "/" : whole.substr(path);
    if (target.front() == '?') target.insert(0, 1, '/');
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
    call.bad_path |= c == 0;
    call.path += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;  // nothing that would break a log's line
    i += 2;
  }
}

namespace {

// A name or address, and perhaps a port. Of two Host headers a comma would stand between.
bool is_host(const std::string& value) {
  for (const char c : value)
    if (!std::isalnum(static_cast<unsigned char>(c)) &&
        std::string_view("-._~%!$&'()*+;=:[]").find(c) == std::string::npos)
      return false;
  return true;
}

// Chunks end a body that was encoded in this way; nothing else tells where it does.
HeadFault encoding_fault(const std::string& codings, bool http1_0) {
  if (codings.empty() || (codings == "chunked" && !http1_0)) return {};
  if (http1_0) return {400, "HTTP/1.0 knows no Transfer-Encoding."};
  const size_t last = codings.rfind("chunked");
  const std::string before = codings.substr(0, last);
  if (last == std::string::npos || last + 7 != codings.size() || before.find("chunked") != std::string::npos)
    return {400, "'chunked' must stand once in Transfer-Encoding, at its end: else nobody knows where the body ends."};
  return {501, "The body is compressed; this server takes plain JSON only."};
}

}  // namespace

HeadFault head_fault(const HttpCall& call, bool http1_0) {
  if (!call.headers.count("host") && !http1_0) return {400, "A request of HTTP/1.1 needs a Host header."};
  if (!is_host(call.header("host"))) return {400, "The Host header must name one host, and perhaps its port."};
  if (auto fault = encoding_fault(lower(call.header("transfer-encoding")), http1_0); fault.status) return fault;
  if (const std::string coding = lower(call.header("content-encoding")); !coding.empty() && coding != "identity")
    return {415, "The body is compressed; this server takes plain JSON only."};
  if (const std::string expect = lower(call.header("expect")); !expect.empty() && expect != "100-continue")
    return {417, "Nothing but 100-continue can be expected of this server."};
  return {};
}

std::string request_id(const std::string& given) {
  bool harmless = !given.empty() && given.size() <= 128;
  for (const char c : given)
    harmless &= std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
  return harmless ? given : random_id("", 32);
}

}  // namespace apus
