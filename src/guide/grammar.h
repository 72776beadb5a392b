// SPDX-License-Identifier: Apache-2.0
// The texts that are allowed, as a nondeterministic automaton over bytes whose nodes may call others: enough for
// regular expressions (a call can be repeated a number of times) and for JSON (calls nest). It is built from the end:
// every function takes the node that follows.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace apus::guide {

using Node = uint32_t;
constexpr uint32_t kUnlimited = std::numeric_limits<uint32_t>::max();

struct NodeData {
  enum Kind : uint8_t { Bytes, Token, Fork, Call, Return } kind = Return;
  uint8_t low = 0, high = 0;  // Bytes: the range of one byte; low > high: none
  // Fork: both are tried. Call: `other` is what is called, `next` follows it.
  Node next = 0, other = 0;
  uint32_t min = 0, max = 0;  // Call: how often it is repeated. Token: min is its id
  bool operator==(const NodeData&) const = default;
};

using CharRange = std::pair<char32_t, char32_t>;  // both included
using CharSet = std::vector<CharRange>;
CharSet normal(CharSet set);          // sorted, joined, without surrogates
CharSet inverse(const CharSet& set);  // all other characters; `set` is normal
CharSet common(const CharSet& a, const CharSet& b);
bool holds(const CharSet& set, char32_t c);
const CharSet& all_chars();

class Grammar {
 public:
  static constexpr Node kReturn = 0;  // the end of a call, or of the whole text
  static constexpr size_t kMaxNodes = 300'000;
  static constexpr int kMaxDepth = 250;  // calls within calls, while running

  Grammar();
  Node bytes(uint8_t low, uint8_t high, Node next);
  Node never();                       // nothing goes on from here
  Node token(int32_t id, Node next);  // one certain token, by its id: special tokens have no bytes
  Node either(Node a, Node b);
  Node either(const std::vector<Node>& nodes);
  Node call(Node what, uint32_t min, uint32_t max, Node next);  // `what` ends in kReturn
  Node literal(std::string_view text, Node next);
  Node chars(const CharSet& set, Node next);               // one character of the set, as UTF-8; the set is normal
  Node one_of(std::vector<std::string> texts, Node next);  // common beginnings are shared
  Node reserve();                                          // a node to be defined later: recursion
  void define(Node reserved, Node meaning);

  // To be called after the last change. Finds how deep calls must nest from each node to the end of its own call, given
  // the bytes that exist in the vocabulary. kUnlimited: no end can be reached.
  // Fault::Usage when that holds for the start.
  void finish(Node start, const std::vector<bool>& byte_exists, std::string_view what);

  Node start() const { return start_; }
  const NodeData& operator[](Node n) const { return nodes_[n]; }
  uint32_t need(Node n) const { return need_[n]; }
  size_t size() const { return nodes_.size(); }

 private:
  struct HashOf {
    size_t operator()(const NodeData& n) const;
  };
  Node add(const NodeData& data);
  Node make(const NodeData& data);  // gives the same node for the same data
  uint32_t computed_need(const NodeData& n, const std::vector<bool>& byte_exists) const;

  std::vector<NodeData> nodes_;
  std::vector<uint32_t> need_;
  std::unordered_map<NodeData, Node, HashOf> known_;
  Node start_ = kReturn;
};

}  // namespace apus::guide
