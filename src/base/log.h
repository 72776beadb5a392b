// SPDX-License-Identifier: Apache-2.0
// Log lines as `[INFO:apus] text` on standard error: thread-safe, quiet on all ranks of a node but the first, plain
// when nobody watches. One status line (a progress bar) may live below the log of a terminal.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace apus {

enum class Level { Debug, Info, Warning, Error, Silent };
std::optional<Level> level_named(std::string_view name);  // "info", "WARNING", ...; also Python's 10, 20, 30, 40

class Log {
 public:
  struct Spec {
    int descriptor = 2;
    Level level = Level::Info;
    // Within the node: ranks above 0 say only what is a warning or worse, with their number.
    int rank = 0;
    bool terminal = false;  // colours, and a status line that is redrawn
  };
  explicit Log(Spec spec) : spec_(spec) {}
  // The one log of this process, set up by LOG_LEVEL, LOCAL_RANK and whether standard error is a terminal.
  static Log& of();
  static Spec spec_from_environment();

  bool says(Level level) const;
  void line(Level level, std::string_view text);
  // Replaces the status line; "" removes it; nothing where there is no terminal.
  void status(std::string_view text);
  bool terminal() const { return spec_.terminal; }
  bool main_rank() const { return spec_.rank <= 0; }
  int width() const;  // columns of the terminal, 80 when unknown

 private:
  Spec spec_;
  std::mutex mutex_;
  std::string status_;
};

template <class... P>
void log_at(Level level, const P&... parts) {
  if (Log::of().says(level)) Log::of().line(level, str(parts...));
}
template <class... P>
void log_debug(const P&... parts) {
  log_at(Level::Debug, parts...);
}
template <class... P>
void log_info(const P&... parts) {
  log_at(Level::Info, parts...);
}
template <class... P>
void log_warning(const P&... parts) {
  log_at(Level::Warning, parts...);
}
template <class... P>
void log_error(const P&... parts) {
  log_at(Level::Error, parts...);
}

}  // namespace apus
