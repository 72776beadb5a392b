// SPDX-License-Identifier: Apache-2.0
#include "parallel/spread.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/clock.h"
#include "base/error.h"
#include "base/nearest.h"
#include "base/table.h"

namespace apus {

namespace {

int64_t numel(const Param& p) { return std::accumulate(p.full.begin(), p.full.end(), int64_t{1}, std::multiplies<>()); }

bool within(const std::string& name, const std::string& module) { return name.starts_with(module + "."); }

// "visual.blocks.0.norm.weight" -> "visual", "model.visual.merger.weight" -> "model.visual" beside a backbone "model"
// or "model.language_model": towers go whole.
std::string tower_of(const std::string& parameter, const std::string& backbone) {
  const std::string root = backbone.substr(0, backbone.find('.'));
  const size_t from = within(parameter, root) ? root.size() + 1 : 0;
  return parameter.substr(0, parameter.find('.', from));
}

// The calls of a forward in their order, towers behind the embedding.
std::vector<Part> empty_parts(Model& model) {
  std::vector<Part> parts{{.name = model.embed_name()}};
  std::vector<std::string> named = {model.norm_name(), model.head_name()};
  for (int64_t i = 0; i < model.shape().layers; ++i) named.push_back(model.layer_name(i));
  model.visit([&](const std::string& name, Param&) {
    const auto covers = [&](const std::string& module) { return within(name, module); };
    if (covers(parts[0].name) || std::any_of(named.begin(), named.end(), covers)) return;
    const std::string tower = tower_of(name, model.backbone_name());
    if (std::none_of(parts.begin(), parts.end(), [&](const Part& p) { return p.name == tower; }))
      parts.push_back({.name = tower, .follows = 0});
  });
  std::rotate(named.begin(), named.begin() + 2, named.end());  // layers, norm, head
  for (const auto& name : named) parts.push_back({.name = name});
  return parts;
}

std::vector<Part> parts_of(Model& model, int64_t element, const SpreadWish& wish) {
  std::vector<Part> parts = empty_parts(model);
  const ModelShape& shape = model.shape();
  const auto part_of = [&](const std::string& parameter) {
    const auto found =
        std::find_if(parts.begin(), parts.end(), [&](const Part& p) { return within(parameter, p.name); });
    require(found != parts.end(), Fault::Bug, "no part of the model holds ", parameter);
    return static_cast<int>(found - parts.begin());
  };
  model.visit([&](const std::string& name, Param& p) {
    Part& part = parts[static_cast<size_t>(part_of(name))];
    part.weights += numel(p) * element;
    if (!p.tied.empty()) part.follows = part_of(p.tied), part.may_leave = true;
  });
  for (int64_t i = 0; i < shape.layers; ++i) {
    Part& layer =
        *std::find_if(parts.begin(), parts.end(), [&](const Part& p) { return p.name == model.layer_name(i); });
    layer.weights += wish.adapter_bytes / shape.layers;
    if (wish.context > 0) layer.cache = KvCache::bytes_per_block(cache_spec(shape, {i}, 0, 1), element);
  }
  return parts;
}

Room room_of(const DeviceKind& kind, const std::string& name, int index, const SpreadWish& wish) {
  const Memory memory = kind.memory(index);
  Room room{.device = name, .total = memory.total, .free = memory.free};
  for (const auto& [device, bytes] : wish.limits)
    if (full_device_name(device, kind.name()) == name) room.limit = bytes;
  return room;
}

// The processor's memory is no limit unless one is given:
// what lies there is mapped from the files where its format allows.
Room host_room(const DeviceKind& kind, const SpreadWish& wish) {
  Room room = room_of(kind, "cpu", 0, wish);
  room.total = room.free = int64_t{1} << 60;
  return room;
}

bool names_host(const SpreadWish& wish) {
  const auto& entries = wish.map.entries;
  return wish.limits.count("cpu") > 0 ||
         std::any_of(entries.begin(), entries.end(), [](const auto& e) { return e.second == "cpu"; });
}

// The devices of the kind, those that --max_memory names if it does; behind them the processor, if it is asked for.
void find_rooms(PlacementRequest& ask, DeviceKind& kind, const SpreadWish& wish) {
  const bool is_host = kind.type() == c10::kCPU;
  std::vector<std::string> there;
  for (int i = 0; i < kind.count(); ++i) there.push_back(is_host ? kind.name() : str(kind.name(), ":", i));
  for (const auto& [device, bytes] : wish.limits) {
    const std::string name = full_device_name(device, kind.name());
    require(name == "cpu" || std::find(there.begin(), there.end(), name) != there.end(), Fault::Usage,
            "--max_memory names ", name, ", which is not there; there are ", join(there));
  }
  const auto wanted = [&](const std::string& name) {
    const auto named = [&](const auto& limit) { return full_device_name(limit.first, kind.name()) == name; };
    return wish.limits.empty() || std::any_of(wish.limits.begin(), wish.limits.end(), named);
  };
  for (size_t i = 0; i < there.size() && !is_host; ++i)
    if (wanted(there[i])) ask.rooms.push_back(room_of(kind, there[i], static_cast<int>(i), wish));
  const DeviceKind& host = kind_of(c10::Device(c10::kCPU));
  if (is_host || names_host(wish)) {
    ask.rooms.push_back(host_room(host, wish));
    ask.rooms.back().host = true;
  } else {
    ask.spare_host = room_of(host, "cpu", 0, wish);
    ask.spare_host->host = true;
  }
}

}  // namespace

const DeviceChoice& Spread::home() const { return devices[static_cast<size_t>(placement.room[0])]; }

PartDevices Spread::part_devices(const Model& model) const {
  const auto at = [&](const std::string& name) {
    const auto part = std::find_if(ask.parts.begin(), ask.parts.end(), [&](const Part& p) { return p.name == name; });
    return devices[static_cast<size_t>(placement.room[static_cast<size_t>(part - ask.parts.begin())])].device;
  };
  PartDevices on{at(model.embed_name()), at(model.norm_name()), at(model.head_name()), {}};
  for (int64_t i = 0; i < model.shape().layers; ++i) on.layer.push_back(at(model.layer_name(i)));
  return on;
}

std::map<std::string, int64_t> Spread::cache_limits() const {
  std::map<std::string, int64_t> limits;
  for (size_t r = 0; r < ask.rooms.size(); ++r)
    if (ask.rooms[r].limit != Room().limit) limits[ask.rooms[r].device] = ask.rooms[r].limit - placement.weights[r];
  return limits;
}

std::string Spread::table(int64_t cache_tokens) const {
  std::vector<std::vector<std::string>> rows{{"device", "weights", "cache", "free", "modules"}};
  for (const int r : placement.used()) {
    const auto i = static_cast<size_t>(r);
    const Memory memory = devices[i].kind->memory(devices[i].device.has_index() ? devices[i].device.index() : 0);
    const int64_t cache = placement.cache[i] * cache_tokens;
    rows.push_back({ask.rooms[i].device, bytes_text(placement.weights[i]), cache > 0 ? bytes_text(cache) : "-",
                    str(bytes_text(memory.free), " of ", bytes_text(memory.total)), names_on(ask, placement, r)});
  }
  std::string text = table_text(rows, [](const std::string&, const std::string& cell, bool) { return cell; });
  text.pop_back();
  return "\n" + text;
}

Spread spread_model(Model& model, const SpreadWish& wish) {
  DeviceKind& kind = *open_device(wish.device).kind;
  const auto element = static_cast<int64_t>(c10::elementSize(wish.dtype));
  Spread spread;
  PlacementRequest& ask = spread.ask;
  ask.parts = parts_of(model, element, wish);
  ask.map = wish.map, ask.kind = kind.name(), ask.share = wish.share, ask.share_flag = wish.share_flag;
  ask.float32 = wish.dtype == at::kFloat && kind.supports(at::kBFloat16);
  find_rooms(ask, kind, wish);
  int64_t token = 0;
  for (const Part& p : ask.parts) token += p.cache;
  if (token > 0) {
    ask.tokens = wish.cache_bytes > 0 ? wish.cache_bytes / token : wish.context;
    ask.least_tokens = wish.cache_bytes > 0 ? ask.tokens : std::min(wish.context, kind.cache_block());
    if (wish.cache_bytes > 0) ask.cache_flag = "--kv_cache_gb";
  }
  spread.placement = place(ask);
  const auto used = spread.placement.used();
  for (size_t r = 0; r < ask.rooms.size(); ++r)
    spread.devices.push_back(
        std::count(used.begin(), used.end(), static_cast<int>(r)) ? open_device(ask.rooms[r].device) : DeviceChoice());
  if (spread.several()) model.spread(spread.part_devices(model));
  return spread;
}

}  // namespace apus
