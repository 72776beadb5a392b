// SPDX-License-Identifier: Apache-2.0
// Several models behind one address. A request names its model; one that is not loaded is started when it is asked for,
// and those that were asked for least lately go where memory is short. Each runs as a server of its own, so that what
// one of them had comes back whole when it ends.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "serve/forwarder.h"
#include "serve/workers.h"

namespace apus {

struct HouseModel {
  std::string name;
  std::filesystem::path path;  // a checkpoint's or adapter's folder, or a GGUF file
  int64_t bytes = 0;           // of memory while it is loaded
  bool adapter = false;
};

// A server of one model.
class HouseServer {
 public:
  virtual ~HouseServer() = default;  // ends it
  virtual std::string url() const = 0;
  virtual bool ready() = 0;
  virtual std::optional<std::string> ended() = 0;  // how, and what it said last
};

struct HouseholdSpec {
  Access access;
  std::function<std::vector<HouseModel>()> models;  // there now; asked again for a name that is not known
  std::function<std::unique_ptr<HouseServer>(const HouseModel&)> start;
  int64_t memory = 0;       // bytes for all that are loaded
  int64_t most = 0;         // models at once; 0: as many as the memory holds
  double idle_seconds = 0;  // after which one goes by itself; 0: never
  size_t most_waiting = 1000;
  bool verbose = true;
};

class Household : public HttpService {
 public:
  explicit Household(HouseholdSpec spec);
  ~Household() override;

  std::optional<HttpAnswer> admit(const HttpCall& call) override;
  void serve(std::shared_ptr<const HttpCall> call, std::shared_ptr<Responder> reply) override;
  HttpAnswer broken(const HttpCall& call, int status, const std::string& why) override;

  void look();  // to be called every few moments: starts, ends and watches models
  void drain() { draining_ = true; }
  int64_t active() const;  // requests that are not answered

 private:
  struct Waiting {
    std::shared_ptr<const HttpCall> call;
    std::shared_ptr<Responder> reply;
  };
  struct Room {  // of a model
    HouseModel model;
    std::unique_ptr<HouseServer> loaded;   // null: it is not
    std::shared_ptr<Forwarder> forwarder;  // null: not yet, or not any more
    std::vector<Waiting> waiting;
    int64_t used = 0;  // when it was last asked for, by `clock_`
    bool leaves = false;
    Stopwatch idle;
  };
  void take(const Waiting& one);
  std::optional<HttpAnswer> own_answer(const HttpCall& call);
  Room& room_for(const std::string& name);  // ApiError
  void refresh();
  bool is_free(const Room& room) const;
  bool make_room(const Room& wanted);
  void look_at(Room& room);
  void let_go(Room& room, const char* why);
  void fail_waiting(Room& room, const ApiError& error);
  Json list() const;
  Json ollama_list(bool loaded_only) const;
  std::string figures() const;

  const HouseholdSpec spec_;
  std::atomic<bool> draining_{false};
  mutable std::mutex mutex_;
  std::map<std::string, Room> rooms_;
  std::vector<std::unique_ptr<HouseServer>> leaving_;  // until they have ended
  int64_t clock_ = 0, starts_ = 0, ends_ = 0;
  std::shared_ptr<Workers> workers_ = std::make_shared<Workers>(1);
  std::shared_ptr<Serial> reader_ = std::make_shared<Serial>(workers_);
};

// Models, adapters and GGUF files in a folder, and in the folders in it: as NAME, and as OWNER/NAME. `beside`: bytes
// that each needs beside its weights.
std::vector<HouseModel> models_in(const std::filesystem::path& folder, int64_t beside);

}  // namespace apus
