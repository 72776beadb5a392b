// SPDX-License-Identifier: Apache-2.0
// apus rollout: a server as apus deploy is, and a door through which a trainer brings weights.
#include "cli/rollout.h"

#include "base/log.h"
#include "base/scratch_folder.h"
#include "run/deploy.h"
#include "run/runner.h"
#include "serve/rollout_door.h"
#include "tensor/safetensors.h"

namespace apus {
namespace {
namespace fs = std::filesystem;

constexpr int64_t kRoomForAdapters = 64 << 20;  // of small models

// The engine reads its weights again from where this points to.
class WeightsLink {
 public:
  WeightsLink(fs::path link, const fs::path& first) : link_(std::move(link)) { point_to(first); }
  void point_to(const fs::path& folder) const {
    const fs::path beside = link_.string() + ".next";
    std::error_code code;
    fs::remove(beside, code);
    fs::create_directory_symlink(fs::absolute(folder), beside);
    fs::rename(beside, link_);
  }
  const fs::path& path() const { return link_; }

 private:
  const fs::path link_;
};

int run_rollout(const RolloutOptions& o) {
  const ScratchFolder scratch("apus-rollout");
  const fs::path& folder = scratch.path();
  const WeightsLink weights(folder / "weights", o.server.model.model);
  ModelOptions model = o.server.model;
  model.model = weights.path().string();
  const bool always = o.server.served.size() == 1 && !o.server.served[0].named;
  Inference in = open_inference(model, o.server.placement, always ? o.server.served[0].folder : "", o.server.prompt,
                                o.server.engine, o.server.task, o.server.quantise);
  require(
      o.server.engine.quant_compute != "int8" || in.loaded.dtype == at::kBFloat16, Fault::Usage,
      "--quant_compute int8 multiplies in whole numbers where the rest is in bfloat16, and this server computes in ",
      float_type_name(in.loaded.dtype), ", exactly: give --torch_dtype bfloat16, or leave it out");
  if (!always)
    for (const ServedAdapter& each : o.server.served) in.engine->load_adapter(each.name, each.folder);
  const auto read_model = [&](const fs::path& version) {
    in.engine->sleep(2);
    weights.point_to(version);
    in.engine->wake();
    in.engine->weights_changed();
  };
  // Three times: a trainer may keep wider numbers than the checkpoint.
  RolloutDoor door({.folder = folder,
                    .most_bytes = 3 * TensorFolder(o.server.model.model).bytes() + kRoomForAdapters,
                    .engine = in.engine.get(),
                    .read_model = read_model,
                    .parameters = TensorFolder(o.server.model.model).names(),
                    .environment = o.environment});
  if (!o.server.api_key && o.server.host != "127.0.0.1" && o.server.host != "localhost")
    log_warning(
        "whoever reaches this port may replace the weights: --api_key SECRET (and APUS_API_KEY=SECRET for the "
        "trainer), or --host 127.0.0.1");
  ServiceSpec service = service_spec(o.server, in);
  service.door = &door;
  return serve_model(o.server, std::move(service));
}

const RegisterRunner<RolloutOptions> rollout("rollout", run_rollout);

}  // namespace
}  // namespace apus
