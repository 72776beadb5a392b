// SPDX-License-Identifier: Apache-2.0
#include "base/progress.h"

#include <algorithm>
#include <cstdio>

namespace apus {

namespace {
constexpr double kRedraw = 0.1;  // seconds between redraws of the bar

std::string rate_text(double rate, const std::string& unit) {
  char text[64];
  if (rate >= 1 || rate <= 0) {
    std::snprintf(text, sizeof text, rate >= 100 ? "%.0f %s/s" : "%.2f %s/s", std::max(rate, 0.0), unit.c_str());
  } else {
    std::snprintf(text, sizeof text, "%.2f s/%s", 1 / rate, unit.c_str());
  }
  return text;
}
}  // namespace

std::string render(const ProgressView& view, int width) {
  const double rate = view.seconds > 0 ? static_cast<double>(view.done - view.skipped) / view.seconds : 0;
  std::string right =
      view.total > 0 ? str(view.done, "/", view.total) : str(view.done, " ", view.unit, view.done == 1 ? "" : "s");
  right += str(" [", duration_text(view.seconds));
  if (view.total > view.done && rate > 0)
    right += str(" < ", duration_text(static_cast<double>(view.total - view.done) / rate));
  right += str(", ", rate_text(rate, view.unit), "]");
  if (!view.note.empty()) right += " " + view.note;
  std::string left = view.title;
  if (view.total > 0) {
    const double share = std::clamp(static_cast<double>(view.done) / static_cast<double>(view.total), 0.0, 1.0);
    char percent[8];
    std::snprintf(percent, sizeof percent, " %3d%%", static_cast<int>(share * 100));
    left += percent;
    const int room = std::min(40, width - static_cast<int>(left.size() + right.size()) - 5);
    if (room >= 8) {
      const auto full = static_cast<size_t>(share * room);
      left += " |" + std::string(full, '#') + std::string(static_cast<size_t>(room) - full, '.') + "|";
    }
  }
  std::string line = left + " " + right;
  if (static_cast<int>(line.size()) > width) line.resize(static_cast<size_t>(std::max(width, 0)));
  return line;
}

Progress::Progress(std::string title, int64_t total, Spec spec, Log& log) : spec_(std::move(spec)), log_(log) {
  view_.title = std::move(title);
  view_.unit = spec_.unit;
  view_.total = total;
  view_.done = view_.skipped = spec_.skipped;
}

Progress::~Progress() { finish(); }

void Progress::show(bool last) {
  view_.seconds = watch_.seconds();
  if (!last && view_.seconds - shown_at_ < (log_.terminal() ? kRedraw : spec_.plain_interval_s)) return;
  shown_at_ = view_.seconds;
  if (log_.terminal() && !last) return log_.status(render(view_, log_.width() - 1));
  log_.status("");
  if (log_.says(Level::Info)) log_.line(Level::Info, render(view_, 160));
}

void Progress::advance(int64_t count) {
  const std::lock_guard lock(mutex_);
  view_.done += count;
  if (!finished_) show(false);
}

void Progress::set(int64_t done) {
  const std::lock_guard lock(mutex_);
  view_.done = done;
  if (!finished_) show(false);
}

void Progress::set_total(int64_t total) {
  const std::lock_guard lock(mutex_);
  view_.total = total;
}

void Progress::note(std::string text) {
  const std::lock_guard lock(mutex_);
  view_.note = std::move(text);
}

void Progress::finish() {
  const std::lock_guard lock(mutex_);
  if (finished_) return;
  finished_ = true;
  if (view_.done > view_.skipped) {
    show(true);
  } else {
    log_.status("");
  }
}

}  // namespace apus
