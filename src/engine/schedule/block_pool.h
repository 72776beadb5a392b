// SPDX-License-Identifier: Apache-2.0
// Who owns which block of the key-value cache. Sequences with a common beginning share blocks, which count their
// references; full blocks can be found again by their content until their place is needed. No tensor library.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "media/media_item.h"

namespace apus {

// Names the content of a block and of all blocks before it.
struct BlockHash {
  uint64_t high = 0, low = 0;
  bool operator==(const BlockHash&) const = default;
};
struct BlockHashOf {
  size_t operator()(const BlockHash& h) const { return static_cast<size_t>(h.low); }
};

class BlockPool {
 public:
  struct Spec {
    int32_t blocks = 0, block_size = 16;
    bool caching = true;  // released full blocks can be found again
    // Keys the hashes, so that no client can make two texts collide; 0: drawn at random.
    uint64_t secret = 0;
  };
  explicit BlockPool(Spec spec);

  BlockHash root(uint64_t salt) const;  // before the first block; texts of different salts (adapters) share nothing
  // `media`: those that the block touches, by their place in the prompt, where the block's first token is `begin`.
  // The same ids with other media, or with another part of them, are other content.
  BlockHash chain(const BlockHash& before, std::span<const int32_t> tokens, std::span<const MediaItem> media = {},
                  int64_t begin = 0) const;

  int32_t take();                           // a block of the caller's own; -1: every block is in use
  int32_t share(const BlockHash& content);  // one more reference to the block of this content; -1: not here
  // The block is full and written: it can be found. Of equal contents the first stays.
  void publish(int32_t block, const BlockHash& content);
  void release(int32_t block);  // one reference less; at the last one it is evictable, or free when not findable
  void forget_content();        // nothing can be found any more: the weights have changed, or the memory is gone

  int32_t available() const { return static_cast<int32_t>(free_.size()) + evictable_; }  // what take() can give
  int32_t in_use() const { return spec_.blocks - available(); }                          // referenced
  int32_t findable() const { return static_cast<int32_t>(by_content_.size()); }
  int32_t references(int32_t block) const { return entry(block).references; }
  const Spec& spec() const { return spec_; }

 private:
  static constexpr int32_t kNone = -1;
  struct Entry {
    int32_t references = 0;
    bool published = false;
    BlockHash content;
    int32_t older = kNone, newer = kNone;  // among the evictable ones
  };
  Entry& entry(int32_t block);
  const Entry& entry(int32_t block) const;
  void link(int32_t block);  // becomes the newest evictable one
  void unlink(int32_t block);
  void unpublish(Entry& e);

  Spec spec_;
  std::vector<Entry> entries_;
  std::vector<int32_t> free_;
  std::unordered_map<BlockHash, int32_t, BlockHashOf> by_content_;
  int32_t oldest_ = kNone, newest_ = kNone, evictable_ = 0;
};

}  // namespace apus
