// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/run_folder.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "base/error.h"
#include "checkpoint/adapter_config.h"
#include "checkpoint/file_names.h"
#include "tensor/weight_files.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

constexpr size_t kMostSlices = 1 << 14;

bool all_digits(const std::string& text) {
  return !text.empty() && text.size() <= 18 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
}

// vN-<time>, the last one first.
std::vector<fs::path> version_folders(const fs::path& output_dir) {
  std::vector<std::pair<int64_t, fs::path>> found;
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(output_dir, code)) {
    const std::string name = entry.path().filename();
    const std::string digits = name.starts_with("v") ? name.substr(1, name.find('-') - 1) : "";
    if (all_digits(digits) && entry.is_directory()) found.emplace_back(std::stoll(digits), entry.path());
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<fs::path> folders;
  for (auto& [number, path] : found) folders.push_back(std::move(path));
  return folders;
}

}  // namespace

std::vector<std::pair<int64_t, fs::path>> list_checkpoints(const fs::path& run_dir) {
  std::vector<std::pair<int64_t, fs::path>> found;
  const std::string prefix = "checkpoint-";
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(run_dir, code)) {
    const std::string name = entry.path().filename();
    const std::string digits = name.starts_with(prefix) ? name.substr(prefix.size()) : "";
    if (all_digits(digits) && entry.is_directory() && !entry.is_symlink())
      found.emplace_back(std::stoll(digits), entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

namespace {
// With a model or an adapter in it.
fs::path last_of_run(const fs::path& run) {
  const auto all = list_checkpoints(run);
  for (auto it = all.rbegin(); it != all.rend(); ++it)
    if (is_adapter_dir(it->second) || fs::exists(it->second / kModelConfigFile)) return it->second;
  return {};
}
}  // namespace

fs::path newest_checkpoint(const fs::path& folder) {
  if (fs::path own = last_of_run(folder); !own.empty()) return own;
  for (const fs::path& run : version_folders(folder))
    if (fs::path last = last_of_run(run); !last.empty()) return last;
  return {};
}

std::vector<fs::path> optimizer_files(const fs::path& dir) {
  if (fs::exists(dir / kOptimizerFile)) return {dir / kOptimizerFile};
  std::vector<fs::path> files;
  for (size_t slices = 2; slices <= kMostSlices; ++slices) {
    if (!fs::exists(dir / shard_file(kOptimizerStem, 0, slices))) continue;
    for (size_t i = 0; i < slices; ++i) {
      files.push_back(dir / shard_file(kOptimizerStem, i, slices));
      require(fs::exists(files.back()), Fault::Usage, files.back().string(), " is missing: ", slices,
              " ranks shared out the optimizer's state, and each wrote its own file. Bring the files of all machines "
              "into this folder; or --resume_only_model true goes on from the weights");
    }
    break;
  }
  return files;
}

std::string lacks_of_checkpoint(const fs::path& dir, bool with_optimizer) {
  for (const char* name : {kTrainerStateFile, kRunStateFile})
    if (!fs::exists(dir / name)) return str("it holds no ", name);
  if (!with_optimizer) return "";
  try {
    return optimizer_files(dir).empty() ? str("it holds no ", kOptimizerFile) : "";
  } catch (const Error& error) {
    return error.what();
  }
}

std::optional<fs::path> newest_whole_checkpoint(const fs::path& output_dir, bool versions, bool with_optimizer,
                                                std::vector<std::string>& remarks) {
  for (const fs::path& run : versions ? version_folders(output_dir) : std::vector{output_dir}) {
    const auto all = list_checkpoints(run);
    for (auto it = all.rbegin(); it != all.rend(); ++it) {
      const std::string lacks = lacks_of_checkpoint(it->second, with_optimizer);
      if (lacks.empty()) return it->second;
      remarks.push_back(str(it->second.string(), " is passed over: ", lacks));
    }
  }
  return std::nullopt;
}

fs::path linked_copy(const fs::path& checkpoint) {
  const fs::path twin =
      checkpoint.parent_path() / str(".twin-of-", checkpoint.filename().string(), kPartialMark, ::getpid());
  fs::remove_all(twin);
  for (const auto& entry : fs::recursive_directory_iterator(checkpoint)) {
    const fs::path to = twin / entry.path().lexically_relative(checkpoint);
    fs::create_directories(entry.is_directory() ? to : to.parent_path());
    if (!entry.is_regular_file()) continue;
    std::error_code code;
    fs::create_hard_link(entry.path(), to, code);
    if (code) fs::copy_file(entry.path(), to);
  }
  return twin;
}

}  // namespace apus
