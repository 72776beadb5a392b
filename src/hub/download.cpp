// SPDX-License-Identifier: Apache-2.0
#include "hub/download.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "hub/http.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

std::string digest_of_file(const fs::path& path, const EVP_MD* kind, const std::string& prefix) {
  std::ifstream in(path, std::ios::binary);
  require(in.good(), Fault::Io, "cannot read ", path.string(), ": ", std::strerror(errno));
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  EVP_DigestInit_ex(context.get(), kind, nullptr);
  EVP_DigestUpdate(context.get(), prefix.data(), prefix.size());
  std::string block(size_t{1} << 20, '\0');
  while (in.read(block.data(), static_cast<std::streamsize>(block.size())), in.gcount() > 0)
    EVP_DigestUpdate(context.get(), block.data(), static_cast<size_t>(in.gcount()));
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_DigestFinal_ex(context.get(), digest, &size);
  std::string out;
  for (unsigned int i = 0; i < size; ++i) {
    static const char hex[] = "0123456789abcdef";
    out += hex[digest[i] >> 4];
    out += hex[digest[i] & 15];
  }
  return out;
}

// The partial file, held under a lock while it is written.
class Partial {
 public:
  explicit Partial(const fs::path& path)
      : path_(path), descriptor_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
    require(descriptor_ >= 0, Fault::Io, "cannot write ", path.string(), ": ", std::strerror(errno));
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      log_info("another process is downloading ", path.filename().string(), ": waiting for it");
      while (::flock(descriptor_, LOCK_EX) != 0 && errno == EINTR) {}
    }
  }
  ~Partial() { ::close(descriptor_); }
  Partial(const Partial&) = delete;
  Partial& operator=(const Partial&) = delete;
  int64_t size() const { return static_cast<int64_t>(::lseek(descriptor_, 0, SEEK_END)); }
  void clear() {
    const bool emptied = ::ftruncate(descriptor_, 0) == 0;
    require(emptied, Fault::Io, "cannot write ", path_.string(), ": ", std::strerror(errno));
  }
  void append(const char* bytes, size_t count) {
    ::lseek(descriptor_, 0, SEEK_END);
    while (count > 0) {
      const ssize_t n = ::write(descriptor_, bytes, count);
      if (n < 0 && errno == EINTR) continue;
      require(n > 0, Fault::Io, "cannot write ", path_.string(), ": ", std::strerror(errno));
      bytes += n;
      count -= static_cast<size_t>(n);
    }
  }
  void sync() { ::fsync(descriptor_); }

 private:
  fs::path path_;
  int descriptor_;
};

// One attempt. True: all bytes are there. False: worth another attempt, `why` says what happened.
bool attempt(const RemoteFile& file, Partial& partial, const Advance& advance, std::string& why) {
  int64_t have = partial.size();
  if (file.size >= 0 && have > file.size) {
    advance(-have);
    partial.clear();
    have = 0;
  }
  if (file.size >= 0 && have == file.size) return true;
  HttpRequest request{.url = file.url, .headers = file.headers, .from = have};
  request.accept = [&](const HttpReply& reply) {
    if (reply.status == 200 && have > 0) {  // the server begins anew
      advance(-have);
      partial.clear();
    }
    const auto range = reply.headers.find("content-range");
    require(reply.status != 206 || range == reply.headers.end() || range->second.starts_with(str("bytes ", have, "-")),
            Fault::Io, "cannot download ", file.name, ": the hub sends another part than was asked for");
    return reply.status == 200 || reply.status == 206;
  };
  request.sink = [&](const char* bytes, size_t count) {
    partial.append(bytes, count);
    advance(static_cast<int64_t>(count));
  };
  const HttpReply reply = http_request(request);
  // Nothing lies behind what we have: either all of it is there, or it is something else.
  if (reply.status == 416) {
    if (file.size < 0) return true;
    advance(-have);
    partial.clear();
  }
  require(reply.status < 400 || reply.status == 416 || reply.status == 429 || reply.status >= 500, Fault::Io,
          "cannot download ", file.name, ": the hub answers ", reply.status,
          reply.status == 401 || reply.status == 403
              ? " (not allowed: does it need a token, or a licence to be accepted?)"
          : reply.status == 404 ? " (there is no such file)"
                                : "");
  why = !reply.error.empty() ? reply.error : str("the hub answers ", reply.status);
  const bool whole = file.size < 0 || partial.size() == file.size;
  return reply.error.empty() && (reply.status == 200 || reply.status == 206) && whole;
}

void verify(const RemoteFile& file, const fs::path& partial_path, Partial& partial, const Advance& advance) {
  const bool good = (file.sha256.empty() || sha256_of_file(partial_path) == file.sha256) &&
                    (file.git_sha1.empty() || git_sha1_of_file(partial_path) == file.git_sha1);
  if (good) return;
  advance(-partial.size());
  partial.clear();
  fail(Fault::Io, "the download of ", file.name,
       " is damaged: its checksum is not the hub's. It has been thrown away; try again");
}

}  // namespace

std::string sha256_of_file(const fs::path& path) { return digest_of_file(path, EVP_sha256(), ""); }

std::string git_sha1_of_file(const fs::path& path) {
  std::string head = str("blob ", fs::file_size(path));
  head += '\0';
  return digest_of_file(path, EVP_sha1(), head);
}

void download_file(const RemoteFile& file, const fs::path& target, const Advance& advance, int attempts) {
  if (fs::exists(target)) return;
  fs::create_directories(target.parent_path());
  const fs::path partial_path = target.string() + ".incomplete";
  Partial partial(partial_path);
  if (fs::exists(target)) return;  // another process was faster
  advance(partial.size());
  std::string why;
  for (int k = 1; !attempt(file, partial, advance, why); ++k) {
    require(k < attempts, Fault::Io, "cannot download ", file.name, ": ", why, " (", attempts,
            " attempts; what has arrived is kept, the next start goes on from there)");
    log_warning(file.name, ": ", why, "; going on from byte ", partial.size());
    std::this_thread::sleep_for(std::chrono::milliseconds(200 << std::min(k, 6)));
  }
  verify(file, partial_path, partial, advance);
  partial.sync();
  fs::rename(partial_path, target);
}

}  // namespace apus
