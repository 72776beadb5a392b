// SPDX-License-Identifier: Apache-2.0
// NCCL behind Comm, through c10d of libtorch 2.x. The host waits for nothing but a barrier: waiting for an operation
// has the stream that asks wait for it. What does not end in time, or fails, is found by c10d's own thread, which ends
// the process: whoever waits for the device can no longer be called back. Its header wants nccl.h and the CUDA
// toolkit's headers: where they are not, the program is built all the same and says so when several devices are asked
// for.
#include "devices/cuda/nccl.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "device/store.h"

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime_api.h>)
#define APUS_HAS_NCCL 1
#ifndef USE_C10D_NCCL
#define USE_C10D_NCCL
#endif
#include <ATen/ops/zeros.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <type_traits>
#endif

namespace apus::cuda {

#ifdef APUS_HAS_NCCL

namespace {

::c10d::ReduceOp op_of(Reduce op) {
  switch (op) {
    case Reduce::Max:
      return ::c10d::ReduceOp::MAX;
    case Reduce::Min:
      return ::c10d::ReduceOp::MIN;
    case Reduce::Avg:
      return ::c10d::ReduceOp::AVG;
    default:
      return ::c10d::ReduceOp::SUM;
  }
}

// The last words of c10d's watching thread, in ours.
[[noreturn]] void end_for_c10d() {
  std::string text;
  try {
    if (const std::exception_ptr error = std::current_exception()) std::rethrow_exception(error);
  } catch (const std::exception& error) {
    text = error.what();
  } catch (...) {}
  if (text.find("NCCL") == std::string::npos) std::abort();  // not its
  log_error("a collective operation failed: ", text.substr(0, text.find('\n')),
            ". Another rank may be late or gone; NCCL_DEBUG=WARN says more, --ddp_timeout is the limit");
  std::_Exit(exit_code(Fault::Comm));
}

class NcclComm final : public Comm {
 public:
  NcclComm(const Rendezvous& rv, const std::vector<int>& ranks, int me)
      : ranks_(ranks),
        rank_(me),
        limit_(static_cast<int64_t>(rv.timeout_s * 1000)),
        store_(rv.store),
        device_(c10::kCUDA, static_cast<c10::DeviceIndex>(rv.device_index)) {
    std::set_terminate(&end_for_c10d);
    auto options = ::c10d::ProcessGroupNCCL::Options::create();
    options->timeout = limit_;
    auto table = c10::make_intrusive<::c10d::PrefixStore>(rv.group, rv.store->c10d());
    group_ = c10::make_intrusive<::c10d::ProcessGroupNCCL>(table, me, static_cast<int>(ranks.size()), options);
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(ranks_.size()); }

  WorkPtr all_reduce(at::Tensor t, Reduce op) override {
    return run("all_reduce", [&] {
      std::vector<at::Tensor> list = {t};
      ::c10d::AllreduceOptions o;
      o.reduceOp = op_of(op);
      return group_->allreduce(list, o);
    });
  }
  WorkPtr all_gather(at::Tensor out, at::Tensor in) override {
    return run("all_gather", [&] { return group_->_allgather_base(out, in); });
  }
  WorkPtr all_gather_uneven(std::vector<at::Tensor> out, at::Tensor in) override {
    return run("all_gather", [&] {
      std::vector<std::vector<at::Tensor>> outs = {out};
      std::vector<at::Tensor> ins = {in};
      return group_->allgather(outs, ins);
    });
  }
  WorkPtr reduce_scatter(at::Tensor out, at::Tensor in, Reduce op) override {
    return run("reduce_scatter", [&] {
      ::c10d::ReduceScatterOptions o;
      o.reduceOp = op_of(op);
      return group_->_reduce_scatter_base(out, in, o);
    });
  }
  WorkPtr all_to_all(std::vector<at::Tensor> out, std::vector<at::Tensor> in) override {
    return run("all_to_all", [&] { return group_->alltoall(out, in); });
  }
  WorkPtr broadcast(at::Tensor t, int root) override {
    return run("broadcast", [&] {
      std::vector<at::Tensor> list = {t};
      ::c10d::BroadcastOptions o;
      o.rootRank = root;
      return group_->broadcast(list, o);
    });
  }
  WorkPtr send(at::Tensor t, int to) override {
    return run("send", [&] {
      std::vector<at::Tensor> list = {t};
      return group_->send(list, to, 0);
    });
  }
  WorkPtr recv(at::Tensor t, int from) override {
    return run("recv", [&] {
      std::vector<at::Tensor> list = {t};
      return group_->recv(list, from, 0);
    });
  }
  void barrier() override {
    std::vector<at::Tensor> one = {at::zeros({1}, at::TensorOptions().device(device_))};
    explained("barrier", [&] {
      const auto work = group_->allreduce(one, {});
      const auto end = std::chrono::steady_clock::now() + limit_;
      while (!work->isCompleted()) {
        require(std::chrono::steady_clock::now() < end, Fault::Comm, "not all ranks came within ",
                limit_.count() / 1000, " s");
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
      work->wait();  // throws what it found
    });
  }

 private:
  struct Pending final : Work {
    Pending(const NcclComm& c, const char* what, c10::intrusive_ptr<::c10d::Work> w)
        : comm(c), what(what), work(std::move(w)) {}
    void wait() override {
      comm.explained(what, [&] { return work->wait(); });
    }
    const NcclComm& comm;
    const char* what;
    c10::intrusive_ptr<::c10d::Work> work;
  };

  template <class F>
  WorkPtr run(const char* what, const F& start) const {
    return std::make_unique<Pending>(*this, what, explained(what, start));
  }
  template <class F>
  std::invoke_result_t<const F&> explained(const char* what, const F& run) const {
    try {
      return run();
    } catch (const std::exception& error) {
      const std::string text = error.what(), reason = store_->reported_failure();
      fail(Fault::Comm, "rank ", ranks_[static_cast<size_t>(rank_)], ": ", what,
           " failed: ", text.substr(0, text.find('\n')), ". ",
           reason.empty() ? "Another rank may be late or gone; NCCL_DEBUG=WARN says more, --ddp_timeout is the limit"
                          : reason);
    }
  }

  const std::vector<int> ranks_;
  const int rank_;
  const std::chrono::milliseconds limit_;
  std::shared_ptr<Store> store_;
  const c10::Device device_;
  c10::intrusive_ptr<::c10d::ProcessGroupNCCL> group_;
};

}  // namespace

std::unique_ptr<Comm> nccl_connect(const Rendezvous& rv, const std::vector<int>& ranks) {
  const auto me = std::find(ranks.begin(), ranks.end(), rv.rank);
  require(me != ranks.end(), Fault::Bug, "rank ", rv.rank, " makes a communicator that it is no part of");
  return std::make_unique<NcclComm>(rv, ranks, static_cast<int>(me - ranks.begin()));
}

#else

std::unique_ptr<Comm> nccl_connect(const Rendezvous&, const std::vector<int>&) {
  fail(Fault::Comm,
       "several CUDA devices need NCCL, and this program was built without nccl.h or the CUDA toolkit's headers: "
       "install both and build again");
}

#endif

}  // namespace apus::cuda
