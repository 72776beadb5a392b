// SPDX-License-Identifier: Apache-2.0
// `apus board`: a page of the running and past training runs of a folder.
#include "serve/board.h"

#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/nearby.h"
#include "base/signals.h"
#include "cli/command.h"
#include "serve/http_server.h"

namespace apus {
namespace {

struct BoardOptions {
  std::string logging_dir = "output", host = "127.0.0.1";
  int64_t port = 6006;
  void fields(OptionTable& v) {
    v.group("Board");
    v("logging_dir", logging_dir, "folder whose runs are shown, or that of one run").alias("logdir");
    v("host", host, "address to listen at; 0.0.0.0 lets other machines look too");
    v("port", port, "port; when it is taken, the next free one is used and said").at_least(0).at_most(65535);
  }
  void check() const {
    std::error_code code;
    require(std::filesystem::is_directory(logging_dir, code), Fault::Usage, "--logging_dir ", logging_dir,
            " is not a folder here", nearby(logging_dir));
  }
};

int run(const BoardOptions& o) {
  const StopFlag stop;
  const auto root = std::filesystem::absolute(o.logging_dir).lexically_normal();
  HttpServer server({.host = o.host, .port = static_cast<int>(o.port)}, std::make_shared<Board>(root));
  log_info(board_runs(root).size(), " runs under ", root.string(), ", shown at http://",
           o.host == "0.0.0.0" || o.host == "::" ? "127.0.0.1" : o.host, ":", server.port(), "/");
  while (!stop.raised()) std::this_thread::sleep_for(std::chrono::milliseconds(200));
  server.stop();
  return 0;
}

const RegisterCommand<BoardOptions> board_command({.name = "board",
                                                   .group = "Machine",
                                                   .summary = "a page of training runs: curves, answers, memory",
                                                   .examples = {"board --logging_dir output",
                                                                "board --logging_dir output --port 7000"}},
                                                  run);

}  // namespace
}  // namespace apus
