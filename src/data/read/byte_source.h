// SPDX-License-Identifier: Apache-2.0
// A file as a stream of bytes, uncompressed on the way when it is gzip or zstd (known by its first bytes, not its
// name), and brought to UTF-8 where somebody says how it is written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace apus {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual size_t read(char* to, size_t room) = 0;  // 0 only at the end
  virtual void skip(int64_t bytes);                // reads them where nothing better is possible
};

// Whether the system can read this encoding, by iconv's names ("gbk", "latin-1"). Throws where not (Fault::Usage).
void check_encoding(const std::string& encoding);

std::unique_ptr<ByteSource> open_bytes(const std::filesystem::path& path);

// The same with a buffer: gives characters and lines, and tells the position of the next one.
class TextStream {
 public:
  static constexpr int kEnd = -1;
  explicit TextStream(const std::filesystem::path& path, const std::string& encoding = "");  // empty: UTF-8

  int peek() { return begin_ < end_ || fill() ? static_cast<unsigned char>(buffer_[begin_]) : kEnd; }
  int get() {
    const int c = peek();
    if (c != kEnd) ++begin_;
    if (c == '\n') ++line_;
    return c;
  }
  // The next line without its end ("\n" or "\r\n"). False at the end of the file; a last line needs no newline.
  bool get_line(std::string& line);

  int64_t offset() const { return offset_ + static_cast<int64_t>(begin_); }  // of the uncompressed bytes
  int64_t line() const { return line_; }                                     // newlines passed, plus 1
  void seek(int64_t offset, int64_t line);                                   // forward only
  const std::string& name() const { return name_; }

 private:
  bool fill();
  void check_start();

  std::string name_;
  std::unique_ptr<ByteSource> source_;
  std::string buffer_;
  size_t begin_ = 0, end_ = 0;
  int64_t offset_ = 0, line_ = 1;
};

// No row, line or value may be larger than this.
inline constexpr size_t kLongestRow = size_t{256} << 20;

}  // namespace apus
