// SPDX-License-Identifier: Apache-2.0
#include "cli/rehearsal.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/lines.h"
#include "base/nearest.h"
#include "checkpoint/adapter_config.h"
#include "checkpoint/names.h"
#include "cli/heavy.h"
#include "gguf/model.h"
#include "models/spec/family.h"
#include "tensor/safetensors_header.h"
#include "tensor/weight_files.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

constexpr int64_t kRowsRead = 100;  // of each file

std::string shape_text(const std::vector<int64_t>& shape) {
  std::vector<std::string> parts;
  for (const int64_t d : shape) parts.push_back(std::to_string(d));
  return "[" + join(parts) + "]";
}

// A single number may have no dimensions in the file; a matrix of some families stands turned over there.
bool fits_in_a_form(const ParamFacts& p, const std::vector<int64_t>& found, const std::vector<DiskForm>& forms) {
  if (found.empty()) return p.numel() == 1;
  return p.shape.size() == 2 && found == std::vector<int64_t>{p.shape[1], p.shape[0]} &&
         std::any_of(forms.begin(), forms.end(), [&](const DiskForm& form) { return form.is_transposed(p.name); });
}

// What of the model's plain tensors is missing or of another shape; stacked experts lie in pieces and are counted only.
void compare(const ModelFacts& model, const std::vector<DiskForm>& forms,
             const std::map<std::string, std::vector<int64_t>>& on_disk, const std::string& dir) {
  std::vector<std::string> wrong;
  for (const ParamFacts& p : model.params) {
    if (p.stacked) continue;
    auto found = on_disk.find(p.name);
    for (const DiskForm& form : forms)
      if (found == on_disk.end()) found = on_disk.find(form.disk_name(p.name));
    if (found == on_disk.end()) found = on_disk.find(bare_name(p.name, p.name.substr(0, p.name.find('.'))));
    if (found == on_disk.end())
      wrong.push_back(p.name + " is missing");
    else if (found->second != p.shape && !fits_in_a_form(p, found->second, forms))
      wrong.push_back(str(p.name, " is ", shape_text(found->second), ", config.json says ", shape_text(p.shape)));
  }
  const size_t count = wrong.size();
  if (count > 8) wrong.resize(8), wrong.push_back("...");
  require(count == 0, Fault::Model, dir, ": the weights do not fit config.json, ", count,
          " tensors: ", join(wrong, "; "));
}

fs::path existing_parent(fs::path path) {
  std::error_code code;
  path = fs::absolute(path);
  while (!fs::exists(path, code) && path.has_relative_path()) path = path.parent_path();
  return path;
}

}  // namespace

void Rehearsal::right(const std::string& what, const std::string& found) {
  std::printf("ok  %-14s %s\n", what.c_str(), found.c_str());
}

void Rehearsal::doubt(const std::string& what) {
  std::printf("??  %s\n", what.c_str());
  doubts_.push_back(what);
}

Json Rehearsal::model(const std::string& dir) {
  const fs::path path = fs::path(dir) / "config.json";
  require(fs::exists(path), Fault::Model, dir, " holds no config.json: it is no HuggingFace checkpoint");
  Json config = parse_json(read_file(path, 16 << 20), path.string(), Fault::Model);
  const ModelFacts facts = model_facts(config);
  std::map<std::string, std::vector<int64_t>> on_disk;
  int64_t bytes = 0;
  size_t files = 0;
  if (const auto gguf = GgufModel::in_folder(dir)) {
    for (const auto& [name, slice] : gguf->tensors()) on_disk[name] = slice.shape;
    bytes = gguf->bytes(), files = gguf->files();
  } else {
    for (const WeightFile& file : weight_files(dir, "model")) {
      const MappedFile mapped(file.path);
      const auto header = parse_weights_header(mapped.data(), mapped.size(), file.path.string());
      for (const auto& [name, entry] : header.tensors) on_disk[name] = entry.shape;
      bytes += mapped.size(), ++files;
    }
  }
  compare(facts, disk_forms_of(config), on_disk, dir);
  right("model", str(dir, ": ", facts.type, ", ", facts.parameters() / 1000000, " M parameters, ", bytes_text(bytes),
                     " in ", files, files == 1 ? " file" : " files"));
  return config;
}

void Rehearsal::adapters(const std::vector<std::string>& dirs) {
  for (const std::string& dir : dirs) {
    const LoraConfig config = read_adapter_config(dir);
    for (const WeightFile& file : weight_files(dir, "adapter_model")) {
      const MappedFile mapped(file.path);
      parse_weights_header(mapped.data(), mapped.size(), file.path.string());
    }
    right("adapter", str(dir, ": rank ", config.r, " on ", join(config.target_modules)));
  }
}

void Rehearsal::tokenizer(const std::string& dir) {
  const auto tokenizer = Tokenizer::load(dir);
  right("tokenizer", str(tokenizer->vocab_size(), " tokens"));
}

void Rehearsal::chat_template(const std::string& given, const std::string& dir) {
  if (!given.empty())
    ChatTemplate::from_text(given, "--chat_template", dir);
  else
    ChatTemplate::load(dir);
  right("chat template", given.empty() ? "of the checkpoint" : "--chat_template");
}

void Rehearsal::json_rows(const std::vector<std::string>& files, const std::string& encoding) {
  for (const std::string& file : files) {
    if (file == "-") {
      right("rows", "standard input: read when the run begins");
      continue;
    }
    int64_t rows = 0;
    if (!encoding.empty() || !is_plain_json_lines(file)) {
      const auto reader = open_reader(file, encoding);
      for (Row row; rows < kRowsRead && reader->next(row);) ++rows;
      require(rows > 0, Fault::Data, file, " holds no row");
      right("rows", str(file, ": ", rows == kRowsRead ? str("the first ", rows) : str(rows), " read"));
      continue;
    }
    LineReader reader(file);
    for (std::string line; rows < kRowsRead && reader.next(line);) {
      if (line.find_first_not_of(" \t") == std::string::npos) continue;
      const std::string where = str(file, ", line ", reader.number());
      require(parse_json(line, where).is_object(), Fault::Data, where, ": a row is a JSON object");
      ++rows;
    }
    require(rows > 0, Fault::Data, file, " holds no row");
    right("rows", str(file, ": ", rows == kRowsRead ? str("the first ", rows) : str(rows), " read"));
  }
}

void Rehearsal::questions(const std::vector<QuestionSet>& sets) {
  for (const QuestionSet& set : sets) {
    const std::string name =
        str(set.files.front(), set.files.size() > 1 ? str(" and ", set.files.size() - 1, " more") : "");
    if (set.files.front() == "-") {
      right("rows", "standard input: read when the run begins");
      continue;
    }
    Questions rows({set}, kRowsRead);
    int64_t good = 0, bad = 0;
    std::string first_bad;
    for (bool more = true; more;) {
      try {
        more = rows.next().has_value();
        good += more;
      } catch (const RowError& e) {
        if (bad++ == 0) first_bad = e.what();
      }
    }
    require(good + bad > 0, Fault::Data, name, " holds no row");
    require(good > 0, Fault::Data, name, ": none of the first ", bad, " rows can be used; the first: ", first_bad);
    right("rows", str(name, ": ", good + bad == kRowsRead ? str("the first ", good + bad) : str(good + bad), " read",
                      bad ? str(", ", bad, " of them cannot be used; the first: ", first_bad) : ""));
  }
}

void Rehearsal::output(const fs::path& path, int64_t bytes) {
  const fs::path parent = existing_parent(path);
  require(fs::is_directory(parent) || fs::equivalent(parent, fs::absolute(path)), Fault::Io, path.string(), ": ",
          parent.string(), " is no folder");
  require(::access(parent.c_str(), W_OK) == 0, Fault::Io, parent.string(), " cannot be written");
  std::error_code code;
  const auto space = fs::space(parent, code);
  require(code || static_cast<int64_t>(space.available) > bytes, Fault::Io, parent.string(), " has ",
          bytes_text(static_cast<int64_t>(space.available)), " free, ", bytes_text(bytes), " will be written");
  right("output", str(path.string(), bytes > 0 ? ": about " + bytes_text(bytes) : "",
                      code ? "" : str(", ", bytes_text(static_cast<int64_t>(space.available)), " free")));
}

void Rehearsal::plan(const PlanSpec& spec) {
  const Plan plan = make_plan(spec);
  std::printf("\n%s", plan_text(plan).c_str());
  fits_ = plan.fits;
}

void Rehearsal::placement(PlacementRehearsal asked) {
  std::string table;
  asked.table = &table;
  run_heavy("placement rehearsal", &asked);
  right("placement", table);
}

int Rehearsal::finish() {
  const std::string sure = str("The options of ", command_, " are right; nothing was loaded or written.");
  const std::string unsure =
      str("The options of ", command_, " can be followed, but look at this first: ", join(doubts_, "; "));
  const std::string end = !fits_ ? "The options are right, but the run does not fit." : doubts_.empty() ? sure : unsure;
  std::printf("\n%s\n", end.c_str());
  return fits_ ? 0 : exit_code(Fault::Device);
}

}  // namespace apus
