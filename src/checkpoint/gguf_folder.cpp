// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_folder.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "base/clock.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/nearest.h"
#include "checkpoint/file_names.h"
#include "checkpoint/user_cache.h"
#include "gguf/import.h"
#include "gguf/import_tower.h"
#include "hub/gguf_choice.h"
#include "hub/kept.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

constexpr int kMadeBy = 3;  // rises when what is made of a file's settings changes

// -00002-of-00003 and so on belong to the first part.
bool is_later_part(const std::string& name) {
  const size_t of = name.rfind("-of-");
  return of != std::string::npos && of >= 6 && name.compare(of - 6, 6, "-00001") != 0 && name[of - 6] == '-';
}

std::string state_of(const fs::path& file) {
  return str(file.string(), "\n", fs::file_size(file), "\n", fs::last_write_time(file).time_since_epoch().count(),
             "\n");
}

std::string key_of(const fs::path& file, const fs::path& tower) {
  return hex_digest(str(state_of(file), tower.empty() ? "" : state_of(tower), kMadeBy, " ", APUS_VERSION), 8);
}

}  // namespace

std::optional<fs::path> gguf_meant(const std::string& model) {
  std::error_code code;
  if (fs::is_regular_file(model, code)) return is_gguf_path(model) ? std::optional(fs::path(model)) : std::nullopt;
  if (!fs::is_directory(model, code) || fs::exists(fs::path(model) / kModelConfigFile, code)) return std::nullopt;
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(model, code))
    if (const std::string name = entry.path().filename();
        is_gguf_path(name) && !is_later_part(name) && !is_tower_path(name))
      names.push_back(name);
  if (names.empty()) return std::nullopt;
  std::sort(names.begin(), names.end());
  require(names.size() == 1, Fault::Usage, "--model ", model,
          " holds several GGUF files; give one of them: ", join(names));
  return fs::path(model) / names[0];
}

fs::path gguf_of_hub(const fs::path& folder, const std::string& type) {
  std::error_code code;
  if (type.empty() && fs::exists(folder / kModelConfigFile)) return {};
  std::vector<std::string> paths;
  for (const auto& entry : fs::recursive_directory_iterator(folder, code))
    if (is_gguf_path(entry.path())) paths.push_back(fs::relative(entry.path(), folder));
  if (paths.empty() && type.empty()) return {};
  return folder / gguf_choice(paths, type, folder.string()).model.at(0);
}

fs::path tower_beside(const fs::path& file) {
  std::vector<fs::path> found;
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(fs::absolute(file).parent_path(), code))
    if (is_gguf_path(entry.path()) && is_tower_path(entry.path())) found.push_back(entry.path());
  if (found.empty()) return {};
  std::sort(found.begin(), found.end());
  if (found.size() > 1)
    log_info("of ", found.size(), " files of a tower beside ", file.string(),
             " the first is taken: ", found[0].filename().string());
  return found[0];
}

fs::path gguf_folder(const fs::path& file) {
  // Not where links lead: a hub's cache calls files by their digests there, and parts are found by name.
  const fs::path real = fs::absolute(file).lexically_normal(), tower = tower_beside(real);
  const fs::path target = user_cache("gguf") / key_of(real, tower) / file.stem();
  if (fs::exists(target / kModelConfigFile)) return target;
  const auto model = GgufModel::open(real, tower);
  const Json config = model->config(), tokenizer = tokenizer_of_gguf(model->header()),
             tokenizer_config = tokenizer_config_of_gguf(*model),
             generation = generation_config_of_gguf(model->header());
  const fs::path partial = target.string() + str(".", ::getpid(), ".tmp");
  make_writable_dir(partial);
  fs::create_symlink(real, partial / kGgufFile);
  if (model->tower()) {
    fs::create_symlink(tower, partial / kGgufTowerFile);
    write_file_atomic(partial / "preprocessor_config.json",
                      json_text(preprocessor_of_tower(*model->tower(), model->seeing()->tower), 2) + "\n");
    log_info(file.filename().string(), " sees through ", tower.filename().string(), ", which lies beside it");
  }
  write_file_atomic(partial / "generation_config.json", json_text(generation, 2) + "\n");
  write_file_atomic(partial / "tokenizer.json", json_text(tokenizer) + "\n");
  write_file_atomic(partial / "tokenizer_config.json", json_text(tokenizer_config, 2) + "\n");
  write_file_atomic(partial / kModelConfigFile, json_text(config, 2) + "\n");
  std::error_code code;
  fs::rename(partial, target, code);  // another process may have been first
  if (code) fs::remove_all(partial);
  require(fs::exists(target / kModelConfigFile), Fault::Io, "cannot make ", target.string(), ": ", code.message());
  log_info("what the settings of ", file.string(),
           " say is kept as a checkpoint's files: ", bytes_text(folder_bytes(target)), " in ", target.string(),
           " (apus cache; the weights stay in the file)");
  return target;
}

}  // namespace apus
