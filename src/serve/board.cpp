// SPDX-License-Identifier: Apache-2.0
#include "serve/board.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/assets.h"
#include "base/error.h"
#include "base/files.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

constexpr int kDeepest = 6;                 // folders below the root
constexpr size_t kMostRuns = 2000;          // of a page
constexpr int64_t kMostOfAnswer = 4 << 20;  // of one answer
constexpr int64_t kMostArguments = 16 << 20;
constexpr const char* kLog = "logging.jsonl";

HttpAnswer json_answer(const Json& value, int status = 200) { return {.status = status, .body = json_text(value)}; }

HttpAnswer no_page(int status, const std::string& why) { return json_answer({{"error", {{"message", why}}}}, status); }

// The value of a query's key, percent-decoded.
std::string query_value(const std::string& query, const std::string& key) {
  for (size_t begin = 0; begin <= query.size();) {
    const size_t end = std::min(query.find('&', begin), query.size());
    const std::string pair = query.substr(begin, end - begin);
    begin = end + 1;
    if (!pair.starts_with(key + "=")) continue;
    std::string out;
    for (size_t i = key.size() + 1; i < pair.size(); ++i) {
      if (pair[i] == '%' && i + 2 < pair.size()) {
        out += static_cast<char>(std::strtol(pair.substr(i + 1, 2).c_str(), nullptr, 16));
        i += 2;
      } else {
        out += pair[i] == '+' ? ' ' : pair[i];
      }
    }
    return out;
  }
  return "";
}

int64_t size_of(const fs::path& file) {
  std::error_code code;
  const auto size = fs::file_size(file, code);
  return code ? 0 : static_cast<int64_t>(size);
}

Json last_line(const fs::path& file) {
  const int64_t size = size_of(file);
  const Json read = board_lines(file, std::max<int64_t>(0, size - 65536));
  const Json& lines = read["lines"];
  for (auto it = lines.rbegin(); it != lines.rend(); ++it)
    if (it->is_object()) return *it;
  return Json::object();
}

}  // namespace

std::vector<BoardRun> board_runs(const fs::path& root) {
  std::vector<std::pair<fs::file_time_type, BoardRun>> found;
  const auto add = [&](const fs::path& folder) {
    std::error_code code;
    const auto time = fs::last_write_time(folder / kLog, code);
    if (code) return;
    const std::string name = fs::relative(folder, root, code).string();
    found.push_back({time, {name == "." || name.empty() ? folder.filename().string() : name, folder}});
  };
  add(root);
  std::error_code code;
  fs::recursive_directory_iterator it(root, fs::directory_options::skip_permission_denied, code), end;
  for (; !code && it != end && found.size() < kMostRuns; it.increment(code)) {
    if (!it->is_directory(code)) continue;
    const std::string name = it->path().filename();
    if (name.starts_with("checkpoint-") || name == "runs" || name == "images" || it.depth() >= kDeepest) {
      it.disable_recursion_pending();
      continue;
    }
    add(it->path());
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<BoardRun> runs;
  for (auto& [time, run] : found) runs.push_back(std::move(run));
  return runs;
}

Json board_summary(const BoardRun& run) {
  Json out = {{"name", run.name}, {"samples", size_of(run.folder / "completions.jsonl") > 0}};
  if (std::error_code code;
      size_of(run.folder / "args.json") < kMostArguments && fs::exists(run.folder / "args.json", code)) {
    const Json args = Json::parse(std::ifstream(run.folder / "args.json"), nullptr, false);
    for (const char* key : {"model", "rlhf_type", "tuner_type", "learning_rate", "dataset"})
      if (args.is_object() && args.contains(key)) out[key] = args[key];
  }
  std::error_code code;
  const auto written = fs::last_write_time(run.folder / kLog, code);
  if (!code) out["age"] = std::chrono::duration<double>(fs::file_time_type::clock::now() - written).count();
  const Json last = last_line(run.folder / kLog);
  out["ended"] = last.contains("model_parameter_info");  // the summary that a run closes its log with
  for (const char* key : {"loss", "global_step/max_steps", "global_step", "remaining_time", "train_speed(s/it)",
                          "memory(GiB)", "memory", "best_metric", "last_model_checkpoint", "best_model_checkpoint"})
    if (last.contains(key)) out[key] = last[key];
  return out;
}

Json board_lines(const fs::path& file, int64_t from) {
  std::ifstream in(file, std::ios::binary);
  const int64_t size = size_of(file);
  from = std::clamp<int64_t>(from, 0, size);
  std::string text(static_cast<size_t>(std::min(size - from, kMostOfAnswer)), '\0');
  in.seekg(from);
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  Json lines = Json::array();
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    Json line = Json::parse(text.substr(begin, end - begin), nullptr, false);
    if (!line.is_discarded()) lines.push_back(std::move(line));
  }
  const bool too_long = begin == 0 && static_cast<int64_t>(text.size()) == kMostOfAnswer;  // a line beyond all measure
  return {{"lines", std::move(lines)}, {"next", from + static_cast<int64_t>(too_long ? text.size() : begin)}};
}

HttpAnswer Board::answer(const HttpCall& call) const {
  if (call.method != "GET") return no_page(405, "this page is only looked at: GET");
  if (call.path == "/") return {.body = std::string(asset("board.html")), .content_type = "text/html; charset=utf-8"};
  if (call.path == "/runs") {
    Json list = Json::array();
    for (const BoardRun& run : board_runs(root_)) list.push_back(board_summary(run));
    return json_answer({{"root", root_.string()}, {"runs", std::move(list)}});
  }
  if (call.path != "/lines" && call.path != "/samples") return no_page(404, "there is no " + call.path);
  const std::string name = query_value(call.query, "run");
  const auto runs = board_runs(root_);  // names nobody listed are no paths
  const auto run = std::find_if(runs.begin(), runs.end(), [&](const BoardRun& r) { return r.name == name; });
  if (run == runs.end()) return no_page(404, "there is no run " + name);
  const int64_t from = std::strtoll(query_value(call.query, "from").c_str(), nullptr, 10);
  if (call.path == "/lines") return json_answer(board_lines(run->folder / kLog, from));
  const fs::path samples = run->folder / "completions.jsonl";
  return json_answer(board_lines(samples, std::max<int64_t>(from, size_of(samples) - kMostOfAnswer / 8)));
}

void Board::serve(std::shared_ptr<const HttpCall> call, std::shared_ptr<Responder> reply) {
  try {
    reply->send(answer(*call));
  } catch (const std::exception& e) {
    reply->send(no_page(500, e.what()));
  }
}

HttpAnswer Board::broken(const HttpCall&, int status, const std::string& why) { return no_page(status, why); }

}  // namespace apus
