// SPDX-License-Identifier: Apache-2.0
// A model in GGUF files, as its tensors are in a HuggingFace checkpoint.
#pragma once

#include <filesystem>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gguf/gguf_file.h"
#include "gguf/names.h"
#include "gguf/slice.h"

namespace apus {

// In the folder that stands for a GGUF file, which no file of a user's is called.
inline constexpr const char *kGgufFile = ".apus.gguf", *kGgufTowerFile = ".apus.mmproj.gguf";

class GgufModel {
 public:
  // A file, or the first of several parts (name-00001-of-00003.gguf), which lie beside it. `tower`: the file of what
  // sees; empty: there is none. Fault::Model for what is not read, in one message.
  static std::shared_ptr<const GgufModel> open(const std::filesystem::path& path,
                                               const std::filesystem::path& tower = {});
  // That of a folder that stands for a GGUF file; null for any other folder.
  static std::shared_ptr<const GgufModel> in_folder(const std::filesystem::path& dir);

  // All settings, which the first part has, and the tensors of all parts.
  const GgufHeader& header() const { return header_; }
  const GgufHeader* tower() const { return tower_files_.empty() ? nullptr : &tower_header_; }
  const std::optional<GgufTowerFamily>& seeing() const { return seeing_; }  // whose tower it is
  const GgufFamily& family() const { return family_; }
  // A setting of the architecture: "qwen2.context_length".
  std::string key(const std::string& name) const { return family_.form.architecture + "." + name; }
  const Json& config() const { return config_; }  // config.json
  const std::map<std::string, GgufSlice>& tensors() const { return tensors_; }
  const GgufSlice* find(const std::string& name) const;
  bool maps(const void* address) const;  // lies it in one of the files?
  void forget(const std::string& name) const;
  int64_t bytes() const;  // of the files
  size_t files() const { return files_.size() + tower_files_.size(); }

 private:
  // A tensor of a file as part of one of the checkpoint's.
  struct Found {
    const GgufTensor* tensor;
    const std::byte* data;
    GgufTurn turn;
  };
  using AllFound = std::map<std::string, std::vector<Found>>;
  using Order = std::vector<std::pair<int32_t, int64_t>>;
  GgufModel(const std::filesystem::path& path, const std::filesystem::path& tower);
  void open_parts(const std::filesystem::path& path);
  void open_part(const std::filesystem::path& path);
  void add_numbers();
  void add_tower();
  void find_places(AllFound& found);
  void add(const AllFound& found, const GgufSizes& sizes);
  GgufSlice slice_of(const std::string& name, const std::vector<Found>& found, const GgufSizes& sizes) const;
  std::shared_ptr<const Order> order_of(const std::vector<Found>& found, const std::vector<GgufPart>& parts,
                                        const GgufSizes& sizes, int64_t all) const;

  std::vector<std::unique_ptr<MappedFile>> files_, tower_files_;
  std::vector<const std::byte*> data_;  // of each tensor of the header
  GgufHeader header_, tower_header_;
  GgufFamily family_;  // of the text
  std::optional<GgufTowerFamily> seeing_;
  Json config_;
  std::list<std::vector<float>> numbers_;  // of GgufForm::numbers, a list of all layers each
  std::map<std::string, GgufSlice> tensors_;
};

}  // namespace apus
