// SPDX-License-Identifier: Apache-2.0
#include "dist/comm_trace.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "base/answer_within.h"
#include "base/clock.h"
#include "base/error.h"
#include "dist/launch/hang_report.h"

namespace apus {

namespace {

constexpr size_t kKept = 4;  // calls that have ended
std::string trace_key(int rank) { return str("trace/", rank); }

}  // namespace

// Outlives the trace: communicators may.
struct CommTrace::State {
  explicit State(const Spec& s) : spec(s), beat_s(std::clamp(s.timeout_s / 10, 0.1, 5.0)) { mine.rank = s.rank; }

  const Spec spec;
  const double beat_s;  // between two messages to the table
  std::mutex mutex;
  std::condition_variable changed;
  bool ended = false;
  RankCalls mine;
  std::map<int64_t, CommCall> waits;  // by the order in which waiting began
  int64_t next = 0;
  std::thread teller;

  CommCall begin(CommCall call) {
    const std::lock_guard lock(mutex);
    call.number = ++mine.begun[call.counter];
    return call;
  }
  int64_t wait_begins(const CommCall& call) {
    const std::lock_guard lock(mutex);
    waits[next] = call;
    return next++;
  }
  void wait_ends(int64_t id, bool done) {
    const std::lock_guard lock(mutex);
    if (done) mine.last.insert(mine.last.begin(), waits.at(id));
    if (mine.last.size() > kKept) mine.last.pop_back();
    waits.erase(id);
  }

  // The beat makes every message a new one, by which others see that this process runs.
  std::string told(int64_t beat) {
    const std::lock_guard lock(mutex);
    RankCalls now = mine;
    for (const auto& [id, call] : waits) now.waits.push_back(call);
    Json out = to_json(now);
    out["beat"] = beat;
    return out.dump();
  }
  void tell() {
    for (int64_t beat = 0;; ++beat) {
      const std::string text = told(beat);
      try {
        spec.store->set(trace_key(spec.rank), text);
      } catch (const Error&) {
        return;  // the table is gone with the first rank, of which others tell
      }
      std::unique_lock lock(mutex);
      if (changed.wait_for(lock, std::chrono::duration<double>(beat_s), [&] { return ended; })) return;
    }
  }

  std::vector<std::string> all_told() {
    std::vector<std::string> texts;
    for (int r = 0; r < spec.ranks; ++r)
      texts.push_back(spec.store->has(trace_key(r)) ? spec.store->get(trace_key(r), 1, "") : "");
    return texts;
  }
  // A rank that tells the same for two beats is silent.
  std::string report() {
    const std::vector<std::string> before = all_told();
    std::this_thread::sleep_for(std::chrono::duration<double>(2.5 * beat_s));
    const std::vector<std::string> now = all_told();
    std::vector<RankCalls> ranks;
    for (size_t r = 0; r < now.size(); ++r) {
      RankCalls calls{.rank = static_cast<int>(r)};
      if (!now[r].empty()) calls = rank_calls(parse_json(now[r], trace_key(static_cast<int>(r)), Fault::Comm));
      calls.heard = now[r] != before[r];
      ranks.push_back(std::move(calls));
    }
    return hang_report(ranks);
  }
};

class CommTrace::NotedWork final : public Work {
 public:
  NotedWork(WorkPtr work, std::shared_ptr<State> state, CommCall call)
      : work_(std::move(work)), state_(std::move(state)), call_(std::move(call)) {}

  void wait() override {
    const Stopwatch watch;
    const int64_t id = state_->wait_begins(call_);
    try {
      work_->wait();
    } catch (const Error& error) {
      const bool late = error.at.fault == Fault::Comm && watch.seconds() > 0.9 * state_->spec.timeout_s;
      const std::string report = late ? of_all() : "";
      state_->wait_ends(id, false);
      if (report.empty()) throw;
      fail(Fault::Comm, error.what(), "\n", report);
    }
    state_->wait_ends(id, true);
  }

 private:
  std::string of_all() const {
    const std::string own = str("this rank waits in ", call_.text(), ". What the others do is not known: ");
    try {
      const auto report = answer_within(2.5 * state_->beat_s + 3, [state = state_] { return state->report(); });
      return report ? *report
                    : own + "the first rank, which keeps their table, does not answer: it is stopped, or cut off";
    } catch (const std::exception& error) {
      return own + error.what();
    }
  }
  WorkPtr work_;
  std::shared_ptr<State> state_;
  CommCall call_;
};

class CommTrace::NotedComm final : public Comm {
 public:
  NotedComm(std::unique_ptr<Comm> comm, std::shared_ptr<State> state, std::string group, std::vector<int> ranks)
      : comm_(std::move(comm)), state_(std::move(state)), group_(std::move(group)), ranks_(std::move(ranks)) {}

  int rank() const override { return comm_->rank(); }
  int size() const override { return comm_->size(); }
  WorkPtr all_reduce(at::Tensor t, Reduce op) override {
    const CommCall call = of_all("all_reduce", bytes(t));
    return noted(call, comm_->all_reduce(std::move(t), op));
  }
  WorkPtr all_gather(at::Tensor out, at::Tensor in) override {
    const CommCall call = of_all("all_gather", bytes(out));
    return noted(call, comm_->all_gather(std::move(out), std::move(in)));
  }
  WorkPtr all_gather_uneven(std::vector<at::Tensor> out, at::Tensor in) override {
    const CommCall call = of_all("all_gather", bytes(out));
    return noted(call, comm_->all_gather_uneven(std::move(out), std::move(in)));
  }
  WorkPtr reduce_scatter(at::Tensor out, at::Tensor in, Reduce op) override {
    const CommCall call = of_all("reduce_scatter", bytes(in));
    return noted(call, comm_->reduce_scatter(std::move(out), std::move(in), op));
  }
  WorkPtr all_to_all(std::vector<at::Tensor> out, std::vector<at::Tensor> in) override {
    const CommCall call = of_all("all_to_all", bytes(in));
    return noted(call, comm_->all_to_all(std::move(out), std::move(in)));
  }
  WorkPtr broadcast(at::Tensor t, int root) override {
    const CommCall call = of_all("broadcast", bytes(t));
    return noted(call, comm_->broadcast(std::move(t), root));
  }
  WorkPtr send(at::Tensor t, int to) override {
    const CommCall call = of_two("send", bytes(t), to, rank(), to);
    return noted(call, comm_->send(std::move(t), to));
  }
  WorkPtr recv(at::Tensor t, int from) override {
    const CommCall call = of_two("recv", bytes(t), from, from, rank());
    return noted(call, comm_->recv(std::move(t), from));
  }
  void barrier() override {
    struct Barrier final : Work {
      explicit Barrier(Comm& c) : comm(c) {}
      void wait() override { comm.barrier(); }
      Comm& comm;
    };
    NotedWork(std::make_unique<Barrier>(*comm_), state_, of_all("barrier", 0)).wait();
  }

 private:
  static int64_t bytes(const at::Tensor& t) { return static_cast<int64_t>(t.nbytes()); }
  static int64_t bytes(const std::vector<at::Tensor>& list) {
    int64_t all = 0;
    for (const at::Tensor& t : list) all += bytes(t);
    return all;
  }
  CommCall of_all(const char* op, int64_t size) const {
    CommCall call{.group = group_, .op = op, .peers = {}, .counter = group_, .bytes = size};
    for (const int r : ranks_)
      if (r != state_->spec.rank) call.peers.push_back(r);
    return state_->begin(std::move(call));
  }
  CommCall of_two(const char* op, int64_t size, int other, int from, int to) const {
    return state_->begin({.group = group_,
                          .op = op,
                          .peers = {ranks_.at(static_cast<size_t>(other))},
                          .counter = str(group_, " ", from, ">", to),
                          .bytes = size});
  }
  WorkPtr noted(const CommCall& call, WorkPtr work) const {
    return std::make_unique<NotedWork>(std::move(work), state_, call);
  }

  std::unique_ptr<Comm> comm_;
  std::shared_ptr<State> state_;
  const std::string group_;
  const std::vector<int> ranks_;
};

CommTrace::CommTrace(const Spec& spec) : state_(std::make_shared<State>(spec)) {
  if (spec.store) state_->teller = std::thread([state = state_.get()] { state->tell(); });
}

CommTrace::~CommTrace() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->ended = true;
    state_->changed.notify_all();
  }
  if (state_->teller.joinable()) state_->teller.join();
}

void CommTrace::at(const std::string& where) {
  const std::lock_guard lock(state_->mutex);
  state_->mine.where = where;
}

std::unique_ptr<Comm> CommTrace::noted(std::unique_ptr<Comm> comm, const std::string& group, std::vector<int> ranks) {
  return std::make_unique<NotedComm>(std::move(comm), state_, group, std::move(ranks));
}

}  // namespace apus
