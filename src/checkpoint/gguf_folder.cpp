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
#include "hub/kept.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

constexpr int kMadeBy = 2;  // rises when what is made of a file's settings changes

bool is_gguf_name(const fs::path& path) {
  std::string ending = path.extension();
  for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return ending == ".gguf";
}

// -00002-of-00003 and so on belong to the first part.
bool is_later_part(const std::string& name) {
  const size_t of = name.rfind("-of-");
  return of != std::string::npos && of >= 6 && name.compare(of - 6, 6, "-00001") != 0 && name[of - 6] == '-';
}

std::string key_of(const fs::path& file) {
  return hex_digest(str(file.string(), "\n", fs::file_size(file), "\n",
                        fs::last_write_time(file).time_since_epoch().count(), "\n", kMadeBy, " ", APUS_VERSION),
                    8);
}

}  // namespace

std::optional<fs::path> gguf_meant(const std::string& model) {
  std::error_code code;
  if (fs::is_regular_file(model, code)) return is_gguf_name(model) ? std::optional(fs::path(model)) : std::nullopt;
  if (!fs::is_directory(model, code) || fs::exists(fs::path(model) / kModelConfigFile, code)) return std::nullopt;
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(model, code))
    if (const std::string name = entry.path().filename(); is_gguf_name(name) && !is_later_part(name))
      names.push_back(name);
  if (names.empty()) return std::nullopt;
  std::sort(names.begin(), names.end());
  require(names.size() == 1, Fault::Usage, "--model ", model,
          " holds several GGUF files; give one of them: ", join(names));
  return fs::path(model) / names[0];
}

fs::path gguf_folder(const fs::path& file) {
  const fs::path real = fs::canonical(file);
  const fs::path target = user_cache("gguf") / key_of(real) / file.stem();
  if (fs::exists(target / kModelConfigFile)) return target;
  const auto model = GgufModel::open(real);
  const Json config = model->config(), tokenizer = tokenizer_of_gguf(model->header()),
             tokenizer_config = tokenizer_config_of_gguf(*model),
             generation = generation_config_of_gguf(model->header());
  const fs::path partial = target.string() + str(".", ::getpid(), ".tmp");
  make_writable_dir(partial);
  fs::create_symlink(real, partial / kGgufFile);
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
