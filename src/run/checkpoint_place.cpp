// SPDX-License-Identifier: Apache-2.0
#include "run/checkpoint_place.h"

#include "base/files.h"
#include "checkpoint/state.h"
#include "device/agree.h"
#include "devices/cpu/host.h"
#include "train/record/run_log.h"

namespace apus {
namespace fs = std::filesystem;

namespace {
fs::path make_run_folder(const TrainRun& o, std::unique_ptr<FolderLock>& lock) {
  const fs::path root = o.output_root();
  const fs::path folder = o.folder.add_version ? make_version_dir(root) : root;
  make_writable_dir(folder);
  if (o.loop.save_fallback_dir) make_writable_dir(*o.loop.save_fallback_dir);
  lock = std::make_unique<FolderLock>(folder);
  remove_leftovers(folder);
  return folder;
}
}  // namespace

fs::path run_folder(const TrainRun& o, World& world, std::unique_ptr<FolderLock>& lock) {
  return gather_text(world.first() ? make_run_folder(o, lock).string() : "", world.host())[0];
}

std::string flag_of_shares(const TrainRun& o) {
  if (o.mesh.sharding().stage > 0)
    return o.mesh.deepspeed ? "--deepspeed " + *o.mesh.deepspeed : "--fsdp " + o.mesh.fsdp.value_or("");
  return o.mesh.tensor_model_parallel_size > 1     ? "--tensor_model_parallel_size"
         : o.mesh.expert_model_parallel_size > 1   ? "--expert_model_parallel_size"
         : o.mesh.pipeline_model_parallel_size > 1 ? "--pipeline_model_parallel_size"
                                                   : "";
}

// An eighth is left to others, and to what a step needs more.
int64_t room_for_checkpoints() { return cpu::memory_free() - cpu::memory_total() / 8; }

}  // namespace apus
