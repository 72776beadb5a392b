// SPDX-License-Identifier: Apache-2.0
// HuggingFace's cache: <cache>/models--owner--name/{refs/<branch>, blobs/<etag>, snapshots/<commit>/<file> -> blob}.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/progress.h"
#include "hub/repo.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

bool is_hex(const std::string& text, size_t size) {
  return text.size() == size && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isxdigit(c); });
}

struct HuggingFacePlace {
  std::string id;
  RepoKind repo;
  const HubOptions& options;
  std::string revision() const { return options.revision.empty() ? "main" : options.revision; }
  fs::path root() const {
    std::string name = id;
    name.replace(name.find('/'), 1, "--");
    return options.cache / ((repo == RepoKind::Model ? "models--" : "datasets--") + name);
  }
  std::string api() const {
    return options.endpoint + (repo == RepoKind::Model ? "/api/models/" : "/api/datasets/") + id;
  }
  std::string file_url(const std::string& commit, const std::string& path) const {
    return options.endpoint + (repo == RepoKind::Model ? "/" : "/datasets/") + id + "/resolve/" + commit + "/" +
           url_escaped(path);
  }
};

// The commit that the cache knows for the revision, if its snapshot is there.
fs::path cached_snapshot(const HuggingFacePlace& place) {
  std::string commit = place.revision();
  if (!is_hex(commit, 40)) {
    const fs::path ref = place.root() / "refs" / commit;
    if (!safe_path(commit) || !fs::is_regular_file(ref)) return {};
    commit = read_file(ref, 4096);
    commit.erase(commit.find_last_not_of(" \r\n") + 1);
  }
  const fs::path snapshot = place.root() / "snapshots" / commit;
  return is_hex(commit, 40) && fs::is_directory(snapshot) ? snapshot : fs::path();
}

// A file's etag and size, which hubs tell in the answer before the redirect to where its bytes are.
RepoFile describe(const HuggingFacePlace& place, const std::string& commit, RepoFile file) {
  const HttpReply reply = http_request({.url = place.file_url(commit, file.path),
                                        .headers = authorization(place.options),
                                        .head_only = true,
                                        .follow = false});
  require(reply.error.empty() && reply.status >= 200 && reply.status < 400, Fault::Io, "cannot ask for ", place.id, "/",
          file.path, ": ", reply.error.empty() ? str("the hub answers ", reply.status) : reply.error);
  const auto header = [&](const char* name) {
    const auto it = reply.first.find(name);
    return it == reply.first.end() ? std::string() : it->second;
  };
  std::string etag = !header("x-linked-etag").empty() ? header("x-linked-etag") : header("etag");
  if (etag.starts_with("W/")) etag.erase(0, 2);
  std::erase(etag, '"');
  require(!etag.empty() && safe_path(etag) && etag.find('/') == std::string::npos, Fault::Io, place.id, "/", file.path,
          ": the hub gives no usable etag for it");
  file.blob = etag;
  const std::string size = !header("x-linked-size").empty() ? header("x-linked-size")
                           : reply.status == 200            ? header("content-length")
                                                            : "";
  if (!size.empty() && size.find_first_not_of("0123456789") == std::string::npos && size.size() < 18)
    file.size = std::stoll(size);
  return file;
}

void link_blob(const fs::path& link, const fs::path& blob) {
  fs::create_directories(link.parent_path());
  if (fs::exists(link)) return;
  std::error_code code;
  fs::remove(link, code);  // one that points nowhere
  fs::create_symlink(fs::relative(blob, link.parent_path()), link, code);
  if (code) fs::copy_file(blob, link);  // a file system without links
}

fs::path download_snapshot(const HuggingFacePlace& place, const Json& info) {
  const std::string commit = info.value("sha", "");
  require(is_hex(commit, 40) && info.contains("siblings") && info["siblings"].is_array(), Fault::Io, place.api(),
          ": not the answer of a HuggingFace hub");
  const fs::path snapshot = place.root() / "snapshots" / commit;
  std::vector<std::string> paths;
  for (const auto& sibling : info["siblings"]) {
    paths.push_back(sibling.value("rfilename", ""));
    require(safe_path(paths.back()), Fault::Io, place.id, ": the hub names a file '", paths.back(),
            "', which would not stay in its folder");
  }
  const HubOptions own = place.repo == RepoKind::Model ? narrowed(place.options, paths, place.id) : place.options;
  std::vector<RepoFile> missing;
  for (const std::string& path : paths)
    if (wanted(path, own) && !fs::exists(snapshot / path))
      missing.push_back(describe(place, commit, {path, -1, {}, {}}));
  int64_t total = 0;
  for (const auto& file : missing) total += std::max<int64_t>(file.size, 0);
  if (!missing.empty()) {
    Progress progress("Downloading " + place.id, total, {.unit = "B"});
    for (const auto& file : missing) {
      progress.note(file.path);
      RemoteFile remote{place.file_url(commit, file.path),
                        authorization(place.options),
                        place.id + "/" + file.path,
                        file.size,
                        "",
                        ""};
      if (is_hex(file.blob, 64)) remote.sha256 = file.blob;
      if (is_hex(file.blob, 40)) remote.git_sha1 = file.blob;
      const fs::path blob = place.root() / "blobs" / file.blob;
      download_file(remote, blob, [&](int64_t bytes) { progress.advance(bytes); });
      link_blob(snapshot / file.path, blob);
    }
  }
  fs::create_directories(snapshot);
  if (!is_hex(place.revision(), 40) && safe_path(place.revision())) {
    fs::create_directories((place.root() / "refs" / place.revision()).parent_path());
    write_file_atomic(place.root() / "refs" / place.revision(), commit);
  }
  return snapshot;
}

}  // namespace

fs::path fetch_huggingface(const std::string& id, RepoKind repo, const HubOptions& options) {
  const HuggingFacePlace place{id, repo, options};
  const fs::path cached = cached_snapshot(place);
  if (options.offline) {
    require(!cached.empty(), Fault::Io, id, " (", place.revision(), ") is not in the cache ", options.cache.string(),
            ", and HF_HUB_OFFLINE forbids to download it");
    return cached;
  }
  const HttpReply reply = http_request(
      {.url = place.api() + "/revision/" + url_escaped(place.revision()), .headers = authorization(place.options)});
  const bool unreachable = reply.status == 0 || reply.status >= 500;
  if (unreachable && !cached.empty()) {
    log_warning("cannot reach ", options.endpoint, " (", reply.status ? str("it answers ", reply.status) : reply.error,
                "): using the copy of ", id, " in the cache");
    return cached;
  }
  const std::string what = str(repo == RepoKind::Model ? "model " : "dataset ", id, " (", place.revision(), ")");
  return download_snapshot(place, parse_json(good_body(reply, what, options), place.api(), Fault::Io));
}

}  // namespace apus
