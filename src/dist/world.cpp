// SPDX-License-Identifier: Apache-2.0
#include "dist/world.h"

#include <chrono>
#include <numeric>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "device/agree.h"
#include "device/store.h"
#include "dist/comm_trace.h"
#include "dist/launch/first_machine.h"

namespace apus {

DeviceChoice bind_device(const std::string& wanted, const RankEnvironment& e) {
  const DeviceKind& kind = choose_kind(wanted);
  const int own = e.first_device + e.local_rank, all = e.first_device + e.local_world;
  if (all == 1 || kind.type() == c10::kCPU) return open_device(wanted);
  require(wanted.find(':') == std::string::npos, Fault::Usage, "--device ", wanted, " names one device, but ", all,
          " ranks run on this machine: give the kind alone, and each takes its own");
  const std::string variable = kind.visibility_env();
  require(own < kind.count(), Fault::Usage, all, " ranks run on this machine, but ", kind.count(), " ", kind.name(),
          " devices are visible: one rank needs one device. Lower NPROC_PER_NODE",
          variable.empty() ? "" : str(", or name more devices in ", variable));
  return open_device(str(kind.name(), ":", own));
}

World::World(const WorldSpec& spec, const Lookup& variable)
    : environment_(read_rank(variable)), spec_(spec), device_(bind_device(spec.device, environment_)) {
  if (size() == 1) {
    host_ = lone_comm(), devices_ = lone_comm();
    return;
  }
  require_known_machine(environment_.address, environment_.address_from);
  store_ = std::make_shared<Store>(Store::Spec{.address = environment_.address,
                                               .port = environment_.port,
                                               .serve = first(),
                                               .timeout_s = std::min(spec.meeting_s, spec.timeout_s)});
  trace_ = std::make_unique<CommTrace>(
      CommTrace::Spec{.rank = rank(), .ranks = size(), .timeout_s = spec.timeout_s, .store = store_});
  std::vector<int> all(static_cast<size_t>(size()));
  std::iota(all.begin(), all.end(), 0);
  guard([&] {
    host_ = connect("host", all, true);
    require_same(device_.kind->name(), "the kinds of device");
    devices_ = connect("devices", all);
    return 0;
  });
  log_info("rank ", rank(), " of ", size(), " on ", device_.name(),
           environment_.from.empty() ? "" : str(" (started by ", environment_.from, ")"));
}

// The first rank keeps the table: after a failure it stays for a moment, so that the others, who now lose the
// connection, can still read the reason.
World::~World() {
  devices_.reset(), host_.reset();
  if (failed_ && first() && store_) std::this_thread::sleep_for(std::chrono::milliseconds(500));
}

Comm& World::host() { return *host_; }
Comm& World::devices() { return *devices_; }

std::unique_ptr<Comm> World::connect(const std::string& group, std::vector<int> ranks, bool on_host) const {
  if (!store_) return lone_comm();
  const Rendezvous rendezvous{.address = environment_.address,
                              .rank = rank(),
                              .world = size(),
                              .timeout_s = spec_.timeout_s,
                              .store = store_,
                              .group = group,
                              .device_index = std::max<int>(0, device_.device.index())};
  const DeviceKind& kind = on_host ? kind_of(c10::Device(c10::kCPU)) : *device_.kind;
  auto comm = kind.connect(rendezvous, ranks);
  return trace_->noted(std::move(comm), group, std::move(ranks));
}

void World::at(const std::string& where) {
  if (trace_) trace_->at(where);
}

void World::require_same(const std::string& text, const std::string& what, const std::string& advice, Fault fault) {
  const std::vector<std::string> all = gather_text(text, *host_);
  for (size_t r = 1; r < all.size(); ++r) {
    std::istringstream first(all[0]), other(all[r]);
    std::string a, b;
    do {
      a.clear(), b.clear();
      std::getline(first, a), std::getline(other, b);
    } while (a == b && (first || other));
    require(a == b, fault, what, " differ between ranks: rank 0 has `", a.substr(0, 200), "`, rank ", r, " has `",
            b.substr(0, 200), "`. ", advice);
  }
}

void World::leave_failure(const std::string& text) noexcept {
  failed_ = true;
  if (store_) store_->report_failure(rank(), text);
}

}  // namespace apus
