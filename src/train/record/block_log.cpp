// SPDX-License-Identifier: Apache-2.0
#include "train/record/block_log.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "train/record/wire.h"

namespace apus {
namespace {

// A record's piece: its sum, its length, and which piece it is.
constexpr size_t kBlock = 32 << 10, kHead = 7;
enum Piece : unsigned char { Whole = 1, First = 2, Middle = 3, Last = 4 };

uint32_t crc32_of(Piece piece, std::string_view data) {
  const Bytef kind = piece;
  const uLong sum = ::crc32(::crc32(0, nullptr, 0), &kind, 1);
  return static_cast<uint32_t>(
      ::crc32(sum, reinterpret_cast<const Bytef*>(data.data()), static_cast<uInt>(data.size())));
}

}  // namespace

BlockLog::BlockLog(const std::filesystem::path& path, std::string_view first) : path_(path) {
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
  require(descriptor_ >= 0, Fault::Io, "cannot create ", path_.string(), ": ", std::strerror(errno));
  write(first);
}

BlockLog::~BlockLog() { ::close(descriptor_); }

void BlockLog::record(std::string_view bytes) {
  std::string out;
  size_t place = place_;
  for (bool begun = false, done = false; !done; begun = true) {
    if (const size_t left = kBlock - place; left < kHead) {  // no room for a head
      out.append(left, '\0');
      place = 0;
    }
    const size_t size = std::min(bytes.size(), kBlock - place - kHead);
    done = size == bytes.size();
    const Piece piece = begun ? (done ? Last : Middle) : done ? Whole : First;
    wire::little_endian(out, crc32_of(piece, bytes.substr(0, size)));
    wire::little_endian(out, static_cast<uint16_t>(size));
    out.push_back(static_cast<char>(piece));
    out += bytes.substr(0, size);
    bytes.remove_prefix(size);
    place = (place + kHead + size) % kBlock;
  }
  write(out);
}

void BlockLog::write(std::string_view bytes) {
  const ssize_t done = ::write(descriptor_, bytes.data(), bytes.size());
  require(done == static_cast<ssize_t>(bytes.size()), Fault::Io, "cannot write ", path_.string(), ": ",
          std::strerror(errno));
  place_ = (place_ + bytes.size()) % kBlock;
}

}  // namespace apus
