// SPDX-License-Identifier: Apache-2.0
#include "hub/hub.h"

#include <fnmatch.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "base/error.h"
#include "base/files.h"
#include "hub/gguf_choice.h"
#include "hub/repo.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

std::string env(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}
bool env_true(const char* name) {
  std::string value = env(name);
  std::transform(value.begin(), value.end(), value.begin(), [](unsigned char c) { return std::toupper(c); });
  return value == "1" || value == "TRUE" || value == "YES" || value == "ON";
}
fs::path home() {
  const std::string folder = env("HOME");
  return folder.empty() ? fs::temp_directory_path() : fs::path(folder);
}
fs::path cache_home() {
  const std::string folder = env("XDG_CACHE_HOME");
  return folder.empty() ? home() / ".cache" : fs::path(folder);
}
fs::path expanded(const std::string& path) { return path.starts_with("~/") ? home() / path.substr(2) : fs::path(path); }

std::string trimmed(std::string text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
  return text;
}

HubOptions huggingface() {
  HubOptions o;
  o.kind = HubKind::HuggingFace;
  o.endpoint = env("HF_ENDPOINT").empty() ? "https://huggingface.co" : env("HF_ENDPOINT");
  const fs::path hf_home = env("HF_HOME").empty() ? cache_home() / "huggingface" : expanded(env("HF_HOME"));
  o.cache = !env("HF_HUB_CACHE").empty()            ? expanded(env("HF_HUB_CACHE"))
            : !env("HUGGINGFACE_HUB_CACHE").empty() ? expanded(env("HUGGINGFACE_HUB_CACHE"))
                                                    : hf_home / "hub";
  o.token = !env("HF_TOKEN").empty() ? env("HF_TOKEN") : env("HUGGING_FACE_HUB_TOKEN");
  const fs::path token_file = env("HF_TOKEN_PATH").empty() ? hf_home / "token" : expanded(env("HF_TOKEN_PATH"));
  if (o.token.empty() && fs::is_regular_file(token_file)) o.token = trimmed(read_file(token_file, 1 << 16));
  o.offline = env_true("HF_HUB_OFFLINE") || env_true("TRANSFORMERS_OFFLINE");
  return o;
}

HubOptions modelscope() {
  HubOptions o;
  o.kind = HubKind::ModelScope;
  const std::string domain = env("MODELSCOPE_DOMAIN").empty() ? "www.modelscope.cn" : env("MODELSCOPE_DOMAIN");
  o.endpoint = domain.find("://") == std::string::npos ? "https://" + domain : domain;
  o.cache = env("MODELSCOPE_CACHE").empty() ? cache_home() / "modelscope" / "hub" : expanded(env("MODELSCOPE_CACHE"));
  o.token = env("MODELSCOPE_API_TOKEN");
  o.offline = env_true("MODELSCOPE_OFFLINE") || env_true("HF_HUB_OFFLINE");
  return o;
}

bool matches(const std::string& path, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& p) { return ::fnmatch(p.c_str(), path.c_str(), 0) == 0; });
}

}  // namespace

HubOptions HubOptions::from_environment(HubKind kind) {
  HubOptions o = kind == HubKind::HuggingFace ? huggingface() : modelscope();
  while (o.endpoint.ends_with('/')) o.endpoint.pop_back();
  return o;
}

bool is_repo_id(const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 == text.size() ||
      text.find('/', slash + 1) != std::string::npos || text.size() > 200)
    return false;
  const auto fine = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.' || c == '/'; };
  return std::all_of(text.begin(), text.end(), fine) && text[0] != '.' && text.find("..") == std::string::npos &&
         text[slash + 1] != '.';
}

bool safe_path(const std::string& path) {
  if (path.empty() || path.size() > 1024 || path[0] == '/' || path.find('\0') != std::string::npos ||
      path.find('\\') != std::string::npos)
    return false;
  for (const auto& part : fs::path(path))
    if (part == ".." || part == "." || part.empty()) return false;
  return true;
}

bool wanted(const std::string& path, const HubOptions& options) {
  return (options.only.empty() || matches(path, options.only)) && !matches(path, options.leave);
}

HubOptions narrowed(const HubOptions& options, const std::vector<std::string>& paths, const std::string& id) {
  const bool plain =
      std::any_of(paths.begin(), paths.end(), [](const auto& path) { return path.ends_with(".safetensors"); });
  const auto is_torch = [](const std::string& path) { return path.starts_with("pytorch_model"); };
  const bool weights = std::find(options.leave.begin(), options.leave.end(), "*.safetensors") == options.leave.end();
  if (options.gguf_type.empty() && weights && !plain && std::any_of(paths.begin(), paths.end(), is_torch)) {
    HubOptions own = options;  // nothing else has the weights
    std::erase(own.leave, "*.bin");
    return own;
  }
  const bool coded = std::any_of(paths.begin(), paths.end(), is_gguf_path);
  if (options.gguf_type.empty() && (plain || !coded)) return options;
  HubOptions own = options;
  own.only = gguf_choice(paths, options.gguf_type, id).all(), own.leave.clear();
  return own;
}

std::vector<std::string> authorization(const HubOptions& options) {
  if (options.token.empty()) return {};
  return {"Authorization: Bearer " + options.token};
}

std::string good_body(const HttpReply& reply, const std::string& what, const HubOptions& options) {
  if (reply.status == 200 && reply.error.empty()) return reply.body;
  const bool hf = options.kind == HubKind::HuggingFace;
  const std::string hint =
      reply.status == 401 || reply.status == 403
          ? str("; it may be private or gated: give a token (--hub_token, or ",
                hf ? "HF_TOKEN" : "MODELSCOPE_API_TOKEN", ") and accept its licence on the hub's page")
      : reply.status == 404
          ? str("; there is no such repository or revision on ",
                hf ? "HuggingFace (on ModelScope: --use_hf false)" : "ModelScope (on HuggingFace: --use_hf true)")
      : reply.status == 0 ? str("; without a network give a local folder, or copy the repository into ",
                                options.cache.string(), hf ? "; a mirror is set with HF_ENDPOINT" : "")
                          : "";
  fail(Fault::Io, "cannot reach ", what, " at ", options.endpoint, ": ",
       reply.status ? str("the hub answers ", reply.status) : reply.error, hint);
}

fs::path fetch_repo(const std::string& id, RepoKind repo, const HubOptions& options) {
  require(is_repo_id(id), Fault::Usage, "'", id, "' is neither a local path nor a hub's id (owner/name)");
  return options.kind == HubKind::HuggingFace ? fetch_huggingface(id, repo, options)
                                              : fetch_modelscope(id, repo, options);
}

fs::path model_folder(const std::string& model, const HubOptions& options, const std::string& flag) {
  if (fs::exists(expanded(model))) return expanded(model);
  const GgufWish wish = gguf_wish(model);
  const bool looks_local =
      model.starts_with("/") || model.starts_with("./") || model.starts_with("../") || model.starts_with("~");
  require(!looks_local && is_repo_id(wish.repo), Fault::Usage, flag, " ", model, ": there is no such folder",
          looks_local ? "" : ", and it is no hub id (owner/name) either");
  HubOptions own = options;
  if (own.leave.empty()) own.leave = unread_weights();
  own.gguf_type = wish.type;
  return fetch_repo(wish.repo, RepoKind::Model, own);
}

std::vector<std::string> unread_weights() {
  return {"*.bin", "*.pth",    "*.pt",      "*.msgpack", "*.h5",       "*.onnx", "*.onnx_data",
          "*.ot",  "*.tflite", "*.mlmodel", "*.gguf",    "original/*", "onnx/*", "coreml/*"};
}

}  // namespace apus
