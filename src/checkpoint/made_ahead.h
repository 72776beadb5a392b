// SPDX-License-Identifier: Apache-2.0
// Weights that are quantised as they are read: the next ones in threads of their own, while one is brought to the
// device.
#pragma once

#include <future>
#include <map>
#include <utility>
#include <vector>

#include "checkpoint/quantised_weights.h"

namespace apus {

class MadeAhead final : public QuantisedWeights {
 public:
  struct Wanted {
    std::string layer;
    quant::Shape shape;
    quant::Cutout mine;
  };
  // `order`: as open() will ask for them; `at_once`: each takes memory for its numbers in f32.
  MadeAhead(const QuantisedWeights& source, std::vector<Wanted> order, size_t at_once)
      : source_(source), order_(std::move(order)), at_once_(at_once) {
    start();
  }

  std::vector<std::string> tensors(const std::string& layer) const override { return source_.tensors(layer); }
  using QuantisedWeights::open;
  std::shared_ptr<const quant::Matrix> open(const std::string& layer, quant::Shape shape,
                                            const quant::Cutout& mine) const override {
    const auto found = made_.find(layer);
    if (found == made_.end()) return source_.open(layer, shape, mine);
    auto matrix = found->second.get();
    made_.erase(found);
    start();
    return matrix;
  }
  void forget(const std::string& layer) const override { source_.forget(layer); }
  bool holds_any_layer() const override { return source_.holds_any_layer(); }
  bool holds_words() const override { return source_.holds_words(); }
  bool makes_them() const override { return true; }

 private:
  void start() const {
    while (next_ < order_.size() && made_.size() < at_once_) {
      const Wanted& wanted = order_[next_++];
      made_[wanted.layer] = std::async(
          std::launch::async, [this, &wanted] { return source_.open(wanted.layer, wanted.shape, wanted.mine); });
    }
  }

  const QuantisedWeights& source_;
  const std::vector<Wanted> order_;
  const size_t at_once_;
  mutable size_t next_ = 0;
  mutable std::map<std::string, std::future<std::shared_ptr<const quant::Matrix>>> made_;
};

}  // namespace apus
