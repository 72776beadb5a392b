// SPDX-License-Identifier: Apache-2.0
// Models and datasets of HuggingFace and ModelScope on this machine: from the cache folders that their own tools use,
// or downloaded into them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace apus {

enum class HubKind { HuggingFace, ModelScope };
enum class RepoKind { Model, Dataset };

struct HubOptions {
  HubKind kind = HubKind::ModelScope;
  std::string endpoint;  // without a slash at the end
  std::string token;     // empty: none
  std::filesystem::path cache;
  bool offline = false;            // only what is in the cache
  std::string revision;            // branch, tag or commit; empty: the hub's main branch
  std::vector<std::string> only;   // patterns of files to fetch ("*.json"); empty: all
  std::vector<std::string> leave;  // patterns of files to leave out
  std::string gguf_type;           // of a model in GGUF files, the one to fetch: "Q4_K_M"; empty: not said

  // HF_ENDPOINT, HF_TOKEN, HF_HUB_CACHE, HF_HOME, HF_HUB_OFFLINE; MODELSCOPE_DOMAIN, MODELSCOPE_API_TOKEN,
  // MODELSCOPE_CACHE, MODELSCOPE_OFFLINE.
  static HubOptions from_environment(HubKind kind);
};

// The folder of a repository at one revision. Downloads what is missing; what is there is not asked for twice.
std::filesystem::path fetch_repo(const std::string& id, RepoKind repo, const HubOptions& options);

bool is_repo_id(const std::string& text);  // "owner/name"

// A --model value as a folder: a local one as it is, else from the hub.
std::filesystem::path model_folder(const std::string& model, const HubOptions& options,
                                   const std::string& flag = "--model");

// Patterns of weight files that are not fetched, since the program does not read them or safetensors are there;
// PyTorch's are where nothing else is.
std::vector<std::string> unread_weights();

}  // namespace apus
