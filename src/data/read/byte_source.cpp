// SPDX-License-Identifier: Apache-2.0
#include "data/read/byte_source.h"

#include <fcntl.h>
#include <iconv.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

constexpr size_t kBlock = size_t{1} << 20;

std::string io_reason(const fs::path& path) {
  const int code = errno;
  const std::string reason = std::strerror(code);
  if (code == EACCES) return reason + " (the file exists, this user may not read it: check its owner and mode)";
  if (code == ENOENT) return reason + " (looked for it as written, from " + fs::current_path().string() + ")";
  return reason;
}

class PlainBytes : public ByteSource {
 public:
  explicit PlainBytes(const fs::path& path) : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    require(descriptor_ >= 0, Fault::Io, "cannot read ", path.string(), ": ", io_reason(path));
    struct stat info {};
    ::fstat(descriptor_, &info);
    if (S_ISDIR(info.st_mode)) {
      ::close(descriptor_);
      fail(Fault::Io, "cannot read ", path.string(), ": it is a folder, a file is needed");
    }
  }
  ~PlainBytes() override { ::close(descriptor_); }
  PlainBytes(const PlainBytes&) = delete;
  PlainBytes& operator=(const PlainBytes&) = delete;

  size_t read(char* to, size_t room) override {
    ssize_t got;
    do got = ::read(descriptor_, to, room);
    while (got < 0 && errno == EINTR);
    require(got >= 0, Fault::Io, "cannot read ", path_.string(), ": ", io_reason(path_));
    return static_cast<size_t>(got);
  }
  void skip(int64_t bytes) override {
    if (::lseek(descriptor_, bytes, SEEK_CUR) < 0) ByteSource::skip(bytes);
  }

 private:
  fs::path path_;
  int descriptor_;
};

class GzipBytes : public ByteSource {
 public:
  explicit GzipBytes(std::unique_ptr<ByteSource> file, std::string name)
      : file_(std::move(file)), name_(std::move(name)), in_(kBlock, '\0') {
    require(inflateInit2(&z_, 15 + 16) == Z_OK, Fault::Io, "zlib cannot start");
  }
  ~GzipBytes() override { inflateEnd(&z_); }

  size_t read(char* to, size_t room) override {
    z_.next_out = reinterpret_cast<Bytef*>(to);
    z_.avail_out = static_cast<uInt>(std::min(room, kBlock));
    const size_t wanted = z_.avail_out;
    while (z_.avail_out == wanted && !ended_) step();
    return wanted - z_.avail_out;
  }

 private:
  void step() {
    if (z_.avail_in == 0) {
      z_.next_in = reinterpret_cast<Bytef*>(in_.data());
      z_.avail_in = static_cast<uInt>(file_->read(in_.data(), in_.size()));
      if (z_.avail_in == 0) {
        require(between_members_, Fault::Data, name_, ": the gzip file is cut short");
        ended_ = true;
        return;
      }
    }
    between_members_ = false;
    const int code = inflate(&z_, Z_NO_FLUSH);
    if (code == Z_STREAM_END) {  // several members in a row are one file
      between_members_ = true;
      inflateReset(&z_);
    } else {
      require(code == Z_OK || code == Z_BUF_ERROR, Fault::Data, name_, ": damaged gzip data",
              z_.msg ? str(" (", z_.msg, ")") : std::string());
    }
  }
  std::unique_ptr<ByteSource> file_;
  std::string name_, in_;
  z_stream z_{};
  bool between_members_ = true, ended_ = false;
};

class ZstdBytes : public ByteSource {
 public:
  explicit ZstdBytes(std::unique_ptr<ByteSource> file, std::string name)
      : file_(std::move(file)),
        name_(std::move(name)),
        in_(kBlock, '\0'),
        stream_(ZSTD_createDStream(), ZSTD_freeDStream) {}

  size_t read(char* to, size_t room) override {
    ZSTD_outBuffer out{to, room, 0};
    while (out.pos == 0) {
      if (input_.pos == input_.size) {
        input_ = {in_.data(), file_->read(in_.data(), in_.size()), 0};
        if (input_.size == 0) {
          require(frame_done_, Fault::Data, name_, ": the zstd file is cut short");
          return 0;
        }
      }
      const size_t left = ZSTD_decompressStream(stream_.get(), &out, &input_);
      require(!ZSTD_isError(left), Fault::Data, name_, ": damaged zstd data (", ZSTD_getErrorName(left), ")");
      frame_done_ = left == 0;
    }
    return out.pos;
  }

 private:
  std::unique_ptr<ByteSource> file_;
  std::string name_, in_;
  std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> stream_;
  ZSTD_inBuffer input_{nullptr, 0, 0};
  bool frame_done_ = true;
};

// Names that iconv lacks.
const char* iconv_name(const std::string& encoding) {
  std::string low = encoding;
  std::transform(low.begin(), low.end(), low.begin(), [](unsigned char c) { return std::tolower(c); });
  return low == "latin-1" ? "latin1" : low == "utf-8-sig" ? "utf-8" : encoding.c_str();
}

// Text of another encoding as UTF-8.
class RecodedBytes : public ByteSource {
 public:
  RecodedBytes(std::unique_ptr<ByteSource> file, std::string name, const std::string& encoding)
      : file_(std::move(file)),
        name_(std::move(name)),
        encoding_(encoding),
        in_(kBlock, '\0'),
        iconv_(::iconv_open("utf-8", iconv_name(encoding))) {
    require(
        iconv_ != kNone, Fault::Usage, "--encoding ", encoding,
        ": this system cannot read it (`iconv -l` lists what it can; on Debian more are in libc-gconv-modules-extra)");
  }
  ~RecodedBytes() override { ::iconv_close(iconv_); }
  RecodedBytes(const RecodedBytes&) = delete;
  RecodedBytes& operator=(const RecodedBytes&) = delete;

  size_t read(char* to, size_t room) override {
    char* out = to;
    while (out == to && !ended_) step(out, room);
    return static_cast<size_t>(out - to);
  }

 private:
  void step(char*& out, size_t room) {
    std::copy(in_.begin() + static_cast<std::ptrdiff_t>(begin_), in_.begin() + static_cast<std::ptrdiff_t>(end_),
              in_.begin());
    end_ -= begin_, begin_ = 0;
    const size_t more = file_->read(in_.data() + end_, in_.size() - end_);
    end_ += more;
    if (end_ == 0) {
      ended_ = true;
      ::iconv(iconv_, nullptr, nullptr, &out, &room);
      return;
    }
    char* from = in_.data();
    size_t left = end_;
    const size_t code = ::iconv(iconv_, &from, &left, &out, &room);
    const int reason = errno;
    begin_ = end_ - left, passed_ += static_cast<int64_t>(begin_);
    if (code != static_cast<size_t>(-1) || reason == E2BIG) return;
    require(reason == EINVAL && more > 0, Fault::Data, name_, ": byte ", passed_ + 1, " is no ", encoding_,
            "; is --encoding right?");
  }
  static inline const iconv_t kNone = reinterpret_cast<iconv_t>(-1);
  std::unique_ptr<ByteSource> file_;
  std::string name_, encoding_, in_;
  iconv_t iconv_;
  size_t begin_ = 0, end_ = 0;  // of in_, what is not converted yet
  int64_t passed_ = 0;          // bytes of the file before it
  bool ended_ = false;
};

}  // namespace

void check_encoding(const std::string& encoding) {
  if (!encoding.empty()) RecodedBytes(nullptr, "", encoding);
}

void ByteSource::skip(int64_t bytes) {
  std::string sink(kBlock, '\0');
  while (bytes > 0) {
    const size_t got = read(sink.data(), std::min<size_t>(sink.size(), static_cast<size_t>(bytes)));
    if (got == 0) return;
    bytes -= static_cast<int64_t>(got);
  }
}

std::unique_ptr<ByteSource> open_bytes(const fs::path& path) {
  unsigned char magic[4] = {};
  const size_t got = PlainBytes(path).read(reinterpret_cast<char*>(magic), sizeof magic);
  auto file = std::make_unique<PlainBytes>(path);
  if (got >= 2 && magic[0] == 0x1f && magic[1] == 0x8b)
    return std::make_unique<GzipBytes>(std::move(file), path.string());
  if (got == 4 && magic[0] == 0x28 && magic[1] == 0xb5 && magic[2] == 0x2f && magic[3] == 0xfd)
    return std::make_unique<ZstdBytes>(std::move(file), path.string());
  return file;
}

TextStream::TextStream(const fs::path& path, const std::string& encoding)
    : name_(path.string()), source_(open_bytes(path)), buffer_(kBlock, '\0') {
  if (!encoding.empty()) source_ = std::make_unique<RecodedBytes>(std::move(source_), name_, encoding);
  fill();
  check_start();
}

void TextStream::check_start() {
  const std::string_view start(buffer_.data(), std::min<size_t>(end_, 4));
  require(!start.starts_with("\xff\xfe") && !start.starts_with("\xfe\xff"), Fault::Data, name_,
          ": the file is UTF-16; say --encoding utf-16, or save it as UTF-8 (iconv -f UTF-16 -t UTF-8)");
  require(!start.starts_with("PAR1"), Fault::Data, name_, ": this is a Parquet file; name it *.parquet");
  require(!start.starts_with("PK\x03\x04"), Fault::Data, name_,
          ": this is a zip archive (or an .xlsx sheet); unpack it, or save the sheet as CSV");
  if (start.starts_with("\xef\xbb\xbf")) begin_ = 3;  // a byte order mark says nothing about UTF-8
}

bool TextStream::fill() {
  offset_ += static_cast<int64_t>(end_);
  begin_ = 0;
  end_ = source_->read(buffer_.data(), buffer_.size());
  return end_ > 0;
}

bool TextStream::get_line(std::string& line) {
  line.clear();
  if (peek() == kEnd) return false;
  while (begin_ < end_ || fill()) {
    const char* start = buffer_.data() + begin_;
    const char* newline = static_cast<const char*>(std::memchr(start, '\n', end_ - begin_));
    const size_t count = newline ? static_cast<size_t>(newline - start) : end_ - begin_;
    require(line.size() + count <= kLongestRow, Fault::Data, name_, ", line ", line_, ": longer than ",
            kLongestRow >> 20, " MiB; is this really a text file with one row per line?");
    line.append(start, count);
    begin_ += count;
    if (newline) {
      ++begin_;
      ++line_;
      break;
    }
  }
  if (!line.empty() && line.back() == '\r') line.pop_back();
  return true;
}

void TextStream::seek(int64_t offset, int64_t line) {
  const int64_t ahead = offset - this->offset();
  require(ahead >= 0, Fault::Bug, name_, ": a stream cannot go back");
  if (ahead <= static_cast<int64_t>(end_ - begin_)) {
    begin_ += static_cast<size_t>(ahead);
  } else {
    const int64_t beyond = ahead - static_cast<int64_t>(end_ - begin_);
    source_->skip(beyond);
    offset_ = offset;
    begin_ = end_ = 0;
  }
  line_ = line;
}

}  // namespace apus
