// SPDX-License-Identifier: Apache-2.0
// Both hubs' sides of an upload over the fake hub: what is made, stored and committed is kept, and compared with what
// it says of itself.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/base64.h"
#include "base/files.h"
#include "base/json.h"
#include "hub/download.h"
#include "tests/data/data_test_tools.h"
#include "tests/hub/fake_hub.h"

namespace apus {

struct FakeUploads {
  explicit FakeUploads(FakeHub& hub) : hub(hub) {
    hub.handle([this](const FakeRequest& request) { return answer(request); });
  }

  FakeHub& hub;
  TemporaryFolder scratch;
  std::set<std::string> repos;                            // "owner/name private"
  std::map<std::string, std::string> storage, committed;  // by digest; by path
  std::vector<std::string> messages;                      // of commits
  std::map<std::string, std::map<int, std::string>> parts;
  int64_t part_bytes = 0;            // of a large file; 0: in one piece
  std::atomic<int> busy_puts{0};     // so many are answered 503
  std::atomic<bool> refuses{false};  // 403 to everything
  std::string ignored;               // a file that the repository's .gitignore names
  std::set<std::string> broken;      // what was wrong with requests

  std::string sha256(const std::string& text) { return sha256_of_file(scratch.write("digest", text)); }
  std::string git_sha1(const std::string& text) { return git_sha1_of_file(scratch.write("digest", text)); }

 private:
  static bool starts(const std::string& text, const std::string& with) { return text.rfind(with, 0) == 0; }
  static FakeAnswer json(const Json& body, int status = 200) { return {status, body.dump(), {}}; }

  std::optional<FakeAnswer> answer(const FakeRequest& r) {
    if (refuses) return json({{"error", "this token may only read"}}, 403);
    if (r.method == "PUT") return put(r);
    if (r.method != "POST") return std::nullopt;
    if (r.path == "/api/repos/create" || r.path == "/api/v1/models") return create(Json::parse(r.body));
    if (r.path.find("/preupload/main") != std::string::npos) return preupload(Json::parse(r.body));
    if (r.path.find("/lfs/objects/batch") != std::string::npos) return batch(r);
    if (starts(r.path, "/complete/")) return complete(r.path.substr(10), Json::parse(r.body));
    if (r.path == "/verify") {
      const Json asked = Json::parse(r.body);
      const bool there = storage.count(asked["oid"]) && std::ssize(storage[asked["oid"]]) == asked["size"];
      return json(Json::object(), there ? 200 : 404);
    }
    if (r.path.find("/commit/main") != std::string::npos) return commit(r.body);
    if (r.path.find("/commit/master") != std::string::npos) return commit_modelscope(Json::parse(r.body));
    return std::nullopt;
  }

  FakeAnswer create(const Json& asked) {
    const bool hf = asked.contains("organization");
    const std::string name = (hf ? asked["organization"] : asked["Path"]).get<std::string>() + "/" +
                             (hf ? asked["name"] : asked["Name"]).get<std::string>();
    const bool is_private = hf ? asked["private"].get<bool>() : asked["Visibility"] == 1;
    for (const std::string& known : repos)
      if (starts(known, name)) return json({{"error", "there"}}, 409);
    repos.insert(name + (is_private ? " private" : " public"));
    return json({{"Success", true}, {"url", name}});
  }

  FakeAnswer preupload(const Json& asked) {
    Json files = Json::array();
    for (const Json& file : asked["files"]) {
      const std::string path = file["path"];
      const std::string sample = from_base64(file["sample"].get<std::string>());
      if (std::ssize(sample) != std::min<int64_t>(512, file["size"])) broken.insert("sample of " + path);
      Json told = {{"path", path},
                   {"uploadMode", path.ends_with(".safetensors") ? "lfs" : "regular"},
                   {"shouldIgnore", path == ignored}};
      if (committed.count(path))
        told["oid"] = path.ends_with(".safetensors") && !committed[path].empty() ? sha256(committed[path])
                                                                                 : git_sha1(committed[path]);
      files.push_back(told);
    }
    return json({{"files", files}});
  }

  FakeAnswer batch(const FakeRequest& r) {
    const Json asked = Json::parse(r.body);
    const bool hf = r.path.find(".git/info/lfs") != std::string::npos;
    Json objects = Json::array();
    for (const Json& object : asked["objects"]) {
      const std::string oid = object["oid"];
      Json told = {{"oid", oid}, {"size", object["size"]}};
      if (!storage.count(oid)) {
        Json upload = {{"href", hub.url() + "/store/" + oid}};
        if (hf && part_bytes > 0) {
          upload = {{"href", hub.url() + "/complete/" + oid}, {"header", {{"chunk_size", std::to_string(part_bytes)}}}};
          const int64_t count = (object["size"].get<int64_t>() + part_bytes - 1) / part_bytes;
          for (int64_t part = 1; part <= count; ++part)
            upload["header"][std::to_string(part)] = hub.url() + "/part/" + oid + "/" + std::to_string(part);
        }
        told["actions"] = {{"upload", upload}, {"verify", {{"href", hub.url() + "/verify"}}}};
      }
      objects.push_back(told);
    }
    return hf ? json({{"objects", objects}}) : json({{"Success", true}, {"Data", {{"objects", objects}}}});
  }

  FakeAnswer put(const FakeRequest& r) {
    if (busy_puts > 0) {
      --busy_puts;
      return {503, "busy", {}};
    }
    if (starts(r.path, "/store/")) {
      storage[r.path.substr(7)] = r.body;
      if (sha256(r.body) != r.path.substr(7)) broken.insert("digest of " + r.path);
      return {200, "", {}};
    }
    const size_t slash = r.path.rfind('/');
    const int number = std::stoi(r.path.substr(slash + 1));
    parts[r.path.substr(6, slash - 6)][number] = r.body;
    return {200, "", {{"ETag", "\"part" + std::to_string(number) + "\""}}};
  }

  FakeAnswer complete(const std::string& oid, const Json& asked) {
    std::string all;
    for (const Json& part : asked["parts"]) {
      if (part["etag"] != "\"part" + part["partNumber"].dump() + "\"") broken.insert("etag of a part");
      all += parts[oid][part["partNumber"]];
    }
    if (sha256(all) != oid) broken.insert("digest of the parts");
    storage[oid] = all;
    return json(Json::object());
  }

  FakeAnswer commit(const std::string& lines) {
    std::istringstream in(lines);
    for (std::string line; std::getline(in, line);) {
      const Json one = Json::parse(line);
      const Json& value = one["value"];
      if (one["key"] == "header")
        messages.push_back(value["summary"]);
      else
        keep(value["path"], one["key"] == "lfsFile" ? value["oid"].get<std::string>() : "", value);
    }
    return json({{"commitOid", "c"}});
  }
  FakeAnswer commit_modelscope(const Json& asked) {
    messages.push_back(asked["commit_message"]);
    for (const Json& action : asked["actions"]) keep(action["path"], action["sha256"], action);
    return json({{"Success", true}});
  }
  void keep(const std::string& path, const std::string& oid, const Json& value) {
    if (!oid.empty() && !storage.count(oid)) broken.insert(path + " was not stored before its commit");
    committed[path] = oid.empty() ? from_base64(value["content"].get<std::string>()) : storage[oid];
  }
};

}  // namespace apus
