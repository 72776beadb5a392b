// SPDX-License-Identifier: Apache-2.0
#include "media/source.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "base/files.h"
#include "hub/http.h"

namespace apus {

namespace {

constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string base64_bytes(std::string_view text, const SourceLimits& limits) {
  require(static_cast<int64_t>(text.size()) / 4 * 3 <= limits.bytes, Fault::Data, "more than ", limits.bytes,
          " bytes of base64");
  std::array<int8_t, 256> value;
  value.fill(-1);
  for (size_t i = 0; i < kLetters.size(); ++i) value[static_cast<uint8_t>(kLetters[i])] = static_cast<int8_t>(i);
  value['-'] = 62, value['_'] = 63;  // as URLs write them
  std::string out;
  out.reserve(text.size() / 4 * 3);
  uint32_t bits = 0;
  int held = 0;
  for (const char letter : text) {
    if (letter == '\r' || letter == '\n' || letter == ' ') continue;
    if (letter == '=') break;
    const int8_t six = value[static_cast<uint8_t>(letter)];
    require(six >= 0, Fault::Data, "base64 with the letter '", letter, "' in it");
    bits = bits << 6 | static_cast<uint32_t>(six);
    if ((held += 6) >= 8) out.push_back(static_cast<char>(bits >> (held -= 8) & 255));
  }
  return out;
}

std::string from_data_uri(std::string_view entry, const SourceLimits& limits) {
  const size_t comma = entry.find(',');
  require(comma != std::string_view::npos && entry.substr(0, comma).ends_with(";base64"), Fault::Data,
          "a data URI must read data:<type>;base64,<letters>");
  return base64_bytes(entry.substr(comma + 1), limits);
}

std::string from_url(const std::string& url, const SourceLimits& limits) {
  HttpRequest request;
  request.url = url;
  request.body_limit = limits.bytes;
  request.quiet_seconds = limits.quiet_seconds, request.most_seconds = limits.seconds;
  request.public_only = limits.public_only;
  HttpReply reply = http_request(request);
  require(reply.status != 0, Fault::Data, "no answer: ", reply.error);
  require(reply.status == 200, Fault::Data, "the server answers ", reply.status);
  require(reply.error.empty(), Fault::Data, "the download broke off: ", reply.error);
  return std::move(reply.body);
}

bool is_bare(std::string_view entry) {
  return entry.size() > 512 && std::all_of(entry.begin(), entry.end(), [](char c) {
           return kLetters.find(c) != std::string_view::npos || c == '=' || c == '\r' || c == '\n';
         });
}

}  // namespace

SourceLimits source_limits() {
  SourceLimits limits;
  if (const char* seconds = std::getenv("SWIFT_TIMEOUT"); seconds && std::atoll(seconds) > 0)
    limits.quiet_seconds = std::atoll(seconds);
  return limits;
}

std::string media_bytes(const std::string& entry, const SourceLimits& limits) {
  try {
    if (entry.starts_with("data:")) return from_data_uri(entry, limits);
    if (entry.starts_with("http://") || entry.starts_with("https://")) return from_url(entry, limits);
    if (is_bare(entry)) return base64_bytes(entry, limits);
    return read_file(entry, limits.bytes);
  } catch (const Error& error) {
    const std::string what = error.what(), name = entry_name(entry);
    fail(Fault::Data, what.find(name) == std::string::npos ? name + ": " + what : what);
  }
}

bool is_local_file(const std::string& entry) {
  return !entry.starts_with("data:") && !entry.starts_with("http://") && !entry.starts_with("https://") &&
         !is_bare(entry);
}

std::string entry_name(const std::string& entry) {
  constexpr size_t kShown = 120;
  const bool data = entry.starts_with("data:") || is_bare(entry);
  const size_t shown = data ? 40 : kShown;
  return entry.size() <= shown ? entry : entry.substr(0, shown) + "...";
}

}  // namespace apus
