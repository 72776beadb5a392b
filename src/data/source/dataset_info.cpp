// SPDX-License-Identifier: Apache-2.0
#include "data/source/dataset_info.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "data/rows/normalize.h"

namespace apus {
namespace fs = std::filesystem;

DatasetInfo::DatasetInfo(const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    const Json list = parse_json(read_file(file, 16 << 20), file);
    require(list.is_array(), Fault::Usage, "--custom_dataset_info ", file, ": a list of objects is wanted");
    for (const Json& entry : list) add(entry, file);
  }
}

void DatasetInfo::add(const Json& entry, const std::string& file) {
  require(entry.is_object(), Fault::Usage, "--custom_dataset_info ", file, ": a list of objects is wanted");
  const auto text = [&](const char* key) {
    if (!entry.contains(key) || entry[key].is_null()) return std::string();
    require(entry[key].is_string(), Fault::Usage, "--custom_dataset_info ", file, ": ", key, " must be a text");
    return entry[key].get<std::string>();
  };
  static const std::vector<std::string> known = {"dataset_name", "ms_dataset_id", "hf_dataset_id",
                                                 "dataset_path", "subsets",       "columns",
                                                 "help",         "tags",          "huge_dataset"};
  for (const auto& [key, value] : entry.items()) {
    const bool training = key == "split" && (value == "train" || value == Json::array({"train"}));
    require(training || std::find(known.begin(), known.end(), key) != known.end(), Fault::Usage,
            "--custom_dataset_info ", file, ": '", key,
            "' is not honoured; possible: dataset_name, ms_dataset_id, hf_dataset_id, dataset_path, subsets, columns");
  }
  Entry out{text("dataset_name"), text("ms_dataset_id"), text("hf_dataset_id"), text("dataset_path"), {}, {}};
  require(!out.ms_id.empty() || !out.hf_id.empty() || !out.path.empty(), Fault::Usage, "--custom_dataset_info ", file,
          ": an entry needs dataset_path, ms_dataset_id or hf_dataset_id");
  if (!out.path.empty() && fs::path(out.path).is_relative())  // relative to the file that names it
    if (const fs::path beside = fs::path(file).parent_path() / out.path; fs::exists(beside)) out.path = beside.string();
  if (entry.contains("subsets"))
    for (const Json& subset : entry["subsets"]) {
      require(subset.is_string(), Fault::Usage, "--custom_dataset_info ", file, ": subsets must be a list of names");
      out.subsets.push_back(subset.get<std::string>());
    }
  if (entry.contains("columns")) out.columns = parse_columns(entry["columns"]);
  entries_.push_back(std::move(out));
}

DatasetInfo::Known DatasetInfo::resolve(const DatasetRef& ref, bool use_hf) const {
  Known out{ref, {}};
  for (const Entry& e : entries_) {
    if (ref.id != e.name && ref.id != e.ms_id && ref.id != e.hf_id && ref.id != e.path) continue;
    const bool hf = ref.hub == DatasetRef::Hub::Default ? use_hf : ref.hub == DatasetRef::Hub::HuggingFace;
    const bool has_hf = !e.hf_id.empty(), has_ms = !e.ms_id.empty();
    if (!e.path.empty()) {
      out.ref.id = e.path, out.ref.hub = DatasetRef::Hub::Default;
    } else {  // the one hub it is on, else the one that is asked for
      const bool take_hf = has_hf && (hf || !has_ms);
      out.ref.id = take_hf ? e.hf_id : e.ms_id;
      out.ref.hub = take_hf ? DatasetRef::Hub::HuggingFace : DatasetRef::Hub::ModelScope;
    }
    if (out.ref.subsets.empty() && e.subsets != std::vector<std::string>{"default"}) out.ref.subsets = e.subsets;
    out.columns = e.columns;
    return out;
  }
  return out;
}

}  // namespace apus
