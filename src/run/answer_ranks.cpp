// SPDX-License-Identifier: Apache-2.0
#include "run/answer_ranks.h"

#include <numeric>

#include "base/log.h"
#include "nn/moe.h"

namespace apus {

AnswerRanks::AnswerRanks(const RankOptions& o, const std::string& device)
    : of_copy_(static_cast<int>(o.ranks_of_copy())), world_({.device = device, .timeout_s = o.ddp_timeout}) {
  if (of_copy_ == 1) return;
  require(world_.size() % of_copy_ == 0, Fault::Usage, "--tensor_model_parallel_size ", o.tensor_model_parallel_size,
          " x --expert_model_parallel_size ", o.expert_model_parallel_size, " needs ", of_copy_,
          " processes, or a multiple, and ", world_.size() == 1 ? "one runs" : str(world_.size(), " run"),
          ": start with NPROC_PER_NODE=", of_copy_, ", or without it");
  mesh_ = std::make_unique<Mesh>(world_, MeshSizes{.tp = static_cast<int>(o.tensor_model_parallel_size),
                                                   .ep = static_cast<int>(o.expert_model_parallel_size)});
  if (o.tensor_model_parallel_size > 1)
    log_info(o.tensor_model_parallel_size, " ranks share out the matrices of the model");
  if (o.expert_model_parallel_size > 1)
    log_info(o.expert_model_parallel_size, " ranks share out the experts of each layer");
}

void AnswerRanks::place(Model& model) {
  if (!mesh_) return;
  model.place(*mesh_);
  model.visit_modules([](const std::string&, Module& m) {
    if (auto* experts = dynamic_cast<Experts*>(&m)) experts->tokens_are_everywhere();
  });
}

std::unique_ptr<Comm> AnswerRanks::line() {
  std::vector<int> ranks(static_cast<size_t>(of_copy_));
  std::iota(ranks.begin(), ranks.end(), copy() * of_copy_);
  return world_.connect(str("copy ", copy()), ranks, /*on_host=*/true);
}

std::unique_ptr<Comm> AnswerRanks::leaders() {
  std::vector<int> ranks;
  for (int copy = 0; copy < copies(); ++copy) ranks.push_back(copy * of_copy_);
  return ranks.size() == 1 ? lone_comm() : world_.connect("copies", ranks, /*on_host=*/true);
}

}  // namespace apus
