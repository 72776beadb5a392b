// SPDX-License-Identifier: Apache-2.0
// Uploads to ModelScope: large files go to its storage where it lacks them, then commits name them and bring the small
// ones along.
#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "base/base64.h"
#include "base/error.h"
#include "hub/download.h"
#include "hub/repo.h"
#include "hub/upload_steps.h"

namespace apus {

namespace {

constexpr int kPublic = 5, kPrivate = 1;    // its words for who may see a repository
constexpr int64_t kSmallBytes = 1 << 20;    // up to this a text goes with the commit
constexpr int64_t kCommitBytes = 16 << 20;  // of small files in one commit
constexpr size_t kFilesOfCommit = 256;
constexpr std::array<std::string_view, 8> kLargeEndings = {".safetensors", ".gguf", ".bin",    ".pt",
                                                           ".parquet",     ".zip",  ".tar.gz", ".npz"};

bool is_large(const UploadFile& file) {
  if (file.text || file.size == 0) return false;
  const auto ends = [&](std::string_view ending) { return file.path.ends_with(ending); };
  return file.size > kSmallBytes || std::any_of(kLargeEndings.begin(), kLargeEndings.end(), ends);
}

Json action_of(const UploadFile& file, const std::string& sha256) {
  const bool large = !sha256.empty();
  return {{"action", "create"},  // or replaced
          {"path", file.path},
          {"type", large ? "lfs" : "normal"},
          {"size", file.size},
          {"sha256", sha256},
          {"content", large ? "" : base64(contents_of(file))},
          {"encoding", large ? "" : "base64"}};
}

struct ModelScopeUpload {
  const UploadSpec& spec;

  std::string kind() const { return spec.repo == RepoKind::Model ? "models" : "datasets"; }

  std::vector<std::string> headers() const {
    std::vector<std::string> out = authorization(spec.hub);
    out.push_back("Cookie: m_session_id=" + spec.hub.token);  // which is what its older addresses look at
    return out;
  }

  std::vector<std::string> json_headers() const {
    std::vector<std::string> out = headers();
    out.push_back("Content-Type: application/json");
    return out;
  }

  // Its answers say in their body whether they are good.
  Json data_of(const HttpReply& reply, const std::string& doing) const {
    Json answer = good_answer(reply, doing, spec);
    const bool bad = answer.is_object() && answer.value("Success", Json()) == false;
    require(!bad, Fault::Io, "cannot ", doing, " at ", spec.hub.endpoint, ": ", answer.value("Message", Json()).dump());
    return answer.is_object() && answer.contains("Data") && answer["Data"].is_object() ? answer["Data"] : answer;
  }

  int64_t send_large_files(const std::map<std::string, const UploadFile*>& large) const {
    if (large.empty()) return 0;
    Json objects = Json::array();
    for (const auto& [oid, file] : large) objects.push_back({{"oid", oid}, {"size", file->size}});
    const std::string url = spec.hub.endpoint + "/api/v1/repos/" + kind() + "/" + spec.id + "/info/lfs/objects/batch";
    const Json answer =
        data_of(posted(url, Json{{"operation", "upload"}, {"objects", objects}}.dump(), spec, json_headers()),
                "ask for the storage of " + spec.id);
    require(answer.contains("objects") && answer["objects"].is_array(), Fault::Io, url, ": not the answer of LFS");
    int64_t sent = 0;
    for (const Json& object : answer["objects"]) {
      const auto it = large.find(object.value("oid", ""));
      require(it != large.end(), Fault::Io, url, ": the hub names a file that was not asked for");
      const Json actions = object.value("actions", Json::object());
      const Json upload = actions.is_object() ? actions.value("upload", Json()) : Json();
      if (!upload.is_object() || !upload.value("href", Json()).is_string()) continue;  // it is there already
      put_part(upload["href"], headers(), *it->second, 0, it->second->size, spec);
      sent += it->second->size;
    }
    return sent;
  }

  void commit(const Json& actions) const {
    const std::string revision = url_escaped(spec.hub.revision.empty() ? "master" : spec.hub.revision);
    data_of(posted(spec.hub.endpoint + "/api/v1/repos/" + kind() + "/" + spec.id + "/commit/" + revision,
                   Json{{"commit_message", spec.message}, {"actions", actions}}.dump(), spec, json_headers()),
            "commit to " + spec.id);
  }

  void prepare() const {
    const std::string all = spec.hub.endpoint + "/api/v1/" + kind();
    const HttpReply there = asked(all + "/" + spec.id, spec, headers());
    if (there.status == 200) return;
    require(spec.repo == RepoKind::Model, Fault::Usage, "the dataset ", spec.id,
            " is not there yet: make it on ModelScope's page, which asks what this program cannot know, then upload");
    const size_t slash = spec.id.find('/');
    const Json body = {{"Path", spec.id.substr(0, slash)},
                       {"Name", spec.id.substr(slash + 1)},
                       {"Visibility", spec.is_private ? kPrivate : kPublic},
                       {"License", "Apache-2.0"}};
    data_of(posted(all, body.dump(), spec, json_headers()), "make the repository " + spec.id);
  }

  UploadReport upload() const {
    std::map<std::string, const UploadFile*> large;  // by digest: the same content goes once
    std::vector<std::string> digests;
    for (const UploadFile& file : spec.files) {
      digests.push_back(is_large(file) ? sha256_of_file(file.file) : "");
      if (!digests.back().empty()) large[digests.back()] = &file;
    }
    UploadReport report{.files = std::ssize(spec.files), .sent_bytes = send_large_files(large), .page = {}};
    Json actions = Json::array();
    int64_t bytes = 0;
    for (size_t i = 0; i < spec.files.size(); ++i) {
      actions.push_back(action_of(spec.files[i], digests[i]));
      if (digests[i].empty()) bytes += spec.files[i].size;
      if (i + 1 < spec.files.size() && actions.size() < kFilesOfCommit && bytes < kCommitBytes) continue;
      commit(actions);
      actions = Json::array(), bytes = 0;
    }
    return report;
  }
};

}  // namespace

void prepare_modelscope(const UploadSpec& spec) { ModelScopeUpload{spec}.prepare(); }

UploadReport upload_modelscope(const UploadSpec& spec) { return ModelScopeUpload{spec}.upload(); }

}  // namespace apus
