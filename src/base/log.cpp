// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstdlib>

namespace apus {

namespace {

const char* level_word(Level level) {
  switch (level) {
    case Level::Debug:
      return "DEBUG";
    case Level::Info:
      return "INFO";
    case Level::Warning:
      return "WARNING";
    default:
      return "ERROR";
  }
}

const char* level_colour(Level level) {
  switch (level) {
    case Level::Debug:
      return "\033[2m";
    case Level::Info:
      return "\033[32m";
    case Level::Warning:
      return "\033[33m";
    default:
      return "\033[31m";
  }
}

// A log that cannot be written (a closed pipe) must not stop the work.
void write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t done = ::write(descriptor, text.data(), text.size());
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return;
    text.remove_prefix(static_cast<size_t>(done));
  }
}

}  // namespace

std::optional<Level> level_named(std::string_view name) {
  std::string upper;
  for (const char c : name.substr(0, 16)) upper += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (upper == "DEBUG" || upper == "10") return Level::Debug;
  if (upper == "INFO" || upper == "20") return Level::Info;
  if (upper == "WARNING" || upper == "WARN" || upper == "30") return Level::Warning;
  if (upper == "ERROR" || upper == "CRITICAL" || upper == "40" || upper == "50") return Level::Error;
  if (upper == "SILENT" || upper == "OFF") return Level::Silent;
  return std::nullopt;
}

Log::Spec Log::spec_from_environment() {
  Spec spec;
  if (const char* level = std::getenv("LOG_LEVEL")) spec.level = level_named(level).value_or(Level::Info);
  const char* rank = std::getenv("LOCAL_RANK");
  if (!rank) rank = std::getenv("RANK");
  if (rank) spec.rank = std::atoi(rank);
  const char* term = std::getenv("TERM");
  spec.terminal = ::isatty(spec.descriptor) && !(term && std::string_view(term) == "dumb");
  return spec;
}

Log& Log::of() {
  static Log log(spec_from_environment());
  return log;
}

bool Log::says(Level level) const {
  if (level == Level::Silent || level < spec_.level) return false;
  return main_rank() || level >= Level::Warning || spec_.level == Level::Debug;
}

void Log::line(Level level, std::string_view text) {
  if (!says(level)) return;
  std::string out;
  const std::lock_guard lock(mutex_);
  if (!status_.empty()) out += "\r\033[K";
  if (spec_.terminal) out += level_colour(level);
  out += str("[", level_word(level), ":apus", main_rank() ? "" : str(":rank", spec_.rank), "]");
  if (spec_.terminal) out += "\033[0m";
  out.append(" ").append(text).append("\n").append(status_);
  write_all(spec_.descriptor, out);
}

void Log::status(std::string_view text) {
  if (!spec_.terminal || !main_rank() || spec_.level == Level::Silent) return;
  const std::lock_guard lock(mutex_);
  if (text.empty() && status_.empty()) return;
  status_ = text;
  write_all(spec_.descriptor, str("\r\033[K", status_));
}

int Log::width() const {
  winsize size{};
  if (::ioctl(spec_.descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20) return size.ws_col;
  return 80;
}

}  // namespace apus
