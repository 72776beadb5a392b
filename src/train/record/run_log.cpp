// SPDX-License-Identifier: Apache-2.0
#include "train/record/run_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/lines.h"
#include "base/log.h"
#include "base/plot.h"

namespace apus {
namespace fs = std::filesystem;

fs::path make_version_dir(const fs::path& output_dir) {
  make_writable_dir(output_dir);
  int64_t next = 0;
  for (const auto& entry : fs::directory_iterator(output_dir)) {
    const std::string name = entry.path().filename();
    if (name.size() < 2 || name[0] != 'v' || !std::isdigit(static_cast<unsigned char>(name[1]))) continue;
    next = std::max<int64_t>(next, std::strtoll(name.c_str() + 1, nullptr, 10) + 1);
  }
  const std::string stamp = local_time("%Y%m%d-%H%M%S");
  for (;; ++next) {  // two runs started at once must not share a folder
    const fs::path dir = output_dir / str("v", next, "-", stamp);
    std::error_code code;
    if (fs::create_directory(dir, code)) return dir;
    require(!code, Fault::Io, "cannot create ", dir.string(), ": ", code.message());
  }
}

std::string spoken_time(double seconds) {
  auto left = static_cast<int64_t>(std::max(0.0, seconds) + 0.5);
  std::string out;
  for (const auto& [unit, length] : {std::pair{"d", 86400}, {"h", 3600}, {"m", 60}}) {
    if (left >= length) out += str(left / length, unit, " ");
    left %= length;
  }
  return out + str(left, "s");
}

double rounded(double value, int digits) {
  if (!std::isfinite(value)) return value;
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return std::strtod(text, nullptr);
}

namespace {

std::string tag_of(const std::string& key) {
  return key.rfind("eval_", 0) == 0 ? "eval/" + key.substr(5) : "train/" + key;
}

std::string file_name_of(std::string tag) {
  for (char& c : tag)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_') c = '_';
  return tag;
}

// As Python prints a dict, which is what the scripts of this dialect's users look for in their logs.
std::string shown(const Json& values) {
  std::string out = "{";
  for (const auto& [key, value] : values.items()) {
    out += str(out.size() > 1 ? ", '" : "'", key, "': ");
    out += value.is_string() ? "'" + value.get<std::string>() + "'" : value.is_null() ? "nan" : value.dump();
  }
  return out + "}";
}

double eight_digits(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.8g", value);
  return std::strtod(text, nullptr);
}

// JSON has no nan and no infinity: null stands for them.
Json cleaned(const Json& values) {
  Json out = Json::object();
  for (const auto& [key, value] : values.items())
    if (!value.is_number_float())
      out[key] = value;
    else if (const double v = value.get<double>(); std::isfinite(v))
      // Small numbers (learning rates) would vanish in eight decimals: they have eight digits.
      out[key] = std::fabs(v) < 1e-3 ? eight_digits(v) : rounded(v);
    else
      out[key] = nullptr;
  return out;
}

}  // namespace

RunLog::RunLog(Options options) : options_(std::move(options)) {
  make_writable_dir(options_.dir);
  if (!options_.events_dir.empty()) events_ = std::make_unique<EventFile>(options_.events_dir);
  for (const std::string& service : options_.services)
    trackers_.push_back(tracker_kind(service).make(options_.tracked));
}

void RunLog::append(const Json& line) {
  const std::string text = line.dump() + "\n";
  const int descriptor = ::open(file().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  require(descriptor >= 0, Fault::Io, "cannot open ", file().string(), ": ", std::strerror(errno));
  const ssize_t done = ::write(descriptor, text.data(), text.size());
  const int error = errno;
  ::close(descriptor);
  require(done == static_cast<ssize_t>(text.size()), Fault::Io, "cannot write ", file().string(), ": ",
          std::strerror(error));
}

void RunLog::log(int64_t step, const Json& values) {
  const Json line = cleaned(values);
  append(line);
  std::vector<std::pair<std::string, double>> scalars;
  for (const auto& [key, value] : line.items())
    if (value.is_number()) {
      scalars.emplace_back(tag_of(key), value.get<double>());
      series_[tag_of(key)].emplace_back(static_cast<double>(step), value.get<double>());
    }
  if (events_) events_->scalars(step, scalars);
  for (const auto& tracker : trackers_) tracker->scalars(step, scalars);
  if (!options_.quiet) log_info(shown(line));
}

namespace {
// The step of a line of logging.jsonl or completions.jsonl; nothing: it tells none.
std::optional<int64_t> step_of(const Json& line) {
  if (!line.is_object()) return std::nullopt;
  for (const char* key : {"step", "global_step"})
    if (const auto step = line.find(key); step != line.end() && step->is_number_integer()) return step->get<int64_t>();
  const auto of = line.find("global_step/max_steps");
  if (of == line.end() || !of->is_string()) return std::nullopt;
  return std::strtoll(of->get_ref<const std::string&>().c_str(), nullptr, 10);
}

// Without the lines of steps behind this one, which a run that goes on from there makes again.
void cut_behind(const fs::path& file, int64_t step) {
  if (!fs::is_regular_file(file)) return;
  keep_whole_lines(file.string());
  AtomicFile kept(file);
  LineReader reader(file.string());
  int64_t dropped = 0;
  for (std::string line; reader.next(line);) {
    const auto of = step_of(Json::parse(line, nullptr, /*allow_exceptions=*/false));
    if (of && *of > step)
      ++dropped;
    else
      kept.write(line + "\n");
  }
  if (dropped == 0) return;
  kept.commit();
  log_info(file.string(), ": ", dropped, " lines of steps behind ", step, " are gone, as those steps are made again");
}
}  // namespace

void RunLog::go_on_from(int64_t step, const Json& log_history) {
  cut_behind(file(), step);
  cut_behind(options_.dir / kCompletionsFile, step);
  for (const Json& entry : log_history)
    for (const auto& [key, value] : entry.items())
      if (value.is_number() && key != "step")
        series_[tag_of(key)].emplace_back(entry.value("step", 0.0), value.get<double>());
}

void RunLog::finish(const Json& summary) {
  append(summary);
  plots();
  for (const auto& tracker : trackers_) {
    tracker->finish();
    if (!options_.quiet) log_info("to send this run: ", tracker->sync_command());
  }
  // Where there are rewards, the loss says nothing.
  const char* const tag = series_.count("train/reward") ? "train/reward" : "train/loss";
  const auto shown = series_.find(tag);
  if (!options_.quiet && shown != series_.end() && shown->second.size() > 3)
    log_info(plot_text(str(tag, " by step"), shown->second));
}

void RunLog::plots() const {
  if (series_.empty()) return;
  make_writable_dir(images_dir());
  for (const auto& [tag, points] : series_) {
    std::vector<PlotLine> lines = {{"value", points, tag == "train/loss" ? "#FFC9B8" : "#FF7043"}};
    if (tag == "train/loss") lines.push_back({"smoothed", smoothed(points), "#FF7043"});
    write_plots(images_dir() / file_name_of(tag), tag, "step", lines);
  }
}

}  // namespace apus
