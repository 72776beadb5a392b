// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/state_places.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "checkpoint/state.h"

namespace apus {

namespace {

constexpr const char* kFromWeights = "--resume_only_model true --ignore_data_skip true goes on from the weights alone";

std::vector<int64_t> sizes_of(const std::vector<Range>& held) {
  std::vector<int64_t> sizes;
  for (const Range& range : held) sizes.push_back(range.size);
  return sizes;
}

struct Piece {
  at::Tensor values;
  std::vector<Range> held;
};

// What all slices have of one tensor of the state. Without places they are rows, one behind the other.
std::vector<Piece> pieces_of(const RunState& saved, const StatePlace& mine, const std::string& parameter,
                             const std::string& what) {
  std::vector<Piece> all;
  int64_t rows = 0;
  for (size_t i = 0; i < saved.optimizer_slices.size(); ++i)
    for (const std::string& name : {parameter, mine.tied}) {
      const auto found = saved.optimizer_slices[i].find(name + "/" + what);
      if (name.empty() || found == saved.optimizer_slices[i].end()) continue;
      const at::Tensor& values = found->second;
      if (!saved.optimizer_places.empty()) {
        const auto place = saved.optimizer_places[i].find(name);
        require(place != saved.optimizer_places[i].end(), Fault::Data,
                "the checkpoint does not say where its state of ", name, " lies");
        all.push_back({values, place->second.held});
      } else {
        Piece& piece = all.emplace_back(Piece{values, {}});
        for (int64_t d = 0; d < values.dim(); ++d) piece.held.push_back({d == 0 ? rows : 0, values.size(d)});
        rows += values.dim() > 0 ? values.size(0) : 0;
      }
      break;
    }
  return all;
}

// Numbers for each of the parameter's own, and all of them there.
bool has_its_shape(const std::vector<Piece>& pieces, const StatePlace& mine) {
  return std::all_of(pieces.begin(), pieces.end(), [&](const Piece& piece) {
    bool fits = piece.held.size() == mine.full.size() && piece.values.sizes() == at::IntArrayRef(sizes_of(piece.held));
    for (size_t d = 0; fits && d < mine.full.size(); ++d)
      fits = piece.held[d].begin + piece.held[d].size <= mine.full[d] && (d == 0 || piece.held[d].size > 0);
    return fits;
  });
}

// Where a piece and what is wanted overlap; no size where they do not.
std::vector<Range> common(const std::vector<Range>& a, const std::vector<Range>& b) {
  std::vector<Range> out;
  for (size_t d = 0; d < a.size(); ++d) {
    const int64_t begin = std::max(a[d].begin, b[d].begin);
    out.push_back({begin, std::max<int64_t>(0, std::min(a[d].begin + a[d].size, b[d].begin + b[d].size) - begin)});
  }
  return out;
}

at::Tensor part_at(at::Tensor t, const std::vector<Range>& held, const std::vector<Range>& wanted) {
  for (size_t d = 0; d < held.size(); ++d)
    t = t.narrow(static_cast<int64_t>(d), wanted[d].begin - held[d].begin, wanted[d].size);
  return t;
}

at::Tensor put_together(const std::vector<Piece>& pieces, const StatePlace& mine, const std::string& name) {
  const std::vector<int64_t> sizes = sizes_of(mine.held);
  for (const Piece& piece : pieces)
    if (piece.held == mine.held) return piece.values;
  at::Tensor out = at::empty(sizes, pieces.front().values.options());
  at::Tensor there = at::zeros(sizes, at::kBool);
  for (const Piece& piece : pieces) {
    const std::vector<Range> both = common(piece.held, mine.held);
    if (std::any_of(both.begin(), both.end(), [](const Range& range) { return range.size == 0; })) continue;
    part_at(out, mine.held, both).copy_(part_at(piece.values, piece.held, both));
    part_at(there, mine.held, both).fill_(true);
  }
  require(there.all().item<bool>(), Fault::Data, "the checkpoint's slices of the optimizer's state do not hold all of ",
          name, ": are all of its files there?");
  return out;
}

}  // namespace

Json json_of(const StatePlaces& places) {
  Json out = Json::object();
  for (const auto& [name, place] : places) {
    Json held = Json::array();
    for (const Range& range : place.held) held.push_back({range.begin, range.size});
    out[name] = {{"full", place.full}, {"held", held}};
  }
  return out;
}

StatePlaces state_places_in(const std::string& json) {
  StatePlaces out;
  try {
    const Json all = Json::parse(json);
    for (const auto& [name, said] : all.items()) {
      StatePlace& place = out[name];
      place.full = said.at("full").get<std::vector<int64_t>>();
      for (const Json& range : said.at("held"))
        place.held.push_back({range.at(0).get<int64_t>(), range.at(1).get<int64_t>()});
      require(place.held.size() == place.full.size(), Fault::Data, "the places of the state of ", name.substr(0, 200),
              " are not as many as its dimensions");
    }
  } catch (const nlohmann::json::exception& e) {
    fail(Fault::Data, "the places of an optimizer's state cannot be read: ", e.what());
  }
  return out;
}

std::map<std::string, at::Tensor> state_at(const RunState& saved, const StatePlaces& mine) {
  std::map<std::string, at::Tensor> out;
  for (const auto& [name, place] : mine) {
    std::set<std::string> kinds;
    for (const auto& slice : saved.optimizer_slices)
      for (const std::string& each : {name, place.tied})
        for (auto at = slice.lower_bound(each + "/");
             !each.empty() && at != slice.end() && at->first.starts_with(each + "/"); ++at)
          kinds.insert(at->first.substr(each.size() + 1));
    for (const std::string& what : kinds) {
      const std::vector<Piece> pieces = pieces_of(saved, place, name, what);
      const std::string whole = name + "/" + what;
      if (!has_its_shape(pieces, place)) {
        require(pieces.size() == 1 && sizes_of(place.held) == place.full, Fault::Usage, "the state of ",
                saved.optimizer, " (", whole,
                ") is not of its parameter's shape, and cannot be divided otherwise than ",
                "it was: give the sizes of the mesh that the run had, or ", kFromWeights);
        out[whole] = pieces[0].values;
      } else {
        out[whole] = put_together(pieces, place, whole);
      }
    }
  }
  return out;
}

}  // namespace apus
