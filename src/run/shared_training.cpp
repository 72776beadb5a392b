// SPDX-License-Identifier: Apache-2.0
#include "run/shared_training.h"

#include <map>
#include <numeric>

#include "base/clock.h"
#include "base/log.h"
#include "models/spec/cutting.h"
#include "models/stages.h"
#include "parallel/placement/stages.h"
#include "parallel/sequence_runner.h"

namespace apus {

namespace {

using Sliced = std::vector<ShardedGradients::Param>;

// The optimizer goes through them in the order of the model, as one that holds everything does.
std::vector<NamedParam> in_model_order(const Sliced& slices, const std::vector<NamedParam>& params, const Comm& ranks) {
  std::map<std::string, const ShardedGradients::Param*> of;
  for (const auto& p : slices) of[p.name] = &p;
  std::vector<NamedParam> all;
  for (const NamedParam& p : params) {
    const ShardedGradients::Param& own = *of.at(p.name);
    const Range rows = part_of(own.whole.size(0), ranks.rank(), ranks.size());
    all.push_back({.name = p.name,
                   .tensor = own.slice,
                   .first = own.owner < 0 ? rows.begin * (own.whole.numel() / own.whole.size(0)) : 0,
                   .elsewhere = own.owner >= 0 && own.owner != ranks.rank()});
  }
  return all;
}

}  // namespace

namespace {
// How many ranks share the parameters out; where there are more, others hold the same slices.
int shard_group(const ShardingOptions& o, int readers, int of_machine) {
  const Sharding& s = o.sharding();
  if (s.stage < 3) return 1;
  if (!s.group) return readers;
  const int64_t group = *s.group > 0 ? *s.group : std::gcd(of_machine, readers);
  require(readers % group == 0, Fault::Usage, "--shard_group_size ", group, ": ", readers,
          " ranks cannot be cut into groups of so many: give a divisor of that");
  return static_cast<int>(group);
}
}  // namespace

MeshSizes mesh_sizes(const ShardingOptions& o, int ranks, int of_machine) {
  const int tensor = static_cast<int>(o.tensor_model_parallel_size),
            stages = static_cast<int>(o.pipeline_model_parallel_size);
  return {.pp = stages,
          .dp_shard = shard_group(o, ranks / tensor / stages, of_machine),
          .tp = tensor,
          .ep = static_cast<int>(o.expert_model_parallel_size)};
}

std::shared_ptr<StepLine> line_of_copy(const Mesh& mesh, World& world) {
  const int of_copy = mesh.size(Axis::Tp) * mesh.size(Axis::Ep);
  if (of_copy == 1 || mesh.size(Axis::Pp) > 1) return nullptr;
  std::vector<int> ranks(static_cast<size_t>(of_copy));
  const int copy = world.rank() / of_copy;
  std::iota(ranks.begin(), ranks.end(), copy * of_copy);
  return std::make_shared<StepLine>(world.connect(str("copy ", copy), ranks, /*on_host=*/true));
}

namespace {
std::vector<Range> layers_of_stages(const Model& model, const ShardingOptions& options) {
  return stage_layers(model.shape().layers, options.stages(), model.shape().seen_layers);
}
}  // namespace

void place_on(Model& model, Mesh& mesh, const ShardingOptions& options) {
  if (mesh.size(Axis::Pp) > 1) cut_into_stages(model, layers_of_stages(model, options), mesh.size(Axis::Pp));
  model.place(mesh);
}

Stage run_as_stage(Model& model, Mesh& mesh, World& world, at::ScalarType type, const ShardingOptions& options) {
  Stage out;
  if (mesh.size(Axis::Pp) == 1) return out;
  const std::vector<int> ranks = mesh.layout().ranks(Axis::Pp);
  out.down = world.connect(str("stages from ", ranks[0], ", down"), ranks);
  out.up = world.connect(str("stages from ", ranks[0], ", up"), ranks);
  const std::vector<Range> pieces = layers_of_stages(model, options);
  Pipeline::Ways ways{.down = *out.down, .up = *out.up};
  if (pieces.size() > ranks.size()) {
    out.round_down = world.connect(str("stages from ", ranks[0], ", round down"), ranks);
    out.round_up = world.connect(str("stages from ", ranks[0], ", round up"), ranks);
    ways.round_down = out.round_down.get(), ways.round_up = out.round_up.get();
  }
  out.pipeline = std::make_unique<Pipeline>(
      ways, Pipeline::Spec{.layers = pieces,
                           .activations = at::TensorOptions().dtype(type).device(mesh.device()),
                           .width = model.shape().hidden,
                           .experts = model.shape().experts,
                           .trains_before = trains_before(model, pieces)});
  out.pipeline->run(model);
  std::string own;
  for (auto i = static_cast<size_t>(mesh.rank(Axis::Pp)); i < pieces.size(); i += ranks.size())
    own += str(own.empty() ? "" : ", then ", pieces[i].begin, " to ", pieces[i].begin + pieces[i].size - 1);
  log_info(ranks.size(), " ranks run the layers one behind the other: rank ", world.rank(), " runs ", own);
  return out;
}

std::unique_ptr<ShardedModel> shard_model(Model& model, Mesh& mesh, const Sharding& sharding) {
  if (mesh.size(Axis::DpShard) == 1) return nullptr;
  return std::make_unique<ShardedModel>(
      model, mesh.comm(Axis::DpShard),
      ShardedModel::Spec{.release_after_forward = sharding.release_after_forward, .device = mesh.device()});
}

int share_tokens(Model& model, Mesh& rows, bool residual) {
  const int ranks = rows.size(Axis::Cp);
  SequenceRunner::Sharers sharers;
  if (ranks > 1) {
    sharers.of_rows = &rows.comm(Axis::Cp);
    sharers.groups = static_cast<int>(token_sharers(model.shape().sharing, ranks, rows.size(Axis::Tp)).groups);
  }
  if (residual) sharers.of_residual = &model.mesh()->comm(Axis::Tp);
  if (sharers.of_rows || sharers.of_residual) model.run_by(std::make_shared<SequenceRunner>(sharers, model.runner()));
  return sharers.groups;
}

namespace {
// The slices of all models, in the order of their backward passes.
Sliced slices_of_all(const ShardedModel& policy, const std::vector<TrainedBeside>& others) {
  Sliced all = policy.trained();
  int unit = policy.units();
  for (const TrainedBeside& other : others) {
    for (ShardedGradients::Param& p : other.model->trained(unit)) {
      p.name = other.role + "." + p.name;
      all.push_back(std::move(p));
    }
    unit += other.model->units();
  }
  return all;
}

// Tells each parameter which other ranks hold its slice, and connects them.
void find_copies(Sliced& slices, Model& model, World& world, std::vector<std::unique_ptr<Comm>>& comms) {
  std::map<std::string, std::vector<int>> holders_of;
  std::map<std::vector<int>, Comm*> among;
  model.visit([&](const std::string& name, Param& p) {
    if (!p.trainable) return;
    holders_of[name] = slice_holders(p, model.mesh()->layout());
    among[holders_of[name]] = nullptr;
  });
  for (auto& [ranks, comm] : among) {
    if (ranks.size() == 1) continue;
    std::string name = "copies of slices in";
    for (const int r : ranks) name += str(" ", r);
    comm = comms.emplace_back(world.connect(name, ranks)).get();
  }
  for (auto& p : slices) p.copies = among.at(holders_of.at(p.name));
}
}  // namespace

SharedTraining share_training(Model& model, const std::vector<NamedParam>& params, Mesh& mesh, World& world,
                              const ShardingOptions& o, bool owned, const std::vector<TrainedBeside>& others) {
  SharedTraining out;
  out.updated = params;
  if (mesh.size(kDataAxes) * mesh.size(Axis::Tp) == 1) {
    if (o.sharding().stage > 0) log_info("one process: there is nobody to share weights, gradients or state with");
    return out;
  }
  Comm& ranks = o.sharding().stage == 3 ? mesh.comm(Axis::DpShard) : mesh.comm(kDataAxes);
  const int64_t bytes = o.ddp_bucket_cap_mb << 20;
  const Sharding& s = o.sharding();
  std::vector<std::pair<std::string, at::Tensor>> named;
  for (const NamedParam& p : params) named.emplace_back(p.name, p.tensor);
  if (s.stage == 0) {
    out.sum = std::make_unique<GradientSum>(std::move(named), ranks,
                                            GradientSum::Spec{.bucket_bytes = bytes, .wide = s.wide_sums});
    return out;
  }
  ShardedGradients::Spec spec{.bucket_bytes = bytes, .each_micro_batch = s.stage >= 2, .wide = s.wide_sums};
  if (s.bucket_elements)
    spec.bucket_bytes = *s.bucket_elements * static_cast<int64_t>(params.front().tensor.element_size());
  out.model = shard_model(model, mesh, s);
  if (out.model)
    spec.by_unit = true, spec.let_go = [m = out.model.get(), others] {
      m->release();
      for (const TrainedBeside& other : others) other.model->release();
    };
  Sliced slices = out.model ? slices_of_all(*out.model, others) : sliced_params(named, ranks, s.on_host, owned);
  if (ranks.size() < world.size()) {
    require(others.empty(), Fault::Usage,
            "a critic with weights of its own is shared out over all ranks, not within groups of them: leave out "
            "--shard_group_size and hybrid_shard, or use --deepspeed zero2");
    find_copies(slices, model, world, out.comms);
  }
  // Parts of matrices are whoever's have them, and written by each.
  if (s.stage == 3 && mesh.size(Axis::DpReplicate) > 1 && mesh.size(Axis::Tp) == 1)
    spec.slice = GradientSync::Slice{ranks.rank(), ranks.size(), mesh.rank(Axis::DpReplicate) == 0};
  out.updated = in_model_order(slices, params, ranks);
  out.slices = std::make_unique<ShardedGradients>(slices, ranks, world.host(), std::move(spec));
  if (out.model) {
    out.model->tell(out.slices.get());
    int unit = out.model->units();
    for (const TrainedBeside& other : others) {
      other.model->tell(out.slices.get(), unit);
      unit += other.model->units();
    }
  }
  int64_t mine = 0;
  for (const NamedParam& p : out.updated) mine += p.tensor.numel();
  log_info(ranks.size(), ranks.size() < world.size() ? str(" of ", world.size()) : "", " ranks share out ",
           s.stage == 1   ? "the optimizer's state"
           : s.stage == 2 ? "gradients and the optimizer's state"
                          : "weights, gradients and the optimizer's state",
           ": rank ", ranks.rank(), " updates ", mine, " numbers",
           out.model ? str(" and holds ", bytes_text(out.model->slice_bytes()), " of the weights") : "",
           s.on_host ? ", on the host" : "");
  return out;
}

SharedTraining share_parts(const std::map<std::string, Model*>& models, const std::vector<NamedParam>& params,
                           World& world, const ShardingOptions& o) {
  SharedTraining out;
  std::map<std::string, std::vector<int>> holders_of;
  MeshView& mesh = *models.begin()->second->mesh();
  for (const auto& [prefix, model] : models)
    model->visit([&](const std::string& name, Param& p) { holders_of[prefix + name] = holders(p, mesh.layout()); });
  std::map<std::vector<int>, std::vector<NamedParam>> by_holders;
  for (const NamedParam& p : params) by_holders[holders_of.at(p.name)].push_back(p);
  std::map<std::string, NamedParam> updated;
  std::vector<GroupedGradients::Group> groups;
  const int64_t bytes = o.ddp_bucket_cap_mb << 20;
  for (const auto& [ranks, of_group] : by_holders) {
    GroupedGradients::Group& group = groups.emplace_back();
    std::vector<NamedParam> here = of_group;
    group.wide = o.sharding().wide_sums;
    if (ranks.size() > 1) {
      std::string name = "parts of";
      for (const int r : ranks) name += str(" ", r);
      Comm& devices = *out.comms.emplace_back(world.connect(name + ", device", ranks));
      std::vector<std::pair<std::string, at::Tensor>> named;
      for (const NamedParam& p : of_group) named.emplace_back(p.name, p.tensor);
      if (o.sharding().stage == 0) {
        group.copies = devices.size();
        group.sync = std::make_unique<GradientSum>(std::move(named), devices,
                                                   GradientSum::Spec{.bucket_bytes = bytes, .wide = group.wide});
      } else {
        Comm& host = *out.comms.emplace_back(world.connect(name + ", host", ranks, /*on_host=*/true));
        const Sliced slices = sliced_params(named, devices, o.sharding().on_host);
        here = in_model_order(slices, of_group, devices);
        group.sync = std::make_unique<ShardedGradients>(
            slices, devices, host,
            ShardedGradients::Spec{
                .bucket_bytes = bytes, .each_micro_batch = o.sharding().stage >= 2, .wide = group.wide});
      }
    }
    for (const NamedParam& p : here) updated[p.name] = p, group.updated.push_back(p.tensor);
  }
  for (const NamedParam& p : params) out.updated.push_back(updated.at(p.name));
  out.groups = std::make_unique<GroupedGradients>(std::move(groups), world.host(), mesh.size(Axis::Ep) > 1);
  return out;
}

}  // namespace apus
