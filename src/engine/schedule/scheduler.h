// SPDX-License-Identifier: Apache-2.0
// Which tokens of which sequences go through the model next. Prompts in chunks and decodes share one budget of tokens
// per step; sequences join and leave at every step; when the blocks run out, the last sequence in order gives its
// blocks back and is computed again later. Order: higher priority first, then first come first served. No tensor
// library, one thread.
//
// No deadlock: a sequence is accepted only if the pool can hold it alone at its full length, and the first sequence in
// order can take blocks from every other one, so at every step at least that one moves on.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/schedule/block_pool.h"
#include "engine/schedule/prompt_media.h"

namespace apus {

struct SequenceSpec {
  int64_t id = 0;
  std::vector<int32_t> prompt;
  int64_t max_new_tokens = 1;  // 0: the prompt only (an embedding)
  int priority = 0;
  uint64_t salt = 0;             // sequences of different salts share no blocks
  bool every_row = false;        // its log-probs are wanted: nothing of the prompt is taken from the cache
  std::vector<MediaItem> media;  // in the prompt's order; sequences share a block only where their media are equal
};

struct Sequence {
  int64_t id = 0;
  std::vector<int32_t> tokens;   // prompt, then what was generated
  std::vector<MediaItem> media;  // of the prompt, in its order
  int64_t prompt = 0;            // tokens of the prompt
  // The length that the text had when its first tokens were read: the prompt, or more where it was read anew.
  int64_t read_as = 0;
  int64_t limit = 0;     // tokens it may grow to
  int64_t computed = 0;  // tokens whose keys and values are in its blocks
  int64_t cached = 0;    // prompt tokens that the cache had when it first ran
  int64_t preemptions = 0;
  std::vector<int32_t> blocks;
  // Guesses at the tokens behind `tokens` that are in the plan of this step; they are taken off as they come true.
  std::vector<int32_t> draft;
  // While it runs, a number below max_sequences that no other running sequence has: where its states lie.
  int64_t seat = -1;

 private:
  friend class Scheduler;
  int priority_ = 0;
  int64_t arrival_ = 0;
  uint64_t salt_ = 0;
  bool every_row_ = false, running_ = false, ran_ = false;
  std::vector<BlockHash> hashes_;  // of its full blocks, as far as they were needed
  size_t published_ = 0;           // blocks that the pool knows by content
  // Blocks, after the published ones, that it will publish: others wait for them.
  size_t promised_ = 0;
  BlockHash awaited_;  // the promise of another sequence that this one waits for
};

struct StepPlan {
  struct Item {
    const Sequence* sequence;
    int64_t begin, count;  // tokens [begin, begin + count) go through the model
    // They reach the end of what is known: the next token can be chosen.
    bool last;
    int64_t drafted = 0;  // so many of them, the last ones, are guessed (Sequence::draft)
  };
  std::vector<Item> items;
  int64_t tokens = 0;

  std::vector<int64_t> ids() const {  // of its sequences
    std::vector<int64_t> out;
    for (const Item& item : items) out.push_back(item.sequence->id);
    return out;
  }
};

class Scheduler {
 public:
  struct Spec {
    BlockPool::Spec pool;
    int64_t max_sequences = 256, max_step_tokens = 2048;
    // A text that grows beyond it is read anew, with the keys of longer texts (Model::short_context); 0: none is.
    int64_t short_context = 0;
    // Tokens before a text's media see these too (Model::sees_from_begin).
    bool media_from_begin = false;
    // Those that run have no more media together, unless one alone has; 0: any number.
    int64_t most_media = 0;
  };
  static constexpr uint64_t kLongText = uint64_t{1} << 32;  // in the salt of a text beyond the short context
  explicit Scheduler(Spec spec);

  void add(SequenceSpec sequence);  // Fault::Usage when it could never run
  // Empty: nothing to do. `at_once`: it does not end within a medium, or between the first one and the last; where
  // these are longer than what is left of the step's tokens, it has so many more.
  StepPlan next(MediaAtOnce at_once = MediaAtOnce::Nothing);
  // The step behind one that is under way: all that run were in it (advance()) and wait for its tokens (append()),
  // which nobody knows yet. One token of each that goes on unless that token ends it. Empty: first it must be known, as
  // somebody may come in then, or a block lacks.
  StepPlan ahead();
  // How many tokens may be guessed behind an item that is one token of an answer: what its length, the step's tokens,
  // of which `taken` more are, and free blocks, which it takes, allow.
  int64_t room_to_draft(const StepPlan& plan, const StepPlan::Item& item, int64_t wanted, int64_t taken = 0);
  void draft(StepPlan& plan, StepPlan::Item& item, std::vector<int32_t> tokens);  // no more than there is room for
  void advance(const StepPlan& plan);  // the plan's tokens are in the cache now; of guessed ones nobody knows yet
  // Where it was guessed, it is in the cache too (computed == tokens), and the token behind it can follow.
  void append(int64_t id, int32_t token);
  // All from `computed` on is read again, as if it had not been: a sequence whose blocks nobody shares.
  void rewind(int64_t id, int64_t computed);
  // Finished, failed or cancelled; its blocks are free at once. False: not known.
  bool remove(int64_t id);
  // Every running sequence waits again, nothing is kept: the cache's memory goes away.
  void suspend();

  const Sequence* find(int64_t id) const;
  int64_t running() const { return static_cast<int64_t>(running_.size()); }
  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t preemptions() const { return preemptions_; }
  int64_t cached_tokens() const { return cached_tokens_; }
  const BlockPool& pool() const { return pool_; }
  const Spec& spec() const { return spec_; }
  int64_t blocks_for(int64_t tokens) const { return (tokens + spec_.pool.block_size - 1) / spec_.pool.block_size; }

 private:
  struct Before {
    bool operator()(const Sequence* a, const Sequence* b) const {
      return a->priority_ != b->priority_ ? a->priority_ > b->priority_ : a->arrival_ < b->arrival_;
    }
  };
  using Ordered = std::set<Sequence*, Before>;

  int64_t reserve() const;
  void read_outgrown_anew();
  void make_room_for_priority();
  bool grows_out(const Sequence& s, int64_t length) const;  // of the short context
  bool has_block(Sequence& s, int64_t length);              // or takes one
  bool room_for_next_token(Sequence& s);
  void plan_decodes(StepPlan& plan);
  void plan_prompts(StepPlan& plan);
  void admit(StepPlan& plan);
  enum class Entry { In, Later, Full };
  Entry try_admit(Sequence& s);
  void plan_tokens(StepPlan& plan, const Sequence& s) const;
  bool room_for_media(const Sequence& s) const;
  void preempt(Sequence& s);
  void leave_seat(Sequence& s);
  void drop_blocks(Sequence& s);
  void hash_up_to(Sequence& s, size_t blocks);
  void promise(Sequence& s);
  void unpromise(Sequence& s);
  void publish_full(Sequence& s);

  Spec spec_;
  BlockPool pool_;
  std::unordered_map<int64_t, std::unique_ptr<Sequence>> sequences_;
  Ordered running_, waiting_;
  std::vector<int64_t> free_seats_;
  std::unordered_map<BlockHash, int32_t, BlockHashOf> promised_;  // content being computed, by how many sequences
  int64_t arrivals_ = 0, preemptions_ = 0, cached_tokens_ = 0;
  bool full_ = false;                           // nobody who waits can come in before somebody leaves
  MediaAtOnce at_once_ = MediaAtOnce::Nothing;  // of the step that is planned
};

}  // namespace apus
