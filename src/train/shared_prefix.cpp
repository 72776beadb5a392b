// SPDX-License-Identifier: Apache-2.0
#include "train/shared_prefix.h"

#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <algorithm>

#include "base/error.h"
#include "nn/expert_choices.h"
#include "nn/training_step.h"

namespace apus {
namespace {

// A sequence of a batch: its tokens are [begin, begin + length).
struct PackedRow {
  int64_t begin = 0, length = 0;
};

// How many tokens all rows begin with, so that each keeps one of its own.
int64_t common_beginning(const int64_t* id, const PackedRow* rows, size_t count) {
  int64_t same = rows[0].length - 1;
  for (size_t r = 1; r < count; ++r) {
    const int64_t* first = id + rows[0].begin;
    same = std::min(same, rows[r].length - 1);
    same = std::mismatch(first, first + same, id + rows[r].begin).first - first;
  }
  return count > 1 ? same : 0;
}

// Sequences of the tree, one after the other.
class Tree {
 public:
  explicit Tree(int64_t tokens) : place_(static_cast<size_t>(tokens)) {}

  void add_group(const PackedRow* rows, size_t count, int64_t stem) {
    const auto first = static_cast<int64_t>(row_.size());
    if (stem > 0) {
      int64_t longest = 0;
      for (size_t r = 0; r < count; ++r) longest = std::max(longest, rows[r].length);
      add_sequence(rows[0], 0, stem, 0, longest);
    }
    for (size_t r = 0; r < count; ++r) {
      for (int64_t i = 0; i < stem; ++i) place_[static_cast<size_t>(rows[r].begin + i)] = first + i;
      add_sequence(rows[r], stem, rows[r].length, first, rows[r].length);
    }
  }

  std::shared_ptr<const SharedPrefixes> finished(at::Device device) const {
    SharedPrefixes out;
    const auto longs = [&](const std::vector<int64_t>& x) { return at::tensor(x, at::kLong).to(device); };
    out.row_U = longs(row_), out.place_T = longs(place_), out.key_K = longs(key_);
    out.step = step_;
    out.step.cu_q = at::tensor(cu_q_, at::kInt).to(device), out.step.cu_k = at::tensor(cu_k_, at::kInt).to(device);
    return std::make_shared<const SharedPrefixes>(std::move(out));
  }

 private:
  // Tokens [begin, end) of a row, which see the `begin` keys from `stem` on and their own.
  void add_sequence(const PackedRow& row, int64_t begin, int64_t end, int64_t stem, int64_t whole) {
    const auto own = static_cast<int64_t>(row_.size());
    for (int64_t i = 0; i < begin; ++i) key_.push_back(stem + i);
    for (int64_t i = begin; i < end; ++i) {
      place_[static_cast<size_t>(row.begin + i)] = own + i - begin;
      key_.push_back(own + i - begin), row_.push_back(row.begin + i);
    }
    step_.begin_q.push_back(static_cast<int32_t>(begin));
    step_.length_q.push_back(static_cast<int32_t>(end - begin));
    step_.length_k.push_back(static_cast<int32_t>(whole));
    cu_q_.push_back(static_cast<int32_t>(row_.size())), cu_k_.push_back(static_cast<int32_t>(key_.size()));
    step_.max_q = std::max(step_.max_q, end - begin), step_.max_k = std::max(step_.max_k, end);
  }

  std::vector<int64_t> row_, place_, key_;
  std::vector<int32_t> cu_q_{0}, cu_k_{0};
  Step step_;
};

}  // namespace

std::shared_ptr<const SharedPrefixes> shared_prefixes(const Batch& batch) {
  require(batch.media.empty(), Fault::Usage, "--share_prefix true is of texts alone, and these rows have images");
  const at::Tensor id_T = batch.id_T.cpu().contiguous();
  Tree tree(id_T.numel());
  std::vector<PackedRow> rows;
  bool shares = false;
  int64_t begin = 0;
  const size_t sequences = batch.step.length_q.size();
  for (size_t s = 0; s < sequences; begin += batch.step.length_q[s++]) {
    rows.push_back({begin, batch.step.length_q[s]});
    if (s + 1 < sequences && batch.groups[s + 1] == batch.groups[s]) continue;
    const int64_t stem = common_beginning(id_T.data_ptr<int64_t>(), rows.data(), rows.size());
    tree.add_group(rows.data(), rows.size(), stem);
    shares = shares || stem > 0;
    rows.clear();
  }
  return shares ? tree.finished(batch.id_T.device()) : nullptr;
}

bool can_share_prefixes(const DecoderSpec& spec) {
  return spec.shape.keeps.empty() && !spec.seeing && !spec.encoder && !spec.hands_on_more() &&
         !spec.attention.by_distance && (!spec.latent || spec.latent->index.heads == 0);
}

at::Tensor hidden_states(const Batch& batch, Step& step, const RunTokens& run) {
  if (!batch.shared) return run(batch.inputs(), step);
  const SharedPrefixes& tree = *batch.shared;
  const at::Device device = batch.id_T.device();
  const auto here = [&](const at::Tensor& x) { return x.to(device); };
  TrainingStep training = training_of(step);
  require(!training.router, Fault::Usage,
          "--share_prefix true reads a prompt once, and --router_aux_loss_coef counts every token: set it to 0");
  require(training.capacity.factor == 0, Fault::Usage,
          "--share_prefix true reads a prompt once, and --moe_expert_capacity_factor counts every token: set it to 0");
  training.key_K = here(tree.key_K);
  Step own = moved(tree.step, device);
  own.routed = step.routed, own.adapters = step.adapters;
  if (step.told_experts) own.told_experts = step.told_experts->of_rows(tree.row_U);
  if (step.met_experts) own.met_experts = std::make_shared<ExpertChoices>(step.met_experts->width());
  set_training(own, std::move(training));
  const at::Tensor hidden_UD = run(Inputs(at::index_select(batch.id_T, 0, here(tree.row_U))), own);
  TrainingStep behind = training_of(own);
  behind.key_K = at::Tensor();
  if (step.training || behind.table) set_training(step, std::move(behind));
  if (step.met_experts) step.met_experts->write_rows(*own.met_experts, tree.place_T);
  return at::index_select(hidden_UD, 0, here(tree.place_T));
}

}  // namespace apus
