// SPDX-License-Identifier: Apache-2.0
#include "cli/deploy_copies.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/ports.h"
#include "base/signals.h"
#include "cli/deploy_child.h"
#include "dist/launch/environment.h"
#include "dist/launch/launcher.h"
#include "serve/child_server.h"
#include "serve/forwarder.h"
#include "serve/http_server.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

using namespace std::chrono_literals;
constexpr double kSteady = 60;          // a copy that lived shorter is started again later each time
constexpr double kLongestRestart = 60;  // seconds before that

class Copy {
 public:
  Copy(const DeployOptions& o, int number, fs::path log) : o_(o), number_(number), log_(std::move(log)) { start(); }

  enum class State { Starting, Serving, Down };
  State state() const { return state_; }
  const std::string& url() const { return url_; }
  std::optional<std::string> ended() { return child_ ? child_->ended() : std::nullopt; }
  std::string report(const std::string& how) const {
    return str("copy ", number_, " of the model has ended (", how, ")", last_words(log_));
  }
  // Looks at it; true: its state has changed.
  bool look();
  void ask_to_end() { child_ ? child_->ask_to_end() : void(); }
  bool gone() { return !child_ || child_->ended().has_value(); }

 private:
  void start();
  const DeployOptions& o_;
  const int number_;
  const fs::path log_;
  std::unique_ptr<ChildServer> child_;
  std::string url_;
  State state_ = State::Starting;
  Stopwatch since_;  // its start, or its end
  double pause_ = 1;
};

void Copy::start() {
  const auto port = free_port();
  require(port.has_value(), Fault::Io, "no free port at 127.0.0.1");
  url_ = str("http://127.0.0.1:", *port);
  const std::vector<int> cores = share_of_cores(allowed_cores(), number_, static_cast<int>(o_.copies()));
  ChildServer::Spec spec{.words = copy_command(our_command_line(), o_, number_, *port),
                         .program = "/proc/self/exe",
                         .output = log_,
                         .cores = cores};
  for (const char* name : {"NPROC_PER_NODE", "NNODES", "NODE_RANK"})
    spec.environment[name] = spec.environment[str("PET_", name)] = std::nullopt;
  spec.environment[kFirstDeviceVariable] = str(number_ * o_.mesh.ranks_of_copy());
  spec.environment[kCopyVariable] = str(number_);
  if (!std::getenv("OMP_NUM_THREADS"))
    spec.environment["OMP_NUM_THREADS"] =
        str(std::max<int64_t>(1, static_cast<int64_t>(cores.size()) / o_.mesh.ranks_of_copy()));
  child_ = std::make_unique<ChildServer>(spec);
  state_ = State::Starting, since_.restart();
}

bool Copy::look() {
  if (const auto how = ended()) {
    if (state_ == State::Down) return false;
    log_error(report(*how));
    pause_ = since_.seconds() < kSteady ? std::min(2 * pause_, kLongestRestart) : 1;
    state_ = State::Down, child_.reset(), since_.restart();
    return true;
  }
  if (state_ == State::Down) {
    if (since_.seconds() < pause_) return false;
    log_info("copy ", number_, " is started again; its output goes on in ", log_.string());
    start();
    return false;
  }
  if (state_ == State::Serving || !answers_health(url_)) return false;
  log_info("copy ", number_, " answers, after ", duration_text(since_.seconds()));
  state_ = State::Serving;
  return true;
}

// What the exit code of a copy says.
Fault fault_of(const std::string& how) {
  for (const Fault fault : {Fault::Usage, Fault::Data, Fault::Model, Fault::Comm, Fault::Io})
    if (how == str("exit code ", exit_code(fault))) return fault;
  return Fault::Device;
}

// Before anybody is let in, all are there: what is wrong with one of them is mostly wrong with all.
void wait_for_all(std::vector<std::unique_ptr<Copy>>& copies, const StopFlag& stop) {
  const Stopwatch watch;
  while (std::any_of(copies.begin(), copies.end(), [](auto& c) { return c->state() != Copy::State::Serving; })) {
    stop.throw_if_raised();
    for (auto& copy : copies)
      if (const auto how = copy->ended()) fail(fault_of(*how), copy->report(*how));
    for (auto& copy : copies) copy->look();
    require(watch.seconds() < kServerStartSeconds, Fault::Device, "the copies are not ready after ",
            duration_text(watch.seconds()));
    std::this_thread::sleep_for(100ms);
  }
}

// Answers under way may end; then the copies do.
void drain(const DeployOptions& o, Forwarder& front, HttpServer& door, std::vector<std::unique_ptr<Copy>>& copies) {
  front.drain();
  door.stop_accepting();
  if (front.active() > 0)
    log_info("stopping: ", front.active(), " requests are under way and have ", o.drain_seconds,
             " seconds; a second signal ends at once");
  const Stopwatch watch;
  while (front.active() > 0 && watch.seconds() < static_cast<double>(o.drain_seconds))
    std::this_thread::sleep_for(50ms);
  if (front.active() > 0) log_warning(front.active(), " requests are cut off");
  door.stop();
  for (auto& copy : copies) copy->ask_to_end();
  while (!std::all_of(copies.begin(), copies.end(), [](auto& c) { return c->gone(); }) &&
         watch.seconds() < static_cast<double>(o.drain_seconds) + 5)
    std::this_thread::sleep_for(50ms);
  log_info("stopped");
}

}  // namespace

std::vector<std::string> copy_command(std::vector<std::string> words, const DeployOptions& o, int copy, int port) {
  const auto add = [&](const char* flag, const std::string& value) { words.insert(words.end(), {flag, value}); };
  add("--data_parallel_size", "1");
  add("--host", "127.0.0.1");
  add("--port", std::to_string(port));
  if (!o.ssl_keyfile.empty()) add("--ssl_keyfile", ""), add("--ssl_certfile", "");
  if (!o.request_log.empty()) add("--request_log", str(o.request_log, ".", copy));
  if (!o.result_path.empty()) add("--result_path", str(o.result_path, ".", copy));
  return words;
}

int deploy_copies(const DeployOptions& o) {
  require(
      read_rank(process_environment()).world == 1, Fault::Usage,
      "--data_parallel_size starts its processes itself: run this command once, not by torchrun, srun or mpirun; on "
      "several machines start a server on each");
  const StopFlag stop;
  const fs::path logs = fs::path("logs") / local_time("%Y%m%d-%H%M%S");
  make_writable_dir(logs);
  log_info(o.copies(), " copies of the model are started; their output is in ", logs.string());
  std::vector<std::unique_ptr<Copy>> copies;
  for (int i = 0; i < static_cast<int>(o.copies()); ++i)
    copies.push_back(std::make_unique<Copy>(o, i, logs / str("copy", i, ".log")));
  wait_for_all(copies, stop);
  std::vector<std::string> urls;
  for (const auto& copy : copies) urls.push_back(copy->url());
  const auto front =
      std::make_shared<Forwarder>(Access{o.api_key.value_or(""), o.allowed_origins}, std::move(urls), o.verbose);
  HttpServer door(http_server_spec(o), front);
  log_info(copies.size(), " copies of the model answer");
  say_where_served(o, models_at(copies.front()->url(), o.api_key.value_or("")), door.port());
  while (!stop.raised()) {
    for (size_t i = 0; i < copies.size(); ++i)
      if (copies[i]->look()) front->place_copy(i, copies[i]->state() == Copy::State::Serving ? copies[i]->url() : "");
    std::this_thread::sleep_for(100ms);
  }
  drain(o, *front, door, copies);
  return 0;
}

}  // namespace apus
