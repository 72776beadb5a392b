// SPDX-License-Identifier: Apache-2.0
#include "environment/service.h"

#include <unistd.h>

#include <cmath>

#include "base/clock.h"
#include "base/error.h"
#include "hub/http.h"
#include "reward/reward.h"

namespace apus {
namespace {

constexpr int64_t kReplyBytes = 64 << 20;  // there may be pictures
constexpr size_t kBytesShown = 300;

std::string without_slash(std::string address) {
  while (!address.empty() && address.back() == '/') address.pop_back();
  return address;
}

}  // namespace

ServiceEnvironment::ServiceEnvironment(std::string address, const EnvironmentOptions& options)
    : address_(without_slash(std::move(address))),
      timeout_(options.environment_timeout),
      skips_(options.environment_failure == "skip"),
      run_(str(::getpid(), "-", local_time("%H%M%S"))) {}

std::string ServiceEnvironment::session(int64_t episode) const { return str(run_, "-", round_, "-", episode); }

std::vector<EpisodeReply> ServiceEnvironment::reset(const std::vector<EpisodeStart>& starts) {
  std::vector<EpisodeReply> out;
  for (const EpisodeStart& start : starts) {
    {
      const std::lock_guard lock(mutex_);
      open_.push_back(start.episode);
    }
    out.push_back(
        asked("/reset", {{"session_id", session(start.episode)}, {"row", *start.row}, {"seed", start.seed >> 11}}));
  }
  return out;
}

std::vector<EpisodeReply> ServiceEnvironment::step(const std::vector<EpisodeTurn>& turns) {
  std::vector<EpisodeReply> out;
  for (const EpisodeTurn& turn : turns)
    out.push_back(asked(
        "/step", {{"session_id", session(turn.episode)}, {"action", {{"message", turn.text}, {"ids", turn.tokens}}}}));
  return out;
}

void ServiceEnvironment::close() {
  const std::vector<int64_t> open = std::exchange(open_, {});
  in_parallel(open.size(), kAtOnce, [&](size_t i) {  // a service may have no such address
    http_request({.url = address_ + "/close",
                  .headers = {"Content-Type: application/json"},
                  .post = json_text(Json{{"session_id", session(open[i])}}),
                  .body_limit = kReplyBytes,
                  .quiet_seconds = 1});
  });
  ++round_;
}

EpisodeReply ServiceEnvironment::asked(const std::string& path, const Json& body) const {
  try {
    return reply_to(path, body);
  } catch (const Error& error) {
    if (!skips_ || error.at.fault != Fault::Data) throw;
    return {.done = true, .failure = error.what()};
  }
}

EpisodeReply ServiceEnvironment::reply_to(const std::string& path, const Json& body) const {
  const std::string where = address_ + path;
  const Stopwatch watch;
  HttpRequest request{.url = where, .headers = {"Content-Type: application/json"}, .post = json_text(body)};
  request.body_limit = kReplyBytes;
  request.quiet_seconds = static_cast<int64_t>(std::ceil(timeout_));
  request.abandoned = [&] { return watch.seconds() > timeout_; };
  const HttpReply reply = http_request(request);
  if (reply.status == 200) return read_reply(parse_json(reply.body, "what " + where + " sent"), where);
  const bool late = reply.status == 0 && watch.seconds() > timeout_;
  fail(Fault::Data, "the environment ", where, " ",
       late           ? str("did not reply within ", timeout_, " s (--environment_timeout)")
       : reply.status ? str("says ", reply.status, ": ", reply.body.substr(0, kBytesShown))
                      : str("cannot be reached: ", reply.error));
}

}  // namespace apus
