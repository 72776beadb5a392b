// SPDX-License-Identifier: Apache-2.0
#include "data/rows/rejects.h"

#include <cctype>

#include "base/log.h"

namespace apus {

std::string reason_class(const std::string& key, const std::string& reason) {
  std::string out;
  const std::string first_line = reason.substr(0, reason.find('\n'));
  const std::string whole = key.empty() ? first_line : "key '" + key.substr(0, key.find('[')) + "': " + first_line;
  for (size_t i = 0; i < whole.size() && out.size() < 160; ++i) {
    const char c = whole[i];
    if (std::isdigit(static_cast<unsigned char>(c))) {
      if (out.empty() || out.back() != 'N') out += 'N';
    } else if (c == '/' && (i == 0 || whole[i - 1] == ' ' || whole[i - 1] == '(')) {  // a path
      const size_t end = std::min(whole.find_first_of(" ,;:)", i), whole.size());
      out += "...";
      i = end - 1;
    } else {
      out += c;
    }
  }
  return out;
}

void RejectLog::add(const RowError& error, const Json* row) {
  const std::lock_guard lock(mutex_);
  if (spec_.strict) throw RowError(error);
  if (!met_.insert(error.origin.text()).second) return;
  ++count_;
  ++reasons_[reason_class(error.key, error.reason)];
  if (count_ <= spec_.shown) log_warning("row left out: ", error.what());
  if (count_ == spec_.shown)
    log_warning("further bad rows are only counted",
                spec_.file.empty() ? std::string() : "; all are in " + spec_.file.string());
  write(error, row);
}

void RejectLog::write(const RowError& error, const Json* row) {
  if (spec_.file.empty()) return;
  if (!file_.is_open()) {
    std::filesystem::create_directories(spec_.file.parent_path());
    file_.open(spec_.file, std::ios::app);
    require(file_.good(), Fault::Io, "cannot write ", spec_.file.string());
  }
  const Json line = {{"file", error.origin.file ? *error.origin.file : ""},
                     {error.origin.is_row ? "row_number" : "line", error.origin.line},
                     {"key", error.key},
                     {"reason", error.reason},
                     {"row", row ? *row : Json(error.raw)}};
  file_ << json_text(line) << '\n' << std::flush;
}

void RejectLog::remark(const Origin& origin, const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (++remarks_[reason_class("", text)] == 1)
    log_warning(origin.text(), ": ", text, " (more such rows are only counted)");
  ++remark_count_;
}

void RejectLog::summarize() {
  const std::lock_guard lock(mutex_);
  if (count_ > 0) {
    log_warning(count_, count_ == 1 ? " row was" : " rows were", " left out",
                spec_.file.empty() ? std::string() : " (kept in " + spec_.file.string() + ")", ":");
    for (const auto& [reason, times] : reasons_) log_warning("  ", times, " x ", reason);
  }
  for (const auto& [text, times] : remarks_)
    if (times > 1) log_warning("  ", times, " rows: ", text);
}

int64_t RejectLog::count() const {
  const std::lock_guard lock(mutex_);
  return count_;
}

int64_t RejectLog::remarks() const {
  const std::lock_guard lock(mutex_);
  return remark_count_;
}

}  // namespace apus
