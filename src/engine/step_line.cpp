// SPDX-License-Identifier: Apache-2.0
#include "engine/step_line.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>

#include <cstring>

#include "base/error.h"

namespace apus {

namespace {

// A message is its length and its words. One of so many goes in one piece: steps that decode are small.
constexpr size_t kFirstPiece = 512;

class OrderWriter {
 public:
  std::vector<int64_t> words;
  void number(int64_t value) { words.push_back(value); }
  template <class T>
  void list(const std::vector<T>& values) {
    number(std::ssize(values));
    words.insert(words.end(), values.begin(), values.end());
  }
  void text(const std::string& value) {
    number(std::ssize(value));
    const size_t begin = words.size();
    words.resize(begin + (value.size() + 7) / 8);
    std::memcpy(words.data() + begin, value.data(), value.size());
  }
  void routes(const AdapterRoutes& of_adapter) {
    number(std::ssize(of_adapter));
    for (const auto& [name, rows] : of_adapter) text(name), list(rows);
  }
};

class OrderReader {
 public:
  explicit OrderReader(const std::vector<int64_t>& words) : words_(words) {}
  int64_t number() {
    need(1);
    return words_[at_++];
  }
  template <class T>
  void list(std::vector<T>& values) {
    const size_t size = count(1);
    values.clear();
    for (size_t i = 0; i < size; ++i) values.push_back(static_cast<T>(words_[at_++]));
  }
  std::string text() {
    const size_t size = count(8);
    std::string value(size, ' ');
    std::memcpy(value.data(), words_.data() + at_, size);
    at_ += (size + 7) / 8;
    return value;
  }
  AdapterRoutes routes() {
    AdapterRoutes all;
    for (int64_t left = number(); left > 0; --left) {
      const std::string name = text();
      list(all[name]);
    }
    return all;
  }
  bool at_end() const { return at_ == words_.size(); }

 private:
  void need(size_t more) const {
    require(more <= words_.size() - at_, Fault::Comm, "an order of the leading rank is cut off");
  }
  // How many things follow, of which so many go into a word.
  size_t count(size_t in_a_word) {
    const int64_t size = number();
    require(size >= 0 && size <= std::ssize(words_) * static_cast<int64_t>(in_a_word), Fault::Comm,
            "an order of the leading rank is damaged");
    need((static_cast<size_t>(size) + in_a_word - 1) / in_a_word);
    return static_cast<size_t>(size);
  }
  const std::vector<int64_t>& words_;
  size_t at_ = 0;
};

}  // namespace

std::vector<int64_t> encode_order(const Order& order) {
  OrderWriter out;
  out.number(static_cast<int64_t>(order.kind));
  if (order.kind == Order::Kind::Step) {
    const StepNumbers& s = order.step;
    for (const auto* numbers : {&s.id, &s.slot, &s.seat, &s.begin, &s.length, &s.prompt}) out.list(*numbers);
    out.list(s.blocks), out.number(s.routed), out.routes(s.routes);
  } else if (order.kind == Order::Kind::Head) {
    out.list(order.rows), out.number(order.routed), out.routes(order.routes);
  } else {
    out.text(order.adapter), out.text(order.folder), out.number(order.level);
  }
  return std::move(out.words);
}

Order decode_order(const std::vector<int64_t>& words) {
  OrderReader in(words);
  Order order;
  const int64_t kind = in.number();
  require(kind >= 0 && kind <= static_cast<int64_t>(Order::Kind::End), Fault::Comm, "the leading rank gives an order ",
          kind, " that is not known here");
  order.kind = static_cast<Order::Kind>(kind);
  if (order.kind == Order::Kind::Step) {
    StepNumbers& s = order.step;
    for (auto* numbers : {&s.id, &s.slot, &s.seat, &s.begin, &s.length, &s.prompt}) in.list(*numbers);
    in.list(s.blocks), s.routed = in.number() != 0, s.routes = in.routes();
  } else if (order.kind == Order::Kind::Head) {
    in.list(order.rows), order.routed = in.number() != 0, order.routes = in.routes();
  } else {
    order.adapter = in.text(), order.folder = in.text(), order.level = in.number();
  }
  require(in.at_end(), Fault::Comm, "an order of the leading rank is longer than it says");
  return order;
}

// The leader's words, on all ranks.
void StepLine::pass_on(std::vector<int64_t>& words) {
  const auto broadcast = [&](std::vector<int64_t>& piece) {
    ranks_->broadcast(at::from_blob(piece.data(), {std::ssize(piece)}, at::kLong), 0)->wait();
  };
  std::vector<int64_t> first(kFirstPiece);
  first[0] = std::ssize(words);
  const auto in_first = [&] { return std::min(static_cast<size_t>(first[0]), kFirstPiece - 1); };
  std::copy_n(words.begin(), in_first(), first.begin() + 1);
  broadcast(first);
  require(first[0] > 0 && first[0] < int64_t{1} << 32, Fault::Comm, "an order of ", first[0], " words");
  std::vector<int64_t> rest(static_cast<size_t>(first[0]) - in_first());
  if (leads()) std::copy(words.begin() + static_cast<std::ptrdiff_t>(in_first()), words.end(), rest.begin());
  if (!rest.empty()) broadcast(rest);
  if (leads()) return;
  words.assign(first.begin() + 1, first.begin() + 1 + static_cast<std::ptrdiff_t>(in_first()));
  words.insert(words.end(), rest.begin(), rest.end());
}

void StepLine::tell(const Order& order) {
  std::vector<int64_t> words = encode_order(order);
  pass_on(words);
}

Order StepLine::hear() {
  std::vector<int64_t> words;
  pass_on(words);
  return decode_order(words);
}

bool StepLine::all(bool here) {
  const at::Tensor ok = at::tensor({static_cast<int64_t>(here)}, at::kLong);
  ranks_->all_reduce(ok, Reduce::Min)->wait();
  return ok.item<int64_t>() != 0;
}

CacheSize StepLine::least(const CacheSize& here) {
  const at::Tensor sizes = at::tensor({here.blocks, here.max_model_len, here.seats}, at::kLong);
  ranks_->all_reduce(sizes, Reduce::Min)->wait();
  const int64_t* n = sizes.data_ptr<int64_t>();
  return {n[0], n[1], n[2]};
}

}  // namespace apus
