// SPDX-License-Identifier: Apache-2.0
#include "guide/machine.h"

#include <algorithm>

#include "base/error.h"
#include "base/random.h"

namespace apus::guide {

size_t Tables::FrameHash::operator()(const FrameKey& k) const { return mix(k.parent, k.call, k.count); }

Tables::Tables(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const Vocabulary> vocabulary)
    : grammar_(std::move(grammar)), vocabulary_(std::move(vocabulary)) {
  find_classes();
  states_.emplace_back();  // kDead
  next_.assign(byte_of_class_.size(), kDead);
  frames_.push_back({0, Grammar::kReturn, 0, 0});
}

// Bytes that no node tells apart share their transitions.
void Tables::find_classes() {
  std::array<bool, 257> border{};
  border[0] = true;
  for (Node n = 0; n < grammar_->size(); ++n) {
    const NodeData& data = (*grammar_)[n];
    if (data.kind != NodeData::Bytes || data.low > data.high) continue;
    border[data.low] = true;
    border[data.high + 1u] = true;
  }
  for (size_t b = 0; b < 256; ++b) {
    if (border[b]) byte_of_class_.push_back(static_cast<uint8_t>(b));
    class_of_[b] = static_cast<uint16_t>(byte_of_class_.size() - 1);
  }
}

uint32_t Tables::frame(uint32_t parent, Node call, uint32_t count) {
  const auto [at, added] = frame_ids_.try_emplace({parent, call, count}, static_cast<uint32_t>(frames_.size()));
  if (added) {
    frames_.push_back({parent, call, count, frames_[parent].depth + 1});
    state_bytes_ += 80;
  }
  return at->second;
}

void Tables::follow(Node node, uint32_t in) {
  todo_.push_back({node, in});
  while (!todo_.empty()) {
    const auto [n, f] = todo_.back();
    todo_.pop_back();
    require(++work_ <= kMaxWork, Fault::Usage, "the pattern or schema is too ambiguous: one token takes more than ",
            kMaxWork, " steps; make its alternatives or repetitions exclude each other");
    const uint32_t need = grammar_->need(n);
    if (need == kUnlimited || frames_[f].depth + need > Grammar::kMaxDepth) continue;
    if (!seen_.insert(uint64_t{f} << 32 | n).second) continue;
    const NodeData& data = (*grammar_)[n];
    switch (data.kind) {
      case NodeData::Bytes:
      case NodeData::Token:
        require(open_.size() < kMaxThreads, Fault::Usage, "the pattern or schema is too ambiguous: more than ",
                kMaxThreads, " ways to go on at one place");
        open_.push_back({n, f});
        break;
      case NodeData::Fork:
        todo_.push_back({data.next, f});
        if (data.other != data.next) todo_.push_back({data.other, f});
        break;
      case NodeData::Call:
        if (data.min == 0) todo_.push_back({data.next, f});
        if (frames_[f].depth < Grammar::kMaxDepth) todo_.push_back({data.other, frame(f, n, 1)});
        break;
      case NodeData::Return:
        return_from(f);
        break;
    }
  }
}

void Tables::return_from(uint32_t f) {
  if (f == 0) {
    open_complete_ = true;
    return;
  }
  const Frame at = frames_[f];
  const NodeData& call = (*grammar_)[at.call];
  if (at.count >= call.min) todo_.push_back({call.next, at.parent});
  // Without a maximum, counts matter up to the minimum only.
  const uint32_t count = call.max == kUnlimited ? std::min(at.count + 1, std::max(call.min, 1u)) : at.count + 1;
  if (at.count < call.max) todo_.push_back({call.other, frame(at.parent, at.call, count)});
}

uint32_t Tables::close() {
  std::vector<Thread> threads = std::move(open_);
  const bool complete = open_complete_;
  open_.clear();
  seen_.clear();
  open_complete_ = false;
  if (threads.empty() && !complete) return kDead;
  std::sort(threads.begin(), threads.end());
  uint64_t hash = complete;
  for (const auto& t : threads) hash = mix(hash, t.node, t.frame);
  const auto [begin, end] = state_by_hash_.equal_range(hash);
  for (auto it = begin; it != end; ++it)
    if (states_[it->second].complete == complete && states_[it->second].threads == threads) return it->second;
  const auto id = static_cast<uint32_t>(states_.size());
  require(state_bytes_ < kMaxBytesAtOnce, Fault::Usage,
          "the pattern or schema is too ambiguous: one token takes more than ", kMaxBytesAtOnce >> 20,
          " MiB of states");
  state_bytes_ += sizeof(State) + threads.size() * sizeof(Thread) + byte_of_class_.size() * 4 + 64;
  states_.push_back({std::move(threads), complete});
  next_.resize(next_.size() + byte_of_class_.size(), kUnknown);
  state_by_hash_.emplace(hash, id);
  return id;
}

uint32_t Tables::next(uint32_t state, uint8_t byte) {
  const size_t cell = state * byte_of_class_.size() + class_of_[byte];
  if (next_[cell] != kUnknown) return next_[cell];
  for (size_t i = 0; i < states_[state].threads.size(); ++i) {
    const Thread t = states_[state].threads[i];
    const NodeData& data = (*grammar_)[t.node];
    ++work_;
    if (data.kind == NodeData::Bytes && data.low <= byte && byte <= data.high) follow(data.next, t.frame);
  }
  const uint32_t to = close();
  next_[cell] = to;
  return to;
}

// An error may have left a state half made.
void Tables::begin() {
  work_ = 0;
  open_.clear();
  todo_.clear();
  seen_.clear();
  open_complete_ = false;
}

uint32_t Tables::start() {
  const std::lock_guard lock(mutex_);
  begin();
  follow(grammar_->start(), 0);
  return close();
}

uint32_t Tables::after(uint32_t state, int32_t token) {
  const std::lock_guard lock(mutex_);
  begin();
  const std::string_view bytes = vocabulary_->bytes(token);
  if (!bytes.empty()) {
    for (const char b : bytes) state = next(state, static_cast<uint8_t>(b));
    return state;
  }
  const auto threads = states_[state].threads;
  for (const auto& t : threads) {
    const NodeData& data = (*grammar_)[t.node];
    if (data.kind == NodeData::Token && data.min == static_cast<uint32_t>(token)) follow(data.next, t.frame);
  }
  return close();
}

void Tables::mask(uint32_t state, std::vector<uint64_t>& out) {
  const std::lock_guard lock(mutex_);
  if (const auto known = masks_.find(state); known != masks_.end()) {
    out = known->second;
    return;
  }
  begin();
  out.assign((vocabulary_->size() + 63) / 64, 0);
  walk(state, out);
  if (mask_bytes_ + out.size() * 8 > kMaxMaskBytes) masks_.clear(), mask_bytes_ = 0;
  masks_.emplace(state, out);
  mask_bytes_ += out.size() * 8;
}

void Tables::walk(uint32_t state, std::vector<uint64_t>& out) {
  const auto allow = [&](int32_t token) { out[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64); };
  if (states_[state].complete)
    for (const int32_t t : vocabulary_->stops()) allow(t);
  for (const auto& t : states_[state].threads)
    if (const NodeData& data = (*grammar_)[t.node]; data.kind == NodeData::Token) allow(static_cast<int32_t>(data.min));
  std::array<uint32_t, Vocabulary::kLongest + 1> at;
  at[0] = state;
  const auto& places = vocabulary_->places();
  const size_t classes = byte_of_class_.size();
  for (uint32_t i = 0; i < places.size();) {
    const auto& place = places[i];
    const uint32_t before = at[place.depth - 1u];
    uint32_t to = next_[before * classes + class_of_[place.byte]];
    if (to == kUnknown) to = next(before, place.byte);
    if (to == kDead) {
      i = place.end;
      continue;
    }
    if (place.token >= 0) allow(place.token);
    at[place.depth] = to;
    ++i;
  }
}

bool Tables::finished(uint32_t state) {
  const std::lock_guard lock(mutex_);
  return states_[state].complete && states_[state].threads.empty();
}

bool Tables::complete(uint32_t state) {
  const std::lock_guard lock(mutex_);
  return states_[state].complete;
}

bool Tables::full() {
  const std::lock_guard lock(mutex_);
  return state_bytes_ > kMaxStateBytes;
}

uint32_t Tables::take_over(Tables& old, uint32_t state) {
  std::vector<Thread> threads;
  std::vector<std::vector<Frame>> chains;  // of each thread, innermost first
  bool complete = false;
  {
    const std::lock_guard lock(old.mutex_);
    threads = old.states_[state].threads;
    complete = old.states_[state].complete;
    for (const auto& t : threads) {
      auto& chain = chains.emplace_back();
      for (uint32_t f = t.frame; f != 0; f = old.frames_[f].parent) chain.push_back(old.frames_[f]);
    }
  }
  const std::lock_guard lock(mutex_);
  begin();
  open_complete_ = complete;
  for (size_t i = 0; i < threads.size(); ++i) {
    uint32_t f = 0;
    for (auto it = chains[i].rbegin(); it != chains[i].rend(); ++it) f = frame(f, it->call, it->count);
    open_.push_back({threads[i].node, f});
  }
  return close();
}

Machine::Machine(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const Vocabulary> vocabulary)
    : grammar_(std::move(grammar)),
      vocabulary_(std::move(vocabulary)),
      tables_(std::make_shared<Tables>(grammar_, vocabulary_)) {}

std::shared_ptr<Tables> Machine::tables() {
  const std::lock_guard lock(mutex_);
  return tables_;
}

std::shared_ptr<Tables> Machine::instead_of(const std::shared_ptr<Tables>& full) {
  const std::lock_guard lock(mutex_);
  if (tables_ == full) tables_ = std::make_shared<Tables>(grammar_, vocabulary_);
  return tables_;
}

}  // namespace apus::guide
