// SPDX-License-Identifier: Apache-2.0
#include "nn/residual_share.h"

#include <c10/core/GradMode.h>
#include <c10/core/StorageImpl.h>
#include <torch/csrc/autograd/custom_function.h>

#include <memory>
#include <utility>

#include "dist/collective.h"
#include "nn/capsule.h"
#include "nn/token_share.h"
#include "nn/training_step.h"

namespace apus {

namespace {

// All tokens without their memory, while whoever reads them in the backward pass still holds them: it comes back with
// them before that.
class GatheredAgain {
 public:
  GatheredAgain(std::shared_ptr<const TokenShare> share, const at::Tensor& x_tD, const at::Tensor& x_TD)
      : share_(std::move(share)), x_tD_(x_tD.detach()), away_(x_TD.storage().getWeakStorageImpl()) {
    c10::StorageImpl& memory = *x_TD.storage().unsafeGetStorageImpl();
    memory.set_data_ptr_noswap(at::DataPtr(nullptr, x_TD.device()));
    memory.set_nbytes(static_cast<size_t>(0));
  }
  // Where nobody holds them the other ranks hold none either: the same is trained everywhere.
  void come_back() {
    const auto memory = away_.lock();
    if (!memory) return;
    const at::Tensor again_TD = share_->gathered(x_tD_);
    c10::StorageImpl& from = *again_TD.storage().unsafeGetStorageImpl();
    memory->set_nbytes(from.nbytes());
    memory->set_data_ptr_noswap(from.set_data_ptr(at::DataPtr(nullptr, again_TD.device())));
  }

 private:
  std::shared_ptr<const TokenShare> share_;
  at::Tensor x_tD_;
  c10::weak_intrusive_ptr<c10::StorageImpl> away_;
};

// What a part gave: when its gradient comes, the backward pass of the part begins.
struct Return : torch::autograd::Function<Return> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& y,
                            const std::shared_ptr<GatheredAgain>& read) {
    ctx->saved_data["read"] = encapsulated(read);
    return y.view_as(y);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    held<std::shared_ptr<GatheredAgain>>(ctx->saved_data["read"])->come_back();
    return {grads[0], at::Tensor()};
  }
};

}  // namespace

at::Tensor through_all_tokens(const at::Tensor& x_tD, const Step& s,
                              const std::function<at::Tensor(const at::Tensor& x_TD)>& part) {
  const auto& share = training_of(s).residual;
  if (!share) return part(x_tD);
  const at::Tensor x_TD = share->gathered(x_tD);
  const at::Tensor y_tD = own_tokens(part(x_TD), s);
  // In a layer's second run its backward pass follows at once.
  const Memo* const memo = training_of(s).memo;
  if (!at::GradMode::is_enabled() || !y_tD.requires_grad() || (memo && memo->again())) return y_tD;
  return Return::apply(y_tD, std::make_shared<GatheredAgain>(share, x_tD, x_TD));
}

at::Tensor own_sum(const at::Tensor& part_TD, Comm& ranks, const Step& s, const at::Tensor& known) {
  const auto& share = training_of(s).residual;
  return share ? share->own_sum(part_TD, known) : collective::all_reduce(part_TD, ranks, known);
}

at::Tensor own_tokens(const at::Tensor& y_TD, const Step& s) {
  const auto& share = training_of(s).residual;
  return !share || y_TD.size(0) == share->own().size ? y_TD : share->narrowed(y_TD);
}

}  // namespace apus
