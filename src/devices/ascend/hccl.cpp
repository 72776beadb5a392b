// SPDX-License-Identifier: Apache-2.0
// HCCL behind Comm. Every operation runs on a stream of our own, started by a thread that first waits for the work the
// tensors come from. The operation ends when that stream has ended: after waiting for its handle the result is there.
// Every wait has a time limit.
#include "devices/ascend/hccl.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "device/lane.h"
#include "device/store.h"
#include "devices/ascend/hccl_api.h"

namespace apus::ascend {

namespace {

int type_number(c10::ScalarType type) {
  switch (type) {
    case c10::kChar:
      return 0;
    case c10::kShort:
      return 1;
    case c10::kInt:
      return 2;
    case c10::kHalf:
      return 3;
    case c10::kFloat:
      return 4;
    case c10::kLong:
      return 5;
    case c10::kByte:
    case c10::kBool:
      return 7;
    case c10::kDouble:
      return 10;
    case c10::kBFloat16:
      return 11;
    default:
      fail(Fault::Bug, "HCCL knows no numbers of type ", c10::toString(type));
  }
}

// What takes part in a reduction for `t`; the library moves more types than it reduces. Bytes, and truths (a maximum is
// "any", a minimum "all"), are reduced as whole numbers of four bytes.
at::Tensor reducible(const at::Tensor& t) {
  require(t.scalar_type() != c10::kDouble, Fault::Bug, "HCCL reduces no f64: the ranks' host communicator does");
  at::NoGradGuard no_grad;
  return t.scalar_type() == c10::kByte || t.scalar_type() == c10::kBool ? t.to(c10::kInt) : t;
}

// The library has no average: it sums, and the sum is divided here.
int op_number(Reduce op) { return op == Reduce::Max ? 2 : op == Reduce::Min ? 3 : 0; }

double seconds_of(const char* variable, double otherwise) {
  const char* text = std::getenv(variable);
  const double value = text ? std::atof(text) : 0;
  return value > 0 ? value : otherwise;
}

// The library's own limits, where nobody set them: on the device it waits as long as we do on the host.
void set_limits(double timeout_s) {
  const double limit = std::clamp(timeout_s, 120.0, 7200.0);
  ::setenv("HCCL_CONNECT_TIMEOUT", str(static_cast<int>(std::min(limit, 600.0))).c_str(), 0);
  ::setenv("HCCL_EXEC_TIMEOUT", str(static_cast<int>(limit)).c_str(), 0);
}

class NpuComm final : public Comm {
 public:
  NpuComm(const Rendezvous& rv, const std::vector<int>& ranks, int me)
      : api_(hccl_api()),
        ranks_(ranks),
        rank_(me),
        device_(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(rv.device_index)),
        limit_s_(std::min(rv.timeout_s, seconds_of("HCCL_EXEC_TIMEOUT", rv.timeout_s) + 30)),
        lane_(std::make_unique<Lane>([store = rv.store] { return store->reported_failure(); })) {
    lane_->add([this, &rv] { open(rv); })->wait();
  }
  ~NpuComm() override {
    // The library waits for a lost rank and cannot be called back: process and device end soon.
    if (lane_->abandon()) {
      lane_.release();
      return;
    }
    lane_->add([this] { api_.destroy(comm_), api_.destroy_stream(stream_); });
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(ranks_.size()); }

  WorkPtr all_reduce(at::Tensor t, Reduce op) override {
    const at::Tensor part = reducible(t);
    return add("HcclAllReduce", {t, part}, [this, t, part, op] {
      start("HcclAllReduce",
            api_.all_reduce(part.data_ptr(), part.data_ptr(), count(part), type(part), op_number(op), comm_, stream_));
      finish("HcclAllReduce");
      put_back(t, part);
      divide(t, op);
    });
  }
  WorkPtr all_gather(at::Tensor out, at::Tensor in) override {
    require(out.numel() == in.numel() * size(), Fault::Bug, "all_gather of ", in.numel(), " elements into ",
            out.numel());
    return add("HcclAllGather", {out, in}, [this, out, in] {
      start("HcclAllGather", api_.all_gather(in.data_ptr(), out.data_ptr(), count(in), type(in), comm_, stream_));
      finish("HcclAllGather");
    });
  }
  WorkPtr all_gather_uneven(std::vector<at::Tensor> out, at::Tensor in) override {  // every rank broadcasts its own
    require(static_cast<int>(out.size()) == size() && out[static_cast<size_t>(rank_)].numel() == in.numel(), Fault::Bug,
            "uneven all_gather: wrong places");
    {
      at::NoGradGuard no_grad;
      out[static_cast<size_t>(rank_)].copy_(in);
    }
    return add("HcclBroadcast", out, [this, out] {
      for (size_t r = 0; r < out.size(); ++r)
        if (out[r].numel() > 0)
          start("HcclBroadcast", api_.broadcast(out[r].data_ptr(), count(out[r]), type(out[r]),
                                                static_cast<uint32_t>(r), comm_, stream_));
      finish("HcclBroadcast");
    });
  }
  WorkPtr reduce_scatter(at::Tensor out, at::Tensor in, Reduce op) override {
    require(in.numel() == out.numel() * size(), Fault::Bug, "reduce_scatter of ", in.numel(), " elements into ",
            out.numel());
    const at::Tensor from = reducible(in), to = reducible(out);
    return add("HcclReduceScatter", {out, from, to}, [this, out, from, to, op] {
      start("HcclReduceScatter",
            api_.reduce_scatter(from.data_ptr(), to.data_ptr(), count(to), type(to), op_number(op), comm_, stream_));
      finish("HcclReduceScatter");
      put_back(out, to);
      divide(out, op);
    });
  }
  WorkPtr all_to_all(std::vector<at::Tensor> out, std::vector<at::Tensor> in) override {
    require(static_cast<int>(out.size()) == size() && out.size() == in.size(), Fault::Bug,
            "all_to_all: one tensor a rank");
    const Joined from(in, true), to(out, false);
    std::vector<at::Tensor> all = out;
    all.push_back(from.flat), all.push_back(to.flat);
    return add("HcclAlltoAllV", all, [this, from, to, out] {
      const int t = type(from.flat);
      start("HcclAlltoAllV",
            api_.all_to_all_v(from.flat.data_ptr(), from.counts.data(), from.offsets.data(), t, to.flat.data_ptr(),
                              to.counts.data(), to.offsets.data(), t, comm_, stream_));
      finish("HcclAlltoAllV");
      at::NoGradGuard no_grad;
      for (size_t r = 0; r < out.size(); ++r)
        out[r].view({-1}).copy_(to.flat.narrow(0, static_cast<int64_t>(to.offsets[r]), out[r].numel()));
      settle();
    });
  }
  WorkPtr broadcast(at::Tensor t, int root) override {
    return add("HcclBroadcast", {t}, [this, t, root] {
      start("HcclBroadcast",
            api_.broadcast(t.data_ptr(), count(t), type(t), static_cast<uint32_t>(root), comm_, stream_));
      finish("HcclBroadcast");
    });
  }
  // In order with everything else, as the library wants it: of two ranks that both send, one receives first.
  WorkPtr send(at::Tensor t, int to) override {
    return add("HcclSend", {t}, [this, t, to] {
      start("HcclSend", api_.send(t.data_ptr(), count(t), type(t), static_cast<uint32_t>(to), comm_, stream_), to);
      finish("HcclSend", to);
    });
  }
  WorkPtr recv(at::Tensor t, int from) override {
    return add("HcclRecv", {t}, [this, t, from] {
      start("HcclRecv", api_.recv(t.data_ptr(), count(t), type(t), static_cast<uint32_t>(from), comm_, stream_), from);
      finish("HcclRecv", from);
    });
  }
  void barrier() override {  // HcclBarrier is not in every version
    all_reduce(at::zeros({1}, at::TensorOptions().dtype(at::kFloat).device(device_)), Reduce::Sum)->wait();
  }

 private:
  // A list of tensors behind one another, with the library's counts and offsets in elements.
  struct Joined {
    Joined(const std::vector<at::Tensor>& parts, bool filled) {
      uint64_t total = 0;
      for (const at::Tensor& p : parts)
        counts.push_back(static_cast<uint64_t>(p.numel())), offsets.push_back(total), total += counts.back();
      at::NoGradGuard no_grad;
      flat = at::empty({std::max<int64_t>(1, static_cast<int64_t>(total))}, parts[0].detach().options());
      for (size_t r = 0; filled && r < parts.size(); ++r)
        flat.narrow(0, static_cast<int64_t>(offsets[r]), parts[r].numel()).copy_(parts[r].reshape({-1}));
    }
    at::Tensor flat;
    std::vector<uint64_t> counts, offsets;
  };

  static uint64_t count(const at::Tensor& t) { return static_cast<uint64_t>(t.numel()); }
  static int type(const at::Tensor& t) { return type_number(t.scalar_type()); }
  std::string peer(int r) const { return r < 0 ? "" : str(" with rank ", ranks_[static_cast<size_t>(r)]); }

  // On the lane: wait for the caller's stream, then run.
  template <class F>
  WorkPtr add(const char* what, const std::vector<at::Tensor>& tensors, F run) {
    for (const at::Tensor& t : tensors)
      require(t.defined() && t.device() == device_ && t.is_contiguous(), Fault::Bug, what,
              " needs contiguous tensors on the communicator's device");
    auto ready = std::make_shared<c10::Event>(device_.type());
    const c10::impl::VirtualGuardImpl guard(device_.type());
    ready->record(guard.getStream(device_));
    return lane_->add([this, ready, run = std::move(run), what] {
      await(*ready, what);
      run();
    });
  }

  void await(const c10::Event& event, const char* what) const {
    const Stopwatch watch;
    for (std::chrono::microseconds pause{20}; !event.query();
         pause = std::min(pause * 2, std::chrono::microseconds(500))) {
      require(watch.seconds() < limit_s_, Fault::Comm, "rank ", ranks_[static_cast<size_t>(rank_)],
              ": the device did not finish within ", limit_s_, " s the work that ", what, " follows");
      std::this_thread::sleep_for(pause);
    }
  }
  // After work of the tensor library on this thread's own stream.
  void settle() const {
    c10::Event done(device_.type());
    const c10::impl::VirtualGuardImpl guard(device_.type());
    done.record(guard.getStream(device_));
    await(done, "a copy");
  }
  void put_back(const at::Tensor& t, const at::Tensor& reduced) const {
    if (reduced.is_same(t)) return;
    at::NoGradGuard no_grad;
    t.copy_(reduced);
    settle();
  }
  void divide(const at::Tensor& t, Reduce op) const {
    if (op != Reduce::Avg) return;
    require(t.is_floating_point(), Fault::Bug, "the average of whole numbers over ranks is not defined: sum them");
    at::NoGradGuard no_grad;
    t.div_(size());
    settle();
  }

  void open(const Rendezvous& rv) {
    check("aclrtSetDevice", api_.set_device(rv.device_index));
    check("aclrtCreateStream", api_.create_stream(&stream_));
    RootInfo root;
    const std::string key = rv.group + "/root";
    if (rank_ == 0) {
      check("HcclGetRootInfo", api_.root_info(&root));
      rv.store->set(key, std::string(root.bytes, sizeof root.bytes));
    } else {
      const std::string bytes = rv.store->get(key, rv.timeout_s, str("rank ", ranks_[0]));
      require(bytes.size() == sizeof root.bytes, Fault::Comm, "rank ", ranks_[0], " sent ", bytes.size(),
              " bytes of root information instead of ", sizeof root.bytes, "; do all ranks run the same Apus?");
      std::memcpy(root.bytes, bytes.data(), sizeof root.bytes);
    }
    const auto n = static_cast<uint32_t>(size()), me = static_cast<uint32_t>(rank_);
    if (api_.init_config) {
      const CommConfig config = make_comm_config(api_, "apus_" + rv.group);
      check("HcclCommInitRootInfoConfig", api_.init_config(n, &root, me, &config, &comm_));
    } else {
      check("HcclCommInitRootInfo", api_.init(n, &root, me, &comm_));
    }
  }

  void start(const char* what, int code, int with = -1) const { check(what, code, with); }
  void finish(const char* what, int with = -1) const {
    const Stopwatch watch;
    const int code = api_.synchronize_within
                         ? api_.synchronize_within(stream_, static_cast<int32_t>(std::min(limit_s_, 2e6) * 1000))
                         : api_.synchronize(stream_);
    require(code == 0, Fault::Comm, "rank ", ranks_[static_cast<size_t>(rank_)], ": ", what, peer(with),
            " did not end well after ", watch.seconds(), " s (error ", code,
            "): another rank is late, stuck or gone; the limits are --ddp_timeout and HCCL_EXEC_TIMEOUT");
  }
  void check(const char* what, int code, int with = -1) const {
    if (code == 0) return;
    const char* text = api_.error_string ? api_.error_string(code) : nullptr;
    fail(Fault::Comm, "rank ", ranks_[static_cast<size_t>(rank_)], ": ", what, peer(with), " failed with ", code,
         text ? str(" (", text, ")") : "",
         code == 9 ? ": another rank did not come or answer in time; HCCL_CONNECT_TIMEOUT, HCCL_EXEC_TIMEOUT and "
                     "--ddp_timeout are the limits"
                   : "; ~/ascend/log/debug/plog says more, `apus doctor --comm` checks the links");
  }

  const HcclApi& api_;
  const std::vector<int> ranks_;
  const int rank_;
  const c10::Device device_;
  const double limit_s_;
  HcclComm comm_ = nullptr;
  Stream stream_ = nullptr;
  std::unique_ptr<Lane> lane_;  // goes first
};

}  // namespace

std::unique_ptr<Comm> hccl_connect(const Rendezvous& rv, const std::vector<int>& ranks) {
  const auto me = std::find(ranks.begin(), ranks.end(), rv.rank);
  require(me != ranks.end(), Fault::Bug, "rank ", rv.rank, " makes a communicator that it is no part of");
  require(rv.store != nullptr, Fault::Bug, "ranks without a shared table cannot find each other");
  set_limits(rv.timeout_s);
  return std::make_unique<NpuComm>(rv, ranks, static_cast<int>(me - ranks.begin()));
}

}  // namespace apus::ascend
