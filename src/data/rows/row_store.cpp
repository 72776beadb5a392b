// SPDX-License-Identifier: Apache-2.0
#include "data/rows/row_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace apus {

namespace {
constexpr size_t kPending = size_t{1} << 20;
}

ScratchFile::ScratchFile() {
  std::string name = (std::filesystem::temp_directory_path() / "apus-rows-XXXXXX").string();
  descriptor_ = ::mkstemp(name.data());
  require(descriptor_ >= 0, Fault::Io, "cannot make a scratch file in ",
          std::filesystem::temp_directory_path().string(), ": ", std::strerror(errno),
          "; set TMPDIR to a writable folder");
  ::unlink(name.c_str());
}

ScratchFile::~ScratchFile() { ::close(descriptor_); }

int64_t ScratchFile::append(std::string_view bytes) {
  const int64_t offset = written_ + static_cast<int64_t>(pending_.size());
  pending_ += bytes;
  if (pending_.size() >= kPending) flush();
  return offset;
}

void ScratchFile::flush() {
  for (size_t done = 0; done < pending_.size();) {
    const ssize_t n = ::pwrite(descriptor_, pending_.data() + done, pending_.size() - done, written_);
    if (n < 0 && errno == EINTR) continue;
    require(n > 0, Fault::Io, "cannot write rows to the scratch file in ",
            std::filesystem::temp_directory_path().string(), ": ", std::strerror(errno),
            "; set TMPDIR to a folder with more room, or use --streaming true");
    done += static_cast<size_t>(n);
    written_ += n;
  }
  pending_.clear();
}

std::string ScratchFile::read(int64_t offset, int64_t count) const {
  if (offset >= written_) return pending_.substr(static_cast<size_t>(offset - written_), static_cast<size_t>(count));
  std::string out(static_cast<size_t>(count), '\0');
  for (size_t done = 0; done < out.size();) {
    const ssize_t n = ::pread(descriptor_, out.data() + done, out.size() - done, offset + static_cast<int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    require(n > 0, Fault::Io, "cannot read the scratch file back: ", n < 0 ? std::strerror(errno) : "it is too short");
    done += static_cast<size_t>(n);
  }
  return out;
}

int64_t RowStore::add(const Row& row) {
  if (files_.empty() || files_.back() != row.origin.file) files_.push_back(row.origin.file);
  const std::string text = json_text(row.value);
  require(text.size() < size_t{1} << 31, Fault::Data, row.origin.text(), ": a row of more than 2 GiB");
  entries_.push_back({file_.append(text), row.origin.line, static_cast<int32_t>(text.size()),
                      static_cast<int32_t>(files_.size() - 1), row.origin.is_row});
  return size() - 1;
}

Origin RowStore::origin(int64_t number) const {
  const Entry& e = entries_.at(static_cast<size_t>(number));
  return {files_[static_cast<size_t>(e.file)], e.line, e.is_row};
}

Row RowStore::row(int64_t number) const {
  const Entry& e = entries_.at(static_cast<size_t>(number));
  return {Json::parse(file_.read(e.offset, e.bytes)), origin(number)};
}

}  // namespace apus
