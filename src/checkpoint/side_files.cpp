// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/side_files.h"

#include <set>
#include <string>

#include "base/error.h"
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

void copy_side_files(const fs::path& from, const fs::path& to) {
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(from, code)) {
    if (!entry.is_regular_file(code) || !is_side_file(entry.path())) continue;
    // Hub caches hold links: the target's bytes are copied.
    const fs::path copy = to / entry.path().filename();
    fs::copy_file(entry.path(), copy, fs::copy_options::overwrite_existing, code);
    // A cache's files may be read-only; their copies belong to the user.
    std::error_code ignored;
    fs::permissions(copy, fs::perms::owner_write, fs::perm_options::add, ignored);
    require(!code, Fault::Io, "cannot copy ", entry.path().string(), " to ", to.string(), ": ", code.message());
  }
}

}  // namespace apus
