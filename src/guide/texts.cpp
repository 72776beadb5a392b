// SPDX-License-Identifier: Apache-2.0
#include "guide/texts.h"

#include <algorithm>
#include <map>
#include <set>

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
    default:
      return next;  // anchors at the borders have done their work
  }
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

Texts::State Texts::closed(const std::vector<PlaceId>& from) const {
  State out;
  std::vector<PlaceId> todo = from;
  std::vector<bool> seen(places_.size());
  while (!todo.empty()) {
    const PlaceId id = todo.back();
    todo.pop_back();
    if (seen[id]) continue;
    seen[id] = true;
    const Place& p = places_[id];
    if (p.kind == Place::Fork)
      todo.push_back(p.next), todo.push_back(p.other);
    else
      out.push_back(id);
  }
  std::sort(out.begin(), out.end());
  return out;
}

Texts::Matches Texts::matches_of(const State& state) const {
  Matches m(starts_.size());
  for (const PlaceId id : state)
    if (places_[id].kind == Place::Match) m[places_[id].next] = true;
  return m;
}

Texts::Matches Texts::matches(std::string_view text) const {
  State state = closed(starts_);
  for (const char *p = text.data(), *end = p + text.size(); p < end;) {
    const char32_t c = unicode::next_char(p);
    std::vector<PlaceId> next;
    for (const PlaceId id : state)
      if (places_[id].kind == Place::Chars && holds(places_[id].set, c)) next.push_back(places_[id].next);
    state = closed(next);
  }
  return matches_of(state);
}

// States become nodes from the end on; only what leads back to a state under way needs a reserved one.
class Texts::Builder {
 public:
  Builder(const Texts& texts, Grammar& g, Spelling spelling, const CharSet& allowed, const Follow& follow)
      : t_(texts), g_(g), spelling_(spelling), allowed_(allowed), follow_(follow) {}

  Node node(const State& state) {
    if (const auto known = nodes_.find(state); known != nodes_.end()) return known->second;
    if (under_way_.count(state)) return nodes_.emplace(state, g_.reserve()).first->second;
    require(nodes_.size() + under_way_.size() < kMostStates, Fault::Usage, t_.where_, ": more than ", kMostStates,
            " states of patterns that must be followed together; make them simpler, or lengths smaller");
    under_way_.insert(state);
    std::vector<Node> ways;
    for (const auto& [to, set] : edges(state)) ways.push_back(add_chars(g_, set, spelling_, node(to)));
    if (const auto after = follow_(t_.matches_of(state))) ways.push_back(*after);
    const Node meaning = g_.either(ways);
    under_way_.erase(state);
    const auto [at, first] = nodes_.emplace(state, meaning);
    if (!first) g_.define(at->second, meaning);
    return at->second;
  }

 private:
  // Where each character leads: the line of characters is cut wherever the sets of this state's places begin or end.
  std::map<State, CharSet> edges(const State& state) {
    std::vector<std::pair<CharRange, PlaceId>> ranges;
    std::vector<char32_t> points;
    for (const PlaceId id : state) {
      if (t_.places_[id].kind != Place::Chars) continue;
      for (const CharRange& r : common(t_.places_[id].set, allowed_)) {
        ranges.push_back({r, t_.places_[id].next});
        points.push_back(r.first);
        points.push_back(r.second + 1);
      }
    }
    std::sort(points.begin(), points.end());
    points.erase(std::unique(points.begin(), points.end()), points.end());
    work_ += points.size() * ranges.size();
    require(work_ <= kMostWork, Fault::Usage, t_.where_, ": patterns that are too complex to be followed together");
    std::map<State, CharSet> out;
    for (size_t i = 0; i + 1 < points.size(); ++i) {
      std::vector<PlaceId> next;
      for (const auto& [range, to] : ranges)
        if (range.first <= points[i] && points[i] <= range.second) next.push_back(to);
      if (!next.empty()) out[t_.closed(next)].push_back({points[i], points[i + 1] - 1});
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
  size_t work_ = 0;
};

Node Texts::node(Grammar& g, Spelling spelling, const CharSet& allowed, const Follow& follow) const {
  return Builder(*this, g, spelling, allowed, follow).node(closed(starts_));
}

}  // namespace apus::guide
