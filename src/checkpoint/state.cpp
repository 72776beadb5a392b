// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/state.h"

#include "base/differences.h"
#include "base/error.h"
#include "base/files.h"
#include "base/nearest.h"
#include "tensor/safetensors.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

constexpr const char* kTrainer = "trainer_state.json";
constexpr const char* kState = "apus_state.json";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr int64_t kFormat = 1;

Json parsed(const fs::path& path) { return parse_json(read_file(path), path.string()); }

}  // namespace

void write_state(const fs::path& dir, const RunState& state, bool with_optimizer) {
  write_file_atomic(dir / kTrainer, state.trainer.dump(2) + "\n");
  const Json own = {{"format", kFormat},    {"step", state.step},   {"epoch", state.epoch},        {"data", state.data},
                    {"exact", state.exact}, {"noted", state.noted}, {"optimizer", state.optimizer}};
  write_file_atomic(dir / kState, own.dump(2) + "\n");
  if (!with_optimizer) return;
  std::vector<std::pair<std::string, at::Tensor>> tensors(state.optimizer_state.begin(), state.optimizer_state.end());
  write_safetensors(dir / kOptimizer, tensors, {{"format", "pt"}, {"optimizer", state.optimizer}});
}

RunState read_state(const fs::path& dir, bool with_optimizer) {
  for (const char* name : {kTrainer, kState})
    require(fs::exists(dir / name), Fault::Usage, dir.string(), " holds no ", name,
            ": it is no checkpoint of this program's training. ",
            "--resume_only_model true --ignore_data_skip true begins anew from its weights");
  require(!with_optimizer || fs::exists(dir / kOptimizer), Fault::Usage, dir.string(), " holds no ", kOptimizer,
          ": it was saved with --save_only_model true. ", "--resume_only_model true goes on from its weights");
  const Json own = parsed(dir / kState);
  require(own.is_object() && own.value("format", int64_t{0}) == kFormat, Fault::Usage, (dir / kState).string(),
          " is of format ", own.value("format", int64_t{0}), "; this program reads ", kFormat);
  RunState state;
  state.step = own.at("step"), state.epoch = own.at("epoch"), state.data = own.at("data"),
  state.exact = own.at("exact"), state.noted = own.at("noted");
  state.optimizer = own.at("optimizer");
  state.trainer = parsed(dir / kTrainer);
  if (!with_optimizer) return state;
  const auto file = SafetensorsFile::open(dir / kOptimizer);
  for (const auto& [name, entry] : file->entries()) state.optimizer_state[name] = file->tensor(name);
  return state;
}

std::vector<std::string> check_resume(const RunState& saved, const RunState& mine) {
  auto wrong = differences(saved.exact, mine.exact);
  if (saved.optimizer != mine.optimizer)
    wrong.push_back(str("optimizer: ", saved.optimizer, " there, ", mine.optimizer, " here"));
  require(wrong.empty(), Fault::Usage,
          "this run cannot go on from the checkpoint as it would have: ", join(wrong, "; "),
          ". Give the flags of the first run; or begin anew from its weights with --resume_only_model true "
          "--ignore_data_skip true");
  return differences(saved.noted, mine.noted);
}

}  // namespace apus
