// SPDX-License-Identifier: Apache-2.0
#include "train/rollout_servers.h"

#include <chrono>
#include <fstream>
#include <future>
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

// Nobody is there, for as long as one waits.
struct Lost : Error {
  using Error::Error;
};
// It is there, with other weights.
struct Outdated : Error {
  using Error::Error;
};

}  // namespace

RolloutServers::RolloutServers(const std::vector<std::string>& urls, int64_t timeout, bool sends, Save save)
    : timeout_(timeout),
      sends_(sends),
      save_(std::move(save)),
      scratch_(sends ? std::make_unique<ScratchFolder>("apus-rollout-weights") : nullptr),
      folder_(sends ? scratch_->path() / "weights" : fs::path()) {
  for (const std::string& url : urls) servers_.push_back({.url = url});
}

// What it replies. While it cannot be reached it is asked again, until the time is over.
Json RolloutServers::post(const Server& server, const std::string& path, const std::string& body, bool bytes) const {
  const Stopwatch watch;
  bool told = false;
  while (true) {
    HttpRequest request{
        .url = server.url + path,
        .headers = {bytes ? "Content-Type: application/octet-stream" : "Content-Type: application/json"},
        .post = body};
    if (const char* key = std::getenv("APUS_API_KEY")) request.headers.push_back(str("Authorization: Bearer ", key));
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
  server.version = version;
}

// All ranks save, as gathering weights may need them all; one sends.
void RolloutServers::bring_up_to_date(int64_t version) {
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
        server.lost = true;
        log_warning("the rollout server ", server.url, " is lost: ", error.what());
      }
}

bool RolloutServers::alive() const {
  return std::any_of(servers_.begin(), servers_.end(), [](const Server& s) { return !s.lost; });
}

// Of one server. A rank that does not send waits until it has the weights.
std::vector<FinishedAnswer> RolloutServers::asked(Server& server, const AnswerOrder& order) {
  const std::string body = json_text(to_wire(order));
  const Stopwatch watch;
  for (int attempt = 0;; ++attempt) try {
      const auto answers = answers_of_wire(post(server, "/generate_ids/", body));
      require(answers.size() == order.prompts.size(), Fault::Io, "the rollout server ", server.url, " gave ",
              answers.size(), " answers to ", order.prompts.size(), " prompts");
      return answers;
    } catch (const Outdated& error) {
      if (sends_) {
        if (attempt > 1) throw Lost(Fault::Io, error.what());
        log_warning("the rollout server ", server.url, " has begun anew and is sent the weights again");
        send(server, order.version);
      } else {
        if (watch.seconds() > static_cast<double>(timeout_)) throw Lost(Fault::Io, error.what());
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
    }
}

std::vector<FinishedAnswer> RolloutServers::answers(const AnswerOrder& order) {
  bring_up_to_date(order.version);
  std::vector<FinishedAnswer> out(order.prompts.size());
  std::vector<size_t> left(order.prompts.size());
  for (size_t i = 0; i < left.size(); ++i) left[i] = i;
  std::string last_fault;
  while (!left.empty()) {
    require(alive(), Fault::Io, "no rollout server is left", last_fault.empty() ? "" : ": ", last_fault,
            ". Start one again with apus rollout, and go on from the last checkpoint: --resume_from_checkpoint");
    std::vector<Server*> asked_ones;
    for (Server& server : servers_)
      if (!server.lost) asked_ones.push_back(&server);
    struct Share {
      size_t begin, end;
      std::future<std::vector<FinishedAnswer>> answers;
    };
    std::vector<Share> shares;
    for (size_t s = 0; s < asked_ones.size(); ++s) {
      const size_t begin = left.size() * s / asked_ones.size(), end = left.size() * (s + 1) / asked_ones.size();
      AnswerOrder part = order;
      part.prompts.clear(), part.seeds.clear();
      for (size_t k = begin; k < end; ++k) {
        part.prompts.push_back(order.prompts[left[k]]);
        part.seeds.push_back(order.seeds[left[k]]);
      }
      shares.push_back({begin, end, std::async(std::launch::async, [this, server = asked_ones[s], part] {
                          return part.prompts.empty() ? std::vector<FinishedAnswer>() : asked(*server, part);
                        })});
    }
    std::vector<size_t> again;
    for (size_t s = 0; s < shares.size(); ++s) try {
        std::vector<FinishedAnswer> answers = shares[s].answers.get();
        for (size_t k = 0; k < answers.size(); ++k) out[left[shares[s].begin + k]] = std::move(answers[k]);
      } catch (const Lost& error) {
        asked_ones[s]->lost = true, last_fault = str(asked_ones[s]->url, " ", error.what());
        log_warning("the rollout server ", asked_ones[s]->url, " is lost: ", error.what());
        again.insert(again.end(), left.begin() + static_cast<long>(shares[s].begin),
                     left.begin() + static_cast<long>(shares[s].end));
      }
    left = std::move(again);
  }
  return out;
}

}  // namespace apus
