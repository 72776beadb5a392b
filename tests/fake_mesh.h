// SPDX-License-Identifier: Apache-2.0
// A mesh without processes: its ranks are threads of the test, which hand each other their tensors.
//
//   test::on_fake_ranks({.tp = 2}, 4, [](MeshView& mesh) { ... });
#pragma once

#include <ATen/ops/maximum.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"
#include "device/comm.h"
#include "dist/mesh.h"

namespace apus::test {

// Where the ranks of one line lay down what they give, and wait for each other.
class Board {
 public:
  explicit Board(size_t ranks) : given(ranks) {}
  std::vector<at::Tensor> given;                                                                   // one of each rank
  std::vector<std::vector<at::Tensor>> sent = std::vector<std::vector<at::Tensor>>(given.size());  // from, to
  void meet() {
    std::unique_lock lock(mutex_);
    const int64_t round = round_;
    if (++here_ == given.size()) {
      here_ = 0, ++round_;
      return all_here_.notify_all();
    }
    const bool met = all_here_.wait_for(lock, std::chrono::seconds(30), [&] { return round_ != round; });
    require(met, Fault::Comm, "a rank of the fake mesh did not come");
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_here_;
  size_t here_ = 0;
  int64_t round_ = 0;
};

// Gathers and exchanges, which is what parts of parameters and experts need, and reduces small host tensors.
class FakeComm : public Comm {
 public:
  FakeComm(Board& board, int rank) : board_(board), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(board_.given.size()); }
  WorkPtr all_gather_uneven(std::vector<at::Tensor> out, at::Tensor in) override {
    board_.given[static_cast<size_t>(rank_)] = in;
    board_.meet();
    for (size_t r = 0; r < out.size(); ++r) {
      require(out[r].sizes() == board_.given[r].sizes(), Fault::Bug, "rank ", r,
              " gives another shape than is expected");
      out[r].copy_(board_.given[r]);
    }
    board_.meet();
    return std::make_unique<Done>();
  }
  WorkPtr all_reduce(at::Tensor t, Reduce how) override {
    board_.given[static_cast<size_t>(rank_)] = t.clone();
    board_.meet();
    at::Tensor all = board_.given[0].clone();
    for (size_t r = 1; r < board_.given.size(); ++r)
      all = how == Reduce::Max ? at::maximum(all, board_.given[r]) : all + board_.given[r];
    board_.meet();
    t.copy_(all);
    return std::make_unique<Done>();
  }
  WorkPtr all_gather(at::Tensor out, at::Tensor in) override {
    std::vector<at::Tensor> parts;
    for (int r = 0; r < size(); ++r) parts.push_back(out.narrow(0, r * in.size(0), in.size(0)));
    return all_gather_uneven(parts, in);
  }
  WorkPtr reduce_scatter(at::Tensor out, at::Tensor in, Reduce how) override {
    const at::Tensor all = in.clone();
    all_reduce(all, how);
    out.copy_(all.narrow(0, rank_ * out.size(0), out.size(0)));
    return std::make_unique<Done>();
  }
  WorkPtr all_to_all(std::vector<at::Tensor> out, std::vector<at::Tensor> in) override {
    board_.sent[static_cast<size_t>(rank_)] = std::move(in);
    board_.meet();
    for (size_t r = 0; r < out.size(); ++r) out[r].copy_(board_.sent[r].at(static_cast<size_t>(rank_)));
    board_.meet();
    return std::make_unique<Done>();
  }
  WorkPtr broadcast(at::Tensor, int) override { return other(); }
  WorkPtr send(at::Tensor, int) override { return other(); }
  WorkPtr recv(at::Tensor, int) override { return other(); }
  void barrier() override { board_.meet(); }

 private:
  struct Done : Work {
    void wait() override {}
  };
  static WorkPtr other() { fail(Fault::Bug, "the fake mesh only gathers, reduces and exchanges"); }
  Board& board_;
  const int rank_;
};

// The boards of all lines, by their ranks.
class FakeWorld {
 public:
  Board& board(const std::vector<int>& ranks) {
    const std::lock_guard lock(mutex_);
    auto& board = boards_[ranks];
    if (!board) board = std::make_unique<Board>(ranks.size());
    return *board;
  }

 private:
  std::mutex mutex_;
  std::map<std::vector<int>, std::unique_ptr<Board>> boards_;
};

class FakeMesh : public MeshView {
 public:
  FakeMesh(const MeshLayout& layout, FakeWorld& world) : MeshView(layout), world_(world) {}
  Comm& comm(AxisSet axes) override {
    auto& comm = made_[axes.bits()];
    if (!comm) comm = std::make_unique<FakeComm>(world_.board(layout().ranks(axes)), rank(axes));
    return *comm;
  }
  Comm& host(AxisSet axes) override { return comm(axes); }

 private:
  FakeWorld& world_;
  std::map<unsigned, std::unique_ptr<Comm>> made_;
};

// Runs the body as each of the ranks, all at once; what one of them throws is thrown.
inline void on_fake_ranks(const MeshSizes& sizes, int ranks, const std::function<void(MeshView&)>& body) {
  FakeWorld world;
  std::vector<std::exception_ptr> thrown(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      try {
        FakeMesh mesh(MeshLayout(sizes, ranks, r), world);
        body(mesh);
      } catch (...) {
        thrown[static_cast<size_t>(r)] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& error : thrown)
    if (error) std::rethrow_exception(error);
}

}  // namespace apus::test
