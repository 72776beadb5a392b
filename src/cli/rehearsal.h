// SPDX-License-Identifier: Apache-2.0
// --dry_run true: everything a command can check without loading weights, a line for each thing that is right, and the
// plan of its memory. What is wrong is thrown as the run itself would throw it. A command adds itself with one member,
// `void rehearse(Rehearsal& r) const`, made of the calls below.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/placement_rehearsal.h"
#include "data/rows/infer_row.h"
#include "plan/plan.h"

namespace apus {

class Rehearsal {
 public:
  explicit Rehearsal(std::string command) : command_(std::move(command)) {}

  void right(const std::string& what, const std::string& found);  // one line
  void doubt(const std::string& what);  // nothing that stops a run, and hardly what was meant: said at the end again
  // config.json, and the headers of the weights' files against it. Gives the config back.
  Json model(const std::string& dir);
  void adapters(const std::vector<std::string>& dirs);
  void tokenizer(const std::string& dir);
  void chat_template(const std::string& given, const std::string& dir);  // given: a template's text, or empty
  void json_rows(const std::vector<std::string>& files,
                 const std::string& encoding);                        // opens them and reads the first rows of each
  void questions(const std::vector<QuestionSet>& sets);               // the same, of any format and shape of row
  void output(const std::filesystem::path& path, int64_t bytes = 0);  // can be written, and has room for so much
  void plan(const PlanSpec& spec);
  void placement(PlacementRehearsal asked);  // in place of the plan, which is of one device
  int finish();                              // the exit code: 0, or 5 when the plan does not fit

 private:
  std::string command_;
  bool fits_ = true;
  std::vector<std::string> doubts_;
};

}  // namespace apus
