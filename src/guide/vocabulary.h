// SPDX-License-Identifier: Apache-2.0
// The tokens of a model as a tree of their bytes, laid out so that a walk reads memory in order.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace apus::guide {

class Vocabulary {
 public:
  Vocabulary(const Tokenizer& tokenizer, std::span<const int32_t> stop_ids);

  // In depth-first order. A walk that cannot go on at a node skips to its `end`.
  struct Place {
    uint32_t end;
    int32_t token;        // -1: only a way to others
    uint8_t byte, depth;  // depth 1: the first byte
  };
  static constexpr size_t kLongest = 255;  // bytes; longer tokens are never allowed

  const std::vector<Place>& places() const { return places_; }
  std::string_view bytes(int32_t token) const;  // "" for special ones, stop tokens and ids without a token
  size_t size() const { return first_.size() - 1; }
  const std::vector<int32_t>& stops() const { return stops_; }
  const std::vector<int32_t>& breaks() const { return breaks_; }         // tokens of one or two line breaks
  const std::vector<bool>& byte_exists() const { return byte_exists_; }  // as a token of its own
  int32_t special(std::string_view text) const;                          // its id; -1: there is none
  const std::map<std::string, int32_t, std::less<>>& specials() const { return specials_; }

 private:
  void build(std::vector<int32_t> order);

  std::string all_;              // the bytes of all tokens
  std::vector<uint32_t> first_;  // where those of a token begin
  std::vector<Place> places_;
  std::vector<int32_t> stops_, breaks_;
  std::vector<bool> byte_exists_;
  std::map<std::string, int32_t, std::less<>> specials_;
};

}  // namespace apus::guide
