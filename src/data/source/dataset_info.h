// SPDX-License-Identifier: Apache-2.0
// Names for datasets: the dataset_info.json files of --custom_dataset_info, a list of objects with dataset_name,
// ms_dataset_id, hf_dataset_id, dataset_path, subsets and columns.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "data/source/dataset_ref.h"

namespace apus {

class DatasetInfo {
 public:
  DatasetInfo() = default;
  explicit DatasetInfo(const std::vector<std::string>& files);

  struct Known {
    DatasetRef ref;                              // with the path or the hub's id in place of the name
    std::map<std::string, std::string> columns;  // from the file's name to ours
  };
  // What `ref` means: its entry by name, id or path, or `ref` as it is. `use_hf`: which of two hub ids counts.
  Known resolve(const DatasetRef& ref, bool use_hf) const;

 private:
  void add(const Json& entry, const std::string& file);
  struct Entry {
    std::string name, ms_id, hf_id, path;
    std::vector<std::string> subsets;
    std::map<std::string, std::string> columns;
  };
  std::vector<Entry> entries_;
};

}  // namespace apus
