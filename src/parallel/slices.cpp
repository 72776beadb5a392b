// SPDX-License-Identifier: Apache-2.0
#include "parallel/slices.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/util/accumulate.h>

#include <algorithm>

#include "base/error.h"

namespace apus {

namespace {
// The same memory, written into unseen by the tape: the values that it remembers come back to where they were.
at::Tensor unseen(const at::Tensor& t) { return at::Tensor(t.variable_data()); }
}  // namespace

at::Tensor rows_of(const at::Tensor& whole, int rank, int ranks) {
  const Range rows = part_of(whole.size(0), rank, ranks);
  return whole.narrow(0, rows.begin, rows.size);
}

std::vector<int> owners_of(const std::vector<int64_t>& numbers, int ranks) {
  std::vector<int64_t> has(static_cast<size_t>(ranks), 0);
  std::vector<int> owners;
  for (const int64_t n : numbers) {
    const auto least = std::min_element(has.begin(), has.end());
    *least += n;
    owners.push_back(static_cast<int>(least - has.begin()));
  }
  return owners;
}

SliceMessage::SliceMessage(Comm& ranks, std::vector<std::vector<int64_t>> shapes, at::TensorOptions options,
                           std::optional<at::ScalarType> sums, std::vector<int> owners)
    : ranks_(ranks),
      shapes_(std::move(shapes)),
      owners_(std::move(owners)),
      options_(options),
      sums_(sums ? options.dtype(*sums) : options) {
  if (!owners_.empty()) {
    auto& offsets = offset_.emplace_back(shapes_.size());
    for (int r = 0; r < ranks.size(); ++r) {  // each owner's one behind the other
      Range& own = owned_.emplace_back(Range{segment_, 0});
      for (size_t m = 0; m < shapes_.size(); ++m)
        if (owners_[m] == r) offsets[m] = segment_, segment_ += c10::multiply_integers(shapes_[m]);
      own.size = segment_ - own.begin;
    }
    return;
  }
  for (int r = 0; r < ranks.size(); ++r) {
    int64_t at = 0;
    auto& offsets = offset_.emplace_back();
    for (const auto& shape : shapes_) {
      require(!shape.empty(), Fault::Bug, "a parameter without dimensions has no rows to share out");
      int64_t elements = part_of(shape[0], r, ranks.size()).size;
      for (size_t d = 1; d < shape.size(); ++d) elements *= shape[d];
      offsets.push_back(at), at += elements;
    }
    segment_ = std::max(segment_, at);
  }
  direct_ = shapes_.size() == 1 && shapes_[0][0] % ranks.size() == 0;
}

at::Tensor SliceMessage::place(const at::Tensor& flat, size_t member, int rank) const {
  std::vector<int64_t> shape = shapes_[member];
  shape[0] = part_of(shape[0], rank, ranks_.size()).size;
  int64_t elements = 1;
  for (const int64_t d : shape) elements *= d;
  return flat.narrow(0, offset(member, rank), elements).view(shape);
}

at::Tensor SliceMessage::whole_in(const at::Tensor& flat, size_t member) const {
  return flat.narrow(0, offset(member, 0), c10::multiply_integers(shapes_[member])).view(shapes_[member]);
}

SliceMessage::Pending SliceMessage::start_gather(const Tensors& slices, const Tensors& wholes) const {
  at::NoGradGuard no_grad;
  Pending p;
  if (!owners_.empty()) {
    p.flat = at::empty({segment_}, options_);
    for (size_t m = 0; m < slices.size(); ++m)
      if (owners_[m] == ranks_.rank()) whole_in(p.flat, m).copy_(slices[m].detach());
    Tensors everybodys;
    for (const Range& own : owned_) everybodys.push_back(p.flat.narrow(0, own.begin, own.size));
    p.segment = everybodys[static_cast<size_t>(ranks_.rank())].clone();
    p.work = ranks_.all_gather_uneven(everybodys, p.segment);
    return p;
  }
  if (direct_) {
    const at::Tensor mine = slices[0].detach();
    p.segment = mine.is_alias_of(wholes[0]) ? mine.clone() : mine.to(options_.device()).contiguous();
    p.work = ranks_.all_gather(unseen(wholes[0]), p.segment);
    return p;
  }
  p.segment = at::empty({segment_}, options_), p.flat = at::empty({segment_ * ranks_.size()}, options_);
  for (size_t m = 0; m < slices.size(); ++m) place(p.segment, m, ranks_.rank()).copy_(slices[m].detach());
  p.work = ranks_.all_gather(p.flat, p.segment);
  return p;
}

void SliceMessage::end_gather(Pending& p, const Tensors& wholes) const {
  at::NoGradGuard no_grad;
  p.work->wait();
  for (size_t m = 0; m < owners_.size(); ++m) unseen(wholes[m]).copy_(whole_in(p.flat, m));
  for (int r = 0; r < ranks_.size() && !direct_ && owners_.empty(); ++r) {
    const at::Tensor segment = p.flat.narrow(0, r * segment_, segment_);
    for (size_t m = 0; m < wholes.size(); ++m) rows_of(unseen(wholes[m]), r, ranks_.size()).copy_(place(segment, m, r));
  }
  p = {};
}

SliceMessage::Pending SliceMessage::start_sum(const Tensors& wholes) const {
  at::NoGradGuard no_grad;
  Pending p;
  if (!owners_.empty()) {  // what is not defined here adds nothing
    p.segment = at::zeros({segment_}, sums_);
    for (size_t m = 0; m < wholes.size(); ++m)
      if (wholes[m].defined()) whole_in(p.segment, m).copy_(wholes[m].detach());
    p.work = ranks_.all_reduce(p.segment);
    return p;
  }
  p.segment = at::empty({segment_}, sums_);
  if (direct_ && wholes[0].defined()) {
    p.flat = wholes[0].detach().to(p.segment.scalar_type()).contiguous().view({-1});
  } else {
    // What has no gradient here, and the padding, adds nothing.
    p.flat = at::zeros({segment_ * ranks_.size()}, sums_);
    for (int r = 0; r < ranks_.size(); ++r) {
      const at::Tensor segment = p.flat.narrow(0, r * segment_, segment_);
      for (size_t m = 0; m < wholes.size(); ++m)
        if (wholes[m].defined()) place(segment, m, r).copy_(rows_of(wholes[m].detach(), r, ranks_.size()));
    }
  }
  p.work = ranks_.reduce_scatter(p.segment, p.flat);
  return p;
}

SliceMessage::Tensors SliceMessage::end_sum(Pending& p) const {
  p.work->wait();
  Tensors slices;
  for (size_t m = 0; m < owners_.size(); ++m) {  // apart, so that the others' go
    const at::Tensor whole = whole_in(p.segment, m);
    slices.push_back(owners_[m] == ranks_.rank() ? whole.clone()
                                                 : at::empty(whole.narrow(0, 0, 0).sizes(), whole.options()));
  }
  for (size_t m = 0; m < shapes_.size() && owners_.empty(); ++m) slices.push_back(place(p.segment, m, ranks_.rank()));
  p = {};
  return slices;
}

}  // namespace apus
