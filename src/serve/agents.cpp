// SPDX-License-Identifier: Apache-2.0
// The environment agent:PROGRAM. A process for each episode asks the model by OpenAI's or Anthropic's API, as often as
// it likes, and says at its end what that was worth. Each process has an address of its own, so that whoever asks is
// known; the requests wait until the trainer, which drives the model, has their answers.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/program.h"
#include "engine/answer/chat.h"
#include "environment/environment.h"
#include "serve/agent_turns.h"
#include "serve/api.h"
#include "serve/http_server.h"
#include "serve/openai_answer.h"
#include "text/tool_calls.h"

namespace apus {

namespace {

constexpr size_t kMostPrinted = 1 << 20;  // bytes
constexpr double kLookAgain = 0.2;        // seconds between two looks at whether an agent should end
constexpr size_t kAtOnce = 256;           // agents that are waited for

// What all threads of a round share.
struct Round {
  std::mutex mutex;
  std::condition_variable changed;
};

// What an agent's requests wait in.
class WaitingRequests : public TextEngine {
 public:
  WaitingRequests(std::shared_ptr<Round> round, int64_t vocab) : round_(std::move(round)), vocab_(vocab) {}

  int64_t submit(EngineRequest request) override {
    require(!request.constraint && !request.embedding, Fault::Usage,
            "while it learns, the model answers in its own words: no response_format, guided answers or forced tools");
    require(request.media.empty(), Fault::Usage, "an agent's model reads text only");
    const std::lock_guard lock(round_->mutex);
    require(!closed_, Fault::Usage, "the episode is over");
    waiting_.emplace_back(++last_, std::move(request));
    round_->changed.notify_all();
    return last_;
  }
  void cancel(int64_t request) override {
    const std::lock_guard lock(round_->mutex);
    std::erase_if(waiting_, [&](const auto& one) { return one.first == request; });
  }
  EngineStats stats() const override { return {}; }
  int64_t max_model_len() const override { return int64_t{1} << 30; }  // the trainer knows how much it can read
  int64_t vocab() const override { return vocab_; }
  std::vector<std::string> adapters() const override { return {}; }
  void load_adapter(const std::string&, const std::string&) override { none(); }
  void unload_adapter(const std::string&) override { none(); }
  void sleep(int) override { none(); }
  void wake() override { none(); }

  // With the round's lock.
  struct Asked {
    int64_t number;
    const EngineRequest* request;
  };
  std::optional<Asked> first() const {
    if (waiting_.empty()) return std::nullopt;
    return Asked{waiting_.front().first, &waiting_.front().second};
  }
  std::optional<EngineRequest> take(int64_t number) {  // absent: its client has left
    const auto found =
        std::find_if(waiting_.begin(), waiting_.end(), [&](const auto& one) { return one.first == number; });
    if (found == waiting_.end()) return std::nullopt;
    EngineRequest request = std::move(found->second);
    waiting_.erase(found);
    return request;
  }
  void close() { closed_ = true; }

 private:
  [[noreturn]] static void none() { fail(Fault::Usage, "this model is a trainer's: it has no adapters and no sleep"); }
  const std::shared_ptr<Round> round_;
  const int64_t vocab_;
  std::deque<std::pair<int64_t, EngineRequest>> waiting_;
  int64_t last_ = 0;
  bool closed_ = false;
};

// A process, the address that it asks at, and what it has been answered.
struct Agent {
  Agent(std::shared_ptr<Round> round, ServiceSpec service, const std::shared_ptr<Workers>& workers)
      : requests(round, service.tokenizer->vocab_size()) {
    service.engine = &requests;
    api = std::make_shared<Api>(ApiSpec{.verbose = false}, std::move(service), workers);
  }
  const std::string key = random_id("", 32);
  WaitingRequests requests;
  std::shared_ptr<Api> api;
  // Each by the request that went on with it last, as the chat template gives it, and the answer to that.
  struct Conversation {
    std::vector<int32_t> asked, said;
  };
  std::vector<Conversation> conversations;
  size_t speaks = 0;    // the one that is or was answered last
  int64_t request = 0;  // that is or was answered last
  std::thread thread;
  // With the round's lock:
  bool stops = false, ended = false;
  int status = 0;
  std::string printed, words;  // words: the last of its error output
};

// Every agent's API below a path of its own.
class Doors : public HttpService {
 public:
  void open(const std::string& key, std::shared_ptr<Api> api) {
    const std::lock_guard lock(mutex_);
    apis_[key] = std::move(api);
  }
  void close_all() {
    const std::lock_guard lock(mutex_);
    apis_.clear();
  }
  std::optional<HttpAnswer> admit(const HttpCall& call) override {
    HttpCall inner = call;
    const auto api = found(inner);
    return api ? api->admit(inner) : error_answer(call, ApiError(404, "This episode is over, or never was."));
  }
  void serve(std::shared_ptr<const HttpCall> call, std::shared_ptr<Responder> reply) override {
    const auto inner = std::make_shared<HttpCall>(*call);
    if (const auto api = found(*inner)) return api->serve(inner, std::move(reply));
    reply->send(error_answer(*call, ApiError(404, "This episode is over.")));
  }
  HttpAnswer broken(const HttpCall& call, int status, const std::string& why) override {
    return error_answer(call, ApiError(status, why));
  }

 private:
  // Whose it is; the call goes on without the key in its path.
  std::shared_ptr<Api> found(HttpCall& call) {
    const size_t end = call.path.find('/', 1);
    if (end == std::string::npos) return nullptr;
    const std::string key = call.path.substr(1, end - 1);
    call.path = call.path.substr(end);
    const std::lock_guard lock(mutex_);
    const auto it = apis_.find(key);
    return it == apis_.end() ? nullptr : it->second;
  }
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Api>> apis_;
};

class Agents final : public Environment {
 public:
  Agents(std::string command, const EnvironmentOptions& options, Speech speech)
      : command_(std::move(command)),
        timeout_(options.environment_timeout),
        skips_(options.environment_failure == "skip"),
        speech_(std::move(speech)) {
    require(speech_.chat != nullptr, Fault::Usage, "--environment agent: needs a model that chats");
  }
  ~Agents() override {
    close();
    if (server_) server_->stop();
  }

  std::vector<EpisodeReply> reset(const std::vector<EpisodeStart>& starts) override {
    std::vector<EpisodeReply> out;
    for (const EpisodeStart& start : starts) {
      Agent& agent = begin(start);
      EpisodeReply& reply = out.emplace_back(reply_of(agent));
      if (!reply.done) agent.conversations.push_back({.asked = reply.tokens, .said = {}});
    }
    return out;
  }

  std::vector<EpisodeReply> step(const std::vector<EpisodeTurn>& turns) override {
    std::vector<EpisodeReply> out;
    for (const EpisodeTurn& turn : turns) {
      Agent& agent = agent_of(turn.episode);
      answer(agent, turn);
      EpisodeReply& reply = out.emplace_back(reply_of(agent));
      if (!reply.done) put_behind(agent, reply);
    }
    return out;
  }

  size_t resets_at_once() const override { return kAtOnce; }
  size_t steps_at_once() const override { return kAtOnce; }

  void close() override {
    doors_->close_all();
    for (const auto& [episode, agent] : agents_) end(*agent);
    for (const auto& [episode, agent] : agents_)
      if (agent->thread.joinable()) agent->thread.join();
    if (workers_) workers_->stop();  // nobody asks an engine behind this
    workers_.reset();
    agents_.clear();
  }

 private:
  Agent& begin(const EpisodeStart& start) {
    const std::lock_guard lock(agents_mutex_);
    if (!server_) server_ = std::make_unique<HttpServer>(HttpServerSpec{.host = "127.0.0.1", .port = 0}, doors_);
    if (!workers_)
      workers_ = std::make_shared<Workers>(std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 2, 2, 8));
    Agent& agent = *(agents_[start.episode] = std::make_unique<Agent>(round_, service(), workers_));
    doors_->open(agent.key, agent.api);
    agent.thread = std::thread(
        [this, &agent, text = json_text(*start.row) + "\n", seed = start.seed >> 11] { run(agent, text, seed); });
    return agent;
  }

  Agent& agent_of(int64_t episode) {
    const std::lock_guard lock(agents_mutex_);
    return *agents_.at(episode);
  }

  ServiceSpec service() const {
    ServiceSpec s;
    s.model_name = "policy";
    s.chat = speech_.chat.get();
    s.tokenizer = {std::shared_ptr<void>(), &speech_.chat->tokenizer()};  // not owned
    s.stop_ids = speech_.ends;
    s.tool_format = speech_.chat->tool_format();
    s.reasoning = guess_reasoning(speech_.chat->template_text(false));
    return s;
  }

  std::string with_address(const Agent& agent, uint64_t seed) const {
    const std::string root = str("http://127.0.0.1:", server_->port(), "/", agent.key);
    std::string text;
    for (const auto& [name, value] : {std::pair<const char*, std::string>{"OPENAI_BASE_URL", root + "/v1"},
                                      {"OPENAI_API_KEY", agent.key},
                                      {"OPENAI_MODEL", "policy"},
                                      {"ANTHROPIC_BASE_URL", root},
                                      {"ANTHROPIC_API_KEY", agent.key},
                                      {"ANTHROPIC_MODEL", "policy"},
                                      {"APUS_SEED", std::to_string(seed)}})
      text += str("export ", name, "='", value, "'; ");  // no value has a quote
    return text + command_;
  }

  void run(Agent& agent, const std::string& row, uint64_t seed) {
    std::string printed, words;
    int status = 0;
    try {
      Program program(with_address(agent, seed), "agent");
      const auto stops = [&] {
        const std::lock_guard lock(round_->mutex);
        return agent.stops;
      };
      Program::Heard heard = program.talk(row, 1, kMostPrinted);
      while (heard == Program::Heard::Late && !stops()) heard = program.talk("", kLookAgain, kMostPrinted);
      status = program.wait(/*now=*/heard != Program::Heard::End);
      printed = program.printed, words = program.last_words();
    } catch (const std::exception& error) {
      status = -1, words = str("; ", error.what());
    }
    const std::lock_guard lock(round_->mutex);
    agent.ended = true, agent.status = status;
    agent.printed = std::move(printed), agent.words = std::move(words);
    round_->changed.notify_all();
  }

  void answer(Agent& agent, const EpisodeTurn& turn) {
    std::optional<EngineRequest> request;
    {
      const std::lock_guard lock(round_->mutex);
      request = agent.requests.take(agent.request);
    }
    agent.conversations[agent.speaks].said = turn.tokens;
    if (!request) return;
    EngineEvent event{.finish = turn.cut ? Finish::Length : Finish::Stop};
    for (const int32_t id : turn.tokens) event.tokens.push_back({.id = id});
    request->sink(event);
  }

  void end(Agent& agent) {
    std::vector<EngineRequest> left;
    {
      const std::lock_guard lock(round_->mutex);
      agent.stops = true;
      agent.requests.close();
      while (const auto asked = agent.requests.first()) left.push_back(*agent.requests.take(asked->number));
    }
    for (const EngineRequest& request : left) request.sink({.finish = Finish::Failed, .error = "the episode is over"});
  }

  // Waits until it asks or has ended.
  EpisodeReply reply_of(Agent& agent) {
    std::unique_lock lock(round_->mutex);
    const bool ready = round_->changed.wait_for(lock, std::chrono::duration<double>(timeout_),
                                                [&] { return agent.ended || agent.requests.first(); });
    if (!ready) return failed(agent, str("neither asked nor ended within ", timeout_, " s (--environment_timeout)"));
    const auto asked = agent.requests.first();
    if (!asked) return of_the_end(agent);
    agent.request = asked->number;
    return {.tokens = asked->request->prompt};
  }

  EpisodeReply of_the_end(Agent& agent) const {
    if (agent.status != 0) return failed(agent, how_it_ended(agent.status) + agent.words);
    if (agent.request == 0) return failed(agent, "ended before it asked anything" + agent.words);
    try {
      return {.reward = reward_printed(agent.printed), .done = true};
    } catch (const Error& error) {
      return failed(agent, error.what());
    }
  }

  EpisodeReply failed(Agent& agent, const std::string& why) const {
    const std::string what = str("the agent '", command_, "' ", why);
    if (!skips_) fail(Fault::Data, what);
    agent.stops = true;
    return {.done = true, .failure = what};
  }

  // The longest conversation that the request goes on with, and what stands behind its last answer; or another one.
  void put_behind(Agent& agent, EpisodeReply& reply) {
    std::optional<std::vector<int32_t>> behind;
    std::vector<Agent::Conversation>& all = agent.conversations;
    agent.speaks = all.size();
    for (size_t k = 0; k < all.size(); ++k) {
      if (behind && all[k].asked.size() < all[agent.speaks].asked.size()) continue;
      auto next = behind_agents_turn(all[k].asked, all[k].said, reply.tokens, speech_.ends, speech_.chat->tokenizer());
      if (next) behind = std::move(next), agent.speaks = k;
    }
    reply.conversation = agent.speaks;
    if (!behind) {
      all.push_back({.asked = reply.tokens, .said = {}});
      if (!told_.exchange(true))
        log_info("the agent '", command_,
                 "' asks with other histories beside what was said: each is learnt by itself, by the reward of the "
                 "whole");
      return;
    }
    all[agent.speaks].asked = std::exchange(reply.tokens, std::move(*behind));
  }

  const std::string command_;
  const double timeout_;  // seconds
  const bool skips_;
  const Speech speech_;
  std::atomic<bool> told_ = false;
  const std::shared_ptr<Round> round_ = std::make_shared<Round>();
  const std::shared_ptr<Doors> doors_ = std::make_shared<Doors>();
  std::mutex agents_mutex_;  // of all below
  std::shared_ptr<Workers> workers_;
  std::unique_ptr<HttpServer> server_;
  std::map<int64_t, std::unique_ptr<Agent>> agents_;
};

const bool registered = [] {
  Registry<MakeAgents>::of().add(kAgentEnvironment,
                                 [](const std::string& command, const EnvironmentOptions& options,
                                    const Speech& speech) -> std::unique_ptr<Environment> {
                                   return std::make_unique<Agents>(command, options, speech);
                                 });
  return true;
}();

}  // namespace
}  // namespace apus
