// SPDX-License-Identifier: Apache-2.0
// A progress bar with rate and remaining time on a terminal; one plain log line every few seconds elsewhere.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "base/log.h"

namespace apus {

// What a progress line shows; render() is a pure function of it.
struct ProgressView {
  std::string title, unit, note;
  int64_t done = 0, total = 0;  // total 0: unknown
  // How many of `done` an earlier run had finished (a resumed run): they do not count for the rate.
  int64_t skipped = 0;
  double seconds = 0;
};
std::string render(const ProgressView& view, int width);  // bar when width allows; never wider than width

class Progress {
 public:
  struct Spec {
    std::string unit = "row";
    int64_t skipped = 0;
    double plain_interval_s = 10;  // between lines where there is no terminal
  };
  Progress(std::string title, int64_t total, Spec spec, Log& log = Log::of());
  Progress(std::string title, int64_t total) : Progress(std::move(title), total, Spec{}) {}
  // Removes the bar; leaves the last line in the log when anything was done.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(int64_t count = 1);  // thread-safe, cheap
  void set(int64_t done);
  void set_total(int64_t total);
  void note(std::string text);  // shown behind the figures: "loss 1.234"
  void finish();                // the last line now rather than at destruction

 private:
  void show(bool last);  // mutex_ held
  std::mutex mutex_;
  ProgressView view_;
  Spec spec_;
  Log& log_;
  Stopwatch watch_;
  double shown_at_ = 0;
  bool finished_ = false;
};

}  // namespace apus
