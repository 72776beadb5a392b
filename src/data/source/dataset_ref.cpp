// SPDX-License-Identifier: Apache-2.0
#include "data/source/dataset_ref.h"

#include <fnmatch.h>
#include <glob.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/nearby.h"
#include "base/nearest.h"
#include "data/read/reader.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

// Why a link cannot be followed.
std::string why_dead(const fs::path& link) {
  std::error_code code;
  const std::string to = fs::read_symlink(link, code).string();
  static_cast<void>(fs::status(link, code));
  return str("a link to ", to,
             code == std::errc::too_many_symbolic_link_levels ? ", which leads in a circle" : ", which does not exist");
}

bool is_glob(const std::string& text) { return text.find_first_of("*?[") != std::string::npos; }
bool looks_local(const std::string& id) {
  return id.starts_with("/") || id.starts_with("./") || id.starts_with("../") || id.starts_with("~");
}

// Is there anything of this name, be it a link that leads nowhere?
bool is_here(const std::string& name) {
  std::error_code code;
  return fs::exists(fs::symlink_status(name, code));
}

std::vector<std::string> split(std::string_view text, char by) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(by), text.size());
    if (end > 0) parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

// A link that leads nowhere or in a circle is passed over, which is said.
bool is_file_here(const fs::path& path) {
  std::error_code code;
  const bool file = fs::is_regular_file(path, code);
  const bool link = fs::is_symlink(path, code);
  if (!file && link && !fs::exists(path, code)) log_warning(path.string(), ": ", why_dead(path), "; it is passed over");
  return file;
}

std::vector<fs::path> glob_files(const std::string& pattern) {
  glob_t found{};
  std::vector<fs::path> files;
  if (::glob(pattern.c_str(), GLOB_TILDE, nullptr, &found) == 0)
    for (size_t i = 0; i < found.gl_pathc; ++i)
      if (is_file_here(found.gl_pathv[i])) files.emplace_back(found.gl_pathv[i]);
  ::globfree(&found);
  return files;
}

// Readable files below a folder, sorted, hidden ones left out.
std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  for (auto it = fs::recursive_directory_iterator(folder, fs::directory_options::skip_permission_denied);
       it != fs::recursive_directory_iterator(); ++it) {
    const std::string name = it->path().filename().string();
    if (name.starts_with(".")) {
      std::error_code code;
      if (it->is_directory(code)) it.disable_recursion_pending();
      continue;
    }
    static const std::vector<std::string> not_rows = {"dataset_info.json", "dataset_infos.json", "dataset_dict.json",
                                                      "state.json",        "config.json",        "configuration.json",
                                                      "requirements.txt",  "LICENSE.txt"};
    const bool meta = std::find(not_rows.begin(), not_rows.end(), name) != not_rows.end();
    if (!meta && readable_name(it->path()) && is_file_here(it->path())) files.push_back(it->path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Does a path's name, relative to the dataset, have one of these words as a part of its own ("train-00000", "x_test")?
bool has_word(const fs::path& relative, std::initializer_list<const char*> words) {
  std::string text = relative.string();
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return std::isalnum(c) ? std::tolower(c) : ' '; });
  const std::vector<std::string> parts = split(text, ' ');
  return std::any_of(words.begin(), words.end(),
                     [&](const char* word) { return std::find(parts.begin(), parts.end(), word) != parts.end(); });
}

// The training files by the words in their names; without such words all but those of other splits.
std::vector<fs::path> by_name(const fs::path& folder, const std::vector<fs::path>& files, Splits splits) {
  if (splits == Splits::All) return files;
  std::vector<fs::path> train, unmarked;
  for (const auto& file : files) {
    const fs::path relative = fs::relative(file, folder);
    if (has_word(relative, {"train", "training"}))
      train.push_back(file);
    else if (!has_word(relative, {"test", "testing", "eval", "evaluation", "validation", "valid", "val", "dev"}))
      unmarked.push_back(file);
  }
  return !train.empty() ? train : !unmarked.empty() ? unmarked : files;
}

void append(std::vector<fs::path>& to, const std::vector<fs::path>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// The `configs` of a dataset card: which files are of which subset.
struct CardConfig {
  std::string name;
  std::vector<fs::path> files;
};
std::vector<YAML::Node> items_of(const YAML::Node& node) {  // of a list; a scalar or mapping is a list of one
  std::vector<YAML::Node> items;
  if (!node || node.IsNull()) return items;
  if (!node.IsSequence()) return {node};
  for (const auto& item : node) items.push_back(item);
  return items;
}
std::vector<fs::path> matching(const fs::path& folder, const std::string& pattern) {
  if (pattern.find("**") == std::string::npos) return glob_files((folder / pattern).string());
  std::vector<fs::path> found;
  for (const auto& file : files_below(folder))  // "**" crosses folders, as fnmatch's "*" without flags does
    if (::fnmatch(pattern.c_str(), fs::relative(file, folder).c_str(), 0) == 0) found.push_back(file);
  return found;
}
std::vector<CardConfig> card_configs(const fs::path& folder, Splits splits) {
  std::vector<CardConfig> configs;
  if (!fs::exists(folder / "README.md")) return configs;
  const std::string text = read_file(folder / "README.md", 64 << 20);
  const size_t end = text.find("\n---", 3);
  if (!text.starts_with("---") || end == std::string::npos) return configs;
  try {
    for (const auto& config : items_of(YAML::Load(text.substr(3, end - 3))["configs"])) {
      CardConfig out{config["config_name"].as<std::string>("default"), {}};
      for (const auto& part : items_of(config["data_files"])) {
        const bool named = part.IsMap();
        if (named && splits == Splits::Training && part["split"].as<std::string>("train") != "train") continue;
        for (const auto& pattern : items_of(named ? part["path"] : part))
          append(out.files, matching(folder, pattern.as<std::string>()));
      }
      configs.push_back(std::move(out));
    }
  } catch (const YAML::Exception& error) {
    fail(Fault::Data, (folder / "README.md").string(), ": the YAML at its top cannot be read: ", error.what());
  }
  return configs;
}

std::vector<fs::path> subset_files(const fs::path& folder, const std::string& subset,
                                   const std::vector<CardConfig>& configs, Splits splits) {
  for (const auto& config : configs)
    if (config.name == subset && !config.files.empty()) return config.files;
  if (fs::is_directory(folder / subset)) return by_name(folder / subset, files_below(folder / subset), splits);
  std::string known;
  for (const auto& config : configs) known += (known.empty() ? "" : ", ") + config.name;
  fail(Fault::Usage, folder.string(), ": no subset '", subset, "'",
       known.empty() ? std::string() : "; there are " + known);
}

std::vector<fs::path> folder_files(const fs::path& folder, const DatasetRef& ref, Splits splits) {
  std::vector<fs::path> files;
  const std::vector<CardConfig> configs = card_configs(folder, splits);
  for (const auto& subset : ref.subsets) append(files, subset_files(folder, subset, configs, splits));
  if (ref.subsets.empty() && !configs.empty()) {
    const auto named =
        std::find_if(configs.begin(), configs.end(), [](const CardConfig& c) { return c.name == "default"; });
    files = (named == configs.end() ? configs.front() : *named).files;
  }
  if (files.empty()) files = by_name(folder, files_below(folder), splits);
  require(!files.empty(), Fault::Data, "dataset ", ref.text,
          ": no .jsonl, .json, .csv, .txt, .parquet or .arrow file in ", folder.string());
  return files;
}

}  // namespace

std::optional<int64_t> take_count(std::string& name, const std::string& text) {
  const size_t hash = name.rfind('#');
  if (hash == std::string::npos) return std::nullopt;
  const std::string number = name.substr(hash + 1);
  int64_t count = 0;
  const auto [end, code] = std::from_chars(number.data(), number.data() + number.size(), count);
  require(code == std::errc() && end == number.data() + number.size() && count > 0, Fault::Usage, "dataset ", text,
          ": behind # a number of rows is wanted, e.g. data.jsonl#500");
  name.erase(hash);
  return count;
}

DatasetRef parse_dataset_ref(const std::string& text) {
  DatasetRef ref;
  ref.text = text;
  std::string rest = text;
  if (rest.starts_with("hf::")) ref.hub = DatasetRef::Hub::HuggingFace;
  if (rest.starts_with("ms::")) ref.hub = DatasetRef::Hub::ModelScope;
  if (ref.hub != DatasetRef::Hub::Default) rest.erase(0, 4);
  if (is_here(rest)) {  // a name as it stands is never taken apart
    ref.id = rest;
    return ref;
  }
  ref.count = take_count(rest, text);
  const bool drive = rest.size() > 2 && rest[1] == ':' && std::isalpha(static_cast<unsigned char>(rest[0])) &&
                     (rest[2] == '\\' || rest[2] == '/');
  const size_t colon = rest.find(':', drive ? 2 : 0);
  if (colon != std::string::npos && !is_here(rest)) {
    ref.subsets = split(std::string_view(rest).substr(colon + 1), '/');
    rest.erase(colon);
  }
  require(!rest.empty(), Fault::Usage, "dataset ", text, ": the name is empty");
  ref.id = rest;
  return ref;
}

std::vector<fs::path> dataset_files(const DatasetRef& ref, const FetchDataset& fetch, Splits splits) {
  const bool hub_named = ref.hub != DatasetRef::Hub::Default;
  std::error_code code;
  if (!hub_named && fs::is_directory(ref.id, code)) return folder_files(ref.id, ref, splits);
  if (!hub_named && is_here(ref.id) && !fs::exists(ref.id, code))
    fail(Fault::Io, "dataset ", ref.text, ": it is ", why_dead(ref.id));
  require(hub_named || ref.subsets.empty() || !(is_here(ref.id) || is_glob(ref.id)), Fault::Usage, "dataset ", ref.text,
          ": ", ref.id, is_glob(ref.id) ? " names files" : " is a file",
          ", and only folders and datasets of hubs have subsets; leave ':", join(ref.subsets, "/"), "' away");
  if (!hub_named && is_here(ref.id)) return {ref.id};
  if (!hub_named && is_glob(ref.id)) {
    const std::vector<fs::path> out = glob_files(ref.id);
    require(!out.empty(), Fault::Data, "dataset ", ref.text, ": no file matches this pattern");
    return out;
  }
  const bool file_name = readable_name(ref.id) && std::count(ref.id.begin(), ref.id.end(), '/') != 1;
  require(!looks_local(ref.id) && !file_name, Fault::Data, "The local path does not exist, dataset_id: `", ref.id,
          "`. Looked from ", fs::current_path().string(), nearby(ref.id));
  require(static_cast<bool>(fetch), Fault::Data, "dataset ", ref.text,
          ": there is no such file, and datasets of hubs are not available here");
  return folder_files(fetch(ref), ref, splits);
}

}  // namespace apus
