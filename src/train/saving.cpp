// SPDX-License-Identifier: Apache-2.0
// The trainer's checkpoints: written at once, or behind the steps that follow; tried again at the end; rotated.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "device/agree.h"
#include "parallel/gradient_sync.h"
#include "train/rank_allocator.h"
#include "train/trainer.h"

namespace apus {
namespace fs = std::filesystem;

// A disk that is full must not end a run that could go on: only the last save of a run throws. What failed at the last
// step is tried again for a while.
void Trainer::save(bool must) {
  save_due_ = false;
  save_watch_.restart();
  settle_save();
  if (p_.gradients) p_.gradients->rest();
  p_.algorithm.settle(p_.actors);
  const std::shared_ptr<void> meant = meant_weights();
  const Json window = log_window();  // of all ranks
  fs::path target = o_.output_dir / str("checkpoint-", step_);
  const bool behind = p_.room && !must;
  std::string failure = save_together(target, window, behind);
  if (must && !failure.empty()) failure = save_at_last(target, window, std::move(failure));
  require(
      failure.empty() || !must, Fault::Io, failure, ". The weights of step ", step_, " are lost; ",
      last_saved_ >= 0 ? str("the checkpoint of step ", last_saved_, " is whole") : "there is no earlier checkpoint",
      ". --save_fallback_dir names a second place");
  const bool first = p_.data_ranks.rank() == 0;
  if (!failure.empty()) {
    if (first) say_not_saved(step_, failure);
    return;
  }
  last_saved_ = step_;
  if (behind || !first) return;
  after_save(target, result_.best_checkpoint, save_watch_.seconds());
  result_.last_checkpoint = target;
}

void Trainer::say_not_saved(int64_t step, const std::string& failure) const {
  log_warning("no checkpoint at step ", step, ": ", failure,
              step < max_steps_ ? ". Training goes on; earlier checkpoints are untouched" : "");
}

// Nothing is trained any more, and what is not written is lost. All ranks count tries, not seconds, so that they agree.
std::string Trainer::save_at_last(fs::path& target, const Json& window, std::string failure) {
  const bool speaks = p_.data_ranks.rank() == 0;
  const std::string name = target.filename();
  std::vector<fs::path> places;
  if (o_.loop.save_fallback_dir)
    places.push_back(fs::path(*o_.loop.save_fallback_dir) / fs::absolute(o_.output_dir).filename() / name);
  const double seconds = o_.loop.save_retry_seconds, pause = std::clamp(seconds / 30, 0.1, 10.0);
  const auto tries = static_cast<int64_t>(std::ceil(seconds / pause));
  for (int64_t i = 0; i <= tries; ++i) {
    if (i == 0 && speaks && !places.empty())
      log_warning("the last checkpoint is not written: ", failure, ". It goes to ", places[0].string());
    if (i == 0 && speaks && places.empty() && tries > 0)
      log_warning("the last checkpoint is not written: ", failure, ". It is tried again for ", seconds,
                  " s (--save_retry_seconds): make room");
    if (i > 0) std::this_thread::sleep_for(std::chrono::duration<double>(pause));
    if (i == 1) places.push_back(target);
    for (const fs::path& place : places)
      if (failure = save_together(place, window, /*behind=*/false); failure.empty()) {
        target = place;
        return failure;
      }
  }
  return failure;
}

namespace {
// What a full disk says is told; anything else ends the run.
std::string why_not_written(const std::function<void()>& write) {
  try {
    write();
    return "";
  } catch (const Error& e) {
    if (e.at.fault != Fault::Io) throw;
    return e.what();
  }
}

// Optimizer::steps_of of all ranks, each of which may know other parameters.
Json updates_of_all(const Optimizer& optimizer, Comm& ranks) {
  Json all = Json::object();
  for (const std::string& text : gather_text(json_text(optimizer.steps_of()), ranks))
    all.update(parse_json(text, "the updates that a rank counted", Fault::Comm));
  return all;
}

// The first failure of all ranks', with the rank whose it is.
std::string first_of(const std::string& mine, Comm& ranks) {
  const std::vector<std::string> all = gather_text(mine, ranks);
  for (size_t rank = 0; rank < all.size(); ++rank)
    if (!all[rank].empty()) return all.size() > 1 ? str("rank ", rank, ": ", all[rank]) : all[rank];
  return "";
}
}  // namespace

bool Trainer::writes_in_parts() const { return p_.gradients && p_.gradients->sliced(); }

// The first rank makes the folder and names it when all have written theirs. All ranks wait here for each other, or,
// `behind`, when they settle it.
std::string Trainer::save_together(const fs::path& target, const Json& window, bool behind) {
  const bool first = p_.data_ranks.rank() == 0;
  std::shared_ptr<FolderWriter> folder;
  std::string failure;
  if (first) failure = why_not_written([&] { folder = std::make_shared<FolderWriter>(target); });
  const fs::path dir = gather_text(folder ? folder->dir().string() : "", p_.data_ranks)[0];
  if (dir.empty()) return first_of(failure, p_.data_ranks);
  const bool sliced = writes_in_parts();
  if (sliced) {  // all or none go on: they gather weights together
    failure = fs::is_directory(dir) ? ""
                                    : str("this rank does not see ", dir.string(),
                                          ": each rank writes its slice of the optimizer's state, so --output_dir must "
                                          "be a folder that all share");
    if (const std::string any = first_of(failure, p_.data_ranks); !any.empty()) return any;
  }
  const Json updates = sliced ? updates_of_all(p_.optimizer, p_.data_ranks) : Json(p_.optimizer.steps_of());
  Writing writing{.target = target, .before = last_saved_, .behind = behind ? save_behind() : nullptr};
  failure = why_not_written([&] {
    if (!first && !sliced) return;
    const auto write = [&] { write_part(dir, window, updates); };
    writing.behind ? writing.behind->copy(write) : write();
  });
  if (const std::string any = first_of(failure, p_.data_ranks); !any.empty()) return any;
  if (behind) {
    begin_writing(std::move(writing), folder);
    return "";
  }
  if (first) failure = why_not_written([&] { folder->commit(); });
  return first_of(failure, p_.data_ranks);
}

// This rank's of a checkpoint.
void Trainer::write_part(const fs::path& dir, const Json& window, const Json& updates) {
  p_.save_model(dir);
  const GradientSync::Slice own = slice();
  if (!o_.loop.save_only_model && own.first) {
    auto kept = p_.optimizer.state();
    if (p_.ranks) kept.merge(p_.ranks->state());
    write_optimizer(dir, p_.optimizer.kind(), kept, own.number, own.of, p_.in_parts ? &p_.places : nullptr);
  }
  if (p_.data_ranks.rank() > 0) return;
  RunState s = state();
  s.progress["log_window"] = window, s.progress["optimizer_steps_of"] = updates;
  write_state(dir, s);
}

// Null on a rank that has no part of checkpoints.
std::unique_ptr<SaveBehind> Trainer::save_behind() const {
  if (!writes_in_parts() && p_.data_ranks.rank() > 0) return nullptr;
  return std::make_unique<SaveBehind>(SaveBehind::Spec{.room = p_.room,
                                                       .store = writes_in_parts() ? p_.store : nullptr,
                                                       .parts = p_.data_ranks.size(),
                                                       .rank = p_.data_ranks.rank(),
                                                       .name = str("checkpoint-", step_)});
}

void Trainer::begin_writing(Writing writing, const std::shared_ptr<FolderWriter>& folder) {
  writing_ = std::move(writing);
  SaveBehind* const behind = writing_->behind.get();
  if (!behind) return;
  if (!folder) return behind->begin();
  const double waited = save_watch_.seconds();
  // What is best now, though a later evaluation may find otherwise before this is written.
  behind->begin({.whole =
                     [this, folder, behind, waited, target = writing_->target, best = result_.best_checkpoint] {
                       folder->commit();
                       after_save(target, best, waited, str(", written in ", rounded(behind->seconds(), 2), " s"));
                     },
                 .not_whole = [this, step = step_](const std::string& failure) { say_not_saved(step, failure); }});
}

// Waits for the checkpoint that is being written, if any. All ranks settle at the same places, and so know alike what
// has become of it.
void Trainer::settle_save() {
  if (!writing_) return;
  const Writing writing = std::move(*writing_);
  writing_.reset();
  std::string failure = first_of(writing.behind ? writing.behind->written() : "", p_.data_ranks);
  const std::string end = writing.behind ? writing.behind->whole() : "";
  if (failure.empty()) failure = first_of(end, p_.data_ranks);
  if (!failure.empty())
    last_saved_ = writing.before;
  else if (p_.data_ranks.rank() == 0)
    result_.last_checkpoint = writing.target;
}

// Perhaps beside the training, on a thread of its own.
void Trainer::after_save(const fs::path& target, const std::optional<fs::path>& best, double waited,
                         const std::string& more) const {
  log_info("Saving model checkpoint to ", target.string(), " (training waited ", rounded(waited, 2), " s", more, ")");
  if (p_.saved) p_.saved(target);
  if (target.parent_path() != o_.output_dir) return;  // the second place
  std::vector<fs::path> keep = {target};
  if (best) keep.push_back(*best);
  rotate_checkpoints(o_.output_dir, o_.loop.save_total_limit.value_or(0), keep);
  if (!o_.loop.create_checkpoint_symlink) return;
  point_link(o_.output_dir, "last", target);
  if (best && fs::exists(*best)) point_link(o_.output_dir, "best", *best);
}

}  // namespace apus
