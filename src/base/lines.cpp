// SPDX-License-Identifier: Apache-2.0
#include "base/lines.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/files.h"

namespace apus {

namespace {
constexpr size_t kBlock = 1 << 18;

void write_all(int descriptor, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t done = ::write(descriptor, text.data(), text.size());
    if (done < 0 && errno == EINTR) continue;
    require(done > 0, Fault::Io, "cannot write ", path, ": ", std::strerror(errno));
    text.remove_prefix(static_cast<size_t>(done));
  }
}
}  // namespace

LineReader::LineReader(const std::string& path, int64_t longest) : path_(path), longest_(longest) {
  descriptor_ = path == "-" ? ::dup(0) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  require(descriptor_ >= 0, Fault::Io, "cannot open ", path, ": ", std::strerror(errno));
  struct stat info {};
  const bool folder = ::fstat(descriptor_, &info) == 0 && S_ISDIR(info.st_mode);
  if (folder) ::close(descriptor_);
  require(!folder, Fault::Io, path, " is a folder, a file is needed");
}

LineReader::~LineReader() { ::close(descriptor_); }

bool LineReader::fill() {
  buffer_.erase(0, start_);
  start_ = 0;
  const size_t before = buffer_.size();
  require(static_cast<int64_t>(before) <= longest_, Fault::Data, path_, ":", number_ + 1, ": a line longer than ",
          longest_, " bytes");
  buffer_.resize(before + kBlock);
  ssize_t got = 0;
  do got = ::read(descriptor_, buffer_.data() + before, kBlock);
  while (got < 0 && errno == EINTR);
  buffer_.resize(before + static_cast<size_t>(std::max<ssize_t>(got, 0)));
  require(got >= 0, Fault::Io, "cannot read ", path_, ": ", std::strerror(errno));
  return got > 0;
}

bool LineReader::next(std::string& line) {
  size_t searched = start_, end = std::string::npos;
  while ((end = buffer_.find('\n', searched)) == std::string::npos) {
    searched = buffer_.size() - start_;  // fill() moves the line to the front
    if (!fill()) break;
  }
  if (end == std::string::npos && start_ == buffer_.size()) return false;
  const size_t stop = end == std::string::npos ? buffer_.size() : end;
  line.assign(buffer_, start_, stop - start_);
  start_ = std::min(stop + 1, buffer_.size());
  if (line.ends_with('\r')) line.pop_back();
  if (++number_ == 1 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
  return true;
}

LineWriter::LineWriter(const std::string& path, Mode mode)
    : path_(path.empty() || path == "-" ? "standard output" : path) {
  if (path.empty() || path == "-") {
    descriptor_ = ::dup(1);
  } else {
    const auto folder = std::filesystem::path(path).parent_path();
    // Of what is there only the file counts: /dev/stdout, a pipe, another's folder.
    std::error_code code;
    if (!folder.empty() && !std::filesystem::exists(path, code)) make_writable_dir(folder);
    descriptor_ =
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (mode == Mode::Append ? O_APPEND : O_TRUNC), 0666);
  }
  require(descriptor_ >= 0, Fault::Io, "cannot write ", path_, ": ", std::strerror(errno));
}

LineWriter::~LineWriter() {
  try {
    close();
  } catch (const Error&) {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
}

void LineWriter::write(std::string_view line) {
  buffer_.append(line).append("\n");
  if (buffer_.size() >= kBlock) flush();
}

void LineWriter::flush() {
  const std::string text = std::exchange(buffer_, {});
  write_all(descriptor_, text, path_);
}

void LineWriter::close() {
  if (descriptor_ < 0) return;
  flush();
  const int descriptor = std::exchange(descriptor_, -1);
  const bool closed = ::close(descriptor) == 0;
  require(closed, Fault::Io, "cannot write ", path_, ": ", std::strerror(errno));
}

int64_t keep_whole_lines(const std::string& path) {
  std::error_code code;
  if (!std::filesystem::exists(path, code)) return 0;
  int64_t lines = 0, whole = 0;
  {
    const MappedFile file(path);
    const char* bytes = reinterpret_cast<const char*>(file.data());
    for (int64_t at = 0; at < file.size();) {
      const void* end = std::memchr(bytes + at, '\n', static_cast<size_t>(file.size() - at));
      if (!end) break;
      at = whole = static_cast<const char*>(end) - bytes + 1;
      ++lines;
    }
  }
  std::filesystem::resize_file(path, static_cast<uintmax_t>(whole), code);
  require(!code, Fault::Io, "cannot shorten ", path, " to its whole lines: ", code.message());
  return lines;
}

}  // namespace apus
