// SPDX-License-Identifier: Apache-2.0
#include "dist/shared_folder.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/nearest.h"
#include "device/agree.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

std::string machine() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

// NFS remembers for a while that a name was not there; opening the folders above makes it ask again.
bool appears(const fs::path& file, double patience_s) {
  const Stopwatch watch;
  for (double pause = 0.01;; pause = std::min(2 * pause, 1.0)) {
    std::error_code code;
    if (fs::exists(file, code)) return true;
    if (watch.seconds() > patience_s) return false;
    for (fs::path above = file.parent_path(); above.has_relative_path(); above = above.parent_path())
      fs::directory_iterator(above, code);
    std::this_thread::sleep_for(std::chrono::duration<double>(pause));
  }
}

}  // namespace

void require_shared_folder(const fs::path& folder, Comm& ranks, double patience_s, const std::string& flag) {
  const bool first = ranks.rank() == 0;
  const std::string name = str(".all-ranks-see-", ::getpid());
  if (first) write_file_atomic(folder / name, "");
  const fs::path file = folder / gather_text(name, ranks)[0];
  const bool seen = appears(file, patience_s);
  const std::vector<std::string> answers = gather_text(str(seen ? '+' : '-', machine()), ranks);
  if (first) {
    std::error_code code;
    fs::remove(file, code);
  }
  std::map<std::string, std::vector<std::string>> blind;  // ranks by machine
  for (size_t r = 0; r < answers.size(); ++r)
    if (answers[r][0] == '-') blind[answers[r].substr(1)].push_back(str(r));
  std::vector<std::string> who;
  for (const auto& [host, numbers] : blind)
    who.push_back(str(numbers.size() > 1 ? "ranks " : "rank ", join(numbers), " on ", host));
  require(
      who.empty(), Fault::Usage, folder.string(), ", where rank 0 on ", answers[0].substr(1),
      " writes, is not seen by ", join(who, " and "), ". With ", flag,
      " each rank writes its part of a checkpoint, so --output_dir must be a folder that all machines share: give one "
      "on a shared file system. Without ",
      flag, " rank 0 writes alone, and none is needed");
}

}  // namespace apus
