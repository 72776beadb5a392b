// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/side_files.h"

#include <set>
#include <string>

#include "base/files.h"
#include "checkpoint/file_names.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

bool is_side_file(const fs::path& path) {
  static const std::set<std::string> endings = {".json", ".txt", ".model", ".jinja", ".py", ".tiktoken"};
  static const std::set<std::string> others = {kModelConfigFile,    kTrainerStateFile,  kRunStateFile,
                                               kArgumentsFile,      kAdapterConfigFile, kAdapterExtrasFile,
                                               "training_args.json"};
  const std::string name = path.filename();
  if (name.empty() || name[0] == '.' || others.count(name) || name.ends_with(".index.json")) return false;
  return name == "LICENSE" || endings.count(path.extension());
}

}  // namespace

SideFiles::SideFiles(const fs::path& from) {
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(from, code))
    if (entry.is_regular_file(code) && is_side_file(entry.path()))
      files_[entry.path().filename()] = read_file(entry.path());  // hub caches hold links: the target's bytes
}

void SideFiles::write(const fs::path& to) const {
  for (const auto& [name, content] : files_) write_file_atomic(to / name, content);
}

void copy_side_files(const fs::path& from, const fs::path& to) { SideFiles(from).write(to); }

}  // namespace apus
