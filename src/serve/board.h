// SPDX-License-Identifier: Apache-2.0
// A page of training runs: which there are under a folder, and the lines that each has written so far. It reads files
// and changes none.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "serve/http.h"

namespace apus {

struct BoardRun {
  std::string name;  // its folder, from the root
  std::filesystem::path folder;
};
// Folders that hold a logging.jsonl, newest first.
std::vector<BoardRun> board_runs(const std::filesystem::path& root);
// What the list shows of a run: the model, the algorithm, its last line, whether it has ended.
Json board_summary(const BoardRun& run);
// Whole lines of a file from this byte on, as {"lines": [...], "next": byte}; half a line at its end stays.
Json board_lines(const std::filesystem::path& file, int64_t from);

class Board : public HttpService {
 public:
  explicit Board(std::filesystem::path root) : root_(std::move(root)) {}
  std::optional<HttpAnswer> admit(const HttpCall&) override { return {}; }
  void serve(std::shared_ptr<const HttpCall> call, std::shared_ptr<Responder> reply) override;
  HttpAnswer broken(const HttpCall& call, int status, const std::string& why) override;

 private:
  HttpAnswer answer(const HttpCall& call) const;
  const std::filesystem::path root_;
};

}  // namespace apus
