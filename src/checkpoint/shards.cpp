// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/shards.h"

#include "base/error.h"
#include "checkpoint/file_names.h"
#include "tensor/weight_files.h"

namespace apus {
namespace fs = std::filesystem;

namespace {
int64_t bytes_of(const SafetensorsWriter::Spec& tensor) {
  int64_t bytes = disk_size(disk_type_of(tensor.type));
  for (const int64_t d : tensor.shape) bytes *= d;
  return bytes;
}
}  // namespace

ShardsWriter::ShardsWriter(const fs::path& dir, const std::vector<SafetensorsWriter::Spec>& tensors, int64_t max_shard)
    : dir_(dir) {
  int64_t in_shard = 0;
  for (const auto& t : tensors) {
    const int64_t bytes = bytes_of(t);
    if (in_shard > 0 && in_shard + bytes > max_shard) shards_.emplace_back(), in_shard = 0;
    shards_.back().push_back(t);
    in_shard += bytes, bytes_ += bytes;
  }
  make_writable_dir(dir);
  index_ = {{"metadata", {{"total_size", bytes_}}}, {"weight_map", Json::object()}};
}

std::string ShardsWriter::name_of(size_t shard) const { return shard_file(kModelWeights, shard, shards_.size()); }

void ShardsWriter::add(const std::string& name, const at::Tensor& tensor) {
  const auto& shard = shards_[shard_];
  require(next_ < shard.size() && shard[next_].name == name, Fault::Bug, "tensor '", name, "' comes out of turn");
  if (!writer_) writer_ = std::make_unique<SafetensorsWriter>(dir_ / name_of(shard_), shard);
  writer_->add(name, tensor.to(shard[next_].type));
  index_["weight_map"][name] = name_of(shard_);
  if (++next_ < shard.size()) return;
  writer_->commit();
  writer_.reset();
  if (shard_ + 1 < shards_.size()) ++shard_, next_ = 0;
}

void ShardsWriter::commit() {
  require(shard_ + 1 == shards_.size() && next_ == shards_[shard_].size(), Fault::Bug,
          "weights are written before all of their tensors came");
  const fs::path single = dir_ / single_file(kModelWeights), index = dir_ / index_file(kModelWeights);
  fs::remove(shards_.size() > 1 ? single : index);
  if (shards_.size() > 1) write_file_atomic(index, index_.dump(2) + "\n");
}

}  // namespace apus
