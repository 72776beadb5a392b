// SPDX-License-Identifier: Apache-2.0
#include "models/speech/row_stepper.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>

namespace apus {

namespace {
constexpr int64_t kBlock = 16;  // rows of the cache

at::Tensor through(const Decoder& decoder, at::Tensor x_TD, Step& s) {
  decoder.begin(s);
  for (int64_t i = 0; i < decoder.shape().layers; ++i) x_TD = decoder.layer(i, std::move(x_TD), s);
  return decoder.final_norm(x_TD);
}
}  // namespace

at::Tensor hidden_of_rows(const Decoder& decoder, at::Tensor row_TD) {
  Step s = packed_step({static_cast<int32_t>(row_TD.size(0))}, row_TD.device());
  return through(decoder, std::move(row_TD), s);
}

RowStepper::RowStepper(const Decoder& decoder, at::TensorOptions options, int64_t most)
    : decoder_(decoder), most_(most) {
  const int64_t blocks = (most + kBlock - 1) / kBlock;
  cache_ = std::make_unique<KvCache>(cache_spec(decoder.shape(), blocks, kBlock), options);
  blocks_ = at::arange(blocks, at::kInt).unsqueeze(0).to(options.device());
}

at::Tensor RowStepper::read(const at::Tensor& row_TD, at::Tensor position) {
  const int64_t count = row_TD.size(0), end = read_ + count;
  require(end <= most_, Fault::Bug, "more rows than the cache has room for");
  const at::Device device = row_TD.device();
  Step s;
  s.slot = at::arange(read_, end, at::kLong).to(device);
  s.position = position.defined() ? position.to(device) : s.slot;
  s.cu_q = at::tensor({int64_t{0}, count}, at::kInt).to(device);
  s.cu_k = at::tensor({int64_t{0}, end}, at::kInt).to(device);
  s.length_q = {static_cast<int32_t>(count)}, s.length_k = {static_cast<int32_t>(end)};
  s.begin_q = {static_cast<int32_t>(read_)};
  s.max_q = count, s.max_k = end;
  s.cache = cache_.get(), s.block_table = blocks_;
  read_ = end;
  return through(decoder_, row_TD, s);
}

}  // namespace apus
