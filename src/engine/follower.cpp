// SPDX-License-Identifier: Apache-2.0
#include "engine/follower.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>

#include "base/log.h"
#include "base/signals.h"
#include "device/device.h"
#include "engine/rows.h"

namespace apus {

Follower::Follower(const Model& model, at::TensorOptions options, EngineSpec spec, ModelHooks hooks)
    : model_(&model),
      options_(options),
      hooks_(std::move(hooks)),
      builder_(options.device(), with_block_size(spec, model, options.device()).block_size) {
  spec = with_block_size(spec, model, options.device());
  cache_spec_ = held_cache(model, spec, hooks_.line->least(cache_size_of(model, options, spec)));
  cache_ = std::make_unique<KvCache>(cache_spec_, options_);
}

void Follower::run() {
  const StopFlag stop;  // a signal to all ranks: the engine's rank decides when all is answered
  while (until_rest()) continue;
}

bool Follower::until_rest() {
  const c10::DeviceGuard device(options_.device());
  const c10::InferenceMode inference;
  for (;;) {
    Order order = hooks_.line->hear();
    if (order.kind == Order::Kind::End) return false;
    if (order.kind == Order::Kind::Rest) return true;
    obey(order);
  }
}

void Follower::obey(Order& order) {
  switch (order.kind) {
    case Order::Kind::Step: {
      auto [inputs, step] = builder_.build(order.step, *cache_);
      hidden_TD_ = model_->forward(inputs, step);
      return;
    }
    case Order::Kind::Head:
      return use_head(order);
    case Order::Kind::LoadAdapter:
    case Order::Kind::UnloadAdapter:
      return change_adapter(order);
    case Order::Kind::Sleep:
      cache_.reset(), hidden_TD_ = at::Tensor();
      if (order.level >= 2 && std::exchange(model_, nullptr)) hooks_.drop_model();
      return kind_of(options_.device()).release_cached();
    case Order::Kind::Wake:
      if (!model_) {
        const c10::InferenceMode off(false);  // ordinary tensors, as when the model was loaded
        model_ = hooks_.read_model();
      }
      if (!cache_) cache_ = std::make_unique<KvCache>(cache_spec_, options_);
      return;
    case Order::Kind::Stay:
    case Order::Kind::Rest:
    case Order::Kind::End:
      return;
  }
}

void Follower::use_head(const Order& order) {
  model_->head(rows_of(hidden_TD_, order.rows), builder_.select(order.routed, order.routes));
}

// One that does not fit is the client's fault, and the leader tells it; here the answer is that it is not attached.
void Follower::change_adapter(const Order& order) {
  if (order.kind == Order::Kind::UnloadAdapter) return hooks_.unload(order.adapter);
  bool loaded = false;
  try {
    const c10::InferenceMode off(false);
    hooks_.load(order.adapter, order.folder);
    loaded = true;
  } catch (const Error& e) {
    log_warning(e.what());
  }
  if (!hooks_.line->all(loaded) && loaded) hooks_.unload(order.adapter);
}

}  // namespace apus
