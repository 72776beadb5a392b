// SPDX-License-Identifier: Apache-2.0
// Encoded samples by number, out of memory: in a scratch file while a run lasts, or in a cache folder for the next
// ones. A cache records what it was made with (tokenizer, template, options); each record is checked for damage.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "data/encode/sample.h"
#include "data/rows/row_store.h"

namespace apus {

class SampleStore {
 public:
  SampleStore() = default;  // empty, to be filled
  void add(const Sample& sample);

  int64_t size() const { return static_cast<int64_t>(entries_.size()); }
  int64_t length(int64_t number) const { return entries_[static_cast<size_t>(number)].tokens; }
  int64_t trained(int64_t number) const { return entries_[static_cast<size_t>(number)].trained; }
  Sample get(int64_t number) const;
  std::vector<int64_t> lengths() const;

  // The folder holds samples.bin and info.json. Written whole or not at all.
  void save(const std::filesystem::path& folder, const Json& made_with) const;
  // `made_with` null: not compared. Otherwise a cache made another way is Fault::Usage that names what differs.
  static SampleStore open(const std::filesystem::path& folder, const Json& made_with);
  void append(const SampleStore& other);

 private:
  struct Entry {
    int64_t offset;
    int32_t bytes, tokens, trained;
  };
  std::string record(int64_t number) const;
  std::shared_ptr<ScratchFile> scratch_ = std::make_shared<ScratchFile>();
  std::shared_ptr<MappedFile> mapped_;  // of an opened cache
  std::vector<Entry> entries_;
};

// One sample as bytes and back. Damaged bytes are Fault::Data.
std::string pack_sample(const Sample& sample);
Sample unpack_sample(std::string_view bytes);

}  // namespace apus
