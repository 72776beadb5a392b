// SPDX-License-Identifier: Apache-2.0
#include "nn/step.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "ops/ops.h"

namespace apus {

namespace {
// Zeros, not garbage: a block that is read before it is full must not hold NaN. On the host they cost nothing until
// they are used: the system's fresh pages are zero.
at::Tensor lazy_zeros(at::IntArrayRef shape, at::TensorOptions options) {
  if (!options.device().is_cpu()) return at::zeros(shape, options);
  // Kernels may read some bytes behind a row.
  const auto bytes = static_cast<size_t>(c10::multiply_integers(shape)) * options.dtype().itemsize() + 64;
  void* pages = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  require(pages != MAP_FAILED, Fault::Device, "no memory for the cache of keys and values: ", bytes >> 20,
          " MiB: ", std::strerror(errno));
  ::madvise(pages, bytes, MADV_HUGEPAGE);
  return at::from_blob(
      pages, shape, [bytes](void* p) { ::munmap(p, bytes); }, options);
}
}  // namespace

KvCache::KvCache(Spec spec, at::TensorOptions options, const std::vector<at::Device>& layer_devices) : spec_(spec) {
  const StateShape& s = spec.state;
  const auto wide = options.dtype() == at::kDouble ? at::kDouble : at::kFloat;
  for (int64_t layer = 0; layer < spec.layers; ++layer) {
    if (!layer_devices.empty()) options = options.device(layer_devices[static_cast<size_t>(layer)]);
    const Keeps keeps = spec.keeps_in(layer);
    const auto [heads, size] = spec.heads_in(layer);
    const std::vector<int64_t> shape{spec.blocks, spec.block_size, heads, size + (spec.codes ? ops::kCacheScale : 0)};
    const bool tokens = keeps_tokens(keeps), state = keeps_state(keeps);
    const at::TensorOptions held = spec.codes ? options.dtype(*spec.codes) : options;
    k_.push_back(tokens ? lazy_zeros(shape, held) : at::Tensor());
    v_.push_back(tokens && spec.values ? lazy_zeros(shape, held) : at::Tensor());
    before_.push_back(state && s.before > 0 ? lazy_zeros({spec.seats, s.before, s.channels}, options.dtype(wide))
                                            : at::Tensor());
    state_.push_back(state ? lazy_zeros({spec.seats, s.heads, s.rows, s.columns}, options.dtype(wide)) : at::Tensor());
  }
}

void KvCache::begin(const at::Tensor& seat) {
  for (std::vector<at::Tensor>* all : {&before_, &state_})
    for (at::Tensor& each : *all)
      if (each.defined()) each.index_fill_(0, seat.to(each.device()), 0);
}

std::vector<at::Tensor> KvCache::states(int64_t seat) const {
  std::vector<at::Tensor> copies;
  for (const std::vector<at::Tensor>* all : {&before_, &state_})
    for (const at::Tensor& each : *all)
      if (each.defined()) copies.push_back(each.select(0, seat).clone());
  return copies;
}

void KvCache::put_states(int64_t seat, const std::vector<at::Tensor>& states) {
  auto copy = states.begin();
  for (std::vector<at::Tensor>* all : {&before_, &state_})
    for (at::Tensor& each : *all)
      if (each.defined()) each.select(0, seat).copy_(*copy++);
}

Keeps KvCache::Spec::keeps_in(int64_t layer) const {
  return keeps.empty() ? Keeps::Tokens : keeps[static_cast<size_t>(layer)];
}

std::pair<int64_t, int64_t> KvCache::Spec::heads_in(int64_t layer) const {
  return heads_of.empty() ? std::pair{kv_heads, head_dim} : heads_of[static_cast<size_t>(layer)];
}

int64_t KvCache::Spec::layers_that(bool (*keep)(Keeps)) const {
  return keeps.empty() ? (keep(Keeps::Tokens) ? layers : 0) : std::count_if(keeps.begin(), keeps.end(), keep);
}

int64_t KvCache::bytes_per_block(const Spec& spec, int64_t element_size) {
  int64_t bytes = 0;  // of a token's keys
  for (int64_t layer = 0; layer < spec.layers; ++layer) {
    if (!keeps_tokens(spec.keeps_in(layer))) continue;
    const auto [heads, size] = spec.heads_in(layer);
    bytes += heads * (spec.codes ? size + ops::kCacheScale : size * element_size);
  }
  return (spec.values ? 2 : 1) * spec.block_size * bytes;
}

int64_t KvCache::bytes_per_seat(const Spec& spec, int64_t element_size) {
  return spec.layers_that(keeps_state) * spec.state.numbers() * std::max<int64_t>(element_size, sizeof(float));
}

Step Step::without_adapters() const {
  Step plain = *this;
  plain.routed = true, plain.adapters.clear(), plain.training = nullptr, plain.told_experts = nullptr,
  plain.met_experts = nullptr;
  return plain;
}

Step moved(const Step& step, at::Device device) {
  Step there = step;
  for (at::Tensor* t :
       {&there.position, &there.cu_q, &there.cu_k, &there.slot, &there.block_table, &there.seat, &there.distance_BN})
    if (t->defined()) *t = t->to(device);
  for (Turn& turn : there.turns)
    for (at::Tensor* t : {&turn.cos, &turn.sin, &turn.query_T, &turn.second_cos, &turn.second_sin})
      if (t->defined()) *t = t->to(device);
  for (Step::AdapterRows& a : there.adapters) a.rows = a.rows.to(device);
  if (step.ahead) {
    SeenAhead ahead = *step.ahead;
    for (at::Tensor* t : {&ahead.row_R, &ahead.cu_q, &ahead.cu_k, &ahead.key_K, &ahead.sequence})
      if (t->defined()) *t = t->to(device);
    there.ahead = std::make_shared<const SeenAhead>(std::move(ahead));
  }
  if (step.kinds)
    there.kinds =
        std::make_shared<const TokenKinds>(TokenKinds{step.kinds->media_M.to(device), step.kinds->text_N.to(device)});
  if (step.pictures) {
    PicturesSeen seen = *step.pictures;
    for (at::Tensor* t : {&seen.row_R, &seen.open_T1})
      if (t->defined()) *t = t->to(device);
    there.pictures = std::make_shared<const PicturesSeen>(std::move(seen));
  }
  return there;
}

Step packed_step(const std::vector<int32_t>& lengths, at::Device device) {
  std::vector<int32_t> cumulative{0};
  std::vector<int64_t> position;
  Step step;
  for (const int32_t length : lengths) {
    for (int32_t i = 0; i < length; ++i) position.push_back(i);
    cumulative.push_back(cumulative.back() + length);
    step.max_q = std::max<int64_t>(step.max_q, length);
  }
  step.position = at::tensor(position, at::kLong).to(device);
  step.cu_q = step.cu_k = at::tensor(cumulative, at::kInt).to(device);
  step.length_q = step.length_k = lengths;
  step.max_k = step.max_q;
  return step;
}

}  // namespace apus
