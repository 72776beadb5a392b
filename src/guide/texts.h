// SPDX-License-Identifier: Apache-2.0
// Several patterns followed at once by one deterministic automaton over characters. It can say what forks cannot: that
// a text matches one pattern and does not match another.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "guide/regex.h"

namespace apus::guide {

class Texts {
 public:
  explicit Texts(std::string where) : where_(std::move(where)) {}  // for the messages of errors, Fault::Usage

  size_t add(const Expr& e);  // its number
  size_t add(const std::vector<std::string>& literals);

  using Matches = std::vector<bool>;  // by number
  Matches matches(std::string_view text) const;

  // Texts of `allowed` characters that are the beginning of a match of at least one pattern. `follow` gives the node
  // after a text with these matches; nothing: no text may end with them.
  using Follow = std::function<std::optional<Node>(const Matches&)>;
  Node node(Grammar& g, Spelling spelling, const CharSet& allowed, const Follow& follow) const;

 private:
  static constexpr size_t kMostPlaces = 20'000, kMostStates = 8'000, kMostWork = 20'000'000;
  using PlaceId = uint32_t;
  struct Place {
    enum Kind { Chars, Fork, Match } kind = Match;
    CharSet set{};                // Chars
    PlaceId next = 0, other = 0;  // Match: next is the number
  };
  using State = std::vector<PlaceId>;  // sorted; Chars and Match only
  class Builder;

  PlaceId place(Place p);
  PlaceId add(const Expr& e, PlaceId next);
  State closed(const std::vector<PlaceId>& from) const;
  Matches matches_of(const State& state) const;

  const std::string where_;
  std::vector<Place> places_;
  std::vector<PlaceId> starts_;
};

}  // namespace apus::guide
