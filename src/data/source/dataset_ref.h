// SPDX-License-Identifier: Apache-2.0
// How datasets are named on the command line, `[hf::|ms::]id or path[:subset1/subset2][#count]`,
// and the files behind a name.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace apus {

struct DatasetRef {
  enum class Hub { Default, HuggingFace, ModelScope } hub = Hub::Default;
  std::string id;  // path, glob or hub id
  std::vector<std::string> subsets;
  std::optional<int64_t> count;
  std::string text;  // as it was written
};
// Takes #count off the end of a name. `text`: as it was written. Fault::Usage where # stands before something else.
std::optional<int64_t> take_count(std::string& name, const std::string& text);
DatasetRef parse_dataset_ref(const std::string& text);  // Fault::Usage

// Brings a hub's dataset to this machine and gives its folder.
using FetchDataset = std::function<std::filesystem::path(const DatasetRef& ref)>;

// Of a folder with splits: the training split, or all of them.
enum class Splits { Training, All };
// Local files, globs and folders as they are; everything else by `fetch`. In reading order, never empty.
std::vector<std::filesystem::path> dataset_files(const DatasetRef& ref, const FetchDataset& fetch,
                                                 Splits splits = Splits::Training);

}  // namespace apus
