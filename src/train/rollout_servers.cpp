// SPDX-License-Identifier: Apache-2.0
#include "train/rollout_servers.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <future>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "hub/http.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

constexpr size_t kPieceBytes = 8 << 20;
constexpr int64_t kReplyLimit = int64_t{1} << 30;
constexpr int64_t kLongestAnswerSeconds = 3600;
constexpr size_t kErrorBytes = 300;
constexpr int64_t kAskLostAgainSeconds = 30;
// Orders that a server has at a time, and into how many the questions of all are divided: what is left when the first
// ones are done goes to whoever is free.
constexpr size_t kOrdersAtOnce = 4, kOrdersOfServer = 8;

// Nobody is there, for as long as one waits.
struct Lost : Error {
  using Error::Error;
};
// It is there, with other weights.
struct Outdated : Error {
  using Error::Error;
};

}  // namespace

namespace {
HttpRequest posted(const std::string& url, const std::string& body, bool bytes = false) {
  HttpRequest request{.url = url,
                      .headers = {bytes ? "Content-Type: application/octet-stream" : "Content-Type: application/json"},
                      .post = body};
  if (const char* key = std::getenv("APUS_API_KEY")) request.headers.push_back(str("Authorization: Bearer ", key));
  return request;
}
}  // namespace

RolloutServers::RolloutServers(const std::vector<std::string>& urls, int64_t timeout, bool sends, Save save)
    : timeout_(timeout),
      sends_(sends),
      save_(std::move(save)),
      scratch_(sends ? std::make_unique<ScratchFolder>("apus-rollout-weights") : nullptr),
      folder_(sends ? scratch_->path() / "weights" : fs::path()) {
  for (const std::string& url : urls) servers_.emplace_back().url = url;
}

// What it replies. While it cannot be reached it is asked again, until the time is over.
Json RolloutServers::post(const Server& server, const std::string& path, const std::string& body, bool bytes) const {
  const Stopwatch watch;
  bool told = false;
  while (true) {
    HttpRequest request = posted(server.url + path, body, bytes);
    request.body_limit = kReplyLimit, request.quiet_seconds = kLongestAnswerSeconds;
    const HttpReply reply = http_request(request);
    if (reply.status == 200) return parse_json(reply.body, "what " + server.url + path + " sent", Fault::Io);
    const std::string why = reply.status ? str("says ", reply.status, ": ", reply.body.substr(0, kErrorBytes))
                                         : str("cannot be reached: ", reply.error);
    if (reply.status == 409) throw Outdated(Fault::Io, why);
    require(reply.status == 0 || reply.status == 503 || reply.status == 429, Fault::Io, "the rollout server ",
            server.url, " ", why, " (", path, ")");
    if (watch.seconds() > static_cast<double>(timeout_)) throw Lost(Fault::Io, why);
    if (!std::exchange(told, true))
      log_warning("the rollout server ", server.url, " ", why, "; it is waited for ", timeout_,
                  " s (--vllm_server_timeout)");
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}

void RolloutServers::send_file(const Server& server, const fs::path& file, int64_t version) {
  std::ifstream in(file, std::ios::binary);
  const auto size = static_cast<int64_t>(fs::file_size(file));
  std::string piece;
  int64_t begin = 0;
  do {
    piece.resize(static_cast<size_t>(std::min<int64_t>(kPieceBytes, size - begin)));
    in.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    require(in.good() || piece.empty(), Fault::Io, "cannot read ", file.string());
    post(server,
         str("/update_flattened_params/?version=", version, "&file=", file.filename().string(), "&begin=", begin),
         piece, true);
    begin += static_cast<int64_t>(piece.size());
  } while (begin < size);
}

void RolloutServers::send(Server& server, int64_t version) {
  for (const auto& entry : fs::directory_iterator(folder_))
    if (entry.is_regular_file() && entry.path().filename() != "args.json") send_file(server, entry.path(), version);
  const Json took = post(server, "/process_weights_after_loading/", json_text(Json{{"version", version}}));
  require(took.value("version", int64_t{0}) == version, Fault::Io, "the rollout server ", server.url,
          " did not take the weights: ", took.dump().substr(0, kErrorBytes));
  server.version = version, ++server.sends;
}

void RolloutServers::lose(Server& server, const std::string& why) {
  if (std::exchange(server.lost, true)) return;
  server.lost_at = std::chrono::steady_clock::now();
  log_warning("the rollout server ", server.url, " is lost: ", why, "; it is asked again later");
}

// One that answers again has begun anew: it is sent the weights.
void RolloutServers::ask_lost_ones() {
  const auto now = std::chrono::steady_clock::now();
  for (Server& server : servers_) {
    if (!server.lost || now - server.lost_at < std::chrono::seconds(std::min(timeout_, kAskLostAgainSeconds))) continue;
    server.lost_at = now, server.lost = http_request(posted(server.url + "/get_engine_type/", "{}")).status != 200;
    if (server.lost) continue;
    server.version = 0;
    log_info("the rollout server ", server.url, " is there again");
  }
}

// All ranks save, as gathering weights may need them all; one sends.
void RolloutServers::bring_up_to_date(int64_t version) {
  ask_lost_ones();
  if (saved_ != version) {
    std::error_code code;
    if (sends_) fs::remove_all(folder_, code), make_writable_dir(folder_);
    save_(folder_);
    saved_ = version;
  }
  if (!sends_) return;
  for (Server& server : servers_)
    if (!server.lost && server.version != version) try {
        send(server, version);
      } catch (const Lost& error) {
        lose(server, error.what());
      }
}

bool RolloutServers::alive() const {
  return std::any_of(servers_.begin(), servers_.end(), [](const Server& s) { return !s.lost; });
}

// Of one server. A rank that does not send waits until it has the weights.
std::vector<FinishedAnswer> RolloutServers::asked(Server& server, const AnswerOrder& order) {
  const std::string body = json_text(to_wire(order));
  const Stopwatch watch;
  for (int attempt = 0;; ++attempt) {
    const int64_t sends = [&] {
      const std::lock_guard lock(server.sending);
      return server.sends;
    }();
    try {
      const auto answers = answers_of_wire(post(server, "/generate_ids/", body));
      require(answers.size() == order.prompts.size(), Fault::Io, "the rollout server ", server.url, " gave ",
              answers.size(), " answers to ", order.prompts.size(), " prompts");
      return answers;
    } catch (const Outdated& error) {
      if (sends_) {
        if (attempt > 1) throw Lost(Fault::Io, error.what());
        const std::lock_guard lock(server.sending);
        if (server.sends != sends) continue;  // another thread has sent them
        log_warning("the rollout server ", server.url, " has begun anew and is sent the weights again");
        send(server, order.version);
      } else {
        if (watch.seconds() > static_cast<double>(timeout_)) throw Lost(Fault::Io, error.what());
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
    }
  }
}

// The questions in orders, the answers that have come.
struct RolloutServers::Work {
  explicit Work(const AnswerOrder& asked, size_t servers) : order(asked), answers(asked.prompts.size()) {
    const size_t all = order.prompts.size(), size = std::max<size_t>(1, all / (kOrdersOfServer * servers));
    for (size_t begin = 0; begin < all;) {
      size_t end = std::min(all, begin + size);
      while (end < all && order.prompts[end] == order.prompts[end - 1])
        ++end;  // a question is read once for its answers
      left.push_back({begin, end});
      begin = end;
    }
  }
  std::optional<std::pair<size_t, size_t>> take(const Server& server) {
    const std::lock_guard lock(mutex);
    if (server.lost || left.empty()) return std::nullopt;
    const auto out = left.front();
    left.pop_front();
    return out;
  }
  const AnswerOrder& order;
  std::vector<FinishedAnswer> answers;
  std::mutex mutex;  // of all below, and of what servers are lost
  std::deque<std::pair<size_t, size_t>> left;
  std::string last_fault;
};

void RolloutServers::work_off(Server& server, Work& work) {
  while (const auto range = work.take(server)) {
    const auto [begin, end] = *range;
    AnswerOrder part{
        .sampling = work.order.sampling, .version = work.order.version, .tells_experts = work.order.tells_experts};
    part.prompts.assign(work.order.prompts.begin() + static_cast<long>(begin),
                        work.order.prompts.begin() + static_cast<long>(end));
    part.seeds.assign(work.order.seeds.begin() + static_cast<long>(begin),
                      work.order.seeds.begin() + static_cast<long>(end));
    try {
      std::vector<FinishedAnswer> answers = asked(server, part);
      std::move(answers.begin(), answers.end(), work.answers.begin() + static_cast<long>(begin));
    } catch (const Lost& error) {
      const std::lock_guard lock(work.mutex);
      work.left.push_front(*range), work.last_fault = str(server.url, " ", error.what());
      lose(server, error.what());
    }
  }
}

std::vector<FinishedAnswer> RolloutServers::answers(const AnswerOrder& order) {
  bring_up_to_date(order.version);
  Work work(order, servers_.size());
  while (!work.left.empty()) {
    require(alive(), Fault::Io, "no rollout server is left", work.last_fault.empty() ? "" : ": ", work.last_fault,
            ". Start one again with apus rollout, and go on from the last checkpoint: --resume_from_checkpoint");
    std::vector<Server*> there;
    for (Server& server : servers_)
      if (!server.lost) there.push_back(&server);
    std::vector<std::future<void>> workers;
    for (size_t i = 0; i < kOrdersAtOnce * there.size(); ++i)
      workers.push_back(std::async(std::launch::async, [&, i] { work_off(*there[i % there.size()], work); }));
    for (std::future<void>& worker : workers) worker.get();
  }
  return std::move(work.answers);
}

}  // namespace apus
