// SPDX-License-Identifier: Apache-2.0
#include "train/save_behind.h"

#include <chrono>

#include "base/error.h"
#include "base/log.h"
#include "device/store.h"

namespace apus {

namespace {
constexpr double kPatience = 5;  // seconds for others' parts, when the run has failed meanwhile

constexpr const char *kParts = " parts", *kFailure = " failure";  // behind the checkpoint's name, in the table

std::string failure_of(const std::function<void()>& work) {
  try {
    work();
    return "";
  } catch (const std::exception& e) {
    return e.what();
  }
}
}  // namespace

SaveBehind::~SaveBehind() {
  abandoned_ = true;
  if (thread_.joinable()) thread_.join();
}

void SaveBehind::copy(const std::function<void()>& write) {
  since_.restart();
  files_.hold(write);
  if (files_.bytes_without_room() > 0)
    log_warning("memory has room for ", bytes_text(files_.bytes()), " of ", spec_.name, ": the other ",
                bytes_text(files_.bytes_without_room()), " were written while training waited");
}

void SaveBehind::begin(Last last) {
  last_ = std::move(last);
  thread_ = std::thread([this] { work(); });
}

std::string SaveBehind::written() { return part_written_.get(); }
std::string SaveBehind::whole() { return all_written_.get(); }

void SaveBehind::work() {
  std::string failure = failure_of([&] { files_.write(); });
  const std::string untold = failure_of([&] { tell(failure); });
  part_.set_value(failure);
  if (last_.whole) {
    // Nobody may write in the folder any more when it is renamed, or removed.
    const std::string missing = failure_of([&] { failure = failure_of_parts(failure); });
    if (failure.empty()) failure = untold.empty() ? missing : untold;
    if (failure.empty()) failure = failure_of(last_.whole);
    if (!failure.empty()) last_.not_whole(failure);
    last_ = {};
  }
  took_ = since_.seconds(), done_ = true;
  all_.set_value(failure);
}

void SaveBehind::tell(const std::string& failure) {
  if (!spec_.store) return;
  if (!failure.empty()) spec_.store->set(spec_.name + kFailure, str("rank ", spec_.rank, ": ", failure));
  spec_.store->add(spec_.name + kParts, 1);
}

// Waits for all parts.
std::string SaveBehind::failure_of_parts(const std::string& own) {
  if (!spec_.store) return own;
  for (Stopwatch alone; spec_.store->add(spec_.name + kParts, 0) < spec_.parts;) {
    if (!abandoned_) alone.restart();
    require(alone.seconds() < kPatience, Fault::Io, "the other ranks' parts did not come");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  const std::string failure = spec_.name + kFailure;
  return spec_.store->has(failure) ? spec_.store->get(failure, kPatience, "why a part is not written") : own;
}

}  // namespace apus
