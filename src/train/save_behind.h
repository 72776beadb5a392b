// SPDX-License-Identifier: Apache-2.0
// A checkpoint that is written while the run trains on: what its files hold is copied to memory, and a thread of each
// rank that has a part writes it. The first rank's makes a checkpoint of the parts once all are there.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/held_files.h"

namespace apus {

class Store;  // device/store.h

class SaveBehind {
 public:
  struct Spec {
    std::function<int64_t()> room;  // of memory, see HeldFiles
    Store* store = nullptr;         // through which ranks tell of their parts; null: this one's is all there is
    int64_t parts = 1, rank = 0;
    std::string name;  // of the checkpoint; no other of the run has it
  };
  // Of the rank that makes the checkpoint whole.
  struct Last {
    std::function<void()> whole;                        // called when all parts are there
    std::function<void(const std::string&)> not_whole;  // called with what went wrong instead
  };
  explicit SaveBehind(Spec spec) : spec_(std::move(spec)), files_(spec_.room) {}
  ~SaveBehind();  // waits for its own part, and a little for others'
  SaveBehind(const SaveBehind&) = delete;
  SaveBehind& operator=(const SaveBehind&) = delete;

  // What `write` writes is copied; what memory has no room for is written now.
  void copy(const std::function<void()>& write);
  // Begins to write. `last`: on the rank that ends it.
  void begin(Last last = {});
  std::string written();  // waits for this rank's part; why it failed
  std::string whole();    // waits for all; why it failed
  bool done() const { return done_; }
  double seconds() const { return done_ ? took_ : since_.seconds(); }  // with the copy

 private:
  void work();
  void tell(const std::string& failure);
  std::string failure_of_parts(const std::string& own);

  Spec spec_;
  HeldFiles files_;
  Last last_;
  Stopwatch since_;
  double took_ = 0;  // known when it is done
  std::atomic<bool> done_{false}, abandoned_{false};
  std::promise<std::string> part_, all_;
  std::future<std::string> part_written_ = part_.get_future(), all_written_ = all_.get_future();
  std::thread thread_;
};

}  // namespace apus
