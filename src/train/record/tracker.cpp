// SPDX-License-Identifier: Apache-2.0
#include "train/record/tracker.h"

#include <unistd.h>

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "train/record/block_log.h"
#include "train/record/wire.h"

namespace apus {
namespace fs = std::filesystem;
using namespace std::string_literals;

namespace {

using Scalars = std::vector<std::pair<std::string, double>>;

// Eight letters and digits, as those services call runs.
std::string new_run_id() {
  std::random_device source;
  std::string id;
  for (int i = 0; i < 8; ++i) id.push_back("0123456789abcdefghijklmnopqrstuvwxyz"[source() % 36]);
  return id;
}

double now_in_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// message Timestamp { int64 seconds = 1; int32 nanos = 2; }
std::string timestamp() {
  const auto nanos =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  std::string out;
  wire::number(out, 1, nanos / 1000000000);
  wire::number(out, 2, nanos % 1000000000);
  return out;
}

// A new folder of a run: <dir>/<parent>/<kind>-<time>-<id>, with what its client looks for in it.
fs::path run_folder(const fs::path& dir, const char* parent, const std::string& kind, const std::string& id) {
  fs::path folder = dir / parent / str(kind, "-", local_time("%Y%m%d_%H%M%S"), "-", id);
  make_writable_dir(folder / "files");
  make_writable_dir(folder / "logs");
  return folder;
}

// wandb's records, wandb_internal.proto: history 2, summary 3, run 17, exit 18, header 21.
class WandbRun final : public Tracker {
 public:
  explicit WandbRun(const TrackedRun& run)
      : id_(new_run_id()),
        folder_(run_folder(run.dir, "wandb", "offline-run", id_)),
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
    wire::bytes(record, 17, timestamp());
    put(17, record);
  }

  // A step has one record there: its values wait for the next step's.
  void scalars(int64_t step, const Scalars& values) override {
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

// swanlab's records: start 10, finish 11, column 12, scalar 13, save 20. Those that are no figures
// have numbers below 0.
class SwanlabRun final : public Tracker {
 public:
  explicit SwanlabRun(const TrackedRun& run)
      : id_(new_run_id()),
        folder_(run_folder(run.dir, "swanlog", "run", id_)),
        file_(folder_ / str("run-", id_, ".swanlab"), ":SWL\xd6\xe1\x02"s) {
    std::string start;
    wire::bytes(start, 1, run.project);
    wire::bytes(start, 4, run.name);
    wire::bytes(start, 10, id_);
    wire::bytes(start, 12, timestamp());
    put(-1, 10, start);
    Json settings = Json::object();
    for (const auto& [key, value] : run.settings.items())
      settings[key] = {{"desc", ""}, {"sort", settings.size()}, {"value", value}};
    const fs::path config = folder_ / "files" / "config.yaml";
    write_file_atomic(config, settings.dump(2) + "\n");  // JSON is YAML
    std::string save;
    wire::bytes(save, 1, "config");
    wire::bytes(save, 2, fs::absolute(config).string());
    wire::number(save, 5, 1);  // the kind of file
    put(-3, 20, save);
  }

  void scalars(int64_t step, const Scalars& values) override {
    for (const auto& [tag, value] : values) {
      if (tags_.insert(tag).second) {
        std::string column;
        wire::number(column, 1, 1);  // a user's
        wire::number(column, 2, 1);  // of figures
        wire::bytes(column, 3, tag);
        wire::bytes(column, 5, tag.substr(0, tag.find('/')));
        wire::number(column, 6, 3);  // a section as any other
        put(++figures_, 12, column);
      }
      std::string figure, number;
      wire::bytes(figure, 1, tag);
      wire::number(figure, 2, step);
      wire::number(figure, 3, 1);  // a figure
      wire::bytes(figure, 4, timestamp());
      wire::real(number, 1, value);
      wire::bytes(figure, 5, number);
      put(++figures_, 13, figure);
    }
  }

  void finish() override {
    std::string end;
    wire::number(end, 1, 1);  // finished
    wire::bytes(end, 3, timestamp());
    put(-2, 11, end);
  }

  std::string sync_command() const override { return "swanlab sync " + folder_.string(); }

 private:
  void put(int64_t number, unsigned kind, const std::string& content) {
    std::string record;
    wire::number(record, 1, number);
    wire::bytes(record, 2, timestamp());
    wire::bytes(record, kind, content);
    file_.record(record);
  }
  std::string id_;
  fs::path folder_;
  BlockLog file_;
  int64_t figures_ = 0;
  std::set<std::string> tags_;
};

}  // namespace

std::vector<std::string> tracker_names() { return {"wandb", "swanlab"}; }

std::unique_ptr<Tracker> make_tracker(const std::string& service, const TrackedRun& run) {
  if (service == "wandb") return std::make_unique<WandbRun>(run);
  require(service == "swanlab", Fault::Bug, "no service is called ", service);
  return std::make_unique<SwanlabRun>(run);
}

}  // namespace apus
