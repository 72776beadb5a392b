// SPDX-License-Identifier: Apache-2.0
#include "engine/schedule/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace apus {

Scheduler::Scheduler(Spec spec) : spec_(spec), pool_(spec.pool) {
  require(spec.max_sequences > 0 && spec.max_step_tokens > 0, Fault::Usage,
          "max_num_seqs and max_batched_tokens must be above 0");
  // Every running sequence can then move on at every step: no decode waits for a prompt, no prompt for decodes.
  spec_.max_step_tokens = std::max(spec.max_step_tokens, spec.max_sequences);
  for (int64_t seat = spec.max_sequences; seat-- > 0;) free_seats_.push_back(seat);
}

void Scheduler::add(SequenceSpec wanted) {
  require(!wanted.prompt.empty(), Fault::Usage, "the prompt is empty");
  require(wanted.max_new_tokens >= 0, Fault::Usage, "max_new_tokens ", wanted.max_new_tokens, " is below 0");
  require(!sequences_.count(wanted.id), Fault::Bug, "sequence ", wanted.id, " is here already");
  auto s = std::make_unique<Sequence>();
  s->id = wanted.id;
  s->prompt = static_cast<int64_t>(wanted.prompt.size());
  s->limit = s->prompt + wanted.max_new_tokens;
  s->read_as = s->prompt;
  // The last token is never put into the cache: nothing comes after it.
  const int64_t need = blocks_for(std::max(s->prompt, s->limit - 1));
  require(need <= pool_.spec().blocks, Fault::Usage, "the prompt's ", s->prompt, " tokens and ", wanted.max_new_tokens,
          " new ones need ", need, " cache blocks of ", spec_.pool.block_size, " tokens, but there are ",
          pool_.spec().blocks, "; shorten the prompt, ask for fewer tokens, or give the cache more memory");
  check_media(wanted.media, s->prompt);
  s->tokens = std::move(wanted.prompt);
  s->media = std::move(wanted.media);
  s->tokens.reserve(static_cast<size_t>(std::min<int64_t>(s->limit, s->prompt + 4096)));
  s->priority_ = wanted.priority;
  s->salt_ = wanted.salt;
  s->every_row_ = wanted.every_row;
  s->arrival_ = arrivals_++;
  waiting_.insert(s.get());
  full_ = false;
  sequences_.emplace(s->id, std::move(s));
}

StepPlan Scheduler::next(MediaAtOnce at_once) {
  at_once_ = at_once;
  StepPlan plan;
  read_outgrown_anew();
  make_room_for_priority();
  plan_decodes(plan);
  plan_prompts(plan);
  admit(plan);
  return plan;
}

StepPlan Scheduler::ahead() {
  StepPlan plan;
  if (!waiting_.empty() && !full_) return {};
  for (Sequence* const s : running_) {
    const auto known = static_cast<int64_t>(s->tokens.size());
    if (s->computed != known || grows_out(*s, known + 1)) return {};
    if (known + 1 < s->limit) {
      if (!has_block(*s, known + 1)) return {};
      plan.items.push_back({s, known, 1, true});
    } else if (!waiting_.empty()) {
      return {};
    }
  }
  plan.tokens = static_cast<int64_t>(plan.items.size());
  return plan;
}

bool Scheduler::grows_out(const Sequence& s, int64_t length) const {
  return s.read_as <= spec_.short_context && length > spec_.short_context;
}

// Their keys were made with the factors of short texts, and those of the token to come are not.
void Scheduler::read_outgrown_anew() {
  if (spec_.short_context == 0) return;
  std::vector<Sequence*> outgrown;
  for (const auto& [id, s] : sequences_)
    if (grows_out(*s, std::ssize(s->tokens))) outgrown.push_back(s.get());
  for (Sequence* const s : outgrown) {
    if (s->running_) preempt(*s);
    s->read_as = std::ssize(s->tokens);
    s->salt_ |= kLongText;
    s->hashes_.clear();
    s->awaited_ = {};
  }
}

// A few blocks stay free for those that generate, or they would throw a newcomer out again at once.
int64_t Scheduler::reserve() const {
  return running_.empty() ? 0 : std::min<int64_t>(running(), pool_.spec().blocks / 50);
}

// A waiting sequence takes the seats or the blocks of running ones of lower priority, when that helps it.
void Scheduler::make_room_for_priority() {
  if (waiting_.empty()) return;
  const Sequence& first = **waiting_.begin();
  int64_t seats = spec_.max_sequences - running(), blocks = pool_.available();
  const int64_t need = blocks_for(static_cast<int64_t>(first.tokens.size())) + reserve();
  size_t victims = 0;
  for (auto it = running_.rbegin(); it != running_.rend() && (seats < 1 || blocks < need); ++it, ++victims) {
    if ((*it)->priority_ >= first.priority_) break;
    ++seats;
    for (const int32_t b : (*it)->blocks) blocks += pool_.references(b) == 1;
  }
  if (seats < 1 || blocks < need) return;
  while (victims-- > 0) preempt(**running_.rbegin());
}

// One token for everyone who generates, before any prompt: long prompts must not stop the others' output.
void Scheduler::plan_decodes(StepPlan& plan) {
  for (auto it = running_.begin(); it != running_.end();) {
    Sequence& s = **it;
    if (s.computed + 1 != static_cast<int64_t>(s.tokens.size())) {
      ++it;
      continue;
    }
    if (!room_for_next_token(s)) return;  // it was the last in order, and has gone back to wait
    plan_tokens(plan, s);
    ++it;
  }
}

// For a text of this length, one block more than it has at most.
bool Scheduler::has_block(Sequence& s, int64_t length) {
  if (static_cast<int64_t>(s.blocks.size()) >= blocks_for(length)) return true;
  const int32_t block = pool_.take();
  if (block < 0) return false;
  s.blocks.push_back(block);
  return true;
}

// False: no block could be had, and the sequence itself was preempted.
bool Scheduler::room_for_next_token(Sequence& s) {
  for (;;) {
    if (has_block(s, static_cast<int64_t>(s.tokens.size()))) return true;
    Sequence& last = **running_.rbegin();
    preempt(last);
    if (&last == &s) return false;
  }
}

void Scheduler::plan_prompts(StepPlan& plan) {
  for (const Sequence* s : running_) {
    if (plan.tokens >= spec_.max_step_tokens) return;
    if (s->computed + 1 != static_cast<int64_t>(s->tokens.size())) plan_tokens(plan, *s);
  }
}

void Scheduler::plan_tokens(StepPlan& plan, const Sequence& s) const {
  const int64_t left = static_cast<int64_t>(s.tokens.size()) - s.computed;
  int64_t count = std::min(left, spec_.max_step_tokens - plan.tokens);
  if (count <= 0) return;
  count = end_outside_media(s.media, at_once_, s.computed, s.computed + count) - s.computed;
  plan.items.push_back({&s, s.computed, count, count == left});
  plan.tokens += count;
}

void Scheduler::admit(StepPlan& plan) {
  bool later = false;
  full_ = false;
  for (auto it = waiting_.begin();
       it != waiting_.end() && plan.tokens < spec_.max_step_tokens && running() < spec_.max_sequences;) {
    Sequence& s = **it;
    const Entry entry = try_admit(s);
    if (entry == Entry::Full) {  // nobody overtakes: a long prompt gets its turn
      full_ = !later;
      return;
    }
    ++it;
    later |= entry == Entry::Later;
    if (entry == Entry::Later) continue;
    waiting_.erase(&s);
    running_.insert(&s);
    s.running_ = true;
    s.seat = free_seats_.back();
    free_seats_.pop_back();
    plan_tokens(plan, s);
  }
  full_ = running() == spec_.max_sequences;
}

bool Scheduler::room_for_media(const Sequence& s) const {
  if (spec_.most_media == 0 || s.media.empty()) return true;
  int64_t taken = 0;
  for (const Sequence* other : running_) taken += std::ssize(other->media);
  return taken == 0 || taken + std::ssize(s.media) <= spec_.most_media;
}

// Takes all blocks of the known tokens, so that a prompt under way never lacks one. Later: another sequence is just
// computing a block that this one can share.
Scheduler::Entry Scheduler::try_admit(Sequence& s) {
  if (!room_for_media(s)) return Entry::Full;
  if (promised_.count(s.awaited_)) return Entry::Later;
  const auto tokens = static_cast<int64_t>(s.tokens.size());
  const int64_t block_size = spec_.pool.block_size;
  // The last token is always computed: its output is what the next one is chosen from.
  const size_t sharable = s.every_row_ || !spec_.pool.caching ? 0 : static_cast<size_t>((tokens - 1) / block_size);
  hash_up_to(s, sharable);
  while (s.blocks.size() < sharable) {
    const int32_t block = pool_.share(s.hashes_[s.blocks.size()]);
    if (block < 0) break;
    s.blocks.push_back(block);
  }
  const auto shared = s.blocks.size();
  if (shared < sharable && promised_.count(s.hashes_[shared])) {
    s.awaited_ = s.hashes_[shared];
    drop_blocks(s);
    return Entry::Later;
  }
  const int64_t need = blocks_for(tokens) - static_cast<int64_t>(shared);
  if (pool_.available() < need + reserve()) {
    drop_blocks(s);
    return Entry::Full;
  }
  for (int64_t i = 0; i < need; ++i) s.blocks.push_back(pool_.take());
  s.published_ = shared;
  s.computed = static_cast<int64_t>(shared) * block_size;
  if (!std::exchange(s.ran_, true)) {
    s.cached = s.computed;
    cached_tokens_ += s.computed;
  }
  promise(s);
  return Entry::In;
}

void Scheduler::advance(const StepPlan& plan) {
  for (const auto& item : plan.items) {
    const auto it = sequences_.find(item.sequence->id);
    require(it != sequences_.end() && it->second.get() == item.sequence && item.sequence->computed == item.begin,
            Fault::Bug, "the plan is not of this moment");
    it->second->computed += item.count - item.drafted;
    publish_full(*it->second);
  }
}

void Scheduler::append(int64_t id, int32_t token) {
  const auto it = sequences_.find(id);
  require(it != sequences_.end() && it->second->running_, Fault::Bug, "a token for sequence ", id,
          " that does not run");
  Sequence& s = *it->second;
  require(static_cast<int64_t>(s.tokens.size()) < s.limit && s.computed == static_cast<int64_t>(s.tokens.size()),
          Fault::Bug, "sequence ", id, " cannot take a token now");
  s.tokens.push_back(token);
  if (s.draft.empty()) return;
  if (s.draft.front() != token) return s.draft.clear();  // what was computed behind a wrong guess is written over
  s.draft.erase(s.draft.begin());
  ++s.computed;
  publish_full(s);
}

void Scheduler::rewind(int64_t id, int64_t computed) {
  Sequence& s = *sequences_.at(id);
  require(!spec_.pool.caching && computed <= s.computed, Fault::Bug, "sequence ", id, " cannot be read again");
  s.computed = computed;
}

int64_t Scheduler::room_to_draft(const StepPlan& plan, const StepPlan::Item& item, int64_t wanted, int64_t taken) {
  Sequence& s = *sequences_.at(item.sequence->id);
  const auto known = static_cast<int64_t>(s.tokens.size());
  if (!item.last || item.count != 1) return 0;
  // The last token of an answer comes of the one before it.
  wanted = std::min({wanted, s.limit - known - 1, spec_.max_step_tokens - plan.tokens - taken});
  if (s.read_as <= spec_.short_context) wanted = std::min(wanted, spec_.short_context - known);
  while (wanted > 0 && static_cast<int64_t>(s.blocks.size()) < blocks_for(known + wanted)) {
    const int32_t block = pool_.available() > reserve() ? pool_.take() : -1;
    if (block < 0) break;
    s.blocks.push_back(block);
  }
  return std::max<int64_t>(0, std::min(wanted, static_cast<int64_t>(s.blocks.size()) * spec_.pool.block_size - known));
}

void Scheduler::draft(StepPlan& plan, StepPlan::Item& item, std::vector<int32_t> tokens) {
  item.drafted = static_cast<int64_t>(tokens.size());
  item.count += item.drafted;
  plan.tokens += item.drafted;
  sequences_.at(item.sequence->id)->draft = std::move(tokens);
}

bool Scheduler::remove(int64_t id) {
  const auto it = sequences_.find(id);
  if (it == sequences_.end()) return false;
  Sequence& s = *it->second;
  drop_blocks(s);
  (s.running_ ? running_ : waiting_).erase(&s);
  leave_seat(s);
  full_ = false;
  sequences_.erase(it);
  return true;
}

void Scheduler::preempt(Sequence& s) {
  drop_blocks(s);
  running_.erase(&s);
  waiting_.insert(&s);
  s.running_ = false;
  leave_seat(s);
  ++s.preemptions;
  ++preemptions_;
}

void Scheduler::leave_seat(Sequence& s) {
  if (s.seat >= 0) free_seats_.push_back(std::exchange(s.seat, -1));
}

void Scheduler::suspend() {
  while (!running_.empty()) preempt(**running_.begin());
  pool_.forget_content();
}

void Scheduler::drop_blocks(Sequence& s) {
  unpromise(s);
  // Ends first: beginnings stay findable longest.
  for (size_t i = s.blocks.size(); i-- > 0;) pool_.release(s.blocks[i]);
  s.blocks.clear();
  s.draft.clear();
  s.computed = 0;
  s.published_ = 0;
}

void Scheduler::hash_up_to(Sequence& s, size_t blocks) {
  const auto size = static_cast<size_t>(spec_.pool.block_size);
  while (s.hashes_.size() < blocks) {
    BlockHash before = s.hashes_.empty() ? pool_.root(s.salt_) : s.hashes_.back();
    if (s.hashes_.empty() && spec_.media_from_begin) before = pool_.chain(before, {}, s.media);
    const size_t first = s.hashes_.size() * size;
    const auto begin = static_cast<int64_t>(first);
    const auto media = media_touching(s.media, begin, begin + spec_.pool.block_size);
    s.hashes_.push_back(pool_.chain(before, std::span(s.tokens).subspan(first, size), media, begin));
  }
}

void Scheduler::promise(Sequence& s) {
  if (!spec_.pool.caching) return;
  const size_t full = s.tokens.size() / static_cast<size_t>(spec_.pool.block_size);
  hash_up_to(s, full);
  s.promised_ = full - std::min(full, s.published_);
  for (size_t i = s.published_; i < full; ++i) ++promised_[s.hashes_[i]];
}

void Scheduler::unpromise(Sequence& s) {
  for (size_t i = 0; i < s.promised_; ++i) {
    const auto it = promised_.find(s.hashes_[s.published_ + i]);
    if (--it->second == 0) promised_.erase(it);
  }
  s.promised_ = 0;
}

void Scheduler::publish_full(Sequence& s) {
  if (!spec_.pool.caching) return;
  const size_t full = static_cast<size_t>(s.computed / spec_.pool.block_size);
  if (full <= s.published_) return;
  hash_up_to(s, full);
  for (; s.published_ < full; ++s.published_) {
    const BlockHash& content = s.hashes_[s.published_];
    pool_.publish(s.blocks[s.published_], content);
    if (s.promised_ == 0) continue;
    --s.promised_;
    const auto it = promised_.find(content);
    if (--it->second == 0) promised_.erase(it);
  }
}

const Sequence* Scheduler::find(int64_t id) const {
  const auto it = sequences_.find(id);
  return it == sequences_.end() ? nullptr : it->second.get();
}

}  // namespace apus
