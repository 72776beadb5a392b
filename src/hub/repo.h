// SPDX-License-Identifier: Apache-2.0
// What both hubs have in common: lists of files, and bringing those that are missing.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "hub/download.h"
#include "hub/http.h"
#include "hub/hub.h"

namespace apus {

struct RepoFile {
  std::string path;  // inside the repository
  int64_t size = -1;
  std::string sha256;
  std::string blob;  // HuggingFace: the name of its content (etag)
};

// Whether a file name from a server stays inside the folder that it is put into.
bool safe_path(const std::string& path);
bool wanted(const std::string& path, const HubOptions& options);
// Of a repository whose only weights are GGUF files, or of which such a file is asked for: that file alone.
HubOptions narrowed(const HubOptions& options, const std::vector<std::string>& paths, const std::string& id);

std::vector<std::string> authorization(const HubOptions& options);  // headers of a request

// The JSON text of a reply. Any other answer is Fault::Io, which explains the usual reasons.
std::string good_body(const HttpReply& reply, const std::string& what, const HubOptions& options);

std::filesystem::path fetch_huggingface(const std::string& id, RepoKind repo, const HubOptions& options);
std::filesystem::path fetch_modelscope(const std::string& id, RepoKind repo, const HubOptions& options);

}  // namespace apus
