// SPDX-License-Identifier: Apache-2.0
// One thread for each request in flight; this one reads rows, and writes answers in the rows' order.
#include "cli/infer_client.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/queue.h"
#include "base/random.h"
#include "base/signals.h"
#include "cli/sent_media.h"
#include "hub/http.h"

namespace apus {

namespace {

constexpr int64_t kQuietSeconds = 1800;  // an answer comes whole: silence until then is no failure
constexpr double kFirstPause = 0.5, kLongestPause = 30;

struct Job {
  int64_t row;
  Question question;
};

struct Outcome {
  int64_t row = 0;
  Question question;
  RowBook::Reply reply;
  enum { Answered, Refused, Failed, Hopeless } how = Failed;  // Hopeless: no other row would fare better
  std::string why;
};

// What the server said went wrong: OpenAI's error object, or the beginning of whatever came.
std::string complaint(const HttpReply& reply) {
  if (reply.status == 0) return reply.error;
  const Json body = Json::parse(reply.body, nullptr, false);
  std::string text = reply.body.substr(0, 300);
  if (body.is_object() && body.contains("error")) {
    const Json& e = body["error"];
    if (e.is_object() && e.contains("message") && e["message"].is_string())
      text = e["message"].get<std::string>();
    else if (e.is_string())
      text = e.get<std::string>();
  }
  return str("the server answers ", reply.status, text.empty() ? "" : ": ", text);
}

bool passing(int status) { return status == 0 || status == 408 || status == 429 || (status >= 500 && status != 501); }

class Sender {
 public:
  Sender(const InferOptions& o, const StopFlag& stop) : o_(o), stop_(stop), root_(api_root(o.base_url)) {
    const char* of_environment = std::getenv("OPENAI_API_KEY");
    const std::string key = !o.api_key.empty() ? o.api_key : of_environment ? of_environment : "";
    headers_ = {"Content-Type: application/json"};
    if (!key.empty()) headers_.push_back("Authorization: Bearer " + key);
  }
  // The name that the server gives its model, unless the user named one; shows early that there is a server.
  void find_model();
  Outcome ask(Job job);
  void give_up() { given_up_ = true; }

 private:
  HttpReply send(HttpRequest request, uint64_t stream);
  void pause(double seconds) const;
  bool over() const { return stop_.raised() || given_up_; }
  Json body_of(const Job& job) const;
  static RowBook::Reply reply_of(const std::string& body);

  const InferOptions& o_;
  const StopFlag& stop_;
  const std::string root_;
  std::vector<std::string> headers_;
  std::string model_;
  std::atomic<bool> given_up_{false}, told_{false};
};

void Sender::pause(double seconds) const {
  for (const Stopwatch watch; watch.seconds() < seconds && !over();)
    std::this_thread::sleep_for(std::chrono::duration<double>(std::min(0.1, seconds - watch.seconds())));
}

// Again after what may pass, later and later; as late as the server asks.
HttpReply Sender::send(HttpRequest request, uint64_t stream) {
  request.headers = headers_;
  request.quiet_seconds = kQuietSeconds;
  request.abandoned = [this] { return over(); };
  for (int64_t tries = 0;; ++tries) {
    HttpReply reply = http_request(request);
    if (!passing(reply.status) || tries >= o_.max_retries || over()) return reply;
    double seconds =
        std::min(kLongestPause, kFirstPause * static_cast<double>(int64_t{1} << std::min<int64_t>(tries, 10)));
    // Not all at the same time.
    seconds *= 0.5 + Random(stream, stream_named("retry"), static_cast<uint64_t>(tries)).uniform();
    if (const auto asked = reply.headers.find("retry-after"); asked != reply.headers.end())
      seconds = std::clamp(std::strtod(asked->second.c_str(), nullptr), 0.0, 300.0);
    log_debug(complaint(reply), "; once more in ", seconds, " s");
    if (tries == 2 && !told_.exchange(true))
      log_warning(complaint(reply), "; asking again, each row up to ", o_.max_retries, " times (--max_retries)");
    pause(seconds);
  }
}

void Sender::find_model() {
  HttpRequest request;
  request.url = root_ + "/models";
  const HttpReply reply = send(std::move(request), 0);
  if (over()) return;
  require(reply.status != 0, Fault::Io, "no server answers at ", root_, ": ", reply.error);
  require(reply.status != 401 && reply.status != 403, Fault::Usage, root_, ": ", complaint(reply),
          "; give the key by --api_key");
  if (!o_.model.model.empty()) {
    model_ = o_.model.model;
    return;
  }
  const Json models = Json::parse(reply.body, nullptr, false);
  const bool listed = reply.status == 200 && models.is_object() && models.contains("data") &&
                      models["data"].is_array() && !models["data"].empty() && models["data"][0].is_object() &&
                      models["data"][0].contains("id") && models["data"][0]["id"].is_string();
  require(listed, Fault::Usage, root_, "/models names no model; give its name by --model");
  model_ = models["data"][0]["id"].get<std::string>();
  log_info("the server's model is ", model_);
}

Json Sender::body_of(const Job& job) const {
  const Json& row = job.question.row;
  Json messages = sent_messages(row);
  if (o_.prompt.system && messages[0]["role"] != "system")
    messages.insert(messages.begin(), Json{{"role", "system"}, {"content", *o_.prompt.system}});
  Json body = {{"model", model_}, {"messages", messages}, {"seed", (o_.common.seed + job.row) & INT32_MAX}};
  const auto give = [&](const char* name, const auto& value) {
    if (value) body[name] = *value;
  };
  give("max_tokens", o_.answers.max_new_tokens);
  each_sampling_field([&](const auto& field) { give(field.in_requests(), o_.answers.*field.wish); });
  if (!o_.answers.stop_words.empty()) body["stop"] = o_.answers.stop_words;
  if (o_.answers.logprobs) body["logprobs"] = true;
  if (o_.answers.logprobs && o_.answers.top_logprobs) body["top_logprobs"] = *o_.answers.top_logprobs;
  for (const char* list : {"tools", "documents"})
    if (row.contains(list) && row[list].is_array() && !row[list].empty()) body[list] = row[list];
  Json kwargs = o_.prompt.chat_template_kwargs.is_object() ? o_.prompt.chat_template_kwargs : Json::object();
  if (o_.prompt.enable_thinking) kwargs["enable_thinking"] = *o_.prompt.enable_thinking;
  if (row.contains("chat_template_kwargs") && row["chat_template_kwargs"].is_object())
    kwargs.update(row["chat_template_kwargs"]);
  if (!kwargs.empty()) body["chat_template_kwargs"] = kwargs;
  return body;
}

// The text as the model wrote it: what the server took apart is put together again.
RowBook::Reply Sender::reply_of(const std::string& text) {
  const Json body = parse_json(text, "the server's answer");
  const Json& choice = body.at("choices").at(0);
  const Json& message = choice.at("message");
  const auto part = [&](const char* name) {
    return message.contains(name) && message[name].is_string() ? message[name].get<std::string>() : std::string();
  };
  std::string response;
  if (const std::string thought = part("reasoning_content"); !thought.empty())
    response = "<think>\n" + thought + "\n</think>\n\n";
  response += part("content");
  if (message.contains("tool_calls") && message["tool_calls"].is_array())
    for (const Json& call : message["tool_calls"]) {
      const Json& f = call.at("function");
      const Json arguments = Json::parse(f.at("arguments").get<std::string>(), nullptr, false);
      response +=
          (response.empty() ? "" : "\n") + std::string("<tool_call>\n") +
          json_text({{"name", f.at("name")}, {"arguments", arguments.is_discarded() ? f["arguments"] : arguments}}) +
          "\n</tool_call>";
    }
  RowBook::Reply reply;
  reply.response = response;
  if (choice.contains("logprobs")) reply.logprobs = choice["logprobs"];
  if (body.contains("usage") && body["usage"].is_object()) {
    reply.prompt_tokens = body["usage"].value("prompt_tokens", int64_t{0});
    reply.new_tokens = body["usage"].value("completion_tokens", int64_t{0});
  }
  return reply;
}

Outcome Sender::ask(Job job) {
  HttpRequest request;
  request.url = root_ + "/chat/completions";
  Outcome outcome{.row = job.row, .question = {}, .reply = {}, .why = {}};
  try {
    request.post = json_text(body_of(job));
  } catch (const Error& e) {  // a picture that cannot be read
    outcome.how = Outcome::Refused, outcome.why = e.what(), outcome.question = std::move(job.question);
    return outcome;
  }
  const HttpReply reply = send(std::move(request), static_cast<uint64_t>(job.row) + 1);
  outcome.question = std::move(job.question);
  if (reply.status == 200) {
    try {
      outcome.reply = reply_of(reply.body);
      outcome.how = Outcome::Answered;
    } catch (const std::exception& e) {
      outcome.why = str("the server's answer is not one of chat completions: ", e.what());
    }
    return outcome;
  }
  outcome.why = complaint(reply);
  if (reply.status == 0 || reply.status == 401 || reply.status == 403 || reply.status == 404)
    outcome.how = Outcome::Hopeless;
  else if (reply.status == 400 || reply.status == 413 || reply.status == 422)
    outcome.how = Outcome::Refused;
  return outcome;
}

class ClientRun {
 public:
  ClientRun(const InferOptions& o, const std::string& path)
      : o_(o), book_(row_book_spec(o, path)), sender_(o, stop_), jobs_(1) {}
  ~ClientRun() { end_threads(); }
  int run();

 private:
  void start_threads();
  void end_threads();
  void land(Outcome outcome);
  std::deque<Outcome> landed();

  const InferOptions& o_;
  const StopFlag stop_;
  RowBook book_;
  Sender sender_;
  BoundedQueue<Job> jobs_;
  std::mutex mutex_;
  std::condition_variable landed_up_;
  std::deque<Outcome> landed_;
  std::vector<std::thread> threads_;
};

void ClientRun::start_threads() {
  const int64_t count = std::min(o_.max_concurrency, std::max<int64_t>(book_.total() - book_.earlier(), 1));
  for (int64_t i = 0; i < count; ++i)
    threads_.emplace_back([this] {
      while (auto job = jobs_.pop()) {
        const int64_t row = job->row;
        Outcome outcome;
        try {
          outcome = sender_.ask(std::move(*job));
        } catch (const std::exception& e) {
          outcome.row = row;
          outcome.why = e.what();
        }
        const std::lock_guard lock(mutex_);
        landed_.push_back(std::move(outcome));
        landed_up_.notify_one();
      }
    });
}

void ClientRun::end_threads() {
  sender_.give_up();
  jobs_.close();
  for (auto& t : threads_) t.join();
  threads_.clear();
}

std::deque<Outcome> ClientRun::landed() {
  std::unique_lock lock(mutex_);
  landed_up_.wait_for(lock, std::chrono::milliseconds(200), [&] { return !landed_.empty(); });
  return std::exchange(landed_, {});
}

void ClientRun::land(Outcome o) {
  if (stop_.raised() && o.how != Outcome::Answered) return;
  switch (o.how) {
    case Outcome::Answered:
      return book_.answer(o.row, o.question, std::move(o.reply));
    case Outcome::Refused:
      return book_.refuse(o.row, o.question.origin, o.why);
    case Outcome::Failed:
      return book_.fail(o.row, o.why);
    case Outcome::Hopeless:
      book_.stopped();
      fail(Fault::Io, "row ", o.row + 1, ": ", o.why, " (", o_.base_url, ")");
  }
}

int ClientRun::run() {
  sender_.find_model();
  stop_.throw_if_raised();
  book_.begin();
  start_threads();
  const Stopwatch watch;
  Progress progress("infer", book_.total(), {.unit = "row", .skipped = book_.earlier()});
  progress.set(book_.earlier());
  size_t in_flight = 0;
  for (bool all_read = false; !stop_.raised();) {
    while (!all_read && in_flight < threads_.size() && !stop_.raised()) {
      auto question = book_.next();
      if (!question) {
        all_read = true;
        break;
      }
      jobs_.push({book_.row(), std::move(*question)});
      ++in_flight;
    }
    if (in_flight == 0) break;
    for (auto& outcome : landed()) {
      --in_flight;
      land(std::move(outcome));
    }
    progress.set(book_.done());
  }
  if (stop_.raised()) {
    book_.stopped();
    stop_.throw_if_raised();
  }
  progress.finish();
  book_.finish(watch.seconds());
  return 0;
}

}  // namespace

std::string api_root(const std::string& base_url) {
  std::string url = base_url;
  while (url.ends_with('/')) url.pop_back();
  const size_t scheme = url.find("://");
  require((url.starts_with("http://") || url.starts_with("https://")) && url.size() > scheme + 3, Fault::Usage,
          "--base_url ", base_url, " is no address of a server; it looks like http://127.0.0.1:8000/v1");
  return url.find('/', scheme + 3) == std::string::npos ? url + "/v1" : url;
}

int infer_client(const InferOptions& options) {
  const std::string path = options.result_path.empty() ? default_result_path(options) : options.result_path;
  const auto folder = std::filesystem::path(path).parent_path();
  if (path != "-" && !folder.empty() && !std::filesystem::exists(path)) make_writable_dir(folder);
  return ClientRun(options, path).run();
}

}  // namespace apus
