// SPDX-License-Identifier: Apache-2.0
#include "tensor/stored_writer.h"

#include "base/error.h"

namespace apus {

namespace {
constexpr int64_t kLine = 64;  // data begins on a cache line
}

StoredWriter::StoredWriter(const std::filesystem::path& path, int64_t header_space)
    : file_(path), space_((header_space + 8 + 64 + kLine - 1) / kLine * kLine), header_(Json::object()) {
  header_["__metadata__"] = {{"format", "pt"}};
}

void StoredWriter::add(const std::string& name, const StoredTensor& tensor) {
  require(!header_.contains(name), Fault::Bug, "tensor '", name, "' is written twice");
  header_[name] = {
      {"dtype", disk_name(tensor.type)}, {"shape", tensor.shape}, {"data_offsets", {end_, end_ + tensor.bytes}}};
  file_.write_at(space_ + end_, tensor.data, tensor.bytes);
  end_ += tensor.bytes;
}

void StoredWriter::commit() {
  std::string text = header_.dump();
  const auto length = static_cast<uint64_t>(space_ - 8);
  require(text.size() <= length, Fault::Bug, "the header of a file of weights takes ", text.size(), " bytes, and ",
          length, " were left for it");
  text.resize(length, ' ');
  file_.write_at(0, &length, 8);
  file_.write_at(8, text.data(), static_cast<int64_t>(length));
  file_.commit();
}

}  // namespace apus
