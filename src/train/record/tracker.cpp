// SPDX-License-Identifier: Apache-2.0
#include "train/record/tracker.h"

#include <chrono>
#include <random>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "train/record/wire.h"

namespace apus {
namespace fs = std::filesystem;

std::vector<std::string> tracker_names() {
  std::vector<std::string> names;
  for (const auto& [name, kind] : Registry<TrackerKind>::of().all()) names.push_back(name);
  return names;
}

const TrackerKind& tracker_kind(const std::string& service) {
  const TrackerKind* const kind = Registry<TrackerKind>::of().find(service);
  require(kind, Fault::Bug, "no service is called ", service);
  return *kind;
}

std::string new_run_id() {
  std::random_device source;
  std::string id;
  for (int i = 0; i < 8; ++i) id.push_back("0123456789abcdefghijklmnopqrstuvwxyz"[source() % 36]);
  return id;
}

// message Timestamp { int64 seconds = 1; int32 nanos = 2; }
std::string wire_timestamp() {
  const auto nanos =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  std::string out;
  wire::number(out, 1, nanos / 1000000000);
  wire::number(out, 2, nanos % 1000000000);
  return out;
}

fs::path tracked_folder(const fs::path& dir, const std::string& parent, const std::string& kind,
                        const std::string& id) {
  fs::path folder = dir / parent / str(kind, "-", local_time("%Y%m%d_%H%M%S"), "-", id);
  make_writable_dir(folder / "files");
  make_writable_dir(folder / "logs");
  return folder;
}

}  // namespace apus
