// SPDX-License-Identifier: Apache-2.0
#include "serve/rollout_door.h"

#include <fstream>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

bool is_plain_name(const std::string& name) {
  return !name.empty() && name.size() < 200 && name[0] != '.' &&
         name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") ==
             std::string::npos;
}

}  // namespace

RolloutDoor::RolloutDoor(Spec spec) : spec_(std::move(spec)) { make_writable_dir(spec_.folder); }

RolloutDoor::~RolloutDoor() {
  std::error_code code;
  fs::remove_all(spec_.folder, code);
}

fs::path RolloutDoor::arriving() const { return spec_.folder / str("arrival-", arrivals_); }

void RolloutDoor::receive(int64_t version, const std::string& file, int64_t begin, const std::string& bytes) {
  require(version > 0, Fault::Usage, "'version' must be above 0");
  require(is_plain_name(file), Fault::Usage, "'file' must be the plain name of a file");
  const std::lock_guard lock(mutex_);
  std::error_code code;
  if (!incomplete_ || coming_ != version) {
    if (incomplete_) fs::remove_all(arriving(), code);  // is not completed any more
    ++arrivals_;
    make_writable_dir(arriving());
    coming_ = version, bytes_ = 0, incomplete_ = true;
  }
  const fs::path folder = arriving();
  const fs::path path = folder / file;
  const auto here = begin == 0 || !fs::exists(path, code) ? int64_t{0} : static_cast<int64_t>(fs::file_size(path));
  require(here == begin, Fault::Usage, "'begin' is ", begin, ", and ", here, " bytes of ", file, " are here");
  bytes_ += static_cast<int64_t>(bytes.size());
  require(bytes_ <= spec_.most_bytes, Fault::Usage, "the weights are larger than ", spec_.most_bytes,
          " bytes, thrice the model's: are they of this model?");
  std::ofstream out(path, std::ios::binary | (begin == 0 ? std::ios::trunc : std::ios::app));
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size())).flush();
  require(out.good(), Fault::Io, "cannot write ", path.string());
}

void RolloutDoor::finish(int64_t version) {
  const std::lock_guard lock(mutex_);
  require(incomplete_ && coming_ == version && bytes_ > 0, Fault::Usage, "nothing of version ", version, " has come");
  const Stopwatch watch;
  const fs::path folder = arriving(), before = in_use_;
  const std::string adapter_before = adapter_;
  std::error_code code;
  const bool adapter = fs::exists(folder / "adapter_config.json", code);
  if (adapter) {  // the new one first, so that there is no moment without
    const std::string name = str("policy-", arrivals_);
    spec_.engine->load_adapter(name, folder.string());
    adapter_ = name;
  } else {
    spec_.read_model(folder);
    adapter_.clear();
  }
  version_ = version, in_use_ = folder, incomplete_ = false;
  if (!adapter_before.empty()) spec_.engine->unload_adapter(adapter_before);
  if (!before.empty()) fs::remove_all(before, code);
  log_info("version ", version, " of the ", adapter ? "adapter" : "weights", " is here: ", bytes_ >> 10, " KiB, ",
           duration_text(watch.seconds()));
}

int64_t RolloutDoor::version() const {
  const std::lock_guard lock(mutex_);
  return version_;
}

std::string RolloutDoor::adapter() const {
  const std::lock_guard lock(mutex_);
  return adapter_;
}

}  // namespace apus
