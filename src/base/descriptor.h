// SPDX-License-Identifier: Apache-2.0
// File descriptors that are closed when their owner goes. Closing keeps errno, which often still has to be told.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace apus {

class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  ~Descriptor() { reset(); }
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    reset(other.release());
    return *this;
  }

  bool is_open() const { return number_ >= 0; }
  int number() const { return number_; }
  int release() { return std::exchange(number_, -1); }
  void reset(int number = -1) {
    const int reason = errno, before = std::exchange(number_, number);
    if (before >= 0) ::close(before);
    errno = reason;
  }

 private:
  int number_;
};

// Neither end is there when the system has none left; errno says so.
struct Pipe {
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return;
    read_end.reset(ends[0]), write_end.reset(ends[1]);
  }
  bool is_open() const { return read_end.is_open(); }
  Descriptor read_end, write_end;
};

}  // namespace apus
