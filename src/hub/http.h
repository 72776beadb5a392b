// SPDX-License-Identifier: Apache-2.0
// The few HTTP requests that hubs and clients of servers need, over libcurl: with redirects, proxies from the
// environment, limits and time-outs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace apus {

struct HttpReply {
  int status = 0;     // 0: no answer came
  std::string error;  // why none came
  // Headers of all answers, redirects included: names in lower case, the last answer that has one counts...
  std::map<std::string, std::string> headers;
  // ...and headers of the first answer alone, in which hubs describe a file.
  std::map<std::string, std::string> first;
  std::string body;
};

struct FilePart {  // of a file that is sent, not held
  std::filesystem::path path;
  int64_t from = 0, bytes = 0;
};

struct HttpRequest {
  std::string url;
  std::vector<std::string> headers;
  bool head_only = false;
  std::optional<std::string> post;  // the body of a POST; absent: a GET
  std::optional<FilePart> put;      // the body of a PUT
  bool follow = true;
  // Asked for by strangers: addresses of this machine and its network are refused, those that names or redirects lead
  // to as well, and proxies, which would look up names themselves, are not used.
  bool public_only = false;
  int64_t body_limit = 256 << 20;
  int64_t quiet_seconds = 60;                     // an answer that says nothing for so long has failed
  int64_t most_seconds = 0;                       // for all of it; 0: any time
  std::function<bool()> abandoned;                // asked now and then; true: break off
  int64_t from = 0;                               // first byte wanted
  std::function<bool(const HttpReply&)> accept;   // asked once when the headers of the last answer are there
  std::function<void(const char*, size_t)> sink;  // takes the body instead of `body`
  std::function<void(int64_t bytes)> sent;        // of `put`: so many more have gone (negative: they go again)
};

HttpReply http_request(const HttpRequest& request);
std::string url_escaped(const std::string& path);  // each part; slashes stay

}  // namespace apus
