// SPDX-License-Identifier: Apache-2.0
// Folders and checkpoints put onto both hubs: what is sent, what is not sent twice, and what users are told.
#include "hub/upload.h"

#include <gtest/gtest.h>

#include "checkpoint/model_card.h"
#include "cli/pushed_checkpoints.h"
#include "tests/hub/fake_uploads.h"

namespace apus {
namespace {

namespace fs = std::filesystem;

struct HubUploadTest : testing::Test {
  TemporaryFolder dir;
  FakeHub hub;
  FakeUploads uploads{hub};
  std::string weights = std::string(300000, 'w') + "end";

  UploadSpec spec(HubKind kind) {
    UploadSpec s;
    s.id = "owner/na.me";
    s.hub = {.kind = kind, .endpoint = hub.url(), .token = "secret", .cache = dir.path() / "cache"};
    s.files = files_to_upload(dir.path() / "model");
    return s;
  }
  void write_model() {
    dir.write("model/config.json", "{\"a\":1}");
    dir.write("model/model.safetensors", weights);
    dir.write("model/sub/notes.txt", "words\n");
    dir.write("model/empty.safetensors", "");
    dir.write("model/.hidden/secret", "no");
    dir.write("model/half.incomplete", "no");
  }
  void expect_whole() {
    EXPECT_EQ(uploads.committed.size(), 4u);
    EXPECT_EQ(uploads.committed["config.json"], "{\"a\":1}");
    EXPECT_EQ(uploads.committed["model.safetensors"], weights);
    EXPECT_EQ(uploads.committed["sub/notes.txt"], "words\n");
    EXPECT_TRUE(uploads.committed.count("empty.safetensors"));
    EXPECT_TRUE(uploads.broken.empty()) << *uploads.broken.begin();
  }
};

TEST_F(HubUploadTest, HuggingFaceOnceAndAgain) {
  write_model();
  UploadSpec s = spec(HubKind::HuggingFace);
  s.is_private = true;
  int64_t counted = 0;
  s.advance = [&](int64_t bytes) { counted += bytes; };
  prepare_upload(s);
  prepare_upload(s);  // it is there
  EXPECT_EQ(uploads.repos, std::set<std::string>{"owner/na.me private"});
  const UploadReport first = upload_files(s);
  EXPECT_EQ(first.files, 4);
  EXPECT_EQ(first.sent_bytes, std::ssize(weights));
  EXPECT_EQ(counted, std::ssize(weights));
  EXPECT_EQ(first.page, hub.url() + "/owner/na.me");
  expect_whole();
  EXPECT_EQ(upload_files(s).files, 0);  // all of it is there
  EXPECT_EQ(uploads.messages.size(), 1u);
  dir.write("model/config.json", "{\"a\":2}");
  EXPECT_EQ(upload_files(spec(HubKind::HuggingFace)).files, 1);
  EXPECT_EQ(uploads.committed["config.json"], "{\"a\":2}");
}

TEST_F(HubUploadTest, LargeFilesGoInParts) {
  write_model();
  uploads.part_bytes = 100000;
  uploads.busy_puts = 1;  // sent again
  EXPECT_EQ(upload_files(spec(HubKind::HuggingFace)).sent_bytes, std::ssize(weights));
  EXPECT_EQ(uploads.parts.begin()->second.size(), 4u);
  expect_whole();
}

TEST_F(HubUploadTest, WhatWasStoredBeforeIsNotSentAgain) {
  write_model();
  uploads.storage[uploads.sha256(weights)] = weights;  // by an upload that broke off before its commit
  EXPECT_EQ(upload_files(spec(HubKind::HuggingFace)).sent_bytes, 0);
  expect_whole();
}

TEST_F(HubUploadTest, WhatTheRepositoryIgnoresStaysHere) {
  write_model();
  uploads.ignored = "sub/notes.txt";
  EXPECT_EQ(upload_files(spec(HubKind::HuggingFace)).files, 3);
  EXPECT_FALSE(uploads.committed.count("sub/notes.txt"));
}

TEST_F(HubUploadTest, ModelScope) {
  write_model();
  UploadSpec s = spec(HubKind::ModelScope);
  prepare_upload(s);
  EXPECT_EQ(uploads.repos, std::set<std::string>{"owner/na.me public"});
  EXPECT_EQ(upload_files(s).sent_bytes, std::ssize(weights));
  expect_whole();
  EXPECT_EQ(upload_files(s).sent_bytes, 0);
  EXPECT_EQ(s.files.size(), 4u);
}

TEST_F(HubUploadTest, IntoAFolderAndWithoutPatterns) {
  write_model();
  const auto files = files_to_upload(dir.path() / "model", "last", {"*.safetensors"});
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].path, "last/config.json");
  EXPECT_EQ(files[1].path, "last/sub/notes.txt");
  EXPECT_NE(error_of([&] { files_to_upload(dir.path() / "model", "../up"); }).find("--path_in_repo"),
            std::string::npos);
}

TEST_F(HubUploadTest, RefusalsSayWhatToDo) {
  write_model();
  UploadSpec s = spec(HubKind::HuggingFace);
  uploads.refuses = true;
  const std::string refused = error_of([&] { prepare_upload(s); });
  EXPECT_NE(refused.find("this token may only read"), std::string::npos) << refused;
  EXPECT_NE(refused.find("HF_TOKEN"), std::string::npos) << refused;
  s.hub.token.clear();
  EXPECT_NE(error_of([&] { prepare_upload(s); }).find("--hub_token"), std::string::npos);
  s.id = "name-without-owner";
  EXPECT_NE(error_of([&] { prepare_upload(s); }).find("owner/name"), std::string::npos);
}

struct ModelCardTest : testing::Test {
  TemporaryFolder dir;
  void write_run_files(const std::string& folder) {
    dir.write(folder + "/args.json",
              R"({"model":"/home/me/models/Tiny-1B","dataset":["/home/me/rows.jsonl#50","owner/rows"],
      "task_type":"causal_lm","tuner_type":"full","learning_rate":1e-05,"apus_version":"9.9"})");
    dir.write(folder + "/trainer_state.json",
              R"({"global_step":12,"best_metric":null,"log_history":[{"loss":2.5},{"loss":1.25},{"eval_loss":1.5}]})");
  }
};

TEST_F(ModelCardTest, TellsOfTheRunAndNotOfTheMachine) {
  write_run_files("m");
  dir.write("m/config.json", "{}");
  const std::string card = card_of_folder(dir.path() / "m").value();
  for (const char* part : {"base_model: \"Tiny-1B\"", "rows.jsonl#50", "owner/rows", "| learning rate | 1e-05 |",
                           "| training loss, at last | 1.25 |", "| updates | 12 |", "Apus 9.9"})
    EXPECT_NE(card.find(part), std::string::npos) << part << "\n" << card;
  EXPECT_EQ(card.find("/home/me"), std::string::npos) << card;
}

TEST_F(ModelCardTest, AnAdaptersOwnCardIsGoneOnWith) {
  write_run_files("a");
  dir.write("a/adapter_config.json", R"({"base_model_name_or_path":"/home/me/models/Tiny-1B"})");
  dir.write("a/README.md", "---\nbase_model: \"/home/me/models/Tiny-1B\"\n---\n# Card\n");
  const std::string card = card_of_folder(dir.path() / "a").value();
  EXPECT_TRUE(card.starts_with("---\nbase_model: \"Tiny-1B\"\n---\n# Card\n")) << card;
  EXPECT_NE(card.find("## Training"), std::string::npos);
  dir.write("a/README.md", card);
  EXPECT_FALSE(card_of_folder(dir.path() / "a"));  // it has said so
}

TEST_F(ModelCardTest, SomebodysReadmeStays) {
  write_run_files("m");
  dir.write("m/config.json", "{}");
  dir.write("m/README.md", "mine");
  EXPECT_FALSE(card_of_folder(dir.path() / "m"));
  EXPECT_FALSE(card_of_folder(dir.path()));  // no model at all
}

struct PushedRunTest : HubUploadTest {
  RunPushOptions options(const std::string& strategy) {
    RunPushOptions o;
    o.push_to_hub = true, o.hub_model_id = "owner/na.me", o.hub_strategy = strategy;
    ::setenv("HF_ENDPOINT", hub.url().c_str(), 1);
    return o;
  }
  ~PushedRunTest() override { ::unsetenv("HF_ENDPOINT"); }
  HubFlags flags() {
    HubFlags f;
    f.use_hf = true, f.hub_token = "secret";
    return f;
  }
  fs::path checkpoint(int step) {
    const std::string folder = "run/checkpoint-" + std::to_string(step);
    dir.write(folder + "/config.json", "{}");
    dir.write(folder + "/model.safetensors", "weights" + std::to_string(step));
    dir.write(folder + "/optimizer.safetensors", "state" + std::to_string(step));
    return dir.path() / folder;
  }
  bool no_twins() {
    for (const auto& entry : fs::directory_iterator(dir.path() / "run"))
      if (entry.path().filename().string().starts_with('.')) return false;
    return true;
  }
};

TEST_F(PushedRunTest, AllCheckpointsOutliveTheirRotation) {
  const fs::path last = checkpoint(2);
  {
    PushedCheckpoints push(options("all_checkpoints"), flags());
    const fs::path first = checkpoint(1);
    push.saved(first);
    fs::remove_all(first);  // as rotation does
    push.saved(last);
    push.finish(last);
  }
  EXPECT_EQ(uploads.committed["model.safetensors"], "weights2");
  EXPECT_EQ(uploads.committed["checkpoint-1/model.safetensors"], "weights1");
  EXPECT_EQ(uploads.committed["checkpoint-1/optimizer.safetensors"], "state1");
  EXPECT_EQ(uploads.committed["checkpoint-2/optimizer.safetensors"], "state2");
  EXPECT_FALSE(uploads.committed.count("optimizer.safetensors"));
  EXPECT_TRUE(no_twins());
}

TEST_F(PushedRunTest, TheEndAlone) {
  PushedCheckpoints push(options("end"), flags());
  push.saved(checkpoint(1));
  push.finish(checkpoint(2));
  EXPECT_EQ(uploads.messages.size(), 1u);
  EXPECT_EQ(uploads.committed["model.safetensors"], "weights2");
}

TEST_F(PushedRunTest, TheNewestWholeAndAFailureAtTheEnd) {
  PushedCheckpoints push(options("checkpoint"), flags());
  push.saved(checkpoint(1));
  uploads.busy_puts = 0;
  while (true) {
    const auto asked = hub.requests();
    if (std::count_if(asked.begin(), asked.end(),
                      [](const auto& r) { return r.find("/commit/") != std::string::npos; }) == 2)
      break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(uploads.committed["last-checkpoint/optimizer.safetensors"], "state1");
  uploads.refuses = true;
  const std::string failed = error_of([&] { push.finish(checkpoint(2)); });
  EXPECT_NE(failed.find("apus upload --folder"), std::string::npos) << failed;
  EXPECT_NE(failed.find("--use_hf true"), std::string::npos) << failed;
}

}  // namespace
}  // namespace apus
