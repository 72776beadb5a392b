// SPDX-License-Identifier: Apache-2.0
// One file from a hub: written beside its target as <target>.incomplete, gone on with after an interruption, compared
// with its checksum, then renamed. Two processes that want the same file do not disturb each other.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace apus {

struct RemoteFile {
  std::string url;
  std::vector<std::string> headers;
  std::string name;      // for messages
  int64_t size = -1;     // -1: not known
  std::string sha256;    // hex; empty: not known
  std::string git_sha1;  // of git's blob object; empty: not known
};

using Advance = std::function<void(int64_t bytes)>;  // how many more have arrived (negative: thrown away)

// Does nothing when `target` is there already. Tries again after failures of the network, `attempts` times in all.
void download_file(const RemoteFile& file, const std::filesystem::path& target, const Advance& advance,
                   int attempts = 5);

std::string sha256_of_file(const std::filesystem::path& path);
std::string git_sha1_of_file(const std::filesystem::path& path);

}  // namespace apus
