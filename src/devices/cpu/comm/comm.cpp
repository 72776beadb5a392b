// SPDX-License-Identifier: Apache-2.0
// Collectives of CPU tensors. Every one is an exchange of buffers between all ranks at once: each rank sums its own
// share of the elements (all ranks' shares move in parallel, as in a ring, but a number is rounded once and errors name
// the peer), then shares are gathered. Operations run in order on a thread; sends and receives on two more.
#include "devices/cpu/comm/comm.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/error.h"
#include "device/lane.h"
#include "device/store.h"
#include "devices/cpu/comm/combine.h"
#include "devices/cpu/comm/sockets.h"

namespace apus::cpu {

namespace {

// Bytes up to which everybody sends everything to all: one round instead of two.
constexpr size_t kSmall = 32 << 10;
// Bytes of one rank's share that are moved and summed at a time.
constexpr size_t kSlab = 1 << 20;

char* bytes_of(const at::Tensor& t) { return static_cast<char*>(t.data_ptr()); }

class SocketComm final : public Comm {
 public:
  SocketComm(Peers::Spec collective, Peers::Spec direct)
      : peers_(collective),
        direct_(std::move(direct)),
        main_(collective.failure),
        sends_(collective.failure),
        receives_(collective.failure) {}
  // Operations under way fail: nobody waits for them any more.
  ~SocketComm() override { peers_.hang_up(), direct_.hang_up(); }

  int rank() const override { return peers_.rank(); }
  int size() const override { return peers_.size(); }

  WorkPtr all_reduce(at::Tensor t, Reduce op) override {
    check(t);
    return main_.add([this, t, op] { in_place(t, [&](const at::Tensor& flat) { reduce_all(flat, op); }); });
  }
  WorkPtr all_gather(at::Tensor out, at::Tensor in) override {
    check(out), check(in);
    require(out.numel() == in.numel() * size() && out.scalar_type() == in.scalar_type(), Fault::Bug, "all_gather of ",
            in.numel(), " elements on ", size(), " ranks into ", out.numel());
    return main_.add([this, out, in] {
      in_place(out, [&](const at::Tensor& whole) {
        const auto share = static_cast<size_t>(in.nbytes());
        gather(Op::AllGather, bytes_of(whole), std::vector<size_t>(static_cast<size_t>(size()), share),
               in.contiguous());
      });
    });
  }
  WorkPtr all_gather_uneven(std::vector<at::Tensor> out, at::Tensor in) override {
    check(in), check_list(out);
    return main_.add([this, out, in] {
      each_in_place(out, [&](std::vector<at::Tensor>& to) {
        std::vector<at::Tensor> same(static_cast<size_t>(size()), in.contiguous());
        swap(Op::AllGather, to, same);
      });
    });
  }
  WorkPtr reduce_scatter(at::Tensor out, at::Tensor in, Reduce op) override {
    check(out), check(in);
    require(in.numel() == out.numel() * size() && out.scalar_type() == in.scalar_type(), Fault::Bug,
            "reduce_scatter of ", in.numel(), " elements on ", size(), " ranks into ", out.numel());
    return main_.add([this, out, in, op] {
      in_place(out, [&](const at::Tensor& mine) { scatter_sums(mine, in.contiguous(), op); });
    });
  }
  WorkPtr all_to_all(std::vector<at::Tensor> out, std::vector<at::Tensor> in) override {
    check_list(out), check_list(in);
    return main_.add([this, out, in] {
      each_in_place(out, [&](std::vector<at::Tensor>& to) {
        std::vector<at::Tensor> from;
        for (const at::Tensor& t : in) from.push_back(t.contiguous());
        swap(Op::AllToAll, to, from);
      });
    });
  }
  WorkPtr broadcast(at::Tensor t, int root) override {
    check(t), check_peer(root);
    return main_.add([this, t, root] {
      in_place(t, [&](const at::Tensor& flat) {
        auto [out, in] = nothing();
        const auto n = static_cast<size_t>(flat.nbytes());
        for (size_t r = 0; rank() == root && r < out.size(); ++r)
          if (static_cast<int>(r) != root) out[r] = {bytes_of(flat), n, true};
        if (rank() != root) in[static_cast<size_t>(root)] = {bytes_of(flat), n, true};
        peers_.exchange(Op::Broadcast, out, in);
      });
    });
  }
  WorkPtr send(at::Tensor t, int to) override {
    check(t), check_other(to);
    return sends_.add([this, t, to] {
      const at::Tensor flat = t.contiguous();
      auto [out, in] = nothing();
      out[static_cast<size_t>(to)] = {bytes_of(flat), static_cast<size_t>(flat.nbytes()), true};
      direct_.exchange(Op::SendRecv, out, in);
    });
  }
  WorkPtr recv(at::Tensor t, int from) override {
    check(t), check_other(from);
    return receives_.add([this, t, from] {
      in_place(t, [&](const at::Tensor& flat) {
        auto [out, in] = nothing();
        in[static_cast<size_t>(from)] = {bytes_of(flat), static_cast<size_t>(flat.nbytes()), true};
        direct_.exchange(Op::SendRecv, out, in);
      });
    });
  }
  void barrier() override {
    main_
        .add([this] {
          auto [out, in] = nothing();
          for (size_t r = 0; r < out.size(); ++r) out[r].used = in[r].used = static_cast<int>(r) != rank();
          peers_.exchange(Op::Barrier, out, in);
        })
        ->wait();
  }

 private:
  using Both = std::pair<std::vector<Out>, std::vector<In>>;
  Both nothing() const {
    return {std::vector<Out>(static_cast<size_t>(size())), std::vector<In>(static_cast<size_t>(size()))};
  }
  static void check(const at::Tensor& t) {
    require(t.defined() && t.is_cpu(), Fault::Bug,
            "the communicator of the processor was given a tensor that is not on it");
  }
  void check_list(const std::vector<at::Tensor>& list) const {
    require(static_cast<int>(list.size()) == size(), Fault::Bug, list.size(), " tensors for a communicator of ", size(),
            " ranks");
    for (const at::Tensor& t : list) check(t);
  }
  void check_peer(int r) const {
    require(r >= 0 && r < size(), Fault::Bug, "there is no rank ", r, " in a communicator of ", size());
  }
  void check_other(int r) const {
    check_peer(r);
    require(r != rank(), Fault::Bug, "rank ", r, " cannot send to or receive from itself");
  }

  // run(contiguous tensor), whose values are then those of t.
  template <class F>
  static void in_place(const at::Tensor& t, const F& run) {
    if (t.is_contiguous()) return run(t.detach());
    const at::Tensor flat = t.detach().contiguous();
    run(flat);
    t.detach().copy_(flat);
  }
  template <class F>
  static void each_in_place(const std::vector<at::Tensor>& list, const F& run) {
    std::vector<at::Tensor> flat;
    for (const at::Tensor& t : list) flat.push_back(t.detach().contiguous());
    run(flat);
    for (size_t i = 0; i < list.size(); ++i)
      if (!list[i].is_contiguous()) list[i].detach().copy_(flat[i]);
  }

  // Rank r's `in`, of sizes[r] bytes, behind one another.
  void gather(Op op, char* whole, const std::vector<size_t>& sizes, const at::Tensor& mine) {
    auto [out, in] = nothing();
    size_t at = 0;
    for (size_t r = 0; r < out.size(); at += sizes[r++]) {
      if (static_cast<int>(r) == rank()) {
        if (whole + at != bytes_of(mine)) std::memmove(whole + at, bytes_of(mine), sizes[r]);
        continue;
      }
      out[r] = {bytes_of(mine), static_cast<size_t>(mine.nbytes()), true};
      in[r] = {whole + at, sizes[r], true};
    }
    peers_.exchange(op, out, in);
  }
  void swap(Op op, std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from) {
    auto [out, in] = nothing();
    for (size_t r = 0; r < out.size(); ++r) {
      if (static_cast<int>(r) == rank()) {
        require(to[r].nbytes() == from[r].nbytes(), Fault::Bug, op_name(op), ": this rank's own part has two sizes");
        std::memmove(bytes_of(to[r]), bytes_of(from[r]), static_cast<size_t>(from[r].nbytes()));
        continue;
      }
      out[r] = {bytes_of(from[r]), static_cast<size_t>(from[r].nbytes()), true};
      in[r] = {bytes_of(to[r]), static_cast<size_t>(to[r].nbytes()), true};
    }
    peers_.exchange(op, out, in);
  }

  // Sends from[r] to rank r, and sums what all sent here, own(=from[rank]) included, into `sum`.
  void sum_shares(Op op, c10::ScalarType type, Reduce how, const std::vector<const char*>& from,
                  const std::vector<size_t>& bytes, char* sum) {
    auto [out, in] = nothing();
    const auto me = static_cast<size_t>(rank());
    scratch_.resize(bytes[me] * out.size());
    std::vector<const void*> parts(out.size());
    for (size_t r = 0; r < out.size(); ++r) {
      parts[r] = r == me ? from[r] : scratch_.data() + r * bytes[me];
      if (r == me) continue;
      out[r] = {from[r], bytes[r], true};
      in[r] = {scratch_.data() + r * bytes[me], bytes[me], true};
    }
    peers_.exchange(op, out, in);
    combine(type, how, parts, sum, static_cast<int64_t>(bytes[me] / c10::elementSize(type)));
  }

  void reduce_all(const at::Tensor& t, Reduce how) {
    const auto total = static_cast<size_t>(t.nbytes()), n = static_cast<size_t>(size()),
               element = static_cast<size_t>(t.element_size());
    char* data = bytes_of(t);
    if (total <= kSmall) {
      std::vector<const char*> from(n, data);
      return sum_shares(Op::AllReduce, t.scalar_type(), how, from, std::vector<size_t>(n, total), data);
    }
    const size_t slab = kSlab / element * n;  // elements of all shares together
    for (size_t begin = 0; begin < total / element; begin += slab) {
      const size_t count = std::min(slab, total / element - begin);
      std::vector<const char*> from(n);
      std::vector<size_t> bytes(n);
      size_t at = begin;
      for (size_t r = 0; r < n; ++r) {
        const size_t share = count / n + (r < count % n);
        from[r] = data + at * element, bytes[r] = share * element, at += share;
      }
      char* mine = const_cast<char*>(from[static_cast<size_t>(rank())]);
      sum_shares(Op::AllReduce, t.scalar_type(), how, from, bytes, mine);
      auto [out, in] = nothing();
      for (size_t r = 0; r < n; ++r) {
        if (static_cast<int>(r) == rank()) continue;
        out[r] = {mine, bytes[static_cast<size_t>(rank())], true};
        in[r] = {const_cast<char*>(from[r]), bytes[r], true};
      }
      peers_.exchange(Op::AllReduce, out, in);
    }
  }

  void scatter_sums(const at::Tensor& out, const at::Tensor& in, Reduce how) {
    const auto share = static_cast<size_t>(out.nbytes()), n = static_cast<size_t>(size());
    size_t begin = 0;
    do {
      const size_t bytes = std::min(kSlab, share - begin);
      std::vector<const char*> from(n);
      for (size_t r = 0; r < n; ++r) from[r] = bytes_of(in) + r * share + begin;
      sum_shares(Op::ReduceScatter, out.scalar_type(), how, from, std::vector<size_t>(n, bytes), bytes_of(out) + begin);
      begin += bytes;
    } while (begin < share);
  }

  Peers peers_, direct_;
  std::vector<char> scratch_;
  Lane main_, sends_, receives_;  // first to go: their threads use the above
};

}  // namespace

std::unique_ptr<Comm> socket_comm(const Rendezvous& rv, const std::vector<int>& ranks) {
  const auto me = std::find(ranks.begin(), ranks.end(), rv.rank);
  require(me != ranks.end(), Fault::Bug, "rank ", rv.rank, " makes a communicator that it is no part of");
  require(rv.store != nullptr, Fault::Bug, "ranks without a shared table cannot find each other");
  const auto spec = [&](const char* channel) {
    const std::string prefix = str(rv.group, "/", channel, "/");
    Peers::Spec s;
    s.rank = static_cast<int>(me - ranks.begin()), s.size = static_cast<int>(ranks.size()), s.timeout_s = rv.timeout_s,
    s.master = rv.address, s.names = ranks;
    s.publish = [store = rv.store, prefix](const std::string& key, const std::string& value) {
      store->set(prefix + key, value);
    };
    s.look_up = [store = rv.store, prefix, limit = rv.timeout_s](const std::string& key, const std::string& what) {
      return store->get(prefix + key, limit, what);
    };
    s.failure = [store = rv.store] { return store->reported_failure(); };
    return s;
  };
  return std::make_unique<SocketComm>(spec("all"), spec("direct"));
}

}  // namespace apus::cpu
