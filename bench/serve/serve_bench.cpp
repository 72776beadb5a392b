// SPDX-License-Identifier: Apache-2.0
// How fast a server answers streaming clients, beside its peers in the same run. See bench/README.md.
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/ports.h"
#include "loads.h"
#include "server_process.h"

namespace {
using namespace apus;
using namespace apus::bench;

constexpr const char* kUsage =
    R"(serve_bench [--url URL | --apus BINARY --model DIR] [--peer NAME=URL]... [--llama_server BINARY --gguf FILE]
  --clients 1,8,32  --prompts 128,512  --news 64,128  --requests N   the shapes; requests of each client (2)
  --threads N        of servers started here (OMP_NUM_THREADS, -t)
  --vocab N          prompts are token ids below N (2000)
  --soak MINUTES     random requests, a third of whose clients leave early; 16 clients
  --idle N --active N  many connections instead: 1000 and 200
  --prefix N         prompts that share their first N tokens instead: the first token's time, found and not found
  --pid PID          of the server at --url, so that its memory can be shown
)";

struct Options {
  std::string url, apus, model, llama, gguf;
  std::vector<std::pair<std::string, std::string>> peers;
  std::vector<int> clients = {1, 8, 32}, prompts = {128, 512}, news = {64, 128};
  int requests = 2, threads = 0, vocab = 2000, idle = 0, active = 200, prefix = 0;
  pid_t pid = -1;
  double soak = 0;
};

std::vector<int> numbers(const std::string& text) {
  std::vector<int> out;
  for (size_t at = 0; at < text.size(); at = std::min(text.find(',', at), text.size()) + 1)
    out.push_back(std::atoi(text.c_str() + at));
  return out;
}

Options read_options(int count, char** words) {
  Options o;
  for (int i = 1; i < count; i += 2) {
    const std::string flag = words[i];
    require(i + 1 < count && flag != "--help", Fault::Usage, kUsage);
    const std::string value = words[i + 1];
    if (flag == "--url")
      o.url = value;
    else if (flag == "--apus")
      o.apus = value;
    else if (flag == "--model")
      o.model = value;
    else if (flag == "--llama_server")
      o.llama = value;
    else if (flag == "--gguf")
      o.gguf = value;
    else if (flag == "--peer")
      o.peers.push_back({value.substr(0, value.find('=')), value.substr(value.find('=') + 1)});
    else if (flag == "--clients")
      o.clients = numbers(value);
    else if (flag == "--prompts")
      o.prompts = numbers(value);
    else if (flag == "--news")
      o.news = numbers(value);
    else if (flag == "--requests")
      o.requests = std::atoi(value.c_str());
    else if (flag == "--threads")
      o.threads = std::atoi(value.c_str());
    else if (flag == "--vocab")
      o.vocab = std::max(200, std::atoi(value.c_str()));
    else if (flag == "--idle")
      o.idle = std::atoi(value.c_str());
    else if (flag == "--prefix")
      o.prefix = std::atoi(value.c_str());
    else if (flag == "--active")
      o.active = std::atoi(value.c_str());
    else if (flag == "--pid")
      o.pid = std::atoi(value.c_str());
    else if (flag == "--soak")
      o.soak = std::atof(value.c_str());
    else
      fail(Fault::Usage, flag, " is not known\n", kUsage);
  }
  require(!o.url.empty() || (!o.apus.empty() && !o.model.empty()), Fault::Usage, kUsage);
  return o;
}

int some_port() {
  const auto port = free_port();
  require(port.has_value(), Fault::Io, "there is no free port");
  return *port;
}

std::unique_ptr<ServerProcess> start_apus(const Options& o) {
  const std::string port = std::to_string(some_port());
  std::vector<std::string> command = {o.apus,   "deploy", "--model",        o.model, "--host",    "127.0.0.1",
                                      "--port", port,     "--log_interval", "-1",    "--verbose", "false"};
  // A cache that is soon used everywhere: memory counts from the first touch on,
  // and a soak asks whether it grows for ever.
  if (o.soak > 0) command.insert(command.end(), {"--kv_cache_gb", "0.1", "--max_model_len", "1024"});
  return std::make_unique<ServerProcess>(command, "http://127.0.0.1:" + port, "serve_bench_apus.log");
}

std::unique_ptr<ServerProcess> start_llama(const Options& o) {
  const std::string port = std::to_string(some_port());
  int seats = 1, longest = 0;
  for (const int c : o.clients) seats = std::max(seats, c);
  for (const int p : o.prompts)
    for (const int n : o.news) longest = std::max(longest, p + n + 16);
  std::vector<std::string> command = {o.llama,
                                      "-m",
                                      o.gguf,
                                      "--host",
                                      "127.0.0.1",
                                      "--port",
                                      port,
                                      "-np",
                                      std::to_string(seats),
                                      "-c",
                                      std::to_string(seats * longest),
                                      "--no-webui"};
  if (o.threads > 0) command.insert(command.end(), {"-t", std::to_string(o.threads), "-tb", std::to_string(o.threads)});
  return std::make_unique<ServerProcess>(command, "http://127.0.0.1:" + port, "serve_bench_llama.log");
}

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", share * 100);
  return text;
}

int compare(const Options& o, const std::vector<Target>& targets) {
  std::vector<std::string> models;
  for (const auto& t : targets) {
    models.push_back(model_of(t));
    timed_load(t, models.back(), {1, 16, 8, 1}, o.vocab, 1);  // warm
  }
  std::printf(
      "| clients | prompt + new | server | tokens/s | first token p50 / p99 s | between p50 / p99 ms | HTTP, JSON, "
      "text "
      "| failed |\n|---|---|---|---|---|---|---|---|\n");
  int failed = 0;
  uint64_t seed = 1;
  for (const int prompt : o.prompts)
    for (const int news : o.news)
      for (const int clients : o.clients) {
        ++seed;
        for (size_t i = 0; i < targets.size(); ++i) {
          const Figures f = timed_load(targets[i], models[i], {clients, prompt, news, o.requests}, o.vocab, seed);
          const std::string share = f.serving_share < 0 ? "" : percent(f.serving_share);
          std::printf("| %d | %d + %d | %s | %.1f | %.2f / %.2f | %.1f / %.1f | %s | %d of %d%s%s |\n", clients, prompt,
                      news, targets[i].name.c_str(), f.tokens_per_second, f.first_p50, f.first_p99, f.gap_p50 * 1000,
                      f.gap_p99 * 1000, share.c_str(), f.failed, f.requests, f.error.empty() ? "" : ": ",
                      f.error.c_str());
          std::fflush(stdout);
          failed += f.failed;
        }
      }
  return failed == 0 ? 0 : 1;
}

int run(const Options& o) {
  rlimit files{};
  // A connection is an open file, here and in servers started here.
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  if (o.threads > 0) ::setenv("OMP_NUM_THREADS", std::to_string(o.threads).c_str(), 1);
  std::vector<std::unique_ptr<ServerProcess>> started;
  std::vector<Target> targets;
  if (o.url.empty()) {
    started.push_back(start_apus(o));
    targets.push_back({"apus", started.back()->url(), started.back()->pid()});
  } else {
    targets.push_back({"apus", o.url, o.pid});
  }
  if (o.soak > 0) return soak(targets[0], model_of(targets[0]), o.soak, 16, o.vocab) ? 0 : 1;
  if (o.prefix > 0) return shared_prefix(targets[0], model_of(targets[0]), o.prefix, o.vocab) ? 0 : 1;
  if (o.idle > 0) return many_connections(targets[0], model_of(targets[0]), o.idle, o.active, o.vocab) ? 0 : 1;
  for (const auto& [name, url] : o.peers) targets.push_back({name, url});
  if (!o.llama.empty()) {
    started.push_back(start_llama(o));
    targets.push_back({"llama-server", started.back()->url(), started.back()->pid()});
  }
  return compare(o, targets);
}

}  // namespace

int main(int count, char** words) {
  try {
    return run(read_options(count, words));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
}
