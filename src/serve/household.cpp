// SPDX-License-Identifier: Apache-2.0
#include "serve/household.h"

#include <algorithm>
#include <ctime>

#include "base/assets.h"
#include "base/log.h"
#include "base/nearest.h"
#include "serve/form_data.h"
#include "serve/ollama_answer.h"
#include "serve/ollama_request.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

// What a request says of its model: in its body, or, of one without, behind its path.
struct Asked {
  std::string model;
  bool leaves = false;  // Ollama's keep_alive 0: the model may go after it
};

Asked asked_of(const HttpCall& call) {
  const std::string key = "model=";
  if (const size_t at = call.query.find(key); call.method != "POST" && at != std::string::npos)
    return {call.query.substr(at + key.size(), call.query.find('&', at) - at - key.size()), false};
  if (const std::string type = call.header("content-type"); is_form_data(type)) {
    for (const FormPart& part : read_form_data(type, call.body))
      if (part.name == "model") return {std::string(part.value), false};
    return {};
  }
  Json body;
  try {
    body = parse_json(call.body, "the request");
  } catch (const Error&) {  // whoever answers it says so
  }
  if (!body.is_object()) return {};
  Asked out;
  for (const char* name : {"model", "name"})
    if (out.model.empty() && body.contains(name) && body[name].is_string()) out.model = body[name];
  const Json keep = body.value("keep_alive", Json());
  out.leaves = keep == 0 || keep == "0" || keep == "0s";
  return out;
}

int64_t bytes_of_weights(const fs::path& path) {
  std::error_code code;
  if (fs::is_regular_file(path, code)) return static_cast<int64_t>(fs::file_size(path, code));
  int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(path, code))
    if (const auto end = entry.path().extension(); end == ".safetensors" || end == ".bin")
      bytes += static_cast<int64_t>(entry.file_size(code));
  return bytes;
}

bool is_first_of_gguf(const fs::path& file) {
  const std::string name = file.filename().string();
  const size_t part = name.rfind("-of-");
  return file.extension() == ".gguf" && name.find("mmproj") == std::string::npos &&
         (part == std::string::npos || name.find("-00001-of-") != std::string::npos);
}

void add_models(const fs::path& folder, const std::string& owner, int64_t beside, std::vector<HouseModel>& out) {
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(folder, code)) {
    const fs::path& path = entry.path();
    if (path.filename().string().starts_with('.')) continue;
    const bool adapter = fs::exists(path / "adapter_config.json", code);
    if (is_first_of_gguf(path))
      out.push_back({owner + path.stem().string(), path, bytes_of_weights(path) + beside, false});
    else if (fs::exists(path / "config.json", code) || adapter)
      out.push_back({owner + path.filename().string(), path, bytes_of_weights(path) + beside, adapter});
    else if (entry.is_directory(code) && owner.empty())
      add_models(path, path.filename().string() + "/", beside, out);
  }
}

}  // namespace

std::vector<HouseModel> models_in(const fs::path& folder, int64_t beside) {
  std::vector<HouseModel> out;
  add_models(folder, "", beside, out);
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return out;
}

Household::Household(HouseholdSpec spec) : spec_(std::move(spec)) {
  const std::lock_guard lock(mutex_);
  refresh();
}

Household::~Household() { workers_->stop(); }

// A model that is new is known from now on; one that is gone from the folder is forgotten when nobody uses it.
void Household::refresh() {
  std::map<std::string, HouseModel> there;
  for (HouseModel& model : spec_.models()) there[model.name] = std::move(model);
  for (auto it = rooms_.begin(); it != rooms_.end();)
    it = there.count(it->first) || it->second.loaded || !it->second.waiting.empty() ? std::next(it) : rooms_.erase(it);
  for (auto& [name, model] : there) rooms_[name].model = std::move(model);
}

std::optional<HttpAnswer> Household::admit(const HttpCall& call) {
  if (auto answer = spec_.access.refused(call, /*page=*/true)) return answer;
  if (draining_) return error_answer(call, ApiError(503, "The server is stopping; it takes no new requests."));
  return std::nullopt;
}

HttpAnswer Household::broken(const HttpCall& call, int status, const std::string& why) {
  return error_answer(call, ApiError(status, why));
}

// Bodies may be long: they are read on a thread of their own.
void Household::serve(std::shared_ptr<const HttpCall> call, std::shared_ptr<Responder> reply) {
  reader_->post([this, one = Waiting{std::move(call), std::move(reply)}] {
    try {
      take(one);
    } catch (const ApiError& error) {
      one.reply->send(error_answer(*one.call, error));
    }
  });
}

void Household::take(const Waiting& one) {
  const std::lock_guard lock(mutex_);
  if (auto answer = own_answer(*one.call)) {
    spec_.access.allow_origin(*one.call, *answer);
    return one.reply->send(std::move(*answer));
  }
  const Asked asked = asked_of(*one.call);
  Room& room = room_for(asked.model);
  room.used = ++clock_, room.leaves = asked.leaves;
  room.idle.restart();
  if (room.forwarder) return room.forwarder->serve(one.call, one.reply);
  if (room.waiting.size() >= spec_.most_waiting)
    throw ApiError(429, str("Too many requests wait for the model '", room.model.name, "' to be loaded."));
  room.waiting.push_back(one);
}

Household::Room& Household::room_for(const std::string& asked) {
  const std::string name = ollama_name(asked);
  if (rooms_.find(name) == rooms_.end()) refresh();
  if (const auto it = rooms_.find(name); it != rooms_.end()) return it->second;
  std::vector<std::string> names;
  for (const auto& [each, room] : rooms_) names.push_back(each);
  if (name.empty() && rooms_.size() == 1) return rooms_.begin()->second;
  if (name.empty()) throw ApiError(400, str("'model' is missing: this server has several, ", join(names)), "model");
  const auto near = nearest(name, names);
  throw ApiError(404,
                 str("The model '", name.substr(0, 256), "' does not exist",
                     near.empty() ? str("; there are ", join(names)) : str("; is ", join(near, " or "), " meant?")),
                 "model", "model_not_found");
}

std::optional<HttpAnswer> Household::own_answer(const HttpCall& call) {
  const bool get = call.method != "POST";
  if (call.path == "/health" || call.path == "/ping") return HttpAnswer{.content_type = "text/plain"};
  if (!get) return std::nullopt;
  if (call.path == "/")
    return HttpAnswer{.body = std::string(asset("chat.html")), .content_type = "text/html; charset=utf-8"};
  if (call.path == "/metrics") return HttpAnswer{.body = figures(), .content_type = "text/plain; version=0.0.4"};
  if (call.path == "/v1/models" || call.path == "/api/tags") refresh();
  if (call.path == "/v1/models") return HttpAnswer{.body = json_text(list())};
  if (call.path == "/api/tags" || call.path == "/api/ps")
    return HttpAnswer{.body = json_text(ollama_list(call.path == "/api/ps"))};
  if (call.path == "/version" || call.path == "/api/version")
    return HttpAnswer{.body = json_text({{"version", APUS_VERSION}})};
  return std::nullopt;
}

Json Household::list() const {
  Json data = Json::array();
  for (const auto& [name, room] : rooms_)
    data.push_back({{"id", name},
                    {"object", "model"},
                    {"created", 0},
                    {"owned_by", "apus"},
                    {"loaded", room.forwarder != nullptr},
                    {"bytes", room.model.bytes}});
  return {{"object", "list"}, {"data", std::move(data)}};
}

Json Household::ollama_list(bool loaded_only) const {
  Json models = Json::array();
  for (const auto& [name, room] : rooms_) {
    if (loaded_only && !room.forwarder) continue;
    models.push_back(ollama_entry(name, 0, room.model.bytes));
    if (loaded_only) models.back()["expires_at"] = ollama_time(std::time(nullptr) + int64_t{86400});
  }
  return {{"models", std::move(models)}};
}

std::string Household::figures() const {
  std::string out;
  int64_t bytes = 0, waiting = 0;
  for (const auto& [name, room] : rooms_) {
    out += str("apus_model_loaded{model=\"", name, "\"} ", room.forwarder ? 1 : 0, "\n");
    if (room.loaded) bytes += room.model.bytes;
    waiting += std::ssize(room.waiting);
  }
  return out + str("apus_models_bytes ", bytes, "\napus_requests_waiting ", waiting, "\napus_model_starts_total ",
                   starts_, "\napus_model_ends_total ", ends_, "\n");
}

int64_t Household::active() const {
  const std::lock_guard lock(mutex_);
  int64_t all = 0;
  for (const auto& [name, room] : rooms_)
    all += std::ssize(room.waiting) + (room.forwarder ? room.forwarder->active() : 0);
  return all;
}

bool Household::is_free(const Room& room) const {
  return room.forwarder && room.forwarder->active() == 0 && room.waiting.empty();
}

void Household::let_go(Room& room, const char* why) {
  log_info("the model ", room.model.name, " is unloaded: ", why);
  room.forwarder.reset(), room.leaves = false;
  leaving_.push_back(std::move(room.loaded));
  ++ends_;
}

void Household::fail_waiting(Room& room, const ApiError& error) {
  for (const Waiting& one : std::exchange(room.waiting, {})) one.reply->send(error_answer(*one.call, error));
}

// Whether the wanted model may be started now. Those that nobody has asked for the longest time go for it; it may when
// they have ended.
bool Household::make_room(const Room& wanted) {
  for (bool waits = false;; waits = true) {
    int64_t bytes = wanted.model.bytes, count = 1;
    Room* oldest = nullptr;
    for (auto& [name, room] : rooms_) {
      if (!room.loaded) continue;
      bytes += room.model.bytes, ++count;
      if (is_free(room) && (!oldest || room.used < oldest->used)) oldest = &room;
    }
    if (bytes <= spec_.memory && (spec_.most == 0 || count <= spec_.most)) return !waits;
    if (!oldest) return false;  // all of them are answering
    let_go(*oldest, "another one needs its place");
  }
}

void Household::look_at(Room& room) {
  if (!room.loaded) {
    if (room.waiting.empty()) return;
    if (room.model.bytes > spec_.memory)
      return fail_waiting(
          room, ApiError(507, str("The model '", room.model.name, "' needs ", bytes_text(room.model.bytes),
                                  ", and this server may use ", bytes_text(spec_.memory), " (--models_memory_gb).")));
    if (!make_room(room)) return;
    log_info("the model ", room.model.name, " is loaded (about ", bytes_text(room.model.bytes), ")");
    ++starts_;
    room.loaded = spec_.start(room.model);
    room.idle.restart();
    return;
  }
  if (const auto how = room.loaded->ended()) {
    log_error("the server of the model ", room.model.name, " has ended: ", *how);
    room.forwarder.reset(), room.loaded.reset();
    ++ends_;
    return fail_waiting(room, ApiError(500, str("The model '", room.model.name, "' cannot be loaded: ", *how)));
  }
  if (!room.forwarder) {
    if (!room.loaded->ready()) return;
    log_info("the model ", room.model.name, " answers, after ", duration_text(room.idle.seconds()));
    room.forwarder = std::make_shared<Forwarder>(spec_.access, std::vector{room.loaded->url()}, spec_.verbose);
    room.idle.restart();
    for (const Waiting& one : std::exchange(room.waiting, {})) room.forwarder->serve(one.call, one.reply);
    return;
  }
  if (!is_free(room)) return room.idle.restart();
  if (room.leaves) return let_go(room, "its client asked for it (keep_alive 0)");
  if (spec_.idle_seconds > 0 && room.idle.seconds() > spec_.idle_seconds)
    let_go(room, "nobody has asked for it lately");
}

void Household::look() {
  std::vector<std::unique_ptr<HouseServer>> leaving;
  {
    const std::lock_guard lock(mutex_);
    leaving.swap(leaving_);
  }
  leaving.clear();  // takes a while, in which others are answered
  const std::lock_guard lock(mutex_);
  for (auto& [name, room] : rooms_) look_at(room);
}

}  // namespace apus
