// SPDX-License-Identifier: Apache-2.0
#include "train/record/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/error.h"
#include "base/files.h"
#include "train/record/wire.h"

namespace apus {
namespace {

using namespace wire;

// message Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5; }
std::string event_head(int64_t step) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  std::string out;
  real(out, 1, now.count());
  number(out, 2, step);
  return out;
}

uint32_t masked(std::string_view data) {
  const uint32_t sum = crc32c(data);
  return ((sum >> 15) | (sum << 17)) + 0xa282ead8u;
}

}  // namespace

uint32_t crc32c(std::string_view data) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> made{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ (value & 1 ? 0x82f63b78u : 0);
      made[i] = value;
    }
    return made;
  }();
  uint32_t sum = ~0u;
  for (const char c : data) sum = table[(sum ^ static_cast<unsigned char>(c)) & 0xff] ^ (sum >> 8);
  return ~sum;
}

EventFile::EventFile(const std::filesystem::path& dir) {
  make_writable_dir(dir);
  char host[256] = "localhost";
  ::gethostname(host, sizeof host - 1);
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  path_ = dir / str("events.out.tfevents.", seconds, ".", host, ".", ::getpid(), ".0");
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  require(descriptor_ >= 0, Fault::Io, "cannot create ", path_.string(), ": ", std::strerror(errno));
  std::string first = event_head(0);
  bytes(first, 3, "brain.Event:2");
  record(first);
}

EventFile::~EventFile() { ::close(descriptor_); }

void EventFile::scalars(int64_t step, const std::vector<std::pair<std::string, double>>& values) {
  // message Summary { repeated Value value = 1; }  message Value { string tag = 1; float simple_value = 2; }
  std::string summary;
  for (const auto& [tag, value] : values) {
    std::string entry;
    bytes(entry, 1, tag);
    key(entry, 2, Fixed32);
    little_endian(entry, std::bit_cast<uint32_t>(static_cast<float>(value)));
    bytes(summary, 1, entry);
  }
  std::string event = event_head(step);
  bytes(event, 5, summary);
  record(event);
}

void EventFile::record(std::string_view event) {
  std::string out;
  little_endian(out, static_cast<uint64_t>(event.size()));
  little_endian(out, masked(out));
  out += event;
  little_endian(out, masked(event));
  // One write: a reader that follows the file never sees half a record of a living process.
  const ssize_t done = ::write(descriptor_, out.data(), out.size());
  require(done == static_cast<ssize_t>(out.size()), Fault::Io, "cannot write ", path_.string(), ": ",
          std::strerror(errno));
}

}  // namespace apus
