// SPDX-License-Identifier: Apache-2.0
// Text files line by line: rows in, results out, with bounds and with every write checked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace apus {

class LineReader {  // "-" is standard input
 public:
  explicit LineReader(const std::string& path, int64_t longest = int64_t{256} << 20);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // The next line without its end (\n or \r\n) and without a byte order mark; false at the end.
  bool next(std::string& line);
  int64_t number() const { return number_; }  // of the line just read, from 1
  const std::string& path() const { return path_; }

 private:
  bool fill();
  std::string path_, buffer_;
  size_t start_ = 0;
  int64_t longest_, number_ = 0;
  int descriptor_ = -1;
};

class LineWriter {  // "" and "-" are standard output
 public:
  enum class Mode { Anew, Append };
  explicit LineWriter(const std::string& path, Mode mode = Mode::Anew);  // makes the file's folder when it is missing
  ~LineWriter();  // writes what is left; errors are seen only by close()
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  void write(std::string_view line);  // an end of line is added
  // Hands all lines to the system: a process that is killed afterwards loses none of them.
  void flush();
  void close();

 private:
  std::string path_, buffer_;
  int descriptor_ = -1;
};

// For going on with an output file: cuts off a last line without its end, and counts the whole ones. 0 without a file.
int64_t keep_whole_lines(const std::string& path);

}  // namespace apus
