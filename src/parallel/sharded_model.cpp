// SPDX-License-Identifier: Apache-2.0
#include "parallel/sharded_model.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <map>

#include "dist/mesh.h"
#include "nn/capsule.h"
#include "nn/parts.h"
#include "nn/training_step.h"
#include "ops/quantised.h"

namespace apus {

// A parameter as a slice, and as a whole whose memory comes and goes. The whole stays one leaf of the tape: what saved
// it, or a view of it, for the backward pass finds its values there again.
struct ShardedModel::Shard {
  std::string name;
  Param* param;
  std::vector<Param*> tied;  // other names of it
  at::Tensor slice, whole;   // where ranks share out matrices, all of this rank's part
  std::vector<Range> of_slice, of_whole;

  int64_t bytes() const { return whole.numel() * static_cast<int64_t>(whole.element_size()); }
  void show_slice() const { show(slice, of_slice); }
  void show_whole() const { show(whole, of_whole); }
  void show(const at::Tensor& data, const std::vector<Range>& part) const {
    param->data = data, param->part = part;
    for (Param* p : tied) p->data = data, p->part = part;
  }
  c10::StorageImpl& storage() const { return *whole.storage().unsafeGetStorageImpl(); }
  void fill() const {
    const at::Tensor memory = at::empty(whole.sizes(), whole.detach().options());
    c10::StorageImpl& from = *memory.storage().unsafeGetStorageImpl();
    storage().set_nbytes(from.nbytes());
    storage().set_data_ptr_noswap(from.set_data_ptr(at::DataPtr(nullptr, whole.device())));
  }
  void empty() const {
    storage().set_data_ptr_noswap(at::DataPtr(nullptr, whole.device()));
    storage().set_nbytes(static_cast<size_t>(0));
  }
};

namespace {
enum class Presence { Away, Coming, Here };
constexpr int64_t kMessageBytes = 25 << 20;
}  // namespace

struct ShardedModel::Unit {
  std::vector<Shard> shards;
  Presence presence = Presence::Away;
  bool stays = false;  // until the pass has ended: a table that is the head too
  struct Message {
    std::vector<size_t> shards;
    std::unique_ptr<SliceMessage> how;
    SliceMessage::Pending pending;
  };
  std::vector<Message> messages;

  int64_t bytes() const {
    int64_t sum = 0;
    for (const Shard& s : shards) sum += s.bytes();
    return sum;
  }
  // Weights that are held quantised travel as plain numbers, and are quantised nowhere but in slices.
  std::vector<at::Tensor> slices(const Message& m) const {
    std::vector<at::Tensor> all;
    for (const size_t i : m.shards) all.push_back(ops::plain(shards[i].slice));
    return all;
  }
  std::vector<at::Tensor> wholes(const Message& m) const {
    std::vector<at::Tensor> all;
    for (const size_t i : m.shards) all.push_back(shards[i].whole);
    return all;
  }
};

// Walks through the model, with each part's parameters there.
class ShardedModel::Runner final : public LayerRunner {
 public:
  explicit Runner(ShardedModel& owner) : owner_(owner) {}
  at::Tensor embed(const Model& model, const Inputs& in, const Step& s) override;
  at::Tensor layer(const Model& model, int64_t i, const at::Tensor& x_TD, const Step& s) override;
  at::Tensor final_norm(const Model& model, const at::Tensor& x_TD) override;
  std::shared_ptr<void> alone() override { return owner_.whole(); }

 private:
  at::Tensor leave(size_t unit, const at::Tensor& y_TD, bool runs_again = false);
  ShardedModel& owner_;
};

namespace {

// The output of a part of the model: when its gradient comes, the backward pass begins with that part.
struct Arrival : torch::autograd::Function<Arrival> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& y,
                            const std::shared_ptr<std::function<void()>>& call) {
    ctx->saved_data["call"] = encapsulated(call);
    return y.view_as(y);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    (*held<std::shared_ptr<std::function<void()>>>(ctx->saved_data["call"]))();
    return {grads[0], at::Tensor()};
  }
};

}  // namespace

at::Tensor ShardedModel::Runner::leave(size_t unit, const at::Tensor& y_TD, bool runs_again) {
  const bool back = at::GradMode::is_enabled() && y_TD.requires_grad();
  const Unit& u = *owner_.units_[unit];
  // The backward pass begins with the last layer.
  const bool last = unit + 2 == owner_.units_.size();
  const bool kept = !owner_.spec_.release_after_forward && (back || runs_again);
  if (!u.stays && !last && !kept) owner_.release(unit);
  if (!back) return y_TD;
  owner_.backward_waits_ = true;
  return Arrival::apply(y_TD, std::make_shared<std::function<void()>>([o = &owner_, unit] { o->back_at(unit); }));
}

at::Tensor ShardedModel::Runner::embed(const Model& model, const Inputs& in, const Step& s) {
  if (owner_.wholes_ > 0) return model.embed(in, s);
  // What an earlier pass left; but not the head that its backward pass begins with (a reference is asked in between).
  const size_t head = owner_.units_.size() - 1;
  for (size_t u = 0; u <= head; ++u)
    if (u != head || !owner_.backward_waits_) owner_.release(u);
  owner_.need(0), owner_.start(1);
  return leave(0, model.embed(in, s));
}

at::Tensor ShardedModel::Runner::layer(const Model& model, int64_t i, const at::Tensor& x_TD, const Step& s) {
  if (owner_.wholes_ > 0) return model.layer(i, x_TD, s);
  const auto unit = static_cast<size_t>(i) + 1;
  const Memo* memo = training_of(s).memo;
  if (memo && memo->again()) {  // its backward pass follows
    owner_.back_at(unit);
    return model.layer(i, x_TD, s);
  }
  owner_.need(unit), owner_.start(unit + 1);
  return leave(unit, model.layer(i, x_TD, s), memo != nullptr);
}

// The head is used behind this, and stays until the backward pass has left it.
at::Tensor ShardedModel::Runner::final_norm(const Model& model, const at::Tensor& x_TD) {
  if (owner_.wholes_ == 0) owner_.need(owner_.units_.size() - 1);
  return model.final_norm(x_TD);
}

ShardedModel::ShardedModel(Model& model, Comm& ranks, Spec spec) : model_(model), ranks_(ranks), spec_(spec) {
  at::NoGradGuard no_grad;
  const auto layers = static_cast<size_t>(model.shape().layers);
  for (size_t u = 0; u < layers + 2; ++u) units_.push_back(std::make_unique<Unit>());
  std::map<std::string, size_t> unit_of_layer;
  for (size_t i = 0; i < layers; ++i) unit_of_layer[model.layer_name(static_cast<int64_t>(i)) + "."] = i + 1;
  std::vector<std::string> ends = model.end_names();
  if (model.guess_head()) ends.push_back(model.guess_head_name());
  const auto unit_of = [&](const std::string& name) -> size_t {
    for (const std::string& last : ends)
      if (name.starts_with(last + ".")) return layers + 1;
    auto after = unit_of_layer.upper_bound(name);
    if (after != unit_of_layer.begin() && name.starts_with((--after)->first)) return after->second;
    return 0;
  };
  std::map<std::string, std::vector<Param*>> others;
  model.visit([&](const std::string&, Param& p) {
    if (!p.tied.empty()) others[p.tied].push_back(&p);
  });
  model.visit([&](const std::string& name, Param& p) {
    if (!p.tied.empty()) return;
    require(p.data.defined() && p.data.sizes() == at::IntArrayRef(p.local_shape()), Fault::Bug, name,
            " is shared out before it is loaded");
    Unit& unit = *units_[unit_of(name)];
    Shard& s = unit.shards.emplace_back(Shard{name, &p, others[name], p.data, {}, p.part, {}});
    unit.stays |= !s.tied.empty();
    s.of_whole = local_part(p.full, unsharded_cuts(p), model.mesh()->layout());
    std::vector<int64_t> shape;
    for (const Range& range : s.of_whole) shape.push_back(range.size);
    s.whole = at::empty(shape, p.data.detach().options().device(spec.device));
    s.empty();
    s.whole.set_requires_grad(p.trainable);
  });
  for (const auto& unit : units_) {
    int64_t bytes = 0;
    for (size_t i = 0; i < unit->shards.size(); ++i) {
      const Shard& s = unit->shards[i];
      const bool alike = !unit->messages.empty() &&
                         unit->shards[unit->messages.back().shards[0]].whole.scalar_type() == s.whole.scalar_type();
      if (!alike || bytes + s.bytes() > kMessageBytes) unit->messages.emplace_back(), bytes = 0;
      unit->messages.back().shards.push_back(i), bytes += s.bytes();
    }
    for (Unit::Message& m : unit->messages) {
      std::vector<std::vector<int64_t>> shapes;
      for (const size_t i : m.shards) shapes.push_back(unit->shards[i].whole.sizes().vec());
      m.how =
          std::make_unique<SliceMessage>(ranks_, std::move(shapes), unit->shards[m.shards[0]].whole.detach().options());
    }
  }
  model_.run_by(std::make_shared<Runner>(*this));
}

ShardedModel::~ShardedModel() {
  model_.run_by(nullptr);
  for (const auto& unit : units_)
    for (const Shard& s : unit->shards) s.show_slice();
}

std::vector<ShardedGradients::Param> ShardedModel::trained(int first_unit) const {
  std::vector<ShardedGradients::Param> all;
  for (size_t u = units_.size(); u-- > 0;)
    for (auto s = units_[u]->shards.rbegin(); s != units_[u]->shards.rend(); ++s)
      if (s->param->trainable)
        all.push_back({.name = s->name,
                       .whole = s->whole,
                       .slice = s->slice,
                       .unit = first_unit + static_cast<int>(units_.size() - 1 - u)});
  return all;
}

int64_t ShardedModel::slice_bytes() const {
  int64_t bytes = 0;
  for (const auto& unit : units_)
    for (const Shard& s : unit->shards) bytes += ops::held_bytes(s.slice);
  return bytes;
}

void ShardedModel::start(size_t number) {
  Unit& unit = *units_[number];
  if (unit.presence != Presence::Away) return;
  bytes_ += unit.bytes(), most_bytes_ = std::max(most_bytes_, bytes_);
  for (Unit::Message& m : unit.messages) {
    if (m.how->direct()) unit.shards[m.shards[0]].fill();
    m.pending = m.how->start_gather(unit.slices(m), unit.wholes(m));
  }
  unit.presence = Presence::Coming;
}

void ShardedModel::need(size_t number) {
  start(number);
  Unit& unit = *units_[number];
  if (unit.presence == Presence::Here) return;
  for (Unit::Message& m : unit.messages) {
    for (const size_t i : m.shards)
      if (!m.how->direct()) unit.shards[i].fill();
    m.how->end_gather(m.pending, unit.wholes(m));
  }
  for (const Shard& s : unit.shards) s.show_whole();
  unit.presence = Presence::Here;
}

void ShardedModel::release(size_t number) {
  Unit& unit = *units_[number];
  if (unit.presence == Presence::Away) return;
  need(number);  // what is under way arrives first
  for (const Shard& s : unit.shards) s.show_slice(), s.empty();
  bytes_ -= unit.bytes();
  unit.presence = Presence::Away;
}

void ShardedModel::release() {
  backward_waits_ = false;
  for (size_t u = 0; u < units_.size(); ++u) release(u);
}

// A layer is on its way while the one before it gets its place.
std::shared_ptr<void> ShardedModel::whole() {
  if (wholes_ == 0) {
    release(), start(0);
    for (size_t u = 0; u < units_.size(); ++u) {
      if (u + 1 < units_.size()) start(u + 1);
      need(u);
    }
  }
  ++wholes_;
  return {nullptr, [this](void*) {
            if (--wholes_ == 0) release();
          }};
}

void ShardedModel::as_slices(const std::function<void()>& work) {
  const auto each_here = [&](void (Shard::*show)() const) {
    for (const auto& unit : units_)
      if (unit->presence == Presence::Here)
        for (const Shard& s : unit->shards) (s.*show)();
  };
  each_here(&Shard::show_slice);
  work();
  each_here(&Shard::show_whole);
}

void ShardedModel::back_at(size_t number) {
  const size_t last = units_.size() - 1;
  backward_waits_ = false;
  for (size_t u = number + 1; u <= last; ++u) release(u);
  if (gradients_) gradients_->complete(first_unit_ + static_cast<int>(last - number) - 1);
  // Of a plain table the backward pass wants no values.
  if (number == 0 && units_[0]->shards.size() == 1) return;
  need(number);
  if (number > 1) start(number - 1);
}

}  // namespace apus
