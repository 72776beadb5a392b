// SPDX-License-Identifier: Apache-2.0
// Uploads to HuggingFace's hub: it is asked which files are kept by git and which as large ones (LFS); the large ones
// that it lacks go to its storage; then one commit names them all.
#include <algorithm>
#include <map>

#include "base/base64.h"
#include "base/error.h"
#include "base/files.h"
#include "base/nearest.h"
#include "hub/download.h"
#include "hub/repo.h"
#include "hub/upload_steps.h"

namespace apus {

namespace {

constexpr size_t kAskedAtOnce = 256;  // files of one request
constexpr size_t kSampleBytes = 512;  // of each file, by which the hub tells text from numbers

std::string sample_of(const UploadFile& file) {
  if (file.text) return file.text->substr(0, kSampleBytes);
  std::string out(static_cast<size_t>(std::min<int64_t>(file.size, kSampleBytes)), '\0');
  if (!out.empty()) std::copy_n(reinterpret_cast<const char*>(MappedFile(file.file).data()), out.size(), out.begin());
  return out;
}

struct Wanted {  // what the hub wants of a file
  const UploadFile* file = nullptr;
  bool large = false;
  std::string sha256;  // of a large one
};

struct HuggingFaceUpload {
  const UploadSpec& spec;

  std::string kind() const { return spec.repo == RepoKind::Model ? "model" : "dataset"; }
  std::string api() const { return spec.hub.endpoint + "/api/" + kind() + "s/" + spec.id; }
  std::string branch() const { return url_escaped(spec.hub.revision.empty() ? "main" : spec.hub.revision); }

  std::vector<std::string> headers(const std::string& type) const {
    std::vector<std::string> out = authorization(spec.hub);
    out.push_back("Content-Type: " + type);
    return out;
  }

  // Those that a commit must name: the hub has the others as they are.
  std::vector<Wanted> ask_kinds() const {
    std::vector<Wanted> out;
    for (size_t begin = 0; begin < spec.files.size(); begin += kAskedAtOnce) {
      const size_t end = std::min(spec.files.size(), begin + kAskedAtOnce);
      Json asked = Json::array();
      for (size_t i = begin; i < end; ++i)
        asked.push_back(
            {{"path", spec.files[i].path}, {"sample", base64(sample_of(spec.files[i]))}, {"size", spec.files[i].size}});
      const HttpReply reply =
          posted(api() + "/preupload/" + branch(), Json{{"files", asked}}.dump(), spec, headers("application/json"));
      const Json answer = good_answer(reply, "prepare the upload to " + spec.id, spec);
      std::map<std::string, Json> told;
      if (answer.contains("files") && answer["files"].is_array())
        for (const Json& one : answer["files"])
          if (one.is_object() && one.contains("path") && one["path"].is_string()) told[one["path"]] = one;
      for (size_t i = begin; i < end; ++i) {
        const UploadFile& file = spec.files[i];
        const auto it = told.find(file.path);
        require(it != told.end() && it->second.value("uploadMode", Json()).is_string(), Fault::Io, spec.hub.endpoint,
                ": the hub does not say how it keeps ", file.path);
        if (it->second.value("shouldIgnore", false)) continue;
        // Its storage takes no empty files.
        const bool large = it->second["uploadMode"] == "lfs" && file.size > 0 && !file.text;
        const std::string sha256 = large ? sha256_of_file(file.file) : "";
        const Json has = it->second.value("oid", Json());  // git's digest of what lies there, or a large file's own
        if (has.is_string() && !file.text && has == (large ? sha256 : git_sha1_of_file(file.file))) continue;
        out.push_back({&file, large, sha256});
      }
    }
    return out;
  }

  // By the parts that the hub gives addresses for; it puts them together when it is told their names.
  void send_in_parts(const Json& upload, const Wanted& wanted) const {
    const std::string size_text = upload["header"]["chunk_size"].is_string()
                                      ? upload["header"]["chunk_size"].get<std::string>()
                                      : upload["header"]["chunk_size"].dump();
    const int64_t part = std::strtoll(size_text.c_str(), nullptr, 10), size = wanted.file->size;
    std::map<int64_t, std::string> addresses;
    for (const auto& [name, address] : upload["header"].items())
      if (!name.empty() && name.find_first_not_of("0123456789") == std::string::npos && name.size() < 9 &&
          address.is_string())
        addresses[std::stoll(name)] = address.get<std::string>();
    require(part > 0 && std::ssize(addresses) == (size + part - 1) / part, Fault::Io, spec.hub.endpoint,
            ": the hub's storage gives ", addresses.size(), " addresses of ", size_text, " bytes for ",
            wanted.file->path, " of ", size, " bytes");
    Json parts = Json::array();
    int64_t from = 0;
    for (const auto& [number, address] : addresses) {
      const HttpReply reply = put_part(address, {}, *wanted.file, from, std::min(part, size - from), spec);
      const auto etag = reply.headers.find("etag");
      require(etag != reply.headers.end() && !etag->second.empty(), Fault::Io, spec.hub.endpoint,
              ": the hub's storage names no etag of part ", number, " of ", wanted.file->path);
      parts.push_back({{"partNumber", parts.size() + 1}, {"etag", etag->second}});
      from += part;
    }
    good_answer(posted(upload["href"], Json{{"oid", wanted.sha256}, {"parts", parts}}.dump(), spec,
                       headers("application/vnd.git-lfs+json")),
                "finish " + wanted.file->path, spec);
  }

  void send_large(const Json& object, const Wanted& wanted) const {
    const Json& upload = object["actions"]["upload"];
    require(upload.is_object() && upload.value("href", Json()).is_string(), Fault::Io, spec.hub.endpoint,
            ": the hub gives no address for ", wanted.file->path);
    const Json header = upload.value("header", Json::object());
    if (header.is_object() && header.contains("chunk_size")) {
      send_in_parts(upload, wanted);
    } else {
      std::vector<std::string> lines;
      for (const auto& [name, value] : header.items())
        if (value.is_string()) lines.push_back(name + ": " + value.get<std::string>());
      put_part(upload["href"], lines, *wanted.file, 0, wanted.file->size, spec);
    }
    const Json verify = object["actions"].value("verify", Json());
    if (verify.is_object() && verify.value("href", Json()).is_string())
      good_answer(posted(verify["href"], Json{{"oid", wanted.sha256}, {"size", wanted.file->size}}.dump(), spec,
                         headers("application/vnd.git-lfs+json")),
                  "have " + wanted.file->path + " verified", spec);
  }

  // Sends the large files that the hub lacks; how many bytes that were.
  int64_t send_large_files(const std::vector<Wanted>& all) const {
    std::map<std::string, const Wanted*> large;  // by digest: the same content goes once
    for (const Wanted& wanted : all)
      if (wanted.large) large[wanted.sha256] = &wanted;
    if (large.empty()) return 0;
    Json objects = Json::array();
    for (const auto& [oid, wanted] : large) objects.push_back({{"oid", oid}, {"size", wanted->file->size}});
    const Json body = {{"operation", "upload"},
                       {"transfers", {"basic", "multipart"}},
                       {"objects", objects},
                       {"hash_algo", "sha256"},
                       {"ref", {{"name", spec.hub.revision.empty() ? "main" : spec.hub.revision}}}};
    const std::string url = spec.hub.endpoint + (spec.repo == RepoKind::Model ? "/" : "/datasets/") + spec.id +
                            ".git/info/lfs/objects/batch";
    std::vector<std::string> lines = headers("application/vnd.git-lfs+json");
    lines.push_back("Accept: application/vnd.git-lfs+json");
    const Json answer = good_answer(posted(url, body.dump(), spec, lines), "ask for the storage of " + spec.id, spec);
    require(answer.contains("objects") && answer["objects"].is_array(), Fault::Io, url, ": not the answer of LFS");
    int64_t sent = 0;
    for (const Json& object : answer["objects"]) {
      const auto it = large.find(object.value("oid", ""));
      require(it != large.end(), Fault::Io, url, ": the hub names a file that was not asked for");
      require(!object.contains("error"), Fault::Io, "the hub refuses ", it->second->file->path, ": ",
              object.value("error", Json()).dump());
      if (!object.contains("actions") || !object["actions"].is_object()) continue;  // it is there already
      send_large(object, *it->second);
      sent += it->second->file->size;
    }
    return sent;
  }

  void commit(const std::vector<Wanted>& all) const {
    std::string lines =
        Json{{"key", "header"}, {"value", {{"summary", spec.message}, {"description", ""}}}}.dump() + "\n";
    for (const Wanted& wanted : all) {
      const UploadFile& file = *wanted.file;
      Json value = {{"path", file.path}};
      if (wanted.large)
        value.update({{"algo", "sha256"}, {"oid", wanted.sha256}, {"size", file.size}});
      else
        value.update({{"content", base64(contents_of(file))}, {"encoding", "base64"}});
      lines += Json{{"key", wanted.large ? "lfsFile" : "file"}, {"value", value}}.dump() + "\n";
    }
    good_answer(posted(api() + "/commit/" + branch(), lines, spec, headers("application/x-ndjson")),
                "commit to " + spec.id, spec);
  }

  void prepare() const {
    const size_t slash = spec.id.find('/');
    const Json body = {{"type", kind()},
                       {"name", spec.id.substr(slash + 1)},
                       {"organization", spec.id.substr(0, slash)},
                       {"private", spec.is_private}};
    const HttpReply reply =
        posted(spec.hub.endpoint + "/api/repos/create", body.dump(), spec, headers("application/json"));
    if (reply.status == 409) return;  // it is there
    // A token for one repository may not make others.
    if ((reply.status == 401 || reply.status == 403) && asked(api(), spec, authorization(spec.hub)).status == 200)
      return;
    good_answer(reply, "make the repository " + spec.id, spec);
  }
};

}  // namespace

void prepare_huggingface(const UploadSpec& spec) { HuggingFaceUpload{spec}.prepare(); }

UploadReport upload_huggingface(const UploadSpec& spec) {
  const HuggingFaceUpload hub{spec};
  const std::vector<Wanted> wanted = hub.ask_kinds();
  if (wanted.empty()) return {};
  const int64_t sent = hub.send_large_files(wanted);
  hub.commit(wanted);
  return {.files = std::ssize(wanted), .sent_bytes = sent, .page = {}};
}

}  // namespace apus
