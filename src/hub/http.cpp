// SPDX-License-Identifier: Apache-2.0
#include "hub/http.h"

#include <curl/curl.h>
#include <sys/socket.h>

#include <algorithm>
#include <exception>
#include <fstream>
#include <memory>
#include <mutex>

#include "base/error.h"
#include "hub/public_address.h"

namespace apus {

namespace {

// What the callbacks of one transfer share.
struct Transfer {
  const HttpRequest& request;
  HttpReply reply;
  CURL* curl = nullptr;
  bool asked = false, accepted = true, refused = false;
  std::exception_ptr failure;
  std::ifstream file;     // of `put`
  int64_t file_sent = 0;  // bytes of it
};

size_t on_header(char* data, size_t size, size_t count, void* user) {
  auto& t = *static_cast<Transfer*>(user);
  std::string line(data, size * count);
  while (!line.empty() && (line.back() == '\r' || line.back() == '\n')) line.pop_back();
  const size_t colon = line.find(':');
  if (colon == std::string::npos) return size * count;
  std::string name = line.substr(0, colon);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  const size_t begin = std::min(line.find_first_not_of(' ', colon + 1), line.size());
  long redirects = 0;
  curl_easy_getinfo(t.curl, CURLINFO_REDIRECT_COUNT, &redirects);
  t.reply.headers[name] = line.substr(begin);
  if (redirects == 0) t.reply.first[name] = line.substr(begin);
  return size * count;
}

size_t on_body(char* data, size_t size, size_t count, void* user) {
  auto& t = *static_cast<Transfer*>(user);
  const size_t bytes = size * count;
  try {
    if (!t.asked) {
      t.asked = true;
      long status = 0;
      curl_easy_getinfo(t.curl, CURLINFO_RESPONSE_CODE, &status);
      t.reply.status = static_cast<int>(status);
      t.accepted = !t.request.accept || t.request.accept(t.reply);
    }
    if (t.accepted && t.request.sink) {
      t.request.sink(data, bytes);
    } else {
      if (static_cast<int64_t>(t.reply.body.size() + bytes) > t.request.body_limit) return 0;
      t.reply.body.append(data, bytes);
    }
  } catch (...) {
    t.failure = std::current_exception();
    return 0;
  }
  return bytes;
}

size_t on_read(char* data, size_t size, size_t count, void* user) {
  auto& t = *static_cast<Transfer*>(user);
  const int64_t left = t.request.put->bytes - t.file_sent;
  const auto wanted = static_cast<std::streamsize>(std::min<int64_t>(left, static_cast<int64_t>(size * count)));
  if (wanted == 0) return 0;
  if (!t.file.read(data, wanted)) return CURL_READFUNC_ABORT;  // it became shorter meanwhile
  t.file_sent += wanted;
  if (t.request.sent) t.request.sent(wanted);
  return static_cast<size_t>(wanted);
}

// A redirect or a connection that was closed asks for the bytes again.
int on_seek(void* user, curl_off_t offset, int origin) {
  auto& t = *static_cast<Transfer*>(user);
  if (origin != SEEK_SET) return CURL_SEEKFUNC_CANTSEEK;
  t.file.clear();
  if (!t.file.seekg(t.request.put->from + offset)) return CURL_SEEKFUNC_FAIL;
  if (t.request.sent) t.request.sent(offset - t.file_sent);
  t.file_sent = offset;
  return CURL_SEEKFUNC_OK;
}

// Here the address is the one that is connected to, whatever a name was looked up as before.
curl_socket_t on_socket(void* user, curlsocktype, curl_sockaddr* address) {
  auto& t = *static_cast<Transfer*>(user);
  if (!is_public_address(address->addr)) {
    t.refused = true;
    return CURL_SOCKET_BAD;
  }
  return socket(address->family, address->socktype, address->protocol);
}

int on_progress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<const Transfer*>(user)->request.abandoned() ? 1 : 0;
}

void start_curl() {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

}  // namespace

HttpReply http_request(const HttpRequest& request) {
  start_curl();
  Transfer t{request, {}, nullptr, false, true, false, nullptr, {}, 0};
  const std::unique_ptr<CURL, void (*)(CURL*)> curl(curl_easy_init(), curl_easy_cleanup);
  require(curl != nullptr, Fault::Io, "libcurl cannot start");
  t.curl = curl.get();
  std::unique_ptr<curl_slist, void (*)(curl_slist*)> headers(nullptr, curl_slist_free_all);
  for (const auto& header : request.headers) headers.reset(curl_slist_append(headers.release(), header.c_str()));
  const auto set = [&](CURLoption option, auto value) { curl_easy_setopt(curl.get(), option, value); };
  char error[CURL_ERROR_SIZE] = "";
  set(CURLOPT_ERRORBUFFER, error);
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_HTTPHEADER, headers.get());
  set(CURLOPT_USERAGENT, "apus");
  set(CURLOPT_NOBODY, request.head_only ? 1L : 0L);
  set(CURLOPT_FOLLOWLOCATION, request.follow ? 1L : 0L);
  set(CURLOPT_MAXREDIRS, 8L);
#if LIBCURL_VERSION_NUM >= 0x075500
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
#endif
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_CONNECTTIMEOUT, 15L);
  set(CURLOPT_LOW_SPEED_LIMIT, 100L);  // bytes a second, over...
  set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(request.quiet_seconds));
  set(CURLOPT_TIMEOUT, static_cast<long>(request.most_seconds));
  if (request.public_only) {
    set(CURLOPT_PROXY, "");
    set(CURLOPT_OPENSOCKETFUNCTION, on_socket);
    set(CURLOPT_OPENSOCKETDATA, &t);
  }
  if (request.post) {
    set(CURLOPT_POSTFIELDS, request.post->c_str());
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.post->size()));
  }
  if (request.put) {
    t.file.open(request.put->path, std::ios::binary);
    require(t.file.is_open() && t.file.seekg(request.put->from), Fault::Io, "cannot read ", request.put->path.string());
    set(CURLOPT_UPLOAD, 1L);
    set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(request.put->bytes));
    set(CURLOPT_READFUNCTION, on_read);
    set(CURLOPT_READDATA, &t);
    set(CURLOPT_SEEKFUNCTION, on_seek);
    set(CURLOPT_SEEKDATA, &t);
    headers.reset(curl_slist_append(headers.release(), "Expect:"));  // not asked first whether a body may come
    set(CURLOPT_HTTPHEADER, headers.get());
  }
  if (request.abandoned) {
    set(CURLOPT_NOPROGRESS, 0L);
    set(CURLOPT_XFERINFOFUNCTION, on_progress);
    set(CURLOPT_XFERINFODATA, &t);
  }
  // CURLOPT_RESUME_FROM would give up where ranges are ignored.
  const std::string range = std::to_string(request.from) + "-";
  if (request.from > 0) set(CURLOPT_RANGE, range.c_str());
  set(CURLOPT_HEADERFUNCTION, on_header);
  set(CURLOPT_HEADERDATA, &t);
  set(CURLOPT_WRITEFUNCTION, on_body);
  set(CURLOPT_WRITEDATA, &t);
  const CURLcode code = curl_easy_perform(curl.get());
  if (t.failure) std::rethrow_exception(t.failure);
  long status = 0;
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &status);
  t.reply.status = static_cast<int>(status);
  if (code != CURLE_OK) t.reply.error = *error ? error : curl_easy_strerror(code);
  if (t.refused && code != CURLE_OK) {
    t.reply.status = 0;
    t.reply.error = "it lies on this machine or in a private network";
  }
  return std::move(t.reply);
}

std::string url_escaped(const std::string& path) {
  std::string out;
  for (const char c : path) {
    static const char hex[] = "0123456789ABCDEF";
    const auto b = static_cast<unsigned char>(c);
    if (std::isalnum(b) || c == '-' || c == '_' || c == '.' || c == '~' || c == '/') {
      out += c;
    } else {
      out += '%';
      out += hex[b >> 4];
      out += hex[b & 15];
    }
  }
  return out;
}

}  // namespace apus
