// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checkpoint_digest.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/descriptor.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/files.h"
#include "checkpoint/file_names.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

constexpr int64_t kBlock = 4096, kBlocks = 64;  // bytes, of a file of weights
constexpr size_t kDigestBytes = 8;

bool decides_answers(const std::string& name) {
  static const std::set<std::string> endings = {".json", ".jinja", ".txt", ".model", ".tiktoken"};
  static const std::set<std::string> of_runs = {kTrainerStateFile, kRunStateFile, kArgumentsFile, kAdapterExtrasFile,
                                                "training_args.json"};
  return endings.count(fs::path(name).extension()) && !of_runs.count(name);
}

bool is_weights(const std::string& name) {
  return name.ends_with(".gguf") || (name.starts_with("pytorch_model") && name.ends_with(".bin")) ||
         (name.ends_with(".safetensors") && !name.starts_with("optimizer"));
}

// Any training changes weights all over a file.
std::string sampled(const fs::path& file) {
  const Descriptor in(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  require(in.is_open(), Fault::Io, "cannot open ", file.string());
  const auto size = static_cast<int64_t>(fs::file_size(file));
  std::string text = str(size, ":");
  char block[kBlock];
  for (int64_t i = 0; i < kBlocks; ++i) {
    const ssize_t got = ::pread(in.number(), block, kBlock, std::max<int64_t>(0, size - kBlock) * i / (kBlocks - 1));
    if (got > 0) text.append(block, static_cast<size_t>(got));
  }
  return text;
}

}  // namespace

std::string checkpoint_digest(const fs::path& folder) {
  std::map<std::string, std::string> parts;
  std::error_code code;
  for (const char* of : {"", "default"})  // where ms-swift's own adapters lie
    for (const auto& entry : fs::directory_iterator(folder / of, code)) {
      const std::string name = entry.path().filename();
      if (!entry.is_regular_file(code)) continue;
      if (is_weights(name))
        parts[of + name] = hex_digest(sampled(entry.path()), kDigestBytes);
      else if (decides_answers(name))
        parts[of + name] = hex_digest(read_file(entry.path()), kDigestBytes);
    }
  std::string all;
  for (const auto& [name, digest] : parts) all += name + " " + digest + "\n";
  return hex_digest(all, kDigestBytes);
}

}  // namespace apus
