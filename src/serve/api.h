// SPDX-License-Identifier: Apache-2.0
// The routes of the server: who may ask, what they ask for, and the answers. Knows no sockets.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/lines.h"
#include "media/processor.h"
#include "serve/access.h"
#include "serve/embedding.h"
#include "serve/http.h"
#include "serve/metrics.h"
#include "serve/response_store.h"
#include "serve/service.h"
#include "serve/speech_request.h"
#include "serve/traces.h"
#include "serve/transcription_request.h"
#include "serve/workers.h"

namespace apus {

struct ApiSpec {
  Access access;
  bool verbose = true;                       // a log line for each request
  std::string request_log;                   // JSONL file of requests; empty: none
  std::string result_path;                   // JSONL file of answers; empty: none
  std::shared_ptr<Traces> traces = nullptr;  // null: requests are not traced
};

class Api : public HttpService, public std::enable_shared_from_this<Api> {
 public:
  Api(ApiSpec spec, ServiceSpec service, std::shared_ptr<Workers> workers);
  ~Api() override;

  std::optional<HttpAnswer> admit(const HttpCall& call) override;
  void serve(std::shared_ptr<const HttpCall> call, std::shared_ptr<Responder> reply) override;
  HttpAnswer broken(const HttpCall& call, int status, const std::string& why) override;

  void drain() { draining_ = true; }  // new requests are refused with 503
  // Waits until requests of administrators are done; afterwards the engine may be destroyed.
  void stop();
  int64_t active() const { return active_; }  // requests whose answer is not complete
  void stop_all();                            // ends every answer that is not complete and tells its client
  Json statistics() { return metrics_.statistics(service_.spec().engine->stats()); }

  // One exchange: what handlers work on.
  struct Exchange {
    std::shared_ptr<const HttpCall> call;
    std::shared_ptr<Responder> reply;
    std::shared_ptr<Serial> serial;
    std::shared_ptr<AnswerNotes> notes;
    Json body() const;  // parsed; ApiError 400
  };

 private:
  using Handler = void (Api::*)(const Exchange&);
  struct Route {
    std::set<std::string> methods;
    Handler handler;
    Json (*request)() = nullptr;       // the schema of the body; null: there is none
    std::vector<const char*> query{};  // what may stand in the address
    bool open = false;                 // needs no key
    bool slow = false;                 // may wait for long: runs on a thread for such requests
    bool awake = false;                // needs an engine that is awake
    bool bytes = false;                // the body is no JSON
    bool form = false;                 // nor here: it is multipart/form-data, whose values `request` describes
    const char* about = "";
  };
  class Recorded;
  using Routes = std::map<std::string, Route>;
  static const Routes& routes();
  static const Routes::value_type* find(const HttpCall& call);  // null: there is nothing at this path
  void run(Handler handler, const Exchange& e);
  void finished(const HttpCall& call, const AnswerNotes& notes, int status, int64_t bytes, double seconds);
  void trace(const HttpCall& call, const AnswerNotes& notes, int status, double seconds, const std::string& person);
  // How an endpoint puts its answers: what their ids look like, and who writes them.
  struct Wording {
    const char* id_prefix;
    int id_letters;
    std::unique_ptr<AnswerWriter> (*streamed)(AnswerForm, std::shared_ptr<Responder>);
    std::unique_ptr<AnswerWriter> (*whole)(AnswerForm, WholeSink);
  };
  void answer(const Exchange& e, Service::Prepared prepared, bool streamed, const Wording& wording, WholeSink whole);
  void start(const Exchange& e, Service::Prepared prepared, std::unique_ptr<AnswerWriter> writer);
  WholeSink to_reply(const Exchange& e);
  WholeSink speaking(const Exchange& e, const ChatCall& call, Service::Prepared& prepared, WholeSink sink);
  // ApiError about `wish` where there is none, about `param` where it has no such name.
  TextVoice& voice(const char* wish, const char* param, const std::string& name, const std::string& language) const;
  SpokenText as_answer(const SpeechCall& call) const;
  // The voice of the recording that a request brings.
  std::shared_ptr<const LearntVoice> learnt(const TextVoice& voice, const SpeechCall& call) const;
  WholeSink keeping(WholeSink sink, std::shared_ptr<const Json> request);
  void check_admin(const Exchange& e, const char* what) const;
  void note_ignored(const Exchange& e, const std::vector<std::string>& fields) const;  // in the log
  void check_task(bool possible, const char* wanted) const;  // ApiError: the model gives something else
  void check_talks() const { check_task(service_.spec().task.talks(), "cannot chat"); }
  void start_numbers(const Exchange& e, std::vector<EngineRequest> requests, std::function<Json(TextNumbers)> form);
  Service::Prepared prepare_row(const Exchange& e, const Json& request) const;  // of /infer/

  void chat(const Exchange& e);
  void completions(const Exchange& e);
  void transcriptions(const Exchange& e);
  void hear(const Exchange& e, const TranscriptionCall& wanted, const std::vector<std::string>& sounds,
            const Transcription& how);
  void speech(const Exchange& e);
  void embeddings(const Exchange& e);
  void classify(const Exchange& e);
  void pooling(const Exchange& e);
  void score(const Exchange& e);
  void rerank(const Exchange& e);
  void models(const Exchange& e);
  void tokenize(const Exchange& e);
  void detokenize(const Exchange& e);
  void health(const Exchange& e);
  void metrics(const Exchange& e);
  void usage(const Exchange& e);
  void infer(const Exchange& e);
  void messages(const Exchange& e);
  void responses(const Exchange& e);
  void stored_response(const Exchange& e);
  void version(const Exchange& e);
  void openapi(const Exchange& e);
  void page(const Exchange& e);
  void count_tokens(const Exchange& e);
  void ollama_chat(const Exchange& e);
  void ollama_generate(const Exchange& e);
  void ollama_loaded(const Exchange& e, const Json& request, const char* key);
  void ollama_embed(const Exchange& e);
  void ollama_tags(const Exchange& e);
  void ollama_show(const Exchange& e);
  void ollama_version(const Exchange& e);
  void ollama_store(const Exchange& e);
  void load_adapter(const Exchange& e);
  void unload_adapter(const Exchange& e);
  void sleep(const Exchange& e);
  void wake(const Exchange& e);
  void is_sleeping(const Exchange& e);
  RolloutDoor& door() const;  // ApiError 404 where there is none
  void world_size(const Exchange& e);
  void state_keys(const Exchange& e);
  void engine_type(const Exchange& e);
  void communicator(const Exchange& e);
  void nothing_to_do(const Exchange& e);
  void take_weights(const Exchange& e);
  void finish_weights(const Exchange& e);
  void generate_ids(const Exchange& e);
  void play_rows(const Exchange& e, const Json& rows, const Json& config);

  const ApiSpec spec_;
  const Service service_;
  const std::shared_ptr<Workers> workers_, slow_workers_ = std::make_shared<Workers>(1),
                                           voices_ = std::make_shared<Workers>(1);  // one speaks at a time
  const int64_t created_;
  const Stopwatch clock_{};
  ServerMetrics metrics_;
  std::atomic<bool> draining_{false}, asleep_{false}, ending_{false};
  std::atomic<int64_t> active_{0};
  ResponseStore responses_;
  std::mutex mutex_;
  std::map<AnswerStream*, std::weak_ptr<AnswerStream>> running_;
  std::mutex log_mutex_;
  std::unique_ptr<LineWriter> request_log_, results_;
};

ApiError current_error(const HttpCall& call);  // of the exception that is being handled
void send_json(Responder& reply, const Json& body, int status = 200);

}  // namespace apus
