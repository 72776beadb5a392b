// SPDX-License-Identifier: Apache-2.0
#include "cli/pushed_checkpoints.h"

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/run_folder.h"

namespace apus {
namespace fs = std::filesystem;

namespace {
// What only a resumed run reads.
const std::vector<std::string>& state_files() {
  static const std::vector<std::string> names = {"optimizer*.safetensors", "apus_state.json"};
  return names;
}
}  // namespace

PushedCheckpoints::PushedCheckpoints(const RunPushOptions& options, const HubFlags& hub)
    : options_(options), spec_(options.upload(hub)) {
  spec_.abandoned = [this] { return abandoned_.load(); };
  prepare_upload(spec_);
  log_info("checkpoints go to ", repo_page(spec_), " (--hub_strategy ", options_.hub_strategy, ")");
  thread_ = std::thread([this] { work(); });
}

PushedCheckpoints::~PushedCheckpoints() {
  abandoned_ = true;
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  std::error_code code;
  for (const Waiting& one : waiting_) fs::remove_all(one.twin, code);
}

void PushedCheckpoints::saved(const fs::path& checkpoint) {
  if (options_.hub_strategy == "end") return;
  const bool every = options_.hub_strategy == "all_checkpoints";
  std::error_code code;
  {
    const std::lock_guard lock(mutex_);
    if (!every) {  // the newer one takes their place
      for (const Waiting& one : waiting_) fs::remove_all(one.twin, code);
      waiting_.clear();
    }
    waiting_.push_back({linked_copy(checkpoint), checkpoint, every || options_.hub_strategy == "checkpoint"});
  }
  changed_.notify_all();
}

void PushedCheckpoints::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ends_ || !waiting_.empty(); });
    if (waiting_.empty() || abandoned_) return;
    const Waiting one = waiting_.front();
    waiting_.pop_front();
    lock.unlock();
    try {
      send(one);
    } catch (const std::exception& failure) {
      // Training is worth more than a copy of it, and the next checkpoint or the end sends this one's files too.
      if (!abandoned_) log_warning("uploading ", one.checkpoint.filename().string(), ": ", failure.what());
    }
    std::error_code code;
    fs::remove_all(one.twin, code);
    lock.lock();
  }
}

void PushedCheckpoints::send_model(const fs::path& folder, const std::string& message) const {
  UploadSpec spec = spec_;
  spec.files = files_with_card(folder, "", state_files());
  if (options_.commit_message.empty()) spec.message = message;
  const UploadReport report = upload_files(spec);
  log_info("uploaded to ", report.page, ": ", spec.message);
}

void PushedCheckpoints::send(const Waiting& one) const {
  const std::string name = one.checkpoint.filename().string();
  send_model(one.twin, "Training goes on: " + name);
  if (!one.whole) return;
  UploadSpec spec = spec_;
  spec.files = files_with_card(one.twin, options_.hub_strategy == "checkpoint" ? "last-checkpoint" : name);
  spec.message = str(name, " whole, to go on from");
  upload_files(spec);
}

void PushedCheckpoints::finish(const fs::path& checkpoint) {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    if (!waiting_.empty()) log_info("waiting for the upload of ", waiting_.size(), " checkpoints");
  }
  changed_.notify_all();
  thread_.join();
  try {
    send_model(checkpoint, "The end of training: " + checkpoint.filename().string());
  } catch (const Error& failure) {
    fail(failure.at, failure.what(), ". The run itself is complete. To upload later: apus upload --folder ",
         checkpoint.string(), " --hub_model_id ", spec_.id,
         spec_.hub.kind == HubKind::HuggingFace ? " --use_hf true" : "");
  }
}

}  // namespace apus
