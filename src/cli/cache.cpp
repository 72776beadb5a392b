// SPDX-License-Identifier: Apache-2.0
// `apus cache`: what this program keeps on the machine beside runs and results, how large it is, and how it goes away.
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/nearest.h"
#include "base/table.h"
#include "checkpoint/user_cache.h"
#include "cli/command.h"
#include "hub/kept.h"

namespace apus {
namespace {
namespace fs = std::filesystem;

struct Kept {
  std::string name, what;
  fs::path folder;
  bool made = false;  // by this program, from what is there anyway: it can be made again
  int64_t bytes = 0;
};

struct CacheOptions {
  std::vector<std::string> clear;
  bool json = false;
  void fields(OptionTable& v) {
    v.group("Cache");
    v("clear", clear,
      "remove what is named: `made`, all that was made from other files (GGUF folders, adapted models) and can be made "
      "again; or names of the list, also of downloads");
    v("json", json, "print the list as JSON");
  }
};

// A GGUF file's folder is called by a digest and then by the file; an adapted model's by both.
std::vector<Kept> all_kept() {
  std::vector<Kept> all;
  const auto each = [](const fs::path& root, const auto& visit) {
    std::error_code code;
    for (fs::directory_iterator it(root, code), end; !code && it != end; it.increment(code))
      if (it->is_directory(code)) visit(it->path());
  };
  each(user_cache("gguf"), [&](const fs::path& key) {
    each(key, [&](const fs::path& folder) {
      all.push_back({folder.filename().string(), "made of a GGUF file", key, true, 0});
    });
  });
  each(user_cache("adapted"), [&](const fs::path& folder) {
    all.push_back(
        {folder.filename().string(), "made of a model: --rope_scaling, --new_special_tokens", folder, true, 0});
  });
  for (const KeptRepo& repo : kept_repos())
    all.push_back({repo.id,
                   str(repo.kind == RepoKind::Model ? "model" : "dataset", " of ",
                       repo.hub == HubKind::HuggingFace ? "HuggingFace" : "ModelScope"),
                   repo.folder, false, 0});
  for (Kept& kept : all) kept.bytes = folder_bytes(kept.folder);
  std::stable_sort(all.begin(), all.end(), [](const Kept& a, const Kept& b) { return a.bytes > b.bytes; });
  return all;
}

void list(const std::vector<Kept>& all) {
  std::vector<std::vector<std::string>> table = {{"size", "name", "what", "folder"}};
  int64_t bytes = 0;
  for (const Kept& kept : all) {
    table.push_back({bytes_text(kept.bytes), kept.name, kept.what, kept.folder.string()});
    bytes += kept.bytes;
  }
  const auto plain = [](const std::string&, const std::string& cell, bool) { return cell; };
  if (!all.empty()) std::printf("%s", table_text(table, plain).c_str());
  std::printf(
      "%s in all. Downloads lie where the hubs' own tools look too; apus cache --clear NAME removes one, --clear "
      "made what can be made again.\n",
      bytes_text(bytes).c_str());
}

int run(const CacheOptions& o) {
  const std::vector<Kept> all = all_kept();
  if (o.json) {
    Json out = Json::array();
    for (const Kept& kept : all)
      out.push_back(
          {{"name", kept.name}, {"what", kept.what}, {"folder", kept.folder.string()}, {"bytes", kept.bytes}});
    std::printf("%s\n", json_text(out, 2).c_str());
    return 0;
  }
  if (o.clear.empty()) return list(all), 0;
  std::vector<const Kept*> gone;
  for (const std::string& name : o.clear) {
    const size_t before = gone.size();
    for (const Kept& kept : all)
      if (name == kept.name || (name == "made" && kept.made)) gone.push_back(&kept);
    std::vector<std::string> names;
    for (const Kept& kept : all) names.push_back(kept.name);
    const auto near = nearest(name, names);
    require(gone.size() > before || name == "made", Fault::Usage, "--clear ", name, ": nothing here has that name",
            near.empty() ? "" : "; did you mean " + join(near, " or ") + "?", " `apus cache` lists what there is");
  }
  int64_t bytes = 0;
  for (const Kept* kept : gone) {
    std::error_code code;
    fs::remove_all(kept->folder, code);
    require(!code, Fault::Io, "cannot remove ", kept->folder.string(), ": ", code.message());
    log_info("removed ", kept->name, " (", bytes_text(kept->bytes), ", ", kept->what, ")");
    bytes += kept->bytes;
  }
  log_info(bytes_text(bytes), " are free again");
  return 0;
}

const RegisterCommand<CacheOptions> cache_command(
    {.name = "cache",
     .group = "Machine",
     .summary = "what is kept on this machine: downloads, folders made of GGUF files; and how to remove it",
     .examples = {"cache", "cache --clear made", "cache --clear Qwen/Qwen3-0.6B"}},
    run);

}  // namespace
}  // namespace apus
