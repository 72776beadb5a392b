// SPDX-License-Identifier: Apache-2.0
// Runs a grammar: a state is the set of nodes at which the text so far may stand, each with the calls it is inside of.
// States, the way from one to the next, and the tokens they allow are found when they are first needed, and kept for
// every answer that follows the same grammar. Thread-safe.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "guide/grammar.h"
#include "guide/vocabulary.h"

namespace apus::guide {

// What was found so far. When it has grown too large, all of it is replaced; those who still use the old one keep it.
class Tables {
 public:
  static constexpr size_t kMaxThreads = 2000;     // of one state: more means a pattern too ambiguous to follow
  static constexpr int64_t kMaxWork = 1'000'000;  // steps for one token mask
  static constexpr size_t kMaxStateBytes = 24u << 20, kMaxMaskBytes = 8u << 20, kMaxBytesAtOnce = 96u << 20;

  Tables(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const Vocabulary> vocabulary);

  uint32_t start();
  uint32_t after(uint32_t state, int32_t token);
  void mask(uint32_t state, std::vector<uint64_t>& out);
  bool finished(uint32_t state);                               // complete, and nothing can follow
  bool complete(uint32_t state);                               // the text may end here
  static bool dead(uint32_t state) { return state == kDead; }  // nothing leads here that is allowed
  bool full();
  uint32_t take_over(Tables& old, uint32_t state);  // a state of the old tables in these

 private:
  static constexpr uint32_t kUnknown = ~0u, kDead = 0;
  struct Thread {
    Node node;
    uint32_t frame;
    bool operator==(const Thread&) const = default;
    auto operator<=>(const Thread&) const = default;
  };
  struct Frame {
    uint32_t parent;
    Node call;
    uint32_t count, depth;
  };
  struct FrameKey {
    uint32_t parent, call, count;
    bool operator==(const FrameKey&) const = default;
  };
  struct FrameHash {
    size_t operator()(const FrameKey& k) const;
  };
  struct State {
    std::vector<Thread> threads;  // sorted; all wait for a byte or a token
    bool complete = false;
  };

  void find_classes();
  void begin();  // of one piece of work
  uint32_t next(uint32_t state, uint8_t byte);
  uint32_t frame(uint32_t parent, Node call, uint32_t count);
  void follow(Node node, uint32_t frame);  // to where a byte is needed; into open_
  void return_from(uint32_t frame);
  uint32_t close();  // the state of open_
  void walk(uint32_t state, std::vector<uint64_t>& out);

  const std::shared_ptr<const Grammar> grammar_;
  const std::shared_ptr<const Vocabulary> vocabulary_;
  std::array<uint16_t, 256> class_of_{};
  std::vector<uint8_t> byte_of_class_;

  std::mutex mutex_;  // guards all below
  std::vector<State> states_;
  std::vector<uint32_t> next_;  // [state][class of bytes]
  std::unordered_multimap<uint64_t, uint32_t> state_by_hash_;
  std::vector<Frame> frames_;  // 0: outside of every call
  std::unordered_map<FrameKey, uint32_t, FrameHash> frame_ids_;
  std::unordered_map<uint32_t, std::vector<uint64_t>> masks_;
  size_t state_bytes_ = 0, mask_bytes_ = 0;
  int64_t work_ = 0;
  // The state being made.
  std::vector<Thread> open_, todo_;
  std::unordered_set<uint64_t> seen_;
  bool open_complete_ = false;
};

class Machine {
 public:
  Machine(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const Vocabulary> vocabulary);
  std::shared_ptr<Tables> tables();                                         // the ones in use
  std::shared_ptr<Tables> instead_of(const std::shared_ptr<Tables>& full);  // new ones, unless that was done already

 private:
  const std::shared_ptr<const Grammar> grammar_;
  const std::shared_ptr<const Vocabulary> vocabulary_;
  std::mutex mutex_;
  std::shared_ptr<Tables> tables_;
};

}  // namespace apus::guide
