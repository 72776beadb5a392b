// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/state.h"

#include <ATen/ops/cat.h>

#include <algorithm>

#include "base/differences.h"
#include "base/error.h"
#include "base/files.h"
#include "base/nearest.h"
#include "checkpoint/file_names.h"
#include "dist/launch/mesh_layout.h"
#include "tensor/safetensors.h"
#include "tensor/weight_files.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

constexpr int64_t kFormat = 1;
constexpr const char* kPlaces = "places";  // of a slice's metadata
constexpr const char* kWeightsAlone =
    "--resume_only_model true --ignore_data_skip true trains on from its weights alone";

// Of checkpoints of older builds, which did not say where pieces lie.
bool in_parts(const Json& exact) {
  for (const char* axis : {"tensor", "expert", "pipeline"})
    if (exact.value(str(axis, "_model_parallel_size"), int64_t{1}) > 1) return true;
  return false;
}

Json parsed(const fs::path& path) { return parse_json(read_file(path), path.string()); }

// The keys of `a` that `b` has too.
Json shared_keys(const Json& a, const Json& b) {
  Json out = Json::object();
  for (const auto& [key, value] : a.items())
    if (b.contains(key)) out[key] = value;
  return out;
}

std::vector<std::string> keys_only_in(const Json& a, const Json& b) {
  std::vector<std::string> out;
  for (const auto& [key, value] : a.items())
    if (!b.contains(key)) out.push_back(key);
  return out;
}

}  // namespace

std::map<std::string, at::Tensor> state_slice(const RunState& state, int slice, int slices) {
  const auto& saved = state.optimizer_slices;
  if (static_cast<int>(saved.size()) == slices) return saved.at(static_cast<size_t>(slice));
  require(!state.optimizer.ends_with("bit"), Fault::Usage, "the state of ", state.optimizer, " lies in ", saved.size(),
          " slices, and its blocks of elements cannot be divided among ", slices,
          " ranks: go on with as many ranks, or with --resume_only_model true");
  std::map<std::string, at::Tensor> mine;
  for (const auto& [name, first] : saved.at(0)) {
    int64_t rows = 0;
    for (const auto& part : saved) rows += part.at(name).size(0);
    const Range wanted = part_of(rows, slice, slices);
    std::vector<at::Tensor> pieces;
    int64_t begin = 0;
    for (const auto& part : saved) {
      const at::Tensor& t = part.at(name);
      const int64_t from = std::max(wanted.begin, begin), to = std::min(wanted.begin + wanted.size, begin + t.size(0));
      if (from < to) pieces.push_back(t.narrow(0, from - begin, to - from));
      begin += t.size(0);
    }
    mine[name] = pieces.empty() ? first.narrow(0, 0, 0) : pieces.size() == 1 ? pieces[0] : at::cat(pieces);
  }
  return mine;
}

void write_state(const fs::path& dir, const RunState& state) {
  write_file_atomic(dir / kTrainerStateFile, state.trainer.dump(2) + "\n");
  const Json own = {
      {"format", kFormat},    {"step", state.step},   {"epoch", state.epoch},         {"data", state.data},
      {"exact", state.exact}, {"noted", state.noted}, {"optimizer", state.optimizer}, {"progress", state.progress}};
  write_file_atomic(dir / kRunStateFile, own.dump(2) + "\n");
}

void write_optimizer(const fs::path& dir, const std::string& kind, const std::map<std::string, at::Tensor>& state,
                     int slice, int slices, const StatePlaces* places) {
  std::map<std::string, std::string> about = {{"format", "pt"}, {"optimizer", kind}};
  if (places) about[kPlaces] = json_of(*places).dump();
  const std::string name = shard_file(kOptimizerStem, static_cast<size_t>(slice), static_cast<size_t>(slices));
  write_safetensors(dir / name, {state.begin(), state.end()}, about);
}

RunState read_state(const fs::path& dir, bool with_optimizer) {
  for (const char* name : {kTrainerStateFile, kRunStateFile})
    require(fs::exists(dir / name), Fault::Usage, dir.string(), " holds no ", name,
            ": it is no checkpoint of this program's training. ", kWeightsAlone);
  const std::vector<fs::path> slices = with_optimizer ? optimizer_files(dir) : std::vector<fs::path>();
  require(!with_optimizer || !slices.empty(), Fault::Usage, dir.string(), " holds no ", kOptimizerFile,
          ": it was saved with --save_only_model true. ", "--resume_only_model true goes on from its weights");
  const Json own = parsed(dir / kRunStateFile);
  const std::string path = (dir / kRunStateFile).string();
  const int64_t format = own.is_object() ? own.value("format", int64_t{0}) : 0;
  require(format == kFormat, Fault::Usage, path, " is of format ", format, "; this program goes on from format ",
          kFormat, ". Resume with the version that wrote it (apus_version in its args.json); or ", kWeightsAlone);
  for (const char* key : {"step", "epoch", "data", "exact", "noted", "optimizer"})
    require(own.contains(key), Fault::Usage, path, " lacks '", key, "': the run cannot go on where it stopped. ",
            kWeightsAlone);
  RunState state;
  state.step = own.at("step"), state.epoch = own.at("epoch"), state.data = own.at("data"),
  state.exact = own.at("exact"), state.noted = own.at("noted");
  state.optimizer = own.at("optimizer");
  state.trainer = parsed(dir / kTrainerStateFile);
  state.progress = own.value("progress", state.trainer);  // older builds wrote it there
  if (!with_optimizer) return state;
  for (const fs::path& path : slices) {
    const auto file = SafetensorsFile::open(path);
    auto& slice = state.optimizer_slices.emplace_back();
    for (const auto& [name, entry] : file->entries()) slice[name] = file->tensor(name);
    if (const auto places = file->metadata().find(kPlaces); places != file->metadata().end())
      state.optimizer_places.push_back(state_places_in(places->second));
    state.in_parts = !state.optimizer_places.empty() || in_parts(state.exact);
    for (const auto& [name, tensor] : slice)
      require(
          state.in_parts || (state.optimizer_slices[0].count(name) && slice.size() == state.optimizer_slices[0].size()),
          Fault::Data, path.string(), " and ", slices[0].string(),
          " hold the state of different parameters: they are not of one "
          "checkpoint");
  }
  return state;
}

// Builds note more, or other, settings than older ones did: what only one side knows cannot be compared, and is said.
std::vector<std::string> check_resume(const RunState& saved, const RunState& mine) {
  const auto changes = [](const Json& there, const Json& here) {
    return differences(shared_keys(there, here), shared_keys(here, there));
  };
  auto wrong = changes(saved.exact, mine.exact);
  if (saved.optimizer != mine.optimizer)
    wrong.push_back(str("optimizer: ", saved.optimizer, " there, ", mine.optimizer, " here"));
  require(wrong.empty(), Fault::Usage,
          "this run cannot go on from the checkpoint as it would have: ", join(wrong, "; "),
          ". Give the flags of the first run; or ", kWeightsAlone);
  std::vector<std::string> remarks;
  for (const std::string& change : changes(saved.noted, mine.noted))
    remarks.push_back("with another setting: " + change);
  if (const auto keys = keys_only_in(mine.exact, saved.exact); !keys.empty())
    remarks.push_back(
        str("from a checkpoint of another build, which does not note ", join(keys), ": taken as unchanged"));
  if (const auto keys = keys_only_in(saved.exact, mine.exact); !keys.empty())
    remarks.push_back(str("from a checkpoint of another build, whose ", join(keys), " this one does not compare"));
  return remarks;
}

}  // namespace apus
