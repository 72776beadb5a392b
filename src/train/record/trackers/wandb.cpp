// SPDX-License-Identifier: Apache-2.0
// wandb's records, wandb_internal.proto: history 2, summary 3, run 17, exit 18, header 21.
#include <unistd.h>

#include <chrono>
#include <map>

#include "base/clock.h"
#include "train/record/block_log.h"
#include "train/record/tracker.h"
#include "train/record/wire.h"

namespace apus {
namespace fs = std::filesystem;
using namespace std::string_literals;

namespace {
constexpr const char* kWandbFolder = "wandb";

double now_in_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

class WandbRun final : public Tracker {
 public:
  explicit WandbRun(const TrackedRun& run)
      : id_(new_run_id()),
        folder_(tracked_folder(run.dir, kWandbFolder, "offline-run", id_)),
        file_(folder_ / str("run-", id_, ".wandb"), ":W&B\xe1\xbe\x00"s) {
    std::string versions, header;
    wire::bytes(versions, 1, "apus " APUS_VERSION);
    wire::bytes(versions, 2, "0.70.0");  // the oldest client that may read it
    wire::bytes(header, 1, versions);
    put(21, header);
    std::string config, record;
    for (const auto& [key, value] : run.settings.items()) wire::bytes(config, 1, item(key, value, 1));
    wire::bytes(record, 1, id_);
    wire::bytes(record, 3, run.project);
    wire::bytes(record, 4, config);
    wire::bytes(record, 8, run.name);
    char host[256] = "localhost";
    ::gethostname(host, sizeof host - 1);
    wire::bytes(record, 13, host);
    wire::bytes(record, 17, wire_timestamp());
    put(17, record);
  }

  // A step has one record there: its values wait for the next step's.
  void scalars(int64_t step, const std::vector<std::pair<std::string, double>>& values) override {
    if (step != step_) flush();
    step_ = step;
    for (const auto& [tag, value] : values) waiting_[tag] = last_[tag] = value;
  }

  void finish() override {
    flush();
    std::string summary, exit;
    for (const auto& [tag, value] : last_) wire::bytes(summary, 1, item(tag, value, 2));
    put(3, summary);
    wire::number(exit, 1, 0);
    wire::number(exit, 2, static_cast<int64_t>(clock_.seconds()));
    put(18, exit);
  }

  std::string sync_command() const override { return "wandb sync " + folder_.string(); }

 private:
  // Configuration names a key (1), figures the parts of one (2).
  static std::string item(const std::string& key, const Json& value, unsigned field) {
    std::string out;
    wire::bytes(out, field, key);
    wire::bytes(out, 16, value.dump());
    return out;
  }
  void flush() {
    if (waiting_.empty()) return;
    std::map<std::string, Json> values(waiting_.begin(), waiting_.end());
    values["_step"] = step_, values["_runtime"] = clock_.seconds(), values["_timestamp"] = now_in_seconds();
    std::string history, step;
    for (const auto& [key, value] : values) wire::bytes(history, 1, item(key, value, 2));
    wire::number(step, 1, step_);
    wire::bytes(history, 2, step);
    put(2, history);
    for (const char* key : {"_step", "_runtime", "_timestamp"}) last_[key] = values[key];
    waiting_.clear();
  }
  void put(unsigned kind, const std::string& content) {
    std::string record;
    wire::number(record, 1, ++records_);
    wire::bytes(record, kind, content);
    file_.record(record);
  }

  std::string id_;
  fs::path folder_;
  BlockLog file_;
  Stopwatch clock_;
  int64_t records_ = 0, step_ = -1;
  std::map<std::string, double> waiting_;
  std::map<std::string, Json> last_;
};

const RegisterTracker wandb_tracker("wandb", {.folder = kWandbFolder,
                                              .make = [](const TrackedRun& run) -> std::unique_ptr<Tracker> {
                                                return std::make_unique<WandbRun>(run);
                                              }});
}  // namespace

}  // namespace apus
