// SPDX-License-Identifier: Apache-2.0
#include "guide/grammar.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/random.h"

namespace apus::guide {

CharSet normal(CharSet set) {
  std::sort(set.begin(), set.end());
  CharSet joined;
  for (const auto& range : set) {
    if (range.first > range.second) continue;
    if (!joined.empty() && range.first <= joined.back().second + 1)
      joined.back().second = std::max(joined.back().second, range.second);
    else
      joined.push_back(range);
  }
  CharSet out;
  for (const auto& [low, high] : joined) {
    if (low < 0xD800) out.push_back({low, std::min<char32_t>(high, 0xD7FF)});
    if (high > 0xDFFF) out.push_back({std::max<char32_t>(low, 0xE000), std::min<char32_t>(high, 0x10FFFF)});
  }
  return out;
}

CharSet inverse(const CharSet& set) {
  CharSet out;
  char32_t from = 0;
  for (const auto& [low, high] : set) {
    if (low > from) out.push_back({from, low - 1});
    from = high + 1;
  }
  if (from <= 0x10FFFF) out.push_back({from, 0x10FFFF});
  return normal(std::move(out));
}

CharSet common(const CharSet& a, const CharSet& b) {
  CharSet out;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const char32_t low = std::max(a[i].first, b[j].first), high = std::min(a[i].second, b[j].second);
    if (low <= high) out.push_back({low, high});
    a[i].second < b[j].second ? ++i : ++j;
  }
  return out;
}

bool holds(const CharSet& set, char32_t c) {
  return std::any_of(set.begin(), set.end(), [c](const CharRange& r) { return r.first <= c && c <= r.second; });
}

const CharSet& all_chars() {
  static const CharSet all = normal({{0, 0x10FFFF}});
  return all;
}

size_t Grammar::HashOf::operator()(const NodeData& n) const {
  const uint64_t head = n.kind | uint64_t{n.low} << 8 | uint64_t{n.high} << 16 | uint64_t{n.next} << 32;
  return mix(head, uint64_t{n.min} << 32 | n.max, n.other);
}

Grammar::Grammar() { nodes_.push_back({.kind = NodeData::Return}); }

Node Grammar::add(const NodeData& data) {
  require(nodes_.size() < kMaxNodes, Fault::Usage, "what is to guide the answer needs more than ", kMaxNodes,
          " states; make the schema or the pattern smaller");
  nodes_.push_back(data);
  return static_cast<Node>(nodes_.size() - 1);
}

Node Grammar::make(const NodeData& data) {
  const auto found = known_.find(data);
  if (found != known_.end()) return found->second;
  const Node n = add(data);
  known_.emplace(data, n);
  return n;
}

Node Grammar::bytes(uint8_t low, uint8_t high, Node next) {
  return make({.kind = NodeData::Bytes, .low = low, .high = high, .next = next});
}
Node Grammar::never() { return bytes(1, 0, kReturn); }
Node Grammar::token(int32_t id, Node next) {
  return make({.kind = NodeData::Token, .next = next, .min = static_cast<uint32_t>(id)});
}
Node Grammar::either(Node a, Node b) {
  if (a == b) return a;
  return make({.kind = NodeData::Fork, .next = a, .other = b});
}
Node Grammar::either(const std::vector<Node>& nodes) {
  if (nodes.empty()) return never();
  Node all = nodes.back();
  for (size_t i = nodes.size() - 1; i-- > 0;) all = either(nodes[i], all);
  return all;
}

Node Grammar::call(Node what, uint32_t min, uint32_t max, Node next) {
  if (max == 0 || what == kReturn) return next;
  if (min > max) return never();
  if (min == 1 && max == 1 && next == kReturn) return what;  // a call in the last place returns to where this one would
  return make({.kind = NodeData::Call, .next = next, .other = what, .min = min, .max = max});
}

Node Grammar::literal(std::string_view text, Node next) {
  for (size_t i = text.size(); i-- > 0;) {
    const auto byte = static_cast<uint8_t>(text[i]);
    next = bytes(byte, byte, next);
  }
  return next;
}

namespace {

struct Sequence {  // UTF-8 of one length, with a range for each byte
  int length;
  uint8_t low[4], high[4];
};

int encode(char32_t c, uint8_t* out) {
  if (c < 0x80) return out[0] = static_cast<uint8_t>(c), 1;
  const int length = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  for (int i = length - 1; i > 0; --i, c >>= 6) out[i] = static_cast<uint8_t>(0x80 | (c & 63));
  static constexpr uint8_t kLead[] = {0, 0, 0xC0, 0xE0, 0xF0};
  out[0] = static_cast<uint8_t>(kLead[length] | c);
  return length;
}

// Cuts a range of characters where lengths change, and where a byte's range would depend on the one before it.
void cut(char32_t low, char32_t high, std::vector<Sequence>& out) {
  for (const char32_t end : {char32_t{0x7F}, char32_t{0x7FF}, char32_t{0xFFFF}})
    if (low <= end && end < high) {
      cut(low, end, out);
      return cut(end + 1, high, out);
    }
  for (int i = 1; i < 4 && low > 0x7F; ++i) {
    const char32_t mask = (char32_t{1} << (6 * i)) - 1;
    if ((low & ~mask) == (high & ~mask)) continue;
    if (low & mask) {
      cut(low, low | mask, out);
      return cut((low | mask) + 1, high, out);
    }
    if ((high & mask) != mask) {
      cut(low, (high & ~mask) - 1, out);
      return cut(high & ~mask, high, out);
    }
  }
  Sequence s{};
  s.length = encode(low, s.low);
  encode(high, s.high);
  out.push_back(s);
}

}  // namespace

Node Grammar::chars(const CharSet& set, Node next) {
  std::vector<Sequence> sequences;
  for (const auto& [low, high] : set) cut(low, high, sequences);
  std::vector<Node> starts;
  for (const auto& s : sequences) {
    Node node = next;
    for (int i = s.length - 1; i >= 0; --i) node = bytes(s.low[i], s.high[i], node);
    starts.push_back(node);
  }
  return either(starts);
}

Node Grammar::one_of(std::vector<std::string> texts, Node next) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  if (texts.empty()) return never();
  // Each open level holds the branches of the text that leads to it; a level closes when the next text leaves it.
  std::vector<std::vector<Node>> levels(1);
  std::string path;
  const auto close_to = [&](size_t depth) {
    while (path.size() > depth) {
      const Node below = either(levels.back());
      levels.pop_back();
      const auto byte = static_cast<uint8_t>(path.back());
      levels.back().push_back(bytes(byte, byte, below));
      path.pop_back();
    }
  };
  for (const auto& text : texts) {
    const auto differs = std::mismatch(path.begin(), path.end(), text.begin(), text.end());
    close_to(static_cast<size_t>(differs.first - path.begin()));
    path = text;
    levels.resize(path.size() + 1);
    levels.back().push_back(next);
  }
  close_to(0);
  return either(levels[0]);
}

Node Grammar::reserve() { return add({.kind = NodeData::Bytes, .low = 1, .high = 0}); }
void Grammar::define(Node reserved, Node meaning) {
  nodes_[reserved] = {.kind = NodeData::Fork, .next = meaning, .other = meaning};
}

uint32_t Grammar::computed_need(const NodeData& n, const std::vector<bool>& byte_exists) const {
  switch (n.kind) {
    case NodeData::Return:
      return 0;
    case NodeData::Token:
      return need_[n.next];
    case NodeData::Bytes: {
      // Bytes of longer characters may be missing where whole characters are tokens.
      bool any = n.high >= 0x80 && n.low <= n.high;
      for (int b = n.low; !any && b <= n.high; ++b) any = byte_exists[static_cast<size_t>(b)];
      return any ? need_[n.next] : kUnlimited;
    }
    case NodeData::Fork:
      return std::min(need_[n.next], need_[n.other]);
    case NodeData::Call: {
      if (n.min == 0) return need_[n.next];
      const uint32_t inner = need_[n.other] == kUnlimited ? kUnlimited : need_[n.other] + 1;
      return std::max(inner, need_[n.next]);
    }
  }
  return kUnlimited;
}

void Grammar::finish(Node start, const std::vector<bool>& byte_exists, std::string_view what) {
  start_ = start;
  known_.clear();
  need_.assign(nodes_.size(), kUnlimited);
  // What follows a node was mostly made before it, so few rounds do; as many as calls may nest are enough for the rest.
  bool changed = true;
  for (int round = 0; changed && round < 4 * kMaxDepth; ++round) {
    changed = false;
    for (Node n = 0; n < nodes_.size(); ++n) {
      const uint32_t need = computed_need(nodes_[n], byte_exists);
      if (need < need_[n]) need_[n] = need, changed = true;
    }
  }
  require(need_[start] <= kMaxDepth, Fault::Usage, what,
          ": no answer can satisfy this: it contradicts itself, or nests without an end");
}

}  // namespace apus::guide
