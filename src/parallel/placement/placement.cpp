// SPDX-License-Identifier: Apache-2.0
#include "parallel/placement/placement.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/clock.h"
#include "base/error.h"
#include "base/nearest.h"

namespace apus {

namespace {

using Places = std::vector<int>;  // per part, or per group

bool within(const std::string& name, const std::string& prefix) {
  return prefix.empty() || name == prefix || name.starts_with(prefix + ".");
}

// ---- how much lies where

Placement counted(const PlacementRequest& ask, const Places& room, int64_t tokens) {
  Placement p{room, std::vector<int64_t>(ask.rooms.size()), std::vector<int64_t>(ask.rooms.size()), tokens};
  for (size_t i = 0; i < ask.parts.size(); ++i) {
    const Part& part = ask.parts[i];
    const auto at = static_cast<size_t>(room[i]);
    const bool shared = part.may_leave && room[i] == room[static_cast<size_t>(part.follows)];
    p.weights[at] += shared ? 0 : part.weights;
    p.cache[at] += part.cache;
  }
  return p;
}

int64_t load(const Placement& p, size_t room) { return p.weights[room] + p.cache[room] * p.tokens; }

bool fits(const PlacementRequest& ask, const Placement& p) {
  for (size_t r = 0; r < ask.rooms.size(); ++r)
    if (load(p, r) > ask.room(r)) return false;
  return true;
}

// ---- what we decide: parts in order over devices in order

// Parts that follow are in the load of the part they follow.
struct Group {
  int part;
  int64_t bytes;
};

std::vector<Group> groups_of(const PlacementRequest& ask, int64_t tokens) {
  std::vector<Group> groups;
  std::vector<size_t> group(ask.parts.size());
  for (size_t i = 0; i < ask.parts.size(); ++i) {
    const Part& p = ask.parts[i];
    if (p.follows >= 0) {
      if (!p.may_leave) groups[group[static_cast<size_t>(p.follows)]].bytes += p.weights;
      continue;
    }
    group[i] = groups.size();
    groups.push_back({static_cast<int>(i), p.weights + p.cache * tokens});
  }
  return groups;
}

// Each device takes groups in order until it is filled up to `level` of its room: the fewest devices for that level.
std::optional<Places> filled(const std::vector<Group>& groups, const std::vector<double>& rooms, double level) {
  Places out;
  size_t device = 0;
  double taken = 0;
  for (const Group& g : groups) {
    const auto bytes = static_cast<double>(g.bytes);
    for (; device < rooms.size() && taken + bytes > rooms[device] * level; ++device) taken = 0;
    if (device == rooms.size()) return std::nullopt;
    taken += bytes;
    out.push_back(static_cast<int>(device));
  }
  return out;
}

// The lowest level at which all groups find a place, and a hundredth more,
// so that a norm of some bytes gets no device alone.
std::optional<Places> balanced(const std::vector<Group>& groups, const std::vector<double>& rooms) {
  auto best = filled(groups, rooms, 1);
  double low = 0, high = 1;
  for (int i = 0; best && i < 40; ++i) {
    const double level = (low + high) / 2;
    if (auto better = filled(groups, rooms, level))
      best = std::move(better), high = level;
    else
      low = level;
  }
  return best ? filled(groups, rooms, std::min(1.0, high * 1.01)) : best;
}

// The fewest devices that suffice, those with most room, filled alike: each border costs a copy and a wait.
std::optional<Places> fewest(const std::vector<Group>& groups, const std::vector<double>& rooms) {
  std::vector<size_t> by_room(rooms.size());
  std::iota(by_room.begin(), by_room.end(), size_t{0});
  std::stable_sort(by_room.begin(), by_room.end(), [&](size_t a, size_t b) { return rooms[a] > rooms[b]; });
  for (size_t count = 1; count <= rooms.size(); ++count) {
    std::vector<double> some(rooms.size(), 0);  // the others have no room
    for (size_t i = 0; i < count; ++i) some[by_room[i]] = rooms[by_room[i]];
    if (auto found = balanced(groups, some)) return found;
  }
  return std::nullopt;
}

// The first device keeps as much as it can for other work: it holds only what the others cannot.
std::optional<Places> low_first(const std::vector<Group>& groups, const std::vector<double>& rooms) {
  double first = 0;
  std::vector<double> rest = rooms;
  rest[0] = 0;
  for (size_t begin = 0; begin <= groups.size(); ++begin) {
    const std::vector<Group> others(groups.begin() + static_cast<std::ptrdiff_t>(begin), groups.end());
    if (auto found = balanced(others, rest)) {
      found->insert(found->begin(), begin, 0);
      return found;
    }
    if (begin < groups.size()) first += static_cast<double>(groups[begin].bytes);
    if (first > rooms[0]) break;
  }
  return std::nullopt;
}

bool has_host(const PlacementRequest& ask) {
  return std::any_of(ask.rooms.begin(), ask.rooms.end(), [](const Room& r) { return r.host; });
}

std::optional<Places> decided(const PlacementRequest& ask, int64_t tokens) {
  const auto groups = groups_of(ask, tokens);
  std::vector<double> rooms;
  for (size_t r = 0; r < ask.rooms.size(); ++r) rooms.push_back(static_cast<double>(std::max<int64_t>(0, ask.room(r))));
  const std::string how = has_host(ask) ? "sequential" : ask.map.strategy;  // the processor gets what is over
  const auto group_room = how == "sequential"       ? filled(groups, rooms, 1)
                          : how == "balanced"       ? balanced(groups, rooms)
                          : how == "balanced_low_0" ? low_first(groups, rooms)
                                                    : fewest(groups, rooms);
  if (!group_room) return std::nullopt;
  Places room(ask.parts.size());
  for (size_t g = 0; g < groups.size(); ++g) room[static_cast<size_t>(groups[g].part)] = (*group_room)[g];
  for (size_t i = 0; i < ask.parts.size(); ++i)
    if (ask.parts[i].follows >= 0) room[i] = room[static_cast<size_t>(ask.parts[i].follows)];
  return room;
}

// ---- what a map decides

std::string rooms_there(const PlacementRequest& ask) {
  std::vector<std::string> names;
  for (const Room& r : ask.rooms) names.push_back(r.device);
  return join(names);
}

int room_named(const PlacementRequest& ask, const std::string& written, const std::string& module) {
  const std::string name = full_device_name(written, ask.kind);
  for (size_t r = 0; r < ask.rooms.size(); ++r)
    if (ask.rooms[r].device == name) return static_cast<int>(r);
  fail(Fault::Usage, "--device_map: ", module.empty() ? "everything" : "'" + module + "'", " is on ", name,
       ", which is not there; there are ", rooms_there(ask),
       " (what the visibility variable hides, and what --max_memory leaves out, is not counted)");
}

// Every name in the map must mean something: part of a part must not be torn from it.
void check_names(const PlacementRequest& ask) {
  std::vector<std::string> names;
  for (const Part& p : ask.parts) names.push_back(p.name);
  for (const auto& [module, device] : ask.map.entries) {
    const auto means = [&m = module](const std::string& name) { return within(name, m) || within(m, name); };
    // That one holds no weights.
    if (std::any_of(names.begin(), names.end(), means) || module.ends_with("rotary_emb")) continue;
    const auto near = nearest(module, names, 1);
    fail(Fault::Usage, "--device_map: the model has no module '", module, "'",
         near.empty() ? "" : "; did you mean " + near[0] + "?", " It has ", name_ranges(names));
  }
}

// The entry with the longest name that covers the part; else, if there are entries for what is inside of it, theirs.
std::optional<int> mapped_room(const PlacementRequest& ask, const Part& part) {
  const std::pair<std::string, std::string>* best = nullptr;
  for (const auto& entry : ask.map.entries)
    if (within(part.name, entry.first) && (!best || entry.first.size() >= best->first.size())) best = &entry;
  std::optional<int> room;
  if (best) room = room_named(ask, best->second, best->first);
  for (const auto& [module, device] : ask.map.entries) {
    if (module == part.name || !within(module, part.name)) continue;
    const int inside = room_named(ask, device, module);
    require(!room || *room == inside, Fault::Usage, "--device_map divides ", part.name, " ('", module, "' is on ",
            ask.rooms[static_cast<size_t>(inside)].device, ", the rest on ",
            ask.rooms[static_cast<size_t>(room.value_or(0))].device, "); it runs as a whole: give ", part.name,
            " one device");
    room = inside;
  }
  return room;
}

Places mapped(const PlacementRequest& ask) {
  check_names(ask);
  Places room(ask.parts.size(), -1);
  std::vector<std::string> forgotten;
  for (size_t i = 0; i < ask.parts.size(); ++i) {
    const Part& part = ask.parts[i];
    const auto wanted = mapped_room(ask, part);
    const int leader = part.follows >= 0 ? room[static_cast<size_t>(part.follows)] : -1;
    if (!wanted && part.follows < 0) forgotten.push_back(part.name);
    room[i] = wanted.value_or(leader);
    require(part.follows < 0 || part.may_leave || leader < 0 || room[i] == leader, Fault::Usage,
            "--device_map: ", part.name, " runs together with ",
            ask.parts[static_cast<size_t>(std::max(0, part.follows))].name, "; give both the same device");
  }
  require(forgotten.empty(), Fault::Usage, "--device_map gives no device for ", name_ranges(forgotten),
          "; add them, or {\"\": 0} for all that is not named");
  return room;
}

// ---- both

std::optional<Placement> attempt(const PlacementRequest& ask, int64_t tokens) {
  const auto room = ask.map.strategy == "map" ? std::optional(mapped(ask)) : decided(ask, tokens);
  if (!room) return std::nullopt;
  Placement p = counted(ask, *room, tokens);
  if (!fits(ask, p)) return std::nullopt;
  return p;
}

// With as much cache as is wanted, else with half of it, and so on.
std::optional<Placement> with_cache(const PlacementRequest& ask) {
  for (int64_t tokens = std::max(ask.tokens, ask.least_tokens);; tokens = std::max(ask.least_tokens, tokens / 2)) {
    if (auto found = attempt(ask, tokens)) return found;
    if (tokens <= ask.least_tokens) return std::nullopt;
  }
}

std::string cache_text(const PlacementRequest& ask, int64_t bytes) {
  return ask.least_tokens > 0 ? str(" and ", bytes_text(bytes), " of cache for ", ask.least_tokens, " tokens") : "";
}

std::string overfull(const PlacementRequest& ask) {
  const Placement p = counted(ask, mapped(ask), ask.least_tokens);
  std::string text;
  for (size_t r = 0; r < ask.rooms.size(); ++r)
    if (load(p, r) > ask.room(r))
      text += str("\n  ", ask.rooms[r].device, " cannot hold ", names_on(ask, p, static_cast<int>(r)), ": ",
                  bytes_text(p.weights[r]), " of weights", cache_text(ask, p.cache[r] * ask.least_tokens),
                  ", it has room for ", bytes_text(std::max<int64_t>(0, ask.room(r))));
  return text;
}

// `{0: "3.1GiB", "cpu": "2.0GiB"}`: the devices as full as they may be, and the processor with what is over.
std::string limits_with_host(const PlacementRequest& ask, const Placement& p) {
  std::vector<std::string> entries;
  for (size_t r = 0; r < ask.rooms.size(); ++r) {
    const bool host = ask.rooms[r].host;
    const double tenths = static_cast<double>(host ? load(p, r) : ask.room(r)) * 10 / (1 << 20);  // of a MiB
    const int64_t mib = static_cast<int64_t>(host ? std::ceil(tenths / 10) : std::floor(tenths / 10));
    const size_t colon = ask.rooms[r].device.find(':');
    entries.push_back(str(host ? "\"cpu\"" : ask.rooms[r].device.substr(colon + 1), ": \"", mib, "MiB\""));
  }
  return "{" + join(entries) + "}";
}

// The cheapest change that helps, tried in the order of its price.
std::string remedy(const PlacementRequest& ask) {
  const auto with = [&](auto change) {
    PlacementRequest changed = ask;
    change(changed);
    return attempt(changed, changed.least_tokens);
  };
  if (ask.map.strategy == "map")
    if (const auto p = with([](PlacementRequest& a) { a.map = {"auto", {}}; }))
      return str("--device_map auto places it on ", p->used().size(), p->used().size() == 1 ? " device" : " devices");
  const auto unlimited = [](PlacementRequest& a) {
    for (Room& r : a.rooms) r.limit = std::numeric_limits<int64_t>::max();
  };
  if (with(unlimited)) return "raise --max_memory: the devices have more free than it allows";
  if (!ask.share_flag.empty() && ask.share < 0.97 && with([](PlacementRequest& a) { a.share = 0.97; }))
    return ask.share_flag + " 0.97 leaves less unused, and is enough";
  if (!ask.cache_flag.empty() && with([](PlacementRequest& a) { a.least_tokens = 0; }))
    return "lower " + ask.cache_flag + ": the weights alone fit";
  const auto halved = [](PlacementRequest& a) {
    for (Part& p : a.parts) p.weights /= 2, p.cache /= 2;
  };
  if (ask.float32 && with(halved)) return "--torch_dtype bfloat16 halves it, and is enough";
  PlacementRequest hosted = ask;
  if (ask.spare_host) {
    hosted.rooms.push_back(*ask.spare_host);
    if (hosted.map.strategy == "map") hosted.map = {"auto", {}};
    if (const auto p = attempt(hosted, hosted.least_tokens))
      return str("more devices; or, far slower, leave a part to the processor: --device_map ", hosted.map.strategy,
                 " --max_memory '", limits_with_host(hosted, *p), "'");
  }
  return "more devices, a smaller model, or free what other processes hold there";
}

[[noreturn]] void refuse(const PlacementRequest& ask) {
  int64_t weights = 0, cache = 0, room = 0, largest = 0;
  std::string name;
  for (const Group& g : groups_of(ask, 0)) {
    weights += g.bytes;
    if (g.bytes > largest) largest = g.bytes, name = ask.parts[static_cast<size_t>(g.part)].name;
  }
  for (const Part& p : ask.parts) cache += p.cache * ask.least_tokens;
  std::vector<std::string> rooms;
  for (size_t r = 0; r < ask.rooms.size(); ++r) {
    const int64_t bytes = std::max<int64_t>(0, ask.room(r));
    rooms.push_back(str(ask.rooms[r].device, " ", bytes_text(bytes)));
    room += bytes;
  }
  if (ask.map.strategy == "map")
    fail(Fault::Device, "--device_map does not fit:", overfull(ask), "\nWhat helps: ", remedy(ask));
  const std::string missing =
      weights + cache > room ? str("; ", bytes_text(weights + cache - room), " are missing")
                             : str("; parts are not divided, and the largest, ", name, ", takes ", bytes_text(largest));
  fail(Fault::Device, "the model does not fit on the devices: ", bytes_text(weights), " of weights",
       cache_text(ask, cache), ", and room for ", bytes_text(room), " (", join(rooms), ")", missing,
       ".\nWhat helps: ", remedy(ask));
}

// "model.layers.12" -> "model.layers.", 12; no number: -1.
std::pair<std::string, int64_t> numbered(const std::string& name) {
  const size_t dot = name.rfind('.');
  const std::string last = name.substr(dot + 1);
  const bool digits = dot != std::string::npos && !last.empty() && last.size() < 10 &&
                      std::all_of(last.begin(), last.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!digits) return {name, -1};
  return {name.substr(0, dot + 1), std::stoll(last)};
}

}  // namespace

int64_t PlacementRequest::room(size_t i) const {
  const Room& r = rooms[i];
  const auto shared = static_cast<int64_t>(share * static_cast<double>(r.total)) - (r.total - r.free);
  return std::min(r.limit, shared);
}

std::vector<int> Placement::used() const {
  std::vector<int> out;
  for (size_t r = 0; r < weights.size(); ++r)
    if (std::find(room.begin(), room.end(), static_cast<int>(r)) != room.end()) out.push_back(static_cast<int>(r));
  return out;
}

Placement place(const PlacementRequest& ask) {
  require(!ask.rooms.empty(), Fault::Usage, "--max_memory leaves no device; name those that may be used");
  // A shorter cache is cheaper than the processor.
  if (has_host(ask) && ask.rooms.size() > 1 && ask.map.strategy != "map") {
    PlacementRequest devices = ask;
    devices.rooms.pop_back();
    if (const auto found = with_cache(devices)) return counted(ask, found->room, found->tokens);
  }
  if (const auto found = with_cache(ask)) return *found;
  refuse(ask);
}

std::string name_ranges(const std::vector<std::string>& names) {
  std::vector<std::string> out;
  for (size_t i = 0; i < names.size();) {
    const auto [stem, first] = numbered(names[i]);
    int64_t last = first;
    for (++i; first >= 0 && i < names.size() && numbered(names[i]) == std::pair(stem, last + 1); ++i) ++last;
    out.push_back(last > first ? str(stem, first, "-", last) : names[i - 1]);
  }
  return join(out);
}

std::string names_on(const PlacementRequest& ask, const Placement& p, int room) {
  std::vector<std::string> names;
  for (size_t i = 0; i < ask.parts.size(); ++i)
    if (p.room[i] == room) names.push_back(ask.parts[i].name);
  return name_ranges(names);
}

}  // namespace apus
