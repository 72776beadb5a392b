// SPDX-License-Identifier: Apache-2.0
// Times: measuring them, and saying them to people.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace apus {

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  void restart() { start_ = Clock::now(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

std::string local_time(const char* format);  // strftime's format; "%Y%m%d-%H%M%S" names result files
std::string duration_text(double seconds);   // "3.2s", "4:05", "1:02:03"
// Of "90m", "3h30m", "1d12h", "2:30:00" or "1-12:00:00", as Slurm has it; nothing for anything else.
std::optional<double> duration_of(std::string_view text);
std::string bytes_text(int64_t bytes);  // "512 B", "1.50 GiB"

}  // namespace apus
