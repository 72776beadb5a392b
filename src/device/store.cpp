// SPDX-License-Identifier: Apache-2.0
#include "device/store.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/answer_within.h"
#include "base/clock.h"
#include "base/error.h"

namespace apus {

namespace {
using std::chrono::milliseconds;

milliseconds as_milliseconds(double seconds) { return milliseconds(static_cast<int64_t>(seconds * 1000)); }

std::string first_line(const std::exception& error) {
  const std::string text = error.what();  // c10 puts a stack trace behind it
  return text.substr(0, text.find('\n'));
}

// Late 2.x prefers a server on libuv, which not every build of libtorch has (Debian's does not):
// the plain one is everywhere.
template <class Options>
void without_libuv(Options& options) {
  if constexpr (requires { options.useLibUV; }) options.useLibUV = false;
}
}  // namespace

struct Store::Table {
  c10::intrusive_ptr<::c10d::TCPStore> store;
  std::string where;
  // Whether it leaves a question unanswered.
  std::shared_ptr<std::atomic<bool>> silent = std::make_shared<std::atomic<bool>>(false);
  template <class F>
  auto call(F f) const -> decltype(f(*store)) {
    try {
      return f(*store);
    } catch (const std::exception& error) {
      fail(Fault::Comm, "the first rank's table at ", where,
           " does not answer: that process has ended, or its machine cannot be reached (", first_line(error), ")");
    }
  }
};

Store::Store(const Spec& spec) : table_(std::make_unique<Table>()) {
  table_->where = apus::str(spec.address, ":", spec.port);
  ::c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(spec.port), options.isServer = spec.serve, options.waitWorkers = false;
  options.timeout = as_milliseconds(spec.timeout_s);
  without_libuv(options);
  try {
    table_->store = c10::make_intrusive<::c10d::TCPStore>(spec.address, options);
  } catch (const std::exception& error) {
    if (spec.serve)
      fail(Fault::Comm, "the first rank cannot listen at port ", spec.port, " (", first_line(error),
           "): another run uses it? Set MASTER_PORT to a free port, the same for all ranks");
    fail(Fault::Comm, "the first rank at ", table_->where, " did not answer within ", spec.timeout_s, " s (",
         first_line(error),
         "). Is it running, are MASTER_ADDR and MASTER_PORT its own, does a firewall stand between?");
  }
}

Store::~Store() = default;

void Store::set(const std::string& key, const std::string& value) {
  table_->call([&](::c10d::TCPStore& s) { s.set(key, std::vector<uint8_t>(value.begin(), value.end())); });
}

bool Store::has(const std::string& key) {
  return table_->call([&](::c10d::TCPStore& s) { return s.check({key}); });
}

int64_t Store::add(const std::string& key, int64_t n) {
  return table_->call([&](::c10d::TCPStore& s) { return s.add(key, n); });
}

// Asks again and again instead of c10d's own wait, whose connection is of no use after it has waited in vain.
std::string Store::get(const std::string& key, double timeout_s, const std::string& what) {
  const Stopwatch watch;
  for (milliseconds pause{1}; !has(key); pause = std::min(pause * 2, milliseconds(100))) {
    const std::string failure = reported_failure();
    require(failure.empty(), Fault::Comm, "waiting for ", what, " is in vain: ", failure);
    require(watch.seconds() < timeout_s, Fault::Comm, what, " did not come within ", timeout_s,
            " s: did all ranks start? Their number is WORLD_SIZE, the limit --ddp_timeout");
    std::this_thread::sleep_for(pause);
  }
  return table_->call([&](::c10d::TCPStore& s) {
    const std::vector<uint8_t> bytes = s.get(key);
    return std::string(bytes.begin(), bytes.end());
  });
}

c10::intrusive_ptr<::c10d::Store> Store::c10d() const { return table_->store; }

namespace {
// The table's keeper may be stopped, and c10d then waits for ever.
constexpr double kPatience = 5;
}  // namespace

void Store::report_failure(int rank, const std::string& text) noexcept {
  try {
    answer_within(kPatience, [store = table_->store, said = apus::str("rank ", rank, " failed: ", text)] {
      if (store->add("failures", 1) == 1) store->set("failure", std::vector<uint8_t>(said.begin(), said.end()));
      // c10d sends a text without waiting until it has arrived. Asking for it does wait: whoever then sees this process
      // go finds the reason.
      for (int tries = 0; tries < 100 && !store->check({"failure"}); ++tries)
        std::this_thread::sleep_for(milliseconds(10));
      return std::string();
    });
  } catch (...) {
    // The table is gone with its keeper; the failure itself is on its way up.
  }
}

std::string Store::reported_failure() noexcept {
  const auto& silent = table_->silent;
  if (*silent) return "";  // an earlier question has no answer yet
  try {
    const auto answer = answer_within(kPatience, [store = table_->store, silent] {
      const std::shared_ptr<void> answered(nullptr, [&](void*) { *silent = false; });
      if (!store->check({"failure"})) return std::string();
      const std::vector<uint8_t> bytes = store->get("failure");
      return std::string(bytes.begin(), bytes.end());
    });
    if (!answer) *silent = true;
    return answer.value_or("");
  } catch (...) {
    return "";
  }
}

}  // namespace apus
