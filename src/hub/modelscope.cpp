// SPDX-License-Identifier: Apache-2.0
// ModelScope's cache: plain files under <cache>/models/owner/name (or datasets/...), dots in the name written as ___.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/progress.h"
#include "hub/repo.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

constexpr int kPage = 200, kMostPages = 500;

struct ModelScopePlace {
  std::string id;
  RepoKind repo;
  const HubOptions& options;
  std::string revision() const { return options.revision.empty() ? "master" : options.revision; }
  std::string name_in_cache() const {
    std::string name = id;
    for (size_t at = name.find('.'); at != std::string::npos; at = name.find('.', at)) name.replace(at, 1, "___");
    return name;
  }
  fs::path folder() const {
    const fs::path current = options.cache / (repo == RepoKind::Model ? "models" : "datasets") / name_in_cache();
    const fs::path older = options.cache / name_in_cache();  // without models/: versions of its tool before 1.2x
    return !fs::exists(current) && repo == RepoKind::Model && fs::is_directory(older) ? older : current;
  }
  std::string api() const {
    return options.endpoint + "/api/v1/" + (repo == RepoKind::Model ? "models/" : "datasets/") + id;
  }
  std::string list_url(int page) const {
    const std::string common = "Revision=" + url_escaped(revision()) + "&Recursive=true";
    if (repo == RepoKind::Model) return api() + "/repo/files?" + common;
    return api() + "/repo/tree?" + common + "&Root=/&PageNumber=" + std::to_string(page) +
           "&PageSize=" + std::to_string(kPage);
  }
  std::string file_url(const std::string& path) const {
    return api() + "/repo?" + (repo == RepoKind::Dataset ? "Source=SDK&" : "") + "Revision=" + url_escaped(revision()) +
           "&FilePath=" + url_escaped(path);
  }
};

// One page of the list; how many entries it had.
size_t read_page(const ModelScopePlace& place, const std::string& body, std::vector<RepoFile>& files) {
  const Json answer = parse_json(body, place.api(), Fault::Io);
  const Json* list = answer.contains("Data") && answer["Data"].is_object() && answer["Data"].contains("Files")
                         ? &answer["Data"]["Files"]
                         : nullptr;
  require(list && list->is_array(), Fault::Io, place.api(), ": ",
          answer.contains("Message") && answer["Message"].is_string() ? answer["Message"].get<std::string>()
                                                                      : "not the answer of ModelScope");
  for (const auto& entry : *list) {
    if (entry.value("Type", "") == "tree") continue;
    RepoFile file{entry.value("Path", ""), -1, {}, {}};
    require(safe_path(file.path), Fault::Io, place.id, ": the hub names a file '", file.path,
            "', which would not stay in its folder");
    if (entry.contains("Size") && entry["Size"].is_number_integer()) file.size = entry["Size"].get<int64_t>();
    if (entry.contains("Sha256") && entry["Sha256"].is_string()) file.sha256 = entry["Sha256"].get<std::string>();
    files.push_back(std::move(file));
  }
  return list->size();
}

bool is_current(const fs::path& path, const RepoFile& file) {
  std::error_code code;
  const auto size = fs::file_size(path, code);
  return !code && (file.size < 0 || static_cast<int64_t>(size) == file.size);
}

}  // namespace

fs::path fetch_modelscope(const std::string& id, RepoKind repo, const HubOptions& options) {
  const ModelScopePlace place{id, repo, options};
  const fs::path folder = place.folder();
  const bool cached = fs::is_directory(folder) && !fs::is_empty(folder);
  if (options.offline) {
    require(cached, Fault::Io, id, " is not in the cache ", options.cache.string(),
            ", and MODELSCOPE_OFFLINE (or HF_HUB_OFFLINE) forbids to download it");
    return folder;
  }
  std::vector<RepoFile> files;
  for (int page = 1; page <= kMostPages; ++page) {
    const HttpReply reply = http_request({.url = place.list_url(page), .headers = authorization(place.options)});
    if (page == 1 && cached && (reply.status == 0 || reply.status >= 500)) {
      log_warning("cannot reach ", options.endpoint, " (",
                  reply.status ? str("it answers ", reply.status) : reply.error, "): using the copy of ", id,
                  " in the cache");
      return folder;
    }
    const std::string what = str(repo == RepoKind::Model ? "model " : "dataset ", id, " (", place.revision(), ")");
    const size_t entries = read_page(place, good_body(reply, what, options), files);
    if (repo == RepoKind::Model || entries < kPage) break;
  }
  std::vector<std::string> paths;
  for (const auto& file : files) paths.push_back(file.path);
  const HubOptions own = repo == RepoKind::Model ? narrowed(options, paths, id) : options;
  std::vector<RepoFile> missing;
  int64_t total = 0;
  for (const auto& file : files) {
    if (!wanted(file.path, own) || is_current(folder / file.path, file)) continue;
    total += std::max<int64_t>(file.size, 0);
    missing.push_back(file);
  }
  fs::create_directories(folder);
  if (missing.empty()) return folder;
  Progress progress("Downloading " + id, total, {.unit = "B"});
  for (const auto& file : missing) {
    progress.note(file.path);
    fs::remove(folder / file.path);  // an older version of it
    download_file(
        {place.file_url(file.path), authorization(place.options), id + "/" + file.path, file.size, file.sha256, ""},
        folder / file.path, [&](int64_t bytes) { progress.advance(bytes); });
  }
  return folder;
}

}  // namespace apus
