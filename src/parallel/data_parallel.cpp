// SPDX-License-Identifier: Apache-2.0
#include "parallel/data_parallel.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "base/error.h"
#include "parallel/gradient_hook.h"
#include "parallel/wide_gradient.h"

namespace apus {

// A parameter may receive its gradient in several parts (an embedding that is the head too, a layer run again inside
// the backward pass): how many is learnt in the first step that uses it, in which it does not leave early.
struct GradientSum::Member {
  std::string name;
  at::Tensor param;
  size_t bucket = 0;
  int64_t offset = 0;                 // elements
  int parts = 0, parts_expected = 0;  // 0: not learnt yet
  std::unique_ptr<GradientHook> hook;
};

// One flat buffer: the gradients (which become views of it), and behind them one number a parameter, 1 where this rank
// has a gradient: after the sum it tells whether any rank has one.
struct GradientSum::Bucket {
  std::vector<Member*> members;
  int64_t elements = 0;
  at::Tensor flat;
  WorkPtr work;
};

GradientSum::GradientSum(std::vector<std::pair<std::string, at::Tensor>> params, Comm& ranks, Spec spec)
    : ranks_(ranks), wide_(spec.wide) {
  int64_t bytes = 0;
  // The backward pass meets the parameters roughly in reverse.
  for (auto p = params.rbegin(); p != params.rend(); ++p) {
    const at::Tensor& t = p->second;
    const bool alike = !buckets_.empty() && buckets_.back().members[0]->param.scalar_type() == t.scalar_type() &&
                       buckets_.back().members[0]->param.device() == t.device();
    const auto size = static_cast<int64_t>(t.nbytes());
    if (!alike || bytes + size > spec.bucket_bytes) buckets_.emplace_back(), bytes = 0;
    Bucket& bucket = buckets_.back();
    members_.push_back(std::make_unique<Member>());
    Member& m = *members_.back();
    m.name = p->first, m.param = t, m.bucket = buckets_.size() - 1, m.offset = bucket.elements;
    bucket.members.push_back(&m), bucket.elements += t.numel(), bytes += size;
    m.hook = std::make_unique<GradientHook>(t, [this, &m] { arrived(m); });
  }
}

GradientSum::~GradientSum() = default;

size_t GradientSum::buckets() const { return buckets_.size(); }

void GradientSum::begin(bool last) {
  if (!last) return;
  for (const auto& m : members_) m->parts = 0;
  armed_ = true, sent_early_ = 0;
}

void GradientSum::arrived(Member& m) {
  if (!armed_) return;
  ++m.parts;
  if (m.parts_expected == 0) return;
  require(m.bucket >= next_, Fault::Bug, "a part of the gradient of ", m.name,
          " came after it was sent to the other ranks (part ", m.parts, " of ", m.parts_expected, ")");
  if (m.bucket == next_ && m.parts >= m.parts_expected) send_complete();
}

void GradientSum::send_complete() {
  const auto complete = [](const Member* m) { return m->parts_expected > 0 && m->parts >= m->parts_expected; };
  while (next_ < buckets_.size() &&
         std::all_of(buckets_[next_].members.begin(), buckets_[next_].members.end(), complete)) {
    send(buckets_[next_++]);
    ++sent_early_;
  }
}

void GradientSum::send(Bucket& b) {
  at::NoGradGuard no_grad;
  const at::Tensor& like = b.members[0]->param;
  b.flat = at::zeros({b.elements + static_cast<int64_t>(b.members.size())},
                     like.detach().options().dtype(sum_type(like, wide_)));
  std::vector<float> used(b.members.size(), 0);
  for (size_t i = 0; i < b.members.size(); ++i) {
    Member& m = *b.members[i];
    at::Tensor view = b.flat.narrow(0, m.offset, m.param.numel()).view(m.param.sizes());
    if (!m.param.grad().defined()) continue;
    view.copy_(m.param.grad());
    used[i] = 1;
    // The old buffer goes: there are not two copies of all gradients.
    m.param.mutable_grad() = view;
  }
  b.flat.narrow(0, b.elements, static_cast<int64_t>(used.size())).copy_(at::tensor(used));
  b.work = ranks_.all_reduce(b.flat, Reduce::Sum);
}

void GradientSum::finish(bool last) {
  if (!last && wide_)
    for (const auto& m : members_) widen_gradient(m->param);
  if (!last) return;
  at::NoGradGuard no_grad;
  while (next_ < buckets_.size()) send(buckets_[next_++]);
  for (Bucket& b : buckets_) {
    b.work->wait();
    for (size_t i = 0; i < b.members.size(); ++i) {
      Member& m = *b.members[i];
      if (m.param.grad().defined()) continue;
      if (b.flat[b.elements + static_cast<int64_t>(i)].item<double>() == 0) continue;
      m.param.mutable_grad() = b.flat.narrow(0, m.offset, m.param.numel()).view(m.param.sizes());
    }
    b.flat = at::Tensor(), b.work.reset();
  }
  if (armed_)
    for (const auto& m : members_)
      if (m->parts_expected == 0) m->parts_expected = m->parts;
  armed_ = false, next_ = 0;
}

}  // namespace apus
