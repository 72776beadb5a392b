// SPDX-License-Identifier: Apache-2.0
#include "environment/program.h"

#include <algorithm>

#include "base/error.h"
#include "base/program.h"

namespace apus {
namespace {

constexpr size_t kBytesPerReply = 1 << 20;
constexpr double kLookAgain = 1;  // seconds

}  // namespace

ProgramEnvironment::ProgramEnvironment(std::string command, const EnvironmentOptions& options)
    : command_(std::move(command)),
      timeout_(options.environment_timeout),
      skips_(options.environment_failure == "skip") {}

ProgramEnvironment::~ProgramEnvironment() { stop(); }

std::vector<EpisodeReply> ProgramEnvironment::reset(const std::vector<EpisodeStart>& starts) {
  std::vector<std::pair<int64_t, Json>> lines;
  for (const EpisodeStart& start : starts)
    // As text of few digits: not every language has whole numbers of 64 bits.
    lines.emplace_back(start.episode,
                       Json{{"op", "reset"}, {"id", start.episode}, {"row", *start.row}, {"seed", start.seed >> 11}});
  {
    const std::lock_guard lock(mutex_);
    for (const EpisodeStart& start : starts) open_.push_back(start.episode);
  }
  return asked(lines);
}

std::vector<EpisodeReply> ProgramEnvironment::step(const std::vector<EpisodeTurn>& turns) {
  std::vector<std::pair<int64_t, Json>> lines;
  for (const EpisodeTurn& turn : turns)
    lines.emplace_back(turn.episode, Json{{"op", "step"},
                                          {"id", turn.episode},
                                          {"turn", turn.turn},
                                          {"completion", turn.text},
                                          {"completion_ids", turn.tokens},
                                          {"truncated", turn.cut}});
  return asked(lines);
}

// One that has failed is started anew for the next round: it knew nothing of the episodes of this one.
void ProgramEnvironment::close() {
  std::unique_lock lock(mutex_);
  for (const int64_t episode : std::exchange(open_, {}))
    to_say_ += json_text(Json{{"op", "close"}, {"id", episode}}) + "\n";
  asked_.clear();
  if (program_) program_->nudge();
  if (!std::exchange(fault_, nullptr)) return;
  to_say_.clear();
  lock.unlock();
  stop();
}

std::vector<EpisodeReply> ProgramEnvironment::asked(const std::vector<std::pair<int64_t, Json>>& lines) {
  std::unique_lock lock(mutex_);
  if (!program_ && !fault_) start();
  const auto until =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_));
  for (const auto& [episode, line] : lines) asked_[episode] = {.until = until}, to_say_ += json_text(line) + "\n";
  if (program_) program_->nudge();
  std::vector<EpisodeReply> out;
  for (const auto& line : lines) {
    Asked& one = asked_.at(line.first);
    changed_.wait(lock, [&] { return fault_ || one.reply; });
    out.push_back(one.reply ? *std::move(one.reply) : failed());
    asked_.erase(line.first);
  }
  return out;
}

EpisodeReply ProgramEnvironment::failed() const {
  try {
    std::rethrow_exception(fault_);
  } catch (const Error& error) {
    if (!skips_ || error.at.fault != Fault::Data) throw;
    return {.done = true, .failure = error.what()};
  }
}

void ProgramEnvironment::start() {
  program_ = std::make_unique<Program>(command_, "environment");
  over_ = false;
  listens_ = std::thread([this] { listen(); });
}

void ProgramEnvironment::stop() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
    if (program_) program_->nudge();
  }
  if (listens_.joinable()) listens_.join();
  program_.reset();
}

void ProgramEnvironment::listen() {
  std::unique_lock lock(mutex_);
  const auto look = [&] {
    const std::lock_guard looks(mutex_);
    return over_ || !to_say_.empty() || program_->printed.find('\n') != std::string::npos;
  };
  try {
    while (!over_ || !to_say_.empty()) {
      const std::string text = std::exchange(to_say_, {});
      const double seconds = std::clamp(seconds_left(), 0.0, kLookAgain);
      const size_t most = kBytesPerReply * static_cast<size_t>(std::max<int64_t>(1, waiting()));
      lock.unlock();
      const Program::Heard heard = program_->talk(text, seconds, most, look);
      lock.lock();
      take_replies();
      require_alive(heard == Program::Heard::End, heard == Program::Heard::TooMuch);
      if (heard == Program::Heard::Late && over_) return;  // it does not read what it is told
    }
  } catch (...) {
    fault_ = std::current_exception();
    program_.reset();  // whatever it does now, it is not what it was asked
    changed_.notify_all();
  }
}

int64_t ProgramEnvironment::waiting() const {
  return std::count_if(asked_.begin(), asked_.end(), [](const auto& one) { return !one.second.reply; });
}

double ProgramEnvironment::seconds_left() const {
  double left = kLookAgain;
  for (const auto& [episode, one] : asked_)
    if (!one.reply) left = std::min(left, std::chrono::duration<double>(one.until - Clock::now()).count());
  return left;
}

void ProgramEnvironment::require_alive(bool ended, bool flooded) {
  const int64_t wait = waiting();
  require(!flooded, Fault::Data, "the environment '", command_, "' prints more than ", kBytesPerReply,
          " bytes a reply");
  if (ended) {
    const int status = program_->wait(false);
    fail(Fault::Data, "the environment '", command_, "' ", how_it_ended(status), " while ", wait,
         wait == 1 ? " answer" : " answers", " waited for a reply; it should go on until its input ends",
         program_->last_words());
  }
  require(wait == 0 || seconds_left() > 0, Fault::Data, "the environment '", command_, "' gave an answer no reply in ",
          timeout_, " s (--environment_timeout), and ", wait, " wait. Does it print a line for each, and flush it?",
          program_->last_words());
}

// What it prints while nobody waits is no reply to anything, and passed over.
void ProgramEnvironment::take_replies() {
  std::string& printed = program_->printed;
  size_t begin = 0;
  for (size_t end = printed.find('\n'); end != std::string::npos; end = printed.find('\n', begin)) {
    const std::string line = printed.substr(begin, end - begin);
    begin = end + 1;
    if (asked_.empty()) continue;
    const std::string where = str("what the environment '", command_, "' printed ('", line.substr(0, 200), "')");
    const Json reply = parse_json(line, where);
    require(reply.is_object() && reply.contains("id") && reply["id"].is_number_integer(), Fault::Data, where,
            " is no object with the 'id' that it was asked with");
    const auto id = reply["id"].get<int64_t>();
    const auto asked = asked_.find(id);
    require(asked != asked_.end() && !asked->second.reply, Fault::Data, where, ": ", id,
            asked == asked_.end() ? " was not asked for" : " has a reply already");
    asked->second.reply = read_reply(reply, where);
  }
  printed.erase(0, begin);
  if (begin > 0) changed_.notify_all();
}

}  // namespace apus
