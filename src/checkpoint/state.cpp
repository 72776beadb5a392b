// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/state.h"

#include "base/differences.h"
#include "base/error.h"
#include "base/files.h"
#include "base/nearest.h"
#include "checkpoint/file_names.h"
#include "nn/parts.h"
#include "tensor/safetensors.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

constexpr int64_t kFormat = 1;
constexpr const char* kWeightsAlone =
    "--resume_only_model true --ignore_data_skip true trains on from its weights alone";

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

// Of every tensor of an optimizer's state whose parameter ranks share out.
void each_shared_state(Module& model, std::map<std::string, at::Tensor>& state,
                       const std::function<void(const Param&, at::Tensor&)>& f) {
  model.visit([&](const std::string& name, Param& p) {
    if (!is_cut(p, model.mesh())) return;
    const std::string prefix = name + "/";
    for (auto it = state.lower_bound(prefix); it != state.end() && it->first.starts_with(prefix); ++it) {
      const bool fits = it->second.dim() == static_cast<int64_t>(p.full.size());
      require(fits, Fault::Usage, "this optimizer's ", it->first, " is no value for each element of ", name,
              ", which several ranks share out: use an optimizer with such state (adamw_torch, sgd, muon)");
      f(p, it->second);
    }
  });
}

}  // namespace

std::map<std::string, at::Tensor> gathered_state(Module& model, std::map<std::string, at::Tensor> parts) {
  each_shared_state(model, parts, [&](const Param& p, at::Tensor& t) { t = gathered(t, p, model.mesh()); });
  return parts;
}

std::map<std::string, at::Tensor> own_state(Module& model, std::map<std::string, at::Tensor> whole) {
  each_shared_state(model, whole, [](const Param& p, at::Tensor& t) { t = own_part(t, p); });
  return whole;
}

void write_state(const fs::path& dir, const RunState& state, bool with_optimizer) {
  write_file_atomic(dir / kTrainerStateFile, state.trainer.dump(2) + "\n");
  const Json own = {
      {"format", kFormat},    {"step", state.step},   {"epoch", state.epoch},         {"data", state.data},
      {"exact", state.exact}, {"noted", state.noted}, {"optimizer", state.optimizer}, {"progress", state.progress}};
  write_file_atomic(dir / kRunStateFile, own.dump(2) + "\n");
  if (!with_optimizer) return;
  std::vector<std::pair<std::string, at::Tensor>> tensors(state.optimizer_state.begin(), state.optimizer_state.end());
  write_safetensors(dir / kOptimizerFile, tensors, {{"format", "pt"}, {"optimizer", state.optimizer}});
}

RunState read_state(const fs::path& dir, bool with_optimizer) {
  for (const char* name : {kTrainerStateFile, kRunStateFile})
    require(fs::exists(dir / name), Fault::Usage, dir.string(), " holds no ", name,
            ": it is no checkpoint of this program's training. ", kWeightsAlone);
  require(!with_optimizer || fs::exists(dir / kOptimizerFile), Fault::Usage, dir.string(), " holds no ", kOptimizerFile,
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
  const auto file = SafetensorsFile::open(dir / kOptimizerFile);
  for (const auto& [name, entry] : file->entries()) state.optimizer_state[name] = file->tensor(name);
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
