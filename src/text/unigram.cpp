// SPDX-License-Identifier: Apache-2.0
// The Unigram model of tokenizer.json: the most probable way to cut a piece, found by Viterbi.
#include <algorithm>
#include <array>

#include "text/vocabulary_model.h"

namespace apus {
namespace {

constexpr double kUnknownPenalty = 10;  // below the least probable token

// All tokens that start a text, found byte by byte. Children of a node lie side by side, ordered by byte.
class Trie {
 public:
  explicit Trie(const Vocabulary& vocabulary) {
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < vocabulary.size(); ++id)  // of equal strings the one that counts
      if (vocabulary.has(id) && !vocabulary[id].empty() && vocabulary.find(vocabulary[id]) == id) ids.push_back(id);
    std::sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) { return vocabulary[a] < vocabulary[b]; });
    struct Range {
      size_t first, last, depth;
    };
    std::vector<Range> ranges{{0, ids.size(), 0}};
    nodes_.push_back({});
    bytes_.push_back(0);
    for (size_t at = 0; at < ranges.size(); ++at) {
      auto [i, last, depth] = ranges[at];
      if (i < last && vocabulary[ids[i]].size() == depth) nodes_[at].id = ids[i++];
      nodes_[at].child = static_cast<uint32_t>(nodes_.size());
      while (i < last) {
        const char byte = vocabulary[ids[i]][depth];
        size_t next = i;
        while (next < last && vocabulary[ids[next]][depth] == byte) ++next;
        ranges.push_back({i, next, depth + 1});
        nodes_.push_back({});
        bytes_.push_back(static_cast<unsigned char>(byte));
        ++nodes_[at].children;
        i = next;
      }
    }
  }
  // Calls visit(length, id) for each token that `text` starts with, shortest first.
  template <class Visit>
  void prefixes(std::string_view text, Visit&& visit) const {
    uint32_t at = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      const Node& node = nodes_[at];
      const auto* first = bytes_.data() + node.child;
      const auto* found = std::lower_bound(first, first + node.children, static_cast<unsigned char>(text[i]));
      if (found == first + node.children || *found != static_cast<unsigned char>(text[i])) return;
      at = static_cast<uint32_t>(found - bytes_.data());
      if (nodes_[at].id >= 0) visit(i + 1, nodes_[at].id);
    }
  }

 private:
  struct Node {
    uint32_t child = 0;
    uint16_t children = 0;
    int32_t id = -1;
  };
  std::vector<Node> nodes_;
  std::vector<unsigned char> bytes_;  // that lead to each node
};

class Unigram final : public VocabularyModel {
 public:
  explicit Unigram(const ModelSource& source) : byte_fallback_(source.flag("byte_fallback", false)) {
    JsonCursor cursor = source.cursor("vocab");
    cursor.array([&] {
      cursor.expect('[');
      const std::string token(cursor.string());
      cursor.expect(',');
      scores_.push_back(cursor.number());
      cursor.expect(']');
      if (scores_.size() > static_cast<size_t>(kMaxId)) cursor.error(str("more than ", kMaxId, " tokens"));
      vocabulary_.add(token, static_cast<int32_t>(scores_.size()) - 1);
    });
    vocabulary_.finish();
    if (const auto id = source.integer("unk_id")) {
      if (*id < 0 || *id >= vocabulary_.size()) source.error("unk_id", str(*id, " is not an id of the vocabulary"));
      unknown_ = static_cast<int32_t>(*id);
    }
    if (!scores_.empty()) unknown_score_ = *std::min_element(scores_.begin(), scores_.end()) - kUnknownPenalty;
    for (int b = 0; b < 256; ++b) {
      static constexpr char kHex[] = "0123456789ABCDEF";
      const char name[] = {'<', '0', 'x', kHex[b >> 4], kHex[b & 15], '>'};
      fallback_[static_cast<size_t>(b)] = vocabulary_.find({name, sizeof name});
    }
    trie_ = std::make_unique<const Trie>(vocabulary_);
  }
  void encode(std::string_view piece, TokenSink& out) const override {
    if (piece.empty()) return;
    const std::vector<Node> best = search(piece);
    std::vector<Span> path;  // last token first
    bool unknown_before = false;
    for (size_t end = piece.size(); end > 0;) {
      const Node& node = best[end];
      const bool unknown = node.id == unknown_;
      if (unknown && unknown_before)
        path.back().begin = node.from;  // neighbours of no known token are one
      else
        path.push_back({node.from, static_cast<uint32_t>(end)});
      unknown_before = unknown;
      end = node.from;
    }
    for (auto it = path.rbegin(); it != path.rend(); ++it) emit(piece.substr(it->begin, it->end - it->begin), *it, out);
  }

 private:
  struct Node {
    double score = 0;
    uint32_t from = kNone;
    int32_t id = -1;
  };
  static constexpr uint32_t kNone = ~0u;

  // The best path to each byte of the piece.
  std::vector<Node> search(std::string_view piece) const {
    std::vector<Node> best(piece.size() + 1);
    for (size_t at = 0; at < piece.size();) {
      const size_t char_length = static_cast<size_t>(unicode::utf8_length(static_cast<unsigned char>(piece[at])));
      const double here = best[at].score;
      bool covered = false;  // by a token of this one character
      const auto offer = [&](size_t length, int32_t id, double score) {
        Node& target = best[at + length];
        if (target.from == kNone || score > target.score) target = {score, static_cast<uint32_t>(at), id};
      };
      trie_->prefixes(piece.substr(at), [&](size_t length, int32_t id) {
        offer(length, id, scores_[static_cast<size_t>(id)] + here);
        covered |= length == char_length;
      });
      if (!covered) {
        offer(char_length, unknown(piece.substr(at, char_length)), unknown_score_ + here);
      }
      at += char_length;
    }
    return best;
  }

  void emit(std::string_view text, Span span, TokenSink& out) const {
    if (const int32_t id = vocabulary_.find(text); id >= 0) return out.add(id, span.begin, span.end);
    const auto known = [&](char c) { return fallback_[static_cast<unsigned char>(c)] >= 0; };
    if (byte_fallback_ && std::all_of(text.begin(), text.end(), known)) {
      for (const char c : text) out.add(fallback_[static_cast<unsigned char>(c)], span.begin, span.end);
      return;
    }
    out.add(unknown(text), span.begin, span.end);
  }

  bool byte_fallback_;
  double unknown_score_ = 0;
  std::vector<double> scores_;
  std::array<int32_t, 256> fallback_;
  std::unique_ptr<const Trie> trie_;
};

}  // namespace

std::unique_ptr<const TokenModel> make_unigram(const ModelSource& source) { return std::make_unique<Unigram>(source); }

}  // namespace apus
