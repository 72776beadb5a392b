// SPDX-License-Identifier: Apache-2.0
#include "guide/texts.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "text/unicode.h"

namespace apus::guide {

Texts::PlaceId Texts::place(Place p) {
  require(places_.size() < kMostPlaces, Fault::Usage, where_, ": more than ", kMostPlaces,
          " places in patterns that must be followed together; make repetitions shorter");
  places_.push_back(std::move(p));
  return static_cast<PlaceId>(places_.size() - 1);
}

// From the end: the place where `e` begins that goes on to `next`.
Texts::PlaceId Texts::add(const Expr& e, PlaceId next) {
  switch (e.kind) {
    case Expr::Chars:
      return place({.kind = Place::Chars, .set = e.set, .next = next});
    case Expr::Sequence:
      for (size_t i = e.parts.size(); i-- > 0;) next = add(e.parts[i], next);
      return next;
    case Expr::Choice: {
      PlaceId all = add(e.parts[0], next);
      for (size_t i = 1; i < e.parts.size(); ++i)
        all = place({.kind = Place::Fork, .next = all, .other = add(e.parts[i], next)});
      return all;
    }
    case Expr::Repeat: {
      if (e.max == kUnlimited) {
        const PlaceId loop = place({.kind = Place::Fork, .next = next, .other = next});
        const PlaceId body = add(e.parts[0], loop);
        places_[loop].other = body;
        next = loop;
      } else {
        const PlaceId end = next;
        for (uint32_t i = e.min; i < e.max; ++i)
          next = place({.kind = Place::Fork, .next = add(e.parts[0], next), .other = end});
      }
      for (uint32_t i = 0; i < e.min; ++i) next = add(e.parts[0], next);
      return next;
    }
    case Expr::Look:
      return look(e, next);
    default:
      return next;  // anchors at the borders have done their work
  }
}

Texts::PlaceId Texts::look(const Expr& e, PlaceId next) {
  if (!e.before) {
    require(!looks_before_, Fault::Usage, where_,
            ": what looks ahead (\\b, $ and (?=...) do) is not supported within a look-behind");
    const PlaceId body = add(e.parts[0], place({.kind = Place::Anything}));
    return place({.kind = Place::Ahead, .next = next, .other = body, .absent = e.absent});
  }
  auto known = std::find(before_.begin(), before_.end(), e.parts[0]);
  if (known == before_.end()) {
    // It may begin anywhere.
    const bool nested = std::exchange(looks_before_, true);
    const PlaceId loop = place({.kind = Place::Fork});
    const PlaceId body = add(e.parts[0], place({.kind = Place::Match}));
    looks_before_ = nested;
    const PlaceId on = place({.kind = Place::Chars, .set = all_chars(), .next = loop});
    places_[loop].next = body;
    places_[loop].other = on;
    known = before_.insert(before_.end(), e.parts[0]);
    before_starts_.push_back(loop);
  }
  const auto number = static_cast<PlaceId>(known - before_.begin());
  return place({.kind = Place::Before, .next = next, .other = number, .absent = e.absent});
}

size_t Texts::add(const Expr& e) {
  const size_t number = starts_.size();
  starts_.push_back(add(e, place({.kind = Place::Match, .next = static_cast<PlaceId>(number)})));
  return number;
}

size_t Texts::add(const std::vector<std::string>& literals) {
  Expr any{.kind = Expr::Choice};
  for (const auto& text : literals) {
    Expr one{.kind = Expr::Sequence};
    for (const char *p = text.data(), *end = p + text.size(); p < end;) {
      const char32_t c = unicode::next_char(p);
      one.parts.push_back({.kind = Expr::Chars, .set = {{c, c}}});
    }
    any.parts.push_back(std::move(one));
  }
  if (any.parts.empty()) any = {.kind = Expr::Chars};  // no character: never
  return add(any);
}

// Goes through a text, character by character.
class Texts::Walk {
 public:
  explicit Walk(const Texts& texts) : t_(texts), marks_(texts.places_.size()) {}

  State first() {
    begin();
    for (const PlaceId start : t_.before_starts_) before_.push_back(closed({{.place = start}}));
    Threads all;
    for (const PlaceId start : t_.starts_) all.push_back({.place = start});
    Threads here = closed(std::move(all));
    return {std::move(here), std::move(before_)};
  }
  // `open`: the places that let the character pass, sorted.
  State after(const State& state, const std::vector<PlaceId>& open) {
    begin();
    for (const Threads& threads : state.before) before_.push_back(passed(threads, open));
    Threads here = passed(state.here, open);
    return {std::move(here), std::move(before_)};
  }

  // Those that wait for a character.
  std::vector<PlaceId> open_places(const State& state) const {
    std::set<PlaceId> found;
    std::set<uint32_t> seen;
    const auto look = [&](const auto& self, const Threads& threads) -> void {
      for (const Thread& t : threads) {
        if (kind(t) == Place::Chars) found.insert(t.place);
        for (const Demand& d : t.demands)
          if (seen.insert(d.rest).second) self(self, *rests_[d.rest]);
      }
    };
    look(look, state.here);
    for (const Threads& threads : state.before) look(look, threads);
    return {found.begin(), found.end()};
  }

  Matches matches(const State& state) const {
    Matches m(t_.starts_.size());
    for (const Thread& t : state.here)
      if (kind(t) == Place::Match && holds_at_end(t)) m[t_.places_[t.place].next] = true;
    return m;
  }

  void worked(size_t steps) {
    work_ += steps;
    require(work_ <= kMostWork, Fault::Usage, t_.where_, ": patterns that are too complex to be followed together");
  }
  void keeps(size_t threads) {
    kept_ += threads;
    require(kept_ <= kMostThreads, Fault::Usage, t_.where_, ": patterns that are too complex to be followed together");
  }

 private:
  void begin() {
    before_.clear();
    passed_.clear();
    ahead_.clear();
  }
  Place::Kind kind(const Thread& t) const { return t_.places_[t.place].kind; }
  bool holds_at_end(const Thread& t) const {
    return std::all_of(t.demands.begin(), t.demands.end(),
                       [this](const Demand& d) { return ends_[d.rest] != d.absent; });
  }
  bool ends(const Threads& threads) const {
    return std::any_of(threads.begin(), threads.end(), [this](const Thread& t) {
      return (kind(t) == Place::Match || kind(t) == Place::Anything) && holds_at_end(t);
    });
  }
  bool certain(const Threads& threads) const {
    return threads.size() == 1 && threads[0].demands.empty() && kind(threads[0]) == Place::Anything;
  }
  uint32_t number_of(const Threads& rest) {
    const auto [at, added] = numbers_.try_emplace(rest, static_cast<uint32_t>(rests_.size()));
    if (added) {
      rests_.push_back(&at->first);
      ends_.push_back(ends(rest));
      keeps(rest.size());
    }
    return at->second;
  }

  // Adds what is demanded of the text from here on. False: it cannot be.
  bool demand(Thread& thread, bool absent, uint32_t rest) const {
    if (certain(*rests_[rest])) return !absent;
    if (rests_[rest]->empty()) return absent;
    const Demand one{rest, absent};
    const auto at = std::lower_bound(thread.demands.begin(), thread.demands.end(), one);
    if (at == thread.demands.end() || *at != one) thread.demands.insert(at, one);
    return true;
  }

  Threads passed(const Threads& threads, const std::vector<PlaceId>& open) {
    Threads out;
    for (const Thread& t : threads) {
      const bool anything = kind(t) == Place::Anything;
      if (!anything && !std::binary_search(open.begin(), open.end(), t.place)) continue;
      Thread next{.place = anything ? t.place : t_.places_[t.place].next};
      const bool possible = std::all_of(t.demands.begin(), t.demands.end(), [&](const Demand& d) {
        auto known = passed_.find(d.rest);
        if (known == passed_.end()) known = passed_.emplace(d.rest, number_of(passed(*rests_[d.rest], open))).first;
        return demand(next, d.absent, known->second);
      });
      if (possible) out.push_back(std::move(next));
    }
    return closed(std::move(out));
  }

  // Goes on to where a character is needed.
  Threads closed(Threads todo) {
    Threads out;
    std::map<PlaceId, std::vector<std::vector<Demand>>> seen;
    const uint32_t mark = ++mark_;
    while (!todo.empty()) {
      Thread t = std::move(todo.back());
      todo.pop_back();
      worked(1);
      if (marks_[t.place] == mark) continue;
      if (t.demands.empty()) {
        marks_[t.place] = mark;
      } else {
        auto& before = seen[t.place];
        worked(t.demands.size() * (1 + before.size()));
        if (std::any_of(before.begin(), before.end(), [&](const auto& less) { return all_in(less, t.demands); }))
          continue;
        before.push_back(t.demands);
      }
      const Place& p = t_.places_[t.place];
      const auto go = [&](PlaceId to) { todo.push_back({.place = to, .demands = t.demands}); };
      switch (p.kind) {
        case Place::Fork:
          go(p.next);
          go(p.other);
          break;
        case Place::Ahead:
          t.place = p.next;
          if (demand(t, p.absent, ahead(p.other))) todo.push_back(std::move(t));
          break;
        case Place::Before:
          if (ends(before_[p.other]) != p.absent) go(p.next);
          break;
        default:
          out.push_back(std::move(t));
      }
    }
    return simple(std::move(out));
  }
  uint32_t ahead(PlaceId start) {
    if (const auto known = ahead_.find(start); known != ahead_.end()) return known->second;
    return ahead_.emplace(start, number_of(closed({{.place = start}}))).first->second;
  }

  static bool all_in(const std::vector<Demand>& less, const std::vector<Demand>& more) {
    return std::includes(more.begin(), more.end(), less.begin(), less.end());
  }
  // Without those that ask for more than another in the same place.
  Threads simple(Threads threads) {
    std::sort(threads.begin(), threads.end());
    threads.erase(std::unique(threads.begin(), threads.end()), threads.end());
    Threads out;
    for (size_t i = 0, end = 0; i < threads.size(); i = end) {
      while (end < threads.size() && threads[end].place == threads[i].place) ++end;
      for (size_t j = i; j < end; ++j) {
        worked((end - i) * threads[j].demands.size());
        bool needed = true;
        for (size_t k = i; k < end && needed; ++k) needed = k == j || !all_in(threads[k].demands, threads[j].demands);
        if (!needed) continue;
        if (const Threads one{threads[j]}; certain(one)) return one;
        out.push_back(threads[j]);
      }
    }
    return out;
  }

  const Texts& t_;
  std::map<Threads, uint32_t> numbers_;  // of what is demanded
  std::vector<const Threads*> rests_;    // by number
  std::vector<bool> ends_;               // by number: the text may end here
  size_t work_ = 0, kept_ = 0;
  // Places that were reached without demands, by the number of the search.
  std::vector<uint32_t> marks_;
  uint32_t mark_ = 0;
  // Of one position in the text.
  std::vector<Threads> before_;
  std::map<uint32_t, uint32_t> passed_;
  std::map<PlaceId, uint32_t> ahead_;
};

Texts::Matches Texts::matches(std::string_view text) const {
  Walk walk(*this);
  State state = walk.first();
  for (const char *p = text.data(), *end = p + text.size(); p < end;) {
    const char32_t c = unicode::next_char(p);
    std::vector<PlaceId> open = walk.open_places(state);
    std::erase_if(open, [&](PlaceId id) { return !holds(places_[id].set, c); });
    state = walk.after(state, open);
  }
  return walk.matches(state);
}

// States become nodes from the end on; only what leads back to a state under way needs a reserved one.
class Texts::Builder {
 public:
  Builder(const Texts& texts, Grammar& g, Spelling spelling, const CharSet& allowed, const Follow& follow)
      : t_(texts), g_(g), spelling_(spelling), allowed_(allowed), follow_(follow) {}

  Node node() { return node(walk_.first()); }

 private:
  Node node(const State& state) {
    if (const auto known = nodes_.find(state); known != nodes_.end()) return known->second;
    if (under_way_.count(state)) return nodes_.emplace(state, g_.reserve()).first->second;
    require(nodes_.size() + under_way_.size() < kMostStates, Fault::Usage, t_.where_, ": more than ", kMostStates,
            " states of patterns that must be followed together; make them simpler, or lengths smaller");
    under_way_.insert(state);
    walk_.keeps(state.here.size());
    for (const Threads& threads : state.before) walk_.keeps(threads.size());
    std::vector<Node> ways;
    for (const auto& [to, set] : edges(state)) ways.push_back(add_chars(g_, set, spelling_, node(to)));
    if (const auto after = follow_(walk_.matches(state))) ways.push_back(*after);
    const Node meaning = g_.either(ways);
    under_way_.erase(state);
    const auto [at, first] = nodes_.emplace(state, meaning);
    if (!first) g_.define(at->second, meaning);
    return at->second;
  }

  // Where each character leads: the line of characters is cut wherever the sets of this state's places begin or end,
  // and stretches that the same places let pass lead to the same state.
  std::map<State, CharSet> edges(const State& state) {
    struct Border {
      char32_t at;
      bool begins;
      PlaceId place;
    };
    std::vector<Border> borders;
    for (const PlaceId id : walk_.open_places(state))
      for (const CharRange& r : common(t_.places_[id].set, allowed_)) {
        borders.push_back({r.first, true, id});
        borders.push_back({r.second + 1, false, id});
      }
    std::sort(borders.begin(), borders.end(), [](const Border& a, const Border& b) { return a.at < b.at; });
    std::map<std::vector<PlaceId>, CharSet> stretches;
    std::set<PlaceId> open;
    for (size_t i = 0; i < borders.size(); ++i) {
      borders[i].begins ? (void)open.insert(borders[i].place) : (void)open.erase(borders[i].place);
      if (i + 1 == borders.size() || borders[i + 1].at == borders[i].at || open.empty()) continue;
      stretches[{open.begin(), open.end()}].push_back({borders[i].at, borders[i + 1].at - 1});
      walk_.worked(open.size());
    }
    std::map<State, CharSet> out;
    for (const auto& [places, set] : stretches) {
      State next = walk_.after(state, places);
      if (next.here.empty()) continue;
      CharSet& all = out[std::move(next)];
      all.insert(all.end(), set.begin(), set.end());
    }
    for (auto& [to, set] : out) set = normal(std::move(set));
    return out;
  }

  const Texts& t_;
  Grammar& g_;
  const Spelling spelling_;
  const CharSet& allowed_;
  const Follow& follow_;
  std::map<State, Node> nodes_;
  std::set<State> under_way_;
  Walk walk_{t_};
};

Node Texts::node(Grammar& g, Spelling spelling, const CharSet& allowed, const Follow& follow) const {
  return Builder(*this, g, spelling, allowed, follow).node();
}

Node add_pattern(Grammar& g, const Expr& e, Spelling spelling, Node next, const std::string& where) {
  if (!looks_around(e)) return add_expr(g, e, spelling, next);
  Texts texts(where);
  texts.add(e);
  return texts.node(g, spelling, all_chars(),
                    [next](const Texts::Matches& m) { return m[0] ? std::optional(next) : std::nullopt; });
}

}  // namespace apus::guide
