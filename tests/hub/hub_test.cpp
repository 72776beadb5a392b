// SPDX-License-Identifier: Apache-2.0
// Both hubs against a fake one: layouts of the caches, resuming, checksums, tokens, offline, and what users are told.
#include "hub/hub.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "base/files.h"
#include "checkpoint/gguf_folder.h"
#include "data/source/dataset_fetch.h"
#include "hub/download.h"
#include "hub/gguf_choice.h"
#include "hub/repo.h"
#include "tests/data/data_test_tools.h"
#include "tests/hub/fake_hub.h"

namespace apus {
namespace {

namespace fs = std::filesystem;

const std::string kCommit(40, 'a');

struct Environment {  // set while it lives
  Environment(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) before_ = old;
    ::setenv(name, value.c_str(), 1);
  }
  ~Environment() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }
  const char* name_;
  std::optional<std::string> before_;
};

struct HubTest : testing::Test {
  TemporaryFolder dir;
  FakeHub hub;
  std::string weights = std::string(200000, 'w') + "end";

  std::string digest(const std::string& text, bool git) {
    const auto file = dir.write("digest", text);
    return git ? git_sha1_of_file(file) : sha256_of_file(file);
  }
  HubOptions options(HubKind kind) {
    return {.kind = kind, .endpoint = hub.url(), .token = "", .cache = dir.path() / "cache"};
  }

  // owner/name as HuggingFace has it: a small file by git, a large one behind a redirect.
  void put_huggingface(const std::string& commit = kCommit, const std::string& config = "{\"a\":1}") {
    hub.put(
        "/api/models/owner/na.me/revision/main",
        {200,
         R"({"sha":")" + commit +
             R"(","siblings":[{"rfilename":"config.json"},{"rfilename":"sub/model.safetensors"},{"rfilename":"pytorch_model.bin"}]})",
         {}});
    const std::string at = "/owner/na.me/resolve/" + commit + "/";
    hub.put(at + "config.json",
            {200, config, {{"ETag", "\"" + digest(config, true) + "\""}, {"X-Repo-Commit", commit}}});
    hub.put(at + "sub/model.safetensors", {302,
                                           "",
                                           {{"Location", "/cdn/model"},
                                            {"X-Linked-Etag", "\"" + digest(weights, false) + "\""},
                                            {"X-Linked-Size", std::to_string(weights.size())}}});
    hub.put("/cdn/model", {200, weights, {}});
  }
  void put_modelscope() {
    hub.put(
        "/api/v1/models/owner/na.me/repo/files?Revision=master&Recursive=true",
        {200,
         R"({"Code":200,"Data":{"Files":[{"Path":"sub","Type":"tree"},{"Path":"config.json","Type":"blob","Size":7,"Sha256":")" +
             digest("{\"a\":1}", false) + R"("},{"Path":"sub/model.safetensors","Type":"blob","Size":)" +
             std::to_string(weights.size()) + R"(,"Sha256":")" + digest(weights, false) + R"("}]}})",
         {}});
    hub.put("/api/v1/models/owner/na.me/repo?Revision=master&FilePath=config.json", {200, "{\"a\":1}", {}});
    hub.put("/api/v1/models/owner/na.me/repo?Revision=master&FilePath=sub/model.safetensors", {200, weights, {}});
  }
  bool asked(const std::string& part) {
    const auto list = hub.requests();
    return std::any_of(list.begin(), list.end(),
                       [&](const std::string& r) { return r.find(part) != std::string::npos; });
  }
};

TEST_F(HubTest, PyTorchsWeightsAreFetchedWhereNothingElseIs) {
  hub.put(
      "/api/models/owner/old/revision/main",
      {200,
       str(R"({"sha":")", kCommit, R"(","siblings":[{"rfilename":"config.json"},{"rfilename":"pytorch_model.bin"}]})"),
       {}});
  const std::string at = str("/owner/old/resolve/", kCommit, "/");
  for (const char* file : {"config.json", "pytorch_model.bin"})
    hub.put(at + file, {200, file, {{"ETag", "\"" + digest(file, true) + "\""}, {"X-Repo-Commit", kCommit}}});
  HubOptions o = options(HubKind::HuggingFace);
  EXPECT_TRUE(fs::exists(model_folder("owner/old", o) / "pytorch_model.bin"));
  fs::remove_all(o.cache);
  o.leave = unread_weights(), o.leave.push_back("*.safetensors");  // no weights are wanted
  EXPECT_FALSE(fs::exists(model_folder("owner/old", o) / "pytorch_model.bin"));
}

TEST_F(HubTest, HuggingFaceLayoutAndSecondTime) {
  put_huggingface();
  HubOptions o = options(HubKind::HuggingFace);
  const fs::path folder = model_folder("owner/na.me", o);
  const fs::path root = dir.path() / "cache/models--owner--na.me";
  EXPECT_EQ(folder, root / "snapshots" / kCommit);
  EXPECT_EQ(read_file(folder / "config.json"), "{\"a\":1}");
  EXPECT_EQ(read_file(folder / "sub/model.safetensors"), weights);
  EXPECT_EQ(read_file(root / "refs/main"), kCommit);
  EXPECT_EQ(fs::read_symlink(folder / "sub/model.safetensors"), "../../../blobs/" + digest(weights, false));
  EXPECT_FALSE(fs::exists(folder / "pytorch_model.bin"));
  hub.forget();
  EXPECT_EQ(model_folder("owner/na.me", o), folder);
  EXPECT_EQ(hub.requests().size(), 1u);  // the revision, nothing else
  const std::string newer(40, 'b');
  put_huggingface(newer, "{\"a\":2}");
  hub.forget();
  EXPECT_EQ(read_file(model_folder("owner/na.me", o) / "config.json"), "{\"a\":2}");
  EXPECT_FALSE(asked("GET /cdn/model"));  // the same content has been here already
}

TEST_F(HubTest, HuggingFaceOfflineAndWithoutNetwork) {
  put_huggingface();
  HubOptions o = options(HubKind::HuggingFace);
  o.offline = true;
  EXPECT_NE(error_of([&] { model_folder("owner/na.me", o); }).find("not in the cache"), std::string::npos);
  o.offline = false;
  const fs::path folder = model_folder("owner/na.me", o);
  hub.refuse_all(true);
  EXPECT_EQ(model_folder("owner/na.me", o), folder);  // with a warning
  o.offline = true;
  hub.forget();
  EXPECT_EQ(model_folder("owner/na.me", o), folder);
  EXPECT_TRUE(hub.requests().empty());
  o.revision = kCommit;
  EXPECT_EQ(model_folder("owner/na.me", o), folder);
}

TEST_F(HubTest, ModelScopeLayout) {
  put_modelscope();
  HubOptions o = options(HubKind::ModelScope);
  o.token = "secret";
  const fs::path folder = model_folder("owner/na.me", o);
  EXPECT_EQ(folder, dir.path() / "cache/models/owner/na___me");
  EXPECT_EQ(read_file(folder / "sub/model.safetensors"), weights);
  EXPECT_TRUE(asked("auth=Bearer secret"));
  hub.forget();
  model_folder("owner/na.me", o);
  EXPECT_EQ(hub.requests().size(), 1u);
  o.offline = true;
  EXPECT_EQ(model_folder("owner/na.me", o), folder);
}

TEST(GgufChoice, OfManyFilesThoseOfOneModel) {
  const std::vector<std::string> paths = {
      "README.md",     "m-BF16-00002-of-00002.gguf", "m-BF16-00001-of-00002.gguf", "m-Q4_K_M.gguf",
      "m-Q4_K_S.gguf", "UD/m-UD-Q4_K_XL.gguf",       "mmproj-model-f16.gguf",      "mmproj-BF16.gguf"};
  const auto all = [&](const char* type) { return gguf_choice(paths, type, "owner/m").all(); };
  EXPECT_EQ(all(""), (std::vector<std::string>{"m-Q4_K_M.gguf", "mmproj-model-f16.gguf"}));
  EXPECT_EQ(all("q4_k_s")[0], "m-Q4_K_S.gguf");
  EXPECT_EQ(all("UD-Q4_K_XL")[0], "UD/m-UD-Q4_K_XL.gguf");
  EXPECT_EQ(gguf_choice(paths, "bf16", "").model,
            (std::vector<std::string>{"m-BF16-00001-of-00002.gguf", "m-BF16-00002-of-00002.gguf"}));
  const std::string why = error_of([&] { all("Q4_K"); });
  EXPECT_NE(why.find("m-Q4_K_M.gguf"), std::string::npos) << why;
  EXPECT_EQ(why.find("mmproj"), std::string::npos) << why;
  EXPECT_EQ(gguf_wish("owner/m:Q4_K_M").type, "Q4_K_M");
  EXPECT_EQ(gguf_wish("owner/m:Q4_K_M").repo, "owner/m");
  for (const char* plain : {"owner/m", "/a:b/m", "owner/m:", "m:Q8_0"}) EXPECT_EQ(gguf_wish(plain).repo, plain);
}

TEST_F(HubTest, OneGgufFileOfARepository) {
  hub.put("/api/v1/models/owner/m/repo/files?Revision=master&Recursive=true",
          {200,
           R"({"Code":200,"Data":{"Files":[{"Path":"README.md"},{"Path":"m-Q4_K_M.gguf"},{"Path":"m-Q8_0.gguf"}]}})",
           {}});
  for (const char* name : {"m-Q4_K_M.gguf", "m-Q8_0.gguf"})
    hub.put(std::string("/api/v1/models/owner/m/repo?Revision=master&FilePath=") + name, {200, name, {}});
  const HubOptions o = options(HubKind::ModelScope);
  const fs::path folder = model_folder("owner/m", o);
  EXPECT_EQ(gguf_of_hub(folder, ""), folder / "m-Q4_K_M.gguf");
  EXPECT_FALSE(asked("m-Q8_0") || asked("README"));
  EXPECT_EQ(gguf_of_hub(model_folder("owner/m:q8_0", o), "q8_0"), folder / "m-Q8_0.gguf");
  EXPECT_NE(error_of([&] { model_folder("owner/m:q2_k", o); }).find("m-Q8_0.gguf"), std::string::npos);
}

TEST_F(HubTest, BrokenTransfersGoOn) {
  put_modelscope();
  hub.cut_after(50000);
  const fs::path folder = model_folder("owner/na.me", options(HubKind::ModelScope));
  EXPECT_EQ(read_file(folder / "sub/model.safetensors"), weights);
  EXPECT_TRUE(asked("range=bytes=50000-"));
  EXPECT_FALSE(fs::exists(folder / "sub/model.safetensors.incomplete"));
}

TEST_F(HubTest, APartialFileOfAnEarlierRunIsUsed) {
  put_huggingface();
  const std::string blob = "cache/models--owner--na.me/blobs/" + digest(weights, false);
  dir.write(blob + ".incomplete", weights.substr(0, 1234));
  model_folder("owner/na.me", options(HubKind::HuggingFace));
  EXPECT_TRUE(asked("GET /cdn/model range=bytes=1234-"));
  EXPECT_EQ(read_file(dir.path() / blob), weights);
}

TEST_F(HubTest, AServerWithoutRangesBeginsAnew) {
  put_modelscope();
  hub.ignore_ranges();
  hub.cut_after(50000);
  EXPECT_EQ(read_file(model_folder("owner/na.me", options(HubKind::ModelScope)) / "sub/model.safetensors"), weights);
}

TEST_F(HubTest, DamagedDownloadsAreThrownAway) {
  put_modelscope();
  std::string other = weights;
  other[77] = 'x';
  hub.put("/api/v1/models/owner/na.me/repo?Revision=master&FilePath=sub/model.safetensors", {200, other, {}});
  HubOptions o = options(HubKind::ModelScope);
  EXPECT_NE(error_of([&] { model_folder("owner/na.me", o); }).find("checksum is not the hub's"), std::string::npos);
  EXPECT_FALSE(fs::exists(dir.path() / "cache/models/owner/na___me/sub/model.safetensors"));
  put_modelscope();
  EXPECT_EQ(read_file(model_folder("owner/na.me", o) / "sub/model.safetensors"), weights);
}

TEST_F(HubTest, SaysWhatToDo) {
  HubOptions o = options(HubKind::HuggingFace);
  EXPECT_NE(error_of([&] {
              model_folder("owner/none", o);
            }).find("no such repository or revision on HuggingFace (on ModelScope: --use_hf false)"),
            std::string::npos);
  hub.put("/api/models/owner/gated/revision/main", {403, "", {}});
  EXPECT_NE(error_of([&] { model_folder("owner/gated", o); }).find("private or gated: give a token"),
            std::string::npos);
  EXPECT_NE(error_of([&] { model_folder("./nowhere", o); }).find("there is no such folder"), std::string::npos);
  EXPECT_NE(error_of([&] { model_folder("not an id", o); }).find("no hub id"), std::string::npos);
  o.endpoint = "http://127.0.0.1:1";
  EXPECT_NE(error_of([&] { model_folder("owner/name", o); }).find("without a network give a local folder"),
            std::string::npos);
}

TEST_F(HubTest, NamesThatLeaveTheFolderAreRefused) {
  hub.put("/api/models/owner/evil/revision/main",
          {200, R"({"sha":")" + kCommit + R"(","siblings":[{"rfilename":"../../outside.json"}]})", {}});
  EXPECT_NE(
      error_of([&] { model_folder("owner/evil", options(HubKind::HuggingFace)); }).find("would not stay in its folder"),
      std::string::npos);
  for (const char* bad : {"", "/etc/x", "a/../b", "..", "a//../x", "a\\b"}) EXPECT_FALSE(safe_path(bad)) << bad;
  EXPECT_TRUE(safe_path("sub/model-00001.safetensors"));
}

TEST_F(HubTest, DatasetsByReference) {
  const std::string rows = "{\"query\":\"a\",\"response\":\"b\"}\n";
  hub.put("/api/datasets/owner/rows/revision/main",
          {200, R"({"sha":")" + kCommit + R"(","siblings":[{"rfilename":"train.jsonl"}]})", {}});
  hub.put("/datasets/owner/rows/resolve/" + kCommit + "/train.jsonl",
          {200, rows, {{"ETag", "\"" + digest(rows, true) + "\""}}});
  hub.put("/api/v1/datasets/owner/rows/repo/tree?Revision=master&Recursive=true&Root=/&PageNumber=1&PageSize=200",
          {200,
           R"({"Data":{"Files":[{"Path":"train.jsonl","Type":"blob","Size":)" + std::to_string(rows.size()) + "}]}}",
           {}});
  hub.put("/api/v1/datasets/owner/rows/repo?Source=SDK&Revision=master&FilePath=train.jsonl", {200, rows, {}});
  const Environment a("HF_ENDPOINT", hub.url() + "/"), b("HF_HOME", (dir.path() / "hf").string()),
      c("MODELSCOPE_DOMAIN", hub.url()), d("MODELSCOPE_CACHE", (dir.path() / "ms").string());
  const Environment e("HF_TOKEN", "t0ken"), f("HF_HUB_CACHE", ""), g("HF_HUB_OFFLINE", "");
  for (const char* text : {"hf::owner/rows", "owner/rows"}) {
    const auto files = dataset_files(parse_dataset_ref(text), hub_datasets(false));
    ASSERT_EQ(files.size(), 1u);
    EXPECT_EQ(read_rows(files[0]).size(), 1u);
  }
  EXPECT_TRUE(fs::exists(dir.path() / "hf/hub/datasets--owner--rows/refs/main"));
  EXPECT_TRUE(fs::exists(dir.path() / "ms/datasets/owner/rows/train.jsonl"));
  EXPECT_TRUE(asked("auth=Bearer t0ken"));
}

}  // namespace
}  // namespace apus
