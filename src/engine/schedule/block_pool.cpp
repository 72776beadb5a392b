// SPDX-License-Identifier: Apache-2.0
#include "engine/schedule/block_pool.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "base/error.h"
#include "base/random.h"

namespace apus {

BlockPool::BlockPool(Spec spec) : spec_(spec) {
  require(spec.blocks > 0 && spec.block_size > 0, Fault::Bug, "a block pool of ", spec.blocks, " blocks of ",
          spec.block_size);
  std::random_device device;
  while (spec_.secret == 0) spec_.secret = (static_cast<uint64_t>(device()) << 32) | device();
  entries_.resize(static_cast<size_t>(spec.blocks));
  for (int32_t b = spec.blocks; b-- > 0;) free_.push_back(b);  // low numbers go out first
}

BlockPool::Entry& BlockPool::entry(int32_t block) {
  require(block >= 0 && block < spec_.blocks, Fault::Bug, "block ", block, " of ", spec_.blocks);
  return entries_[static_cast<size_t>(block)];
}
const BlockPool::Entry& BlockPool::entry(int32_t block) const { return const_cast<BlockPool*>(this)->entry(block); }

BlockHash BlockPool::root(uint64_t salt) const { return {mix(spec_.secret, 0, salt), mix(spec_.secret, 1, salt)}; }

BlockHash BlockPool::chain(const BlockHash& before, std::span<const int32_t> tokens, std::span<const MediaItem> media,
                           int64_t begin) const {
  BlockHash h = before;
  const auto stir = [&](uint64_t word) {  // 128 bits of state, each half stirred with the other
    const uint64_t high = h.high;
    h.high = mix(spec_.secret, h.low, high ^ word);
    h.low = mix(~spec_.secret, high, h.low + word);
  };
  for (const int32_t token : tokens) stir(static_cast<uint32_t>(token));
  for (const MediaItem& m : media) {
    // This word is larger than any token and tells how many follow, so no other content is read as the same words.
    stir((uint64_t{1} << 32) | m.digest.size());
    for (size_t i = 0; i < m.digest.size(); i += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, m.digest.data() + i, std::min(sizeof word, m.digest.size() - i));
      stir(word);
    }
    stir(static_cast<uint64_t>(begin - m.begin));
    stir(static_cast<uint64_t>(m.length));
  }
  return h;
}

int32_t BlockPool::take() {
  int32_t block = kNone;
  if (!free_.empty()) {
    block = free_.back();
    free_.pop_back();
  } else if (oldest_ != kNone) {
    block = oldest_;
    unlink(block);
    unpublish(entry(block));
  } else {
    return kNone;
  }
  entry(block).references = 1;
  return block;
}

int32_t BlockPool::share(const BlockHash& content) {
  const auto it = by_content_.find(content);
  if (it == by_content_.end()) return kNone;
  if (entry(it->second).references++ == 0) unlink(it->second);
  return it->second;
}

void BlockPool::publish(int32_t block, const BlockHash& content) {
  Entry& e = entry(block);
  require(e.references > 0 && !e.published, Fault::Bug, "block ", block, " cannot be published");
  if (!spec_.caching || !by_content_.emplace(content, block).second) return;
  e.content = content;
  e.published = true;
}

void BlockPool::release(int32_t block) {
  Entry& e = entry(block);
  require(e.references > 0, Fault::Bug, "block ", block, " released once too often");
  if (--e.references > 0) return;
  if (e.published)
    link(block);
  else
    free_.push_back(block);
}

void BlockPool::forget_content() {
  while (oldest_ != kNone) {
    const int32_t block = oldest_;
    unlink(block);
    free_.push_back(block);
  }
  by_content_.clear();
  for (Entry& e : entries_) e.published = false;
}

void BlockPool::link(int32_t block) {
  Entry& e = entry(block);
  e.older = newest_;
  e.newer = kNone;
  (newest_ == kNone ? oldest_ : entry(newest_).newer) = block;
  newest_ = block;
  ++evictable_;
}

void BlockPool::unlink(int32_t block) {
  Entry& e = entry(block);
  (e.older == kNone ? oldest_ : entry(e.older).newer) = e.newer;
  (e.newer == kNone ? newest_ : entry(e.newer).older) = e.older;
  e.older = e.newer = kNone;
  --evictable_;
}

void BlockPool::unpublish(Entry& e) {
  by_content_.erase(e.content);
  e.published = false;
}

}  // namespace apus
