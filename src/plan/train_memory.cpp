// SPDX-License-Identifier: Apache-2.0
// Follows nn/, ops/ and train/, whose operators decide what is kept for the backward pass. A tensor is named here by
// its width in elements per token: D hidden, Q and K of all query and key heads, F feed-forward. R is D, or the part of
// it that a device has of what devices share out between matrices, and G then D, of what they gather (else 0).
#include "plan/train_memory.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "models/spec/seeing_spec.h"
#include "train/options/optimizer_info.h"

namespace apus {
namespace {

constexpr double kMib = 1 << 20;
constexpr double kKeptGradients = 160 * kMib;  // of logits (devices/cpu/ops/head.cpp)
constexpr double kGradientBucket = 25 * kMib;  // of gradients that travel together; two are in flight

double rounded_up(double n, double unit) {
  return static_cast<double>(static_cast<int64_t>((n + unit - 1) / unit)) * unit;
}

// f32 temporaries of one update of the largest trained tensor, in its elements.
double update_temporaries(const OptimizerFacts& o, bool f32_weights) {
  const OptimizerInfo& info = optimizer_info(o.kind);
  if (info.fused) return 0;
  return info.temporaries + (f32_weights ? 0 : o.master ? 1 : 2);  // the gradient, and a weight without a master copy
}

class TrainingRun {
 public:
  TrainingRun(const ModelFacts& m, const TuningFacts& t, const TrainSpec& s, const DeviceFacts& d)
      : m_(m),
        t_(t),
        s_(s),
        d_(d),
        q_(static_cast<double>(m.heads * m.head_dim)),
        k_(static_cast<double>(m.kv_heads * m.head_dim)),
        h_(static_cast<double>(m.hidden)),
        r_(h_ / static_cast<double>(s.residual_sharers)),
        g_(s.residual_sharers > 1 ? h_ : 0),
        vocab_(static_cast<double>(m.vocab)) {}

  MemoryUse play() {
    start();
    const double trainings = 1 + static_cast<double>(s_.trained_copies);
    if (!away()) at_.add(Holds::Optimizer, trainings * optimizer_state_bytes(t_, s_) * state_share());
    if (s_.rolls_out) answer();
    for (int update = 1; update <= 2; ++update) {
      const double before = at_.now(Holds::Activations);
      for (int64_t i = 0; i < std::min(s_.ahead, s_.accumulation - 1); ++i) trunk_forward();
      const double waiting = at_.now(Holds::Activations) - before;
      for (int64_t i = 0; i < std::min<int64_t>(2, s_.accumulation); ++i) micro_batch(i > 0);
      at_.drop(Holds::Activations, waiting);
      at_.moment(update == 1 ? "the first update of the optimizer" : "the update of the optimizer");
      if (!s_.update_in_backward && !away()) at_.brief(Holds::Optimizer, update_brief(t_.largest_trained) / shared(1));
      at_.drop(Holds::Gradients, at_.now(Holds::Gradients));
    }
    return with_scatter({at_.at_peak(), at_.peak(), at_.when()});
  }

 private:
  // Holes of a processor's kept heap that nothing fits into:
  // measured, larger where small states lie among large tensors.
  MemoryUse with_scatter(MemoryUse use) const {
    if (!d_.host) return use;
    const double holes = (optimizer_info(s_.optimizer.kind).narrow ? 0.08 : 0.04) * (use.peak - d_.context);
    of(use.at_peak, Holds::Runtime) += holes, use.peak += holes;
    return use;
  }
  // In another memory than the device's.
  bool away() const { return s_.zero > 0 && s_.on_host && !d_.host; }
  double shared(int stage) const { return s_.zero >= stage ? s_.sharers() : 1; }
  // Of the optimizer's state; experts are on fewer of the devices that share it.
  double state_share() const {
    const double all = t_.trained + t_.adapter, experts = all > 0 ? t_.of_experts / all : 0;
    return s_.zero >= 1 ? (1 + experts * static_cast<double>(s_.expert_devices - 1)) / s_.sharers() : 1;
  }
  double update_brief(double elements) const { return 4 * elements * update_temporaries(s_.optimizer, s_.element > 2); }
  double width(double elements) const { return elements * s_.tokens * s_.element; }
  void hold(double elements) { at_.add(Holds::Activations, width(elements)); }
  void drop(double elements) { at_.drop(Holds::Activations, width(elements)); }
  void briefly(double elements) { at_.brief(Holds::Activations, width(elements)); }

  void start() {
    at_.add(Holds::Runtime, d_.context + d_.reserved);
    at_.moment("loading");
    if (s_.zero < 3 || !away()) {
      at_.add(Holds::Weights, weight_bytes(t_, s_) / shared(3) + t_.adapter * t_.spec.adapter_bytes / shared(3));
      at_.add(Holds::Weights, static_cast<double>(s_.frozen_copies) * weight_bytes(t_, s_) / shared(3));
      at_.add(Holds::Weights, s_.frozen_elements * s_.element / shared(3));
      const double trunk = s_.copies_share_trunk ? 0 : t_.elements - (m_.tied ? 0 : vocab_ * h_);
      at_.add(Holds::Weights, static_cast<double>(s_.trained_copies) *
                                  (trunk * s_.element + t_.adapter * t_.spec.adapter_bytes) / shared(3));
    }
    // For a gradient through experts that are held quantised, and for many rows, a stack of them is made plain.
    if (s_.held_bits > 0 && !d_.host) at_.add(Holds::Weights, t_.largest_held_stack * s_.element);
    if (d_.host) at_.add(Holds::Media, s_.media_cache);
    if (s_.devices == 1) return at_.add(Holds::Communication, s_.in_parts ? d_.comm : 0);
    // Without sharing the buckets of the first backward pass become the gradients' memory, two more are on their way.
    at_.add(Holds::Communication, d_.comm + (s_.zero == 0 ? buckets() : 0));
    if (s_.zero < 3) return;
    double largest = 0;  // a layer's small parameters come together, and are then given their places
    for (const LayerUse& layer : t_.layers) largest = std::max(largest, layer.elements);
    at_.add(Holds::Communication, gathered() * s_.element + std::min(kGradientBucket, largest * s_.element));
  }

  // The cache is given back before anything is learnt, and so are weights that ranks share out.
  void answer() {
    at_.moment("rolling out answers");
    at_.add(Holds::Cache, s_.cache_bytes);
    const bool shared_out = s_.zero >= 3 && s_.devices > 1;
    at_.brief(Holds::Communication, shared_out ? std::max(0.0, whole_to_answer() - gathered() * s_.element) : 0);
    at_.drop(Holds::Cache, s_.cache_bytes);
  }

  // Bytes that are whole while answers are rolled out, beside the slices.
  double whole_to_answer() const {
    const double own = weight_bytes(t_, s_) + t_.adapter * t_.spec.adapter_bytes;
    if (!s_.all_read_answers) return own;
    const double trunk = t_.elements - (m_.tied ? 0 : vocab_ * h_);
    return own + static_cast<double>(s_.frozen_copies) * weight_bytes(t_, s_) + s_.frozen_elements * s_.element +
           static_cast<double>(s_.trained_copies) * (trunk * s_.element + t_.adapter * t_.spec.adapter_bytes);
  }

  // Bytes of gradients that travel.
  double buckets() const {
    const double wider = s_.wide_gradients ? std::max(1.0, 4 / s_.element) : 1;
    return 2 * wider * std::min(kGradientBucket, t_.trained * s_.element + t_.adapter * t_.spec.adapter_bytes);
  }

  // Elements of a sharded model that are whole at once: the layer that is computed and the one that is fetched, or the
  // last one and the head. A table that is the head too stays throughout a pass.
  double gathered() const {
    double largest = 0, all = 0;
    for (const LayerUse& layer : t_.layers) largest = std::max(largest, layer.elements), all += layer.elements;
    const double table = vocab_ * h_, layers = s_.release_after_forward ? std::min(2 * largest, all) : all;
    return m_.tied ? table + layers : std::max(layers, table + (s_.release_after_forward ? largest : all));
  }

  // A gradient tensor appears; with `there` it is added to the one of earlier micro-batches and goes.
  void gradient(double elements, double element, bool there) {
    if (elements <= 0) return;
    const double whole = elements * element, kept = elements * (s_.wide_gradients ? std::max(4.0, element) : element);
    const bool leaves = s_.zero >= 2 || (s_.zero == 1 && s_.accumulation == 1);
    if (s_.devices > 1 && s_.zero > 0) at_.brief(Holds::Communication, buckets() + (leaves ? whole : 0));
    if (s_.update_in_backward)
      at_.brief(Holds::Gradients, whole + update_brief(elements));
    else if (there)
      at_.brief(Holds::Gradients, whole);
    // Of several micro-batches zero1 keeps whole gradients until the last.
    else if (leaves)
      at_.brief(Holds::Gradients, whole), at_.add(Holds::Gradients, away() ? 0 : kept / s_.sharers());
    else
      at_.add(Holds::Gradients, s_.accumulation == 1 && s_.devices == 1 ? whole : kept);
  }

  void micro_batch(bool there) {
    at_.moment("the forward pass");
    const double before = at_.now(Holds::Activations);
    const double all_rotation = 4 * s_.tokens * row_sharers() * static_cast<double>(m_.head_dim),  // cosines and sines
        rotation = all_rotation / static_cast<double>(s_.row_groups);
    const TowerUse tower = seen();
    at_.add(Holds::Activations, rotation);
    at_.brief(Holds::Activations, s_.row_groups > 1 ? all_rotation : 0);
    at_.brief(Holds::Activations, tower.briefly), at_.add(Holds::Activations, tower.kept);
    for (int64_t i = 0; i < s_.trained_copies; ++i) trunk_forward(), hold(h_ - r_);
    trunk_forward();
    const double whole = h_ * row_sharers();  // the final states of whole rows, which come from all who share them
    if (s_.last_stage)
      put_in_order(whole), hold(whole - r_), head(), drop(whole);
    else
      hold(r_);  // the gradient of what the stage gave
    at_.moment("the backward pass");
    if (s_.last_stage) put_in_order(whole), drop(whole - r_);
    if (!m_.tied) finish_head(there);
    trunk_backward(there);
    const bool into_heads = t_.head_trained && m_.tied;  // the embedding's gradient is added into the head's
    if (t_.embedding_trained && !into_heads) gradient(vocab_ * h_, s_.element, there);
    finish_head(there);
    drop(r_);
    for (int64_t i = 0; i < s_.trained_copies; ++i) {
      drop(h_ - r_), trunk_backward(there);  // the result makes room for its gradient
      if (t_.embedding_trained) gradient(vocab_ * h_, s_.element, there);
      drop(r_);
    }
    at_.brief(Holds::Activations, tower.briefly);
    at_.drop(Holds::Activations, rotation + tower.kept);
    if (!s_.last_stage) drop(r_);
    require(std::abs(at_.now(Holds::Activations) - before) < 1, Fault::Bug, "the tally of activations ends at ",
            at_.now(Holds::Activations) - before, " bytes");
  }

  // What the tower makes of a micro-batch's images; a later stage has none.
  TowerUse seen() const {
    if (!m_.seeing || s_.patches == 0 || !s_.first_stage) return {};
    return tower_use(m_.seeing->vision, s_.patches, s_.element, t_.tower_trained, s_.towers_again);
  }

  // From ids to the final norm's result. A layer's input stays, for its backward pass or for running it again.
  void trunk_forward() {
    briefly(g_), hold(r_);  // the embedding
    for (size_t i = 0; i < t_.layers.size(); ++i) forward(t_.layers[i], kept_of(i));
    if (s_.last_stage) hold(r_);  // the final norm
  }
  // Down to the embedding's result.
  void trunk_backward(bool there) {
    // Through the final norm, whose input goes with the gradient that came.
    if (s_.last_stage) hold(r_), drop(2 * r_);
    for (size_t i = t_.layers.size(); i-- > 0;) {
      const KeptResults kept = kept_of(i);
      if (kept.selective)
        run_again(t_.layers[i], kept);
      else if (!kept.all)
        forward(t_.layers[i], {});
      if (!kept.all) hold(gathered_attention(t_.layers[i]) + gathered_feed_forward(t_.layers[i]));
      backward(t_.layers[i], kept, there);
      drop(kept.all ? r_ : 2 * r_);  // its input, and the second run's output
    }
    briefly(g_);  // through the embedding
  }

  void finish_head(bool there) {
    if (pending_head_ <= 0) return;
    at_.drop(Holds::Gradients, pending_head_), pending_head_ = 0;
    gradient(vocab_ * h_, s_.element, there);
  }

  // What stays of a layer's forward pass until its backward pass; the rest is computed again.
  struct KeptResults {
    bool all = true, selective = false;
    bool attention = true, feed_forward = true;  // selective: whose results
  };
  KeptResults kept_of(size_t layer) const {
    const RecomputeFacts& r = s_.recompute;
    const bool again = static_cast<int64_t>(layer) < r.layers;
    if (!r.selective) return {.all = !again};
    return {.all = false,
            .selective = true,
            .attention = !(again && r.attention),
            .feed_forward = !(again && r.feed_forward)};
  }
  // Width of the largest copy that dropout makes of an adapted layer's input.
  double dropped(std::initializer_list<const LinearUse*> layers) const {
    double widest = 0;
    for (const LinearUse* l : layers)
      if (l->rank > 0 && t_.spec.dropout > 0) widest = std::max(widest, static_cast<double>(l->in));
    return widest;
  }
  static double ranks(std::initializer_list<const LinearUse*> layers) {
    double sum = 0;
    for (const LinearUse* l : layers) sum += static_cast<double>(l->rank);
    return sum;
  }
  // What factors keep for their gradients: the product with A; DoRA also its scaled input and both products, of which
  // the lengths' gradient is made; BOFT its rotated input and the product with it, a
  // bottleneck what it is given and what it applies.
  double factors(std::initializer_list<const LinearUse*> layers) const {
    double sum = ranks(layers);
    for (const LinearUse* l : layers)
      if (l->rank > 0 && t_.spec.kind == "boft")
        sum += static_cast<double>(l->in + l->out);
      else if (l->rank > 0 && t_.spec.kind == "adapter")
        sum += static_cast<double>(l->out + l->rank);
      else if (l->rank > 0 && t_.spec.dora)
        sum += 2 * static_cast<double>(l->out) + (t_.spec.dropout > 0 ? static_cast<double>(l->in) : 0);
    return sum;
  }
  static double if_needed(double elements, std::initializer_list<const LinearUse*> layers) {
    for (const LinearUse* l : layers)
      if (l->needs_input()) return elements;
    return 0;
  }
  double row_sharers() const { return static_cast<double>(s_.row_sharers); }
  // Tokens of a ring stand in another order than those of the row.
  void put_in_order(double elements) { briefly(s_.row_groups > 1 ? elements : 0); }

  // What is exchanged with those who share a row (nn/token_share.cpp, nn/state_share.cpp): cut into pieces, put
  // together and sent; and what comes.
  void exchange(const LayerUse& l, double elements) {
    if (s_.row_sharers > s_.row_groups) briefly(3 * elements);
    if (s_.row_sharers > 1) at_.brief(Holds::Activations, state(l));
  }
  // While keys and values go round (nn/ring_attention.cpp): those that are here and those that come; in f32 the
  // answers, their sum and both as they are weighed. Then all of the sums of gradients: made, sent and coming.
  double ring(double of_type, double wide) const {
    return s_.row_groups > 1 ? s_.tokens * (of_type * s_.element + wide * std::max(4.0, s_.element)) : 0;
  }
  double ring_forward(const LayerUse& l) const { return ring(2 * q(l) + 6 * k(l), 4 * q(l)); }
  double ring_backward(const LayerUse& l) const { return ring(2 * q(l) + 8 * k(l), 2 * q(l) + 6 * k(l)); }

  // Widths of attention, where the layer has it.
  double q(const LayerUse& l) const { return keeps_tokens(l.keeps) ? q_ : 0; }
  double k(const LayerUse& l) const { return keeps_tokens(l.keeps) ? k_ : 0; }
  double lse(const LayerUse& l) const {  // bytes
    return keeps_tokens(l.keeps) ? 4 * static_cast<double>(m_.heads) * s_.tokens : 0;
  }
  double normed_heads(const LayerUse& l) const { return m_.qk_norm ? q(l) + k(l) : 0; }
  // Bytes that a layer's state is made of; its gradient makes more of them again, for a moment.
  double state(const LayerUse& l) const { return keeps_state(l.keeps) ? 4 * m_.state_kept * s_.tokens : 0; }
  double state_again(const LayerUse& l) const { return keeps_state(l.keeps) ? 4 * m_.state_again * s_.tokens : 0; }

  // Silu and the product with up are one operator; another activation gives a tensor of its own, in widths of F.
  double activated() const { return m_.act == Activation::Silu ? 0 : 1; }
  // Of gate, up and the activated gate: relu needs its result only, gelu its input too.
  double kept_gated() const { return m_.act == Activation::Silu || m_.act == Activation::Relu ? 2 : 3; }

  // What is gathered for the backward pass of each half of a layer (nn/residual_share.cpp), where it is read there.
  double gathered_attention(const LayerUse& l) const { return if_needed(g_, {&l.q, &l.k, &l.v}); }
  double gathered_feed_forward(const LayerUse& l) const { return l.sparse ? g_ : if_needed(g_, {&l.gate, &l.up}); }
  // From the product of which each device has a part to the device's own tokens of the sum; what the half read goes.
  void sum_up() { hold(g_ > 0 ? r_ : 0), drop(2 * g_); }
  // From the gradient of what a half read to that of the device's own tokens.
  void own_gradient(double gathered) { hold(g_ > 0 ? r_ : 0), drop(g_ + gathered); }

  // What a layer keeps of its forward pass, beside its input.
  double kept_attention(const LayerUse& l) const {
    return if_needed(r_, {&l.q, &l.k, &l.v}) + 2 * q(l) + 2 * k(l) + normed_heads(l) +
           factors({&l.q, &l.k, &l.v, &l.o});
  }
  double kept_norm(const LayerUse& l) const { return l.sparse ? r_ : if_needed(r_, {&l.gate, &l.up}); }
  double kept_feed_forward(const LayerUse& l) const {
    const auto f = static_cast<double>(l.gate.out);
    return r_ + kept_norm(l) + kept_gated() * f + if_needed(f, {&l.down}) + factors({&l.gate, &l.up, &l.down});
  }

  double kept_attention(const LayerUse& l, KeptResults kept) const {
    if (kept.all) return kept_attention(l);
    return kept.selective ? q(l) + 2 * k(l) + r_ + (kept.attention ? q(l) : 0) + ranks({&l.q, &l.k, &l.v, &l.o}) : 0;
  }
  double kept_feed_forward(const LayerUse& l, KeptResults kept) const {
    if (kept.all) return kept_feed_forward(l);
    const auto f = static_cast<double>(l.gate.out);
    const double of_shared = l.sparse && f > 0 ? r_ : 0;
    return kept.selective ? (kept.feed_forward ? 2 * f + ranks({&l.gate, &l.up}) : 0) + ranks({&l.down}) + of_shared
                          : 0;
  }

  // The second run of a layer that kept some results: from these to all that its backward pass wants, and the output.
  void run_again(const LayerUse& l, KeptResults kept) {
    const auto f = static_cast<double>(l.gate.out);
    double now = kept_attention(l, kept) + kept_feed_forward(l, kept);
    const double wanted = kept_attention(l) + kept_feed_forward(l) + r_;
    const auto more = [&](double elements) { hold(elements), now += elements; };
    more(r_ + normed_heads(l) + q(l) + k(l)), more(normed_heads(l) > 0 ? 0 : -(q(l) + k(l)));
    if (!kept.attention) more(q(l)), at_.add(Holds::Activations, lse(l));
    at_.add(Holds::Activations, state(l));
    more(2 * r_), more(-r_);
    if (l.sparse) experts_forward();
    if (!kept.feed_forward) more(2 * f);
    more((1 + activated()) * f + r_);
    hold(wanted - now);
  }

  // From a layer's input, which the caller holds, to its output, which it will hold.
  void forward(const LayerUse& l, KeptResults kept) {
    hold(r_ + g_ + q(l) + 2 * k(l)), briefly(dropped({&l.q, &l.k, &l.v}));  // norm; q, k, v
    exchange(l, q(l) + 2 * k(l));
    hold(normed_heads(l) + q(l) + k(l)), drop(normed_heads(l));  // turned; the normed ones go
    at_.brief(Holds::Activations, ring_forward(l));
    hold(q(l)), at_.add(Holds::Activations, lse(l) + state(l));
    exchange(l, q(l));
    briefly(dropped({&l.o})), hold(h_), sum_up();  // the projection of what attention gave
    const double before = kept.selective || (normed_heads(l) > 0 && kept.all) ? 0 : q(l) + k(l);
    drop(before), hold(2 * r_);  // the sum and its norm
    drop(2 * r_ + 3 * (q(l) + k(l)) - before - kept_attention(l, kept));
    if (!kept.all && !(kept.selective && kept.attention)) at_.drop(Holds::Activations, lse(l));
    if (!kept.all) at_.drop(Holds::Activations, state(l));
    hold(g_);
    if (l.sparse) experts_forward();
    const auto f = static_cast<double>(l.gate.out);
    hold(2 * f), briefly(dropped({&l.gate, &l.up}));
    hold((1 + activated()) * f), briefly(dropped({&l.down}));
    hold(h_), sum_up(), drop((3 + activated()) * f), briefly(r_);  // down's result, and its sum with the residual
    drop(2 * r_ - kept_feed_forward(l, kept));
  }

  // Tokens of one expert, taken as twice the mean, go through it in their own tensors; results are summed in f32.
  double expert_rows() const {
    return std::min(s_.tokens * static_cast<double>(s_.expert_devices),
                    2 * s_.tokens * static_cast<double>(m_.per_token) / static_cast<double>(m_.experts) + 64);
  }
  void experts_forward() {
    const double ffn = static_cast<double>(m_.expert_ffn);
    at_.brief(Holds::Activations, sent() + 4 * s_.tokens * h_ + expert_rows() * (2 * h_ + 3 * ffn) * s_.element);
  }
  // Bytes of the tokens that go to the devices of their experts, and of those that come.
  double sent() const { return s_.expert_devices == 1 ? 0 : width(2 * static_cast<double>(m_.per_token) * h_); }

  // From the gradient of a layer's output, which the caller holds, to that of its input. A layer that ran again has
  // gathered what it read.
  void backward(const LayerUse& l, KeptResults kept, bool there) {
    const auto f = static_cast<double>(l.gate.out);
    hold(kept.all ? gathered_feed_forward(l) : 0);
    if (f > 0) {
      hold(g_ + f), linear_backward(l.down, there);
      drop(g_ + if_needed(f, {&l.down}));
      // The gradients of both factors come, that of their product and what is not needed any more go.
      const bool reads_result = m_.act == Activation::Relu;
      hold(2 * f), drop(reads_result ? 2 * f : 3 * f);
      hold(activated() * f), drop(2 * activated() * f);  // through the activation, where it is apart
      hold(h_), linear_backward(l.up, there), drop(f);
      hold(h_), linear_backward(l.gate, there), drop(h_ + f);
    }
    if (l.sparse) experts_backward(l, there), hold(f > 0 ? 0 : h_);
    own_gradient(gathered_feed_forward(l));
    drop(kept_norm(l) + factors({&l.gate, &l.up, &l.down}));
    // Through the norm: the gradient of the sum is left, the sum and the two others go.
    hold(r_), drop(3 * r_);
    hold(kept.all ? gathered_attention(l) : 0);
    hold(g_ + q(l)), linear_backward(l.o, there), drop(g_);
    const double heads = static_cast<double>(m_.heads) * rounded_up(static_cast<double>(m_.head_dim), 32);
    const double partial =
        d_.host && keeps_tokens(l.keeps) ? 2 * 4 * s_.tokens * heads : 0;  // dk, dv of every query head
    exchange(l, q(l));
    at_.brief(Holds::Activations, ring_backward(l) + partial);
    at_.add(Holds::Activations, partial), hold(q(l) + 2 * k(l));
    at_.brief(Holds::Activations, state_again(l));
    exchange(l, q(l) + 2 * k(l));
    at_.drop(Holds::Activations, partial + lse(l) + state(l)), drop(3 * q(l) + 2 * k(l) + factors({&l.o}));
    briefly(q(l) + k(l));  // turned back
    briefly(normed_heads(l)), drop(normed_heads(l));
    hold(h_), linear_backward(l.v, there), drop(k(l));
    briefly(h_), linear_backward(l.k, there), drop(k(l));
    briefly(h_), linear_backward(l.q, there), drop(q(l));
    own_gradient(gathered_attention(l));
    drop(if_needed(r_, {&l.q, &l.k, &l.v}) + factors({&l.q, &l.k, &l.v}));
    briefly(r_), drop(r_);  // through the norm, into the residual's gradient
    gradient(std::max(0.0, l.trained - matrices(l)), s_.element, there);
    gradient(l.adapter, t_.spec.adapter_bytes, there);
  }

  // A linear layer beside the gradient of its input, which the caller holds: that of its weight; or, with factors, a
  // second gradient or a copy of the input.
  void linear_backward(const LinearUse& l, bool there) {
    if (l.trained) gradient(l.weight(), s_.element, there);
    if (l.rank > 0) briefly(static_cast<double>(l.in));
  }
  void experts_backward(const LayerUse& l, bool there) {
    const auto ffn = static_cast<double>(m_.expert_ffn);
    const double rows = sent() + expert_rows() * ((3 * h_ + 6 * ffn) * s_.element + 4 * ffn);
    at_.add(Holds::Activations, 4 * s_.tokens * h_ + rows);
    if (l.experts_trained) gradient(1.5 * l.largest_trained, s_.element, there);  // gate with up; down is half as large
    at_.drop(Holds::Activations, 4 * s_.tokens * h_ + rows);
  }
  static double matrices(const LayerUse& l) {
    double sum = 0;
    for (const LinearUse* use : {&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down})
      if (use->trained) sum += use->weight();
    return sum + (l.experts_trained ? 1.5 * l.largest_trained : 0);
  }

  // The loss with the head, some tokens at a time; its gradients are made here too (ops/head_loss.cpp).
  void head() {
    at_.moment("the loss");
    const double table = vocab_ * h_;
    const double kept = s_.tokens * vocab_ * s_.element;  // gradients of all logits, where they are small
    const bool keeps = d_.host && t_.head_trained && kept <= kKeptGradients;
    const double chunk = head_chunk_tokens(d_, vocab_, s_.tokens, t_.head_trained, keeps);
    double space = chunk * vocab_ * (4 + 4 + s_.element), sums = t_.head_trained ? 4 * table : 0;
    if (d_.host) {
      space = 4 * rounded_up(vocab_, 1024) * chunk + 4 * (16 + 1) * chunk * h_;
      sums = !t_.head_trained ? 0 : keeps ? kept : s_.element * rounded_up(vocab_, 32) * h_;
    }
    hold(h_ * row_sharers());  // the gradient that the backward pass begins with
    at_.add(Holds::Head, space + sums);
    at_.drop(Holds::Head, d_.host ? space + sums : 0);  // there sums are the gradient, what is kept goes as it is used
    if (t_.head_trained) at_.add(Holds::Gradients, pending_head_ = table * s_.element);
    at_.drop(Holds::Head, d_.host ? 0 : space + sums);
  }

  const ModelFacts& m_;
  const TuningFacts& t_;
  const TrainSpec& s_;
  const DeviceFacts& d_;
  double q_, k_, h_, r_, g_, vocab_, pending_head_ = 0;
  Timeline at_;
};

}  // namespace

double head_chunk_tokens(const DeviceFacts& device, double vocabulary, double tokens, bool head_trained, bool keeps) {
  const double chunk =
      device.host
          ? std::clamp(static_cast<double>(static_cast<int64_t>((keeps ? 20 : 40) * kMib / vocabulary / 32)) * 32, 32.0,
                       512.0)
          : std::max(head_trained ? 128.0 : 16.0, 256 * kMib / (4 * vocabulary));
  return std::min(chunk, tokens);
}

MemoryUse train_memory(const ModelFacts& model, const TuningFacts& tuning, const TrainSpec& spec,
                       const DeviceFacts& device) {
  require(spec.tokens > 0 && spec.devices > 0, Fault::Bug, "a plan for ", spec.tokens, " tokens on ", spec.devices,
          " devices");
  return TrainingRun(model, tuning, spec, device).play();
}

}  // namespace apus
