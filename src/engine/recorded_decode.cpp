// SPDX-License-Identifier: Apache-2.0
#include "engine/recorded_decode.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "models/layer_runner.h"
#include "tensor/upload.h"

namespace apus {

// All that the recorded work reads from outside lies in `step` and `inputs`, and stays where it is.
struct RecordedDecode::Recorded {
  int64_t rows = 0, width = 0;
  at::Tensor there;  // the step's numbers as bytes: ids, slots; ends of queries, ends of keys, blocks
  Inputs inputs{at::Tensor()};
  Step step, head_step;
  bool recorded = false;
  at::Tensor logits;  // in memory that the recordings share
  std::unique_ptr<Recording> work;
};

namespace {

// Few numbers of rows, so that few recordings do.
int64_t rounded_up(int64_t sequences) {
  int64_t rows = 1;
  while (rows < sequences && rows < 8) rows *= 2;
  const int64_t step = sequences <= 64 ? 8 : sequences <= 256 ? 16 : 64;
  return sequences <= 8 ? rows : (sequences + step - 1) / step * step;
}

int64_t power_of_two(int64_t least, int64_t n) {
  int64_t power = least;
  while (power < n) power *= 2;
  return power;
}

constexpr int64_t kLeastWidth = 16;     // blocks of a sequence
constexpr size_t kMostRecordings = 96;  // with many adapters there could be any number

}  // namespace

RecordedDecode::RecordedDecode(at::TensorOptions options, int64_t block_size, Recorder recorder)
    : options_(options), block_size_(block_size), recorder_(std::move(recorder)) {}
RecordedDecode::~RecordedDecode() = default;

bool RecordedDecode::possible(const Model& model, const KvCache& cache) const {
  return recorder_ && !impossible_ && !model.devices() && model.steps_are_alike() && cache.spec().seats == 0;
}

void RecordedDecode::forget() { recorded_.clear(); }

std::unique_ptr<RecordedDecode::Recorded> RecordedDecode::blank(int64_t rows, int64_t width, KvCache& cache) const {
  auto r = std::make_unique<Recorded>();
  r->rows = rows, r->width = width;
  const int64_t bytes = rows * 2 * 8 + (2 * (rows + 1) + rows * width) * 4;
  r->there = at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(options_.device()));
  int64_t offset = 0;
  r->inputs.id_T = part(r->there, offset, rows, at::kLong);
  Step& s = r->step;
  s.slot = part(r->there, offset, rows, at::kLong);
  s.cu_q = part(r->there, offset, rows + 1, at::kInt), s.cu_k = part(r->there, offset, rows + 1, at::kInt);
  s.block_table = part(r->there, offset, rows * width, at::kInt).view({rows, width});
  s.max_q = 1, s.max_k = width * block_size_, s.cache = &cache;
  s.length_q.assign(static_cast<size_t>(rows), 1);
  return r;
}

// The rows behind the last sequence have no queries, no keys and no place in the cache.
void RecordedDecode::fill(Recorded& r, const StepNumbers& n, const at::Tensor& id_S) const {
  const int64_t sequences = std::ssize(n.begin), widest = sequences > 0 ? std::ssize(n.blocks) / sequences : 0;
  // Of its own for each step: the device may not have read those of the step before.
  const at::Tensor host = staging(r.there.numel(), options_.device());
  auto* const id = reinterpret_cast<int64_t*>(host.data_ptr<uint8_t>());
  int64_t* const slot = id + r.rows;
  auto* const cu_q = reinterpret_cast<int32_t*>(slot + r.rows);
  int32_t* const cu_k = cu_q + r.rows + 1;
  int32_t* const blocks = cu_k + r.rows + 1;
  cu_q[0] = cu_k[0] = 0;
  for (int64_t i = 0; i < r.rows; ++i) {
    const auto at = static_cast<size_t>(i);
    const bool there = i < sequences;
    id[i] = there ? n.id[at] : 0, slot[i] = there ? n.slot[at] : -1;
    cu_q[i + 1] = cu_q[i] + (there ? 1 : 0);
    cu_k[i + 1] = cu_k[i] + (there ? static_cast<int32_t>(n.begin[at]) + 1 : 0);
    if (there)
      std::memcpy(blocks + i * r.width, n.blocks.data() + i * widest, static_cast<size_t>(widest) * sizeof(int32_t));
  }
  r.there.copy_(host, /*non_blocking=*/true);
  if (id_S.defined()) r.inputs.id_T.narrow(0, 0, sequences).copy_(id_S);
}

// Positions and rotary tables, which may depend on each sequence's length, are made anew for each step.
void RecordedDecode::prepare(Recorded& r, const Model& model, const StepNumbers& n) const {
  Step now = r.step;
  now.position = at::Tensor();
  now.begin_q.assign(static_cast<size_t>(r.rows), 0), now.length_k.assign(static_cast<size_t>(r.rows), 0);
  for (size_t i = 0; i < n.begin.size(); ++i)
    now.begin_q[i] = static_cast<int32_t>(n.begin[i]), now.length_k[i] = static_cast<int32_t>(n.prompt[i]);
  prepare_step(model, r.inputs, now, *model.runner());
  if (!r.recorded) {
    r.step = std::move(now);
    return;
  }
  r.step.position.copy_(now.position);
  for (size_t i = 0; i < now.turns.size(); ++i) {
    r.step.turns[i].cos.copy_(now.turns[i].cos), r.step.turns[i].sin.copy_(now.turns[i].sin);
    if (now.turns[i].query_T.defined()) r.step.turns[i].query_T.copy_(now.turns[i].query_T);
  }
}

at::Tensor RecordedDecode::compute(const Recorded& r, const Model& model) const {
  return model.head(run_prepared(model, r.inputs, r.step, *model.runner()), r.head_step);
}

void RecordedDecode::record(Recorded& r, const Model& model) {
  compute(r, model);  // loads and chooses what it needs; what it writes is written again
  const Recording* sharing = nullptr;
  for (const auto& [key, other] : recorded_)
    if (other->work) sharing = other->work.get();
  r.work = recorder_([this, &r, &model] { r.logits = compute(r, model); }, sharing);
  // Let go of: another recording may use the memory for its own results.
  const at::Tensor logits = std::move(r.logits);
  r.logits = at::from_blob(logits.data_ptr(), logits.sizes(), logits.strides(), logits.options());
  r.recorded = true;
}

at::Tensor RecordedDecode::operator()(const Model& model, KvCache& cache, const StepNumbers& n,
                                      const std::string& adapter, const at::Tensor& id_S) {
  const int64_t sequences = std::ssize(n.begin), rows = rounded_up(sequences),
                width = power_of_two(kLeastWidth, std::ssize(n.blocks) / sequences);
  const Key key{rows, width, n.routed, adapter};
  if (recorded_.size() >= kMostRecordings && !recorded_.contains(key)) recorded_.clear();
  std::unique_ptr<Recorded>& known = recorded_[key];
  if (!known) {
    known = blank(rows, width, cache);
    for (Step* s : {&known->step, &known->head_step}) {
      s->routed = n.routed;
      if (!adapter.empty()) s->adapters = {{adapter, known->inputs.id_T}};  // as many rows as there are: all of them
    }
  }
  Recorded& r = *known;
  fill(r, n, id_S);
  prepare(r, model, n);
  if (!r.recorded) {
    try {
      record(r, model);
    } catch (const std::exception& e) {
      const std::string why = e.what();
      log_debug("steps of this model are not recorded: ", why.substr(0, why.find('\n')));
      impossible_ = true;
      recorded_.clear();
      return {};
    }
  }
  r.work->play();
  return r.logits.narrow(0, 0, sequences);
}

}  // namespace apus
