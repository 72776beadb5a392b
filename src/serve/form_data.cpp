// SPDX-License-Identifier: Apache-2.0
#include "serve/form_data.h"

#include <algorithm>

#include "serve/api_error.h"
#include "serve/http_text.h"

namespace apus {

namespace {

constexpr std::string_view kType = "multipart/form-data";
constexpr size_t kMostFormParts = 64, kLongestBoundary = 70, kLongestHead = 4096;

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// A parameter behind the first semicolon: a word, or a text in quotes, in which a backslash keeps what follows it.
std::string parameter(std::string_view header, const std::string& name) {
  size_t at = header.find(';');
  while (at != std::string_view::npos && at < header.size()) {
    const size_t equals = header.find('=', ++at);
    if (equals == std::string_view::npos) return "";
    const bool wanted = lower(std::string(trimmed(header.substr(at, equals - at)))) == name;
    std::string value;
    at = equals + 1;
    if (at < header.size() && header[at] == '"') {
      for (++at; at < header.size() && header[at] != '"'; ++at) {
        if (header[at] == '\\' && at + 1 < header.size()) ++at;
        value += header[at];
      }
      at = header.find(';', at);
    } else {
      const size_t end = header.find(';', at);
      value = trimmed(header.substr(at, end == std::string_view::npos ? end : end - at));
      at = end;
    }
    if (wanted) return value;
  }
  return "";
}

// What a part's own lines say of it.
FormPart head_of(std::string_view lines) {
  FormPart part;
  while (!lines.empty()) {
    const size_t end = std::min(lines.find("\r\n"), lines.size());
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 2, lines.size()));
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || lower(std::string(line.substr(0, colon))) != "content-disposition") continue;
    part.name = parameter(line.substr(colon + 1), "name"), part.file = parameter(line.substr(colon + 1), "filename");
  }
  return part;
}

[[noreturn]] void broken(const char* what) { refuse("", "the body is no multipart/form-data: ", what); }

}  // namespace

bool is_form_data(std::string_view content_type) {
  return lower(std::string(trimmed(content_type.substr(0, content_type.find(';'))))) == kType;
}

std::vector<FormPart> read_form_data(std::string_view content_type, std::string_view body) {
  if (!is_form_data(content_type)) broken("its Content-Type is another");
  const std::string boundary = parameter(content_type, "boundary");
  if (boundary.empty() || boundary.size() > kLongestBoundary) broken("its Content-Type names no boundary");
  const std::string mark = "--" + boundary;
  size_t at = body.starts_with(mark) ? 0 : body.find("\r\n" + mark);
  if (at == std::string_view::npos) broken("its boundary does not occur");
  at += at > 0 ? 2 + mark.size() : mark.size();
  std::vector<FormPart> parts;
  while (body.substr(at, 2) != "--") {
    if (body.substr(at, 2) != "\r\n") broken("a boundary does not end its line");
    at += 2;
    const size_t end = body.find("\r\n" + mark, at);
    if (end == std::string_view::npos) broken("it ends inside of a part");
    const std::string_view part = body.substr(at, end - at);
    const size_t head = part.substr(0, kLongestHead).find("\r\n\r\n");
    if (head == std::string_view::npos) broken("a part has no empty line behind its headers");
    parts.push_back(head_of(part.substr(0, head + 2)));
    parts.back().value = part.substr(head + 4);
    if (parts.back().name.empty()) broken("a part has no name");
    if (parts.size() > kMostFormParts) broken("it has too many parts");
    at = end + 2 + mark.size();
  }
  return parts;
}

}  // namespace apus
