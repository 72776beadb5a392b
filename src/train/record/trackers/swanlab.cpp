// SPDX-License-Identifier: Apache-2.0
// swanlab's records: start 10, finish 11, column 12, scalar 13, save 20. Those that are no figures
// have numbers below 0.
#include <set>

#include "base/files.h"
#include "train/record/block_log.h"
#include "train/record/tracker.h"
#include "train/record/wire.h"

namespace apus {
namespace fs = std::filesystem;
using namespace std::string_literals;

namespace {
constexpr const char* kSwanlabFolder = "swanlog";

class SwanlabRun final : public Tracker {
 public:
  explicit SwanlabRun(const TrackedRun& run)
      : id_(new_run_id()),
        folder_(tracked_folder(run.dir, kSwanlabFolder, "run", id_)),
        file_(folder_ / str("run-", id_, ".swanlab"), ":SWL\xd6\xe1\x02"s) {
    std::string start;
    wire::bytes(start, 1, run.project);
    wire::bytes(start, 4, run.name);
    wire::bytes(start, 10, id_);
    wire::bytes(start, 12, wire_timestamp());
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

  void scalars(int64_t step, const std::vector<std::pair<std::string, double>>& values) override {
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
      wire::bytes(figure, 4, wire_timestamp());
      wire::real(number, 1, value);
      wire::bytes(figure, 5, number);
      put(++figures_, 13, figure);
    }
  }

  void finish() override {
    std::string end;
    wire::number(end, 1, 1);  // finished
    wire::bytes(end, 3, wire_timestamp());
    put(-2, 11, end);
  }

  std::string sync_command() const override { return "swanlab sync " + folder_.string(); }

 private:
  void put(int64_t number, unsigned kind, const std::string& content) {
    std::string record;
    wire::number(record, 1, number);
    wire::bytes(record, 2, wire_timestamp());
    wire::bytes(record, kind, content);
    file_.record(record);
  }
  std::string id_;
  fs::path folder_;
  BlockLog file_;
  int64_t figures_ = 0;
  std::set<std::string> tags_;
};

const RegisterTracker swanlab_tracker("swanlab", {.folder = kSwanlabFolder,
                                                  .make = [](const TrackedRun& run) -> std::unique_ptr<Tracker> {
                                                    return std::make_unique<SwanlabRun>(run);
                                                  }});
}  // namespace

}  // namespace apus
