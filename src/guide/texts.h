// SPDX-License-Identifier: Apache-2.0
// Several patterns followed at once by one deterministic automaton over characters. It can say what forks cannot: that
// a text matches one pattern and does not match another, and what a pattern that looks around sees.
#pragma once

#include <compare>
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
  static constexpr size_t kMostPlaces = 20'000, kMostStates = 8'000, kMostWork = 20'000'000, kMostThreads = 2'000'000;
  using PlaceId = uint32_t;
  struct Place {
    // Anything: whatever follows, it matches. It ends what is looked for ahead.
    enum Kind { Chars, Fork, Ahead, Before, Match, Anything } kind = Match;
    CharSet set{};  // Chars
    // Match: next is the number. Ahead: other is the beginning of what is looked for. Before: other is its number.
    PlaceId next = 0, other = 0;
    bool absent = false;  // Ahead, Before
  };
  // Where the text so far may stand in a pattern, and what must hold of the text that follows for that to count.
  struct Demand {
    uint32_t rest;  // the number of the threads that must, or, where absent, must not come to an end
    bool absent;
    auto operator<=>(const Demand&) const = default;
  };
  struct Thread {
    PlaceId place;
    std::vector<Demand> demands{};  // sorted; all of them
    auto operator<=>(const Thread&) const = default;
  };
  using Threads = std::vector<Thread>;  // sorted; at places that wait for a character, or for the end
  struct State {
    Threads here;
    std::vector<Threads> before;  // for each pattern that is looked for behind: its own threads
    auto operator<=>(const State&) const = default;
  };
  class Walk;
  class Builder;

  PlaceId place(Place p);
  PlaceId add(const Expr& e, PlaceId next);
  PlaceId look(const Expr& e, PlaceId next);

  const std::string where_;
  std::vector<Place> places_;
  std::vector<PlaceId> starts_;
  std::vector<Expr> before_;            // what is looked for behind, those within others first
  std::vector<PlaceId> before_starts_;  // of each
  bool looks_before_ = false;           // while one of them is added
};

// What matches `e`, then `next`. `where` begins the messages of errors.
Node add_pattern(Grammar& g, const Expr& e, Spelling spelling, Node next, const std::string& where);

}  // namespace apus::guide
