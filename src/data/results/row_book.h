// SPDX-License-Identifier: Apache-2.0
// The rows of a run that answers them: which are left, what became of each, the file of the answers,
// the figures at the end.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/results/result_file.h"
#include "data/results/text_metrics.h"
#include "data/rows/infer_row.h"
#include "data/rows/rejects.h"

namespace apus {

class RowBook {
 public:
  // An answer, and the row that asked for it.
  struct Judged {
    Json row;
    std::string answer;
  };
  // What each is worth; nan: no opinion.
  using Judge = std::function<std::vector<double>(const std::vector<Judged>&)>;
  struct Spec {
    std::vector<QuestionSet> rows;
    std::optional<int64_t> sample;  // only the first n rows
    bool strict = false;            // the first bad row ends the run
    bool resume = true;
    int64_t write_every = 1000;
    std::string path;                   // of the answers; "-" is standard output
    std::optional<std::string> metric;  // "acc" or "rouge": answers are compared with the rows' own
    Judge judge;                        // of any other metric
    std::function<void(const Json& row, const Json& record)> on_answer;  // told of each as it comes
    // Which of how many processes this is that answer rows of the same file: every so manieth is its own.
    int process = 0, processes = 1;
    Json made_by = {};  // as of ResultFile
  };
  // What a process has done.
  struct Figures {
    int64_t answered = 0, failed = 0, prompt_tokens = 0, new_tokens = 0;
  };
  explicit RowBook(Spec spec);

  // Reads the rows once: how many there are, and which an earlier run has answered.
  void begin();
  // The next one without an answer; bad rows are counted and passed over.
  std::optional<Question> next();
  int64_t row() const { return questions_.index(); }  // the number of what next() gave

  struct Reply {
    Json response;  // a text, or what else the model gives
    Json logprobs;
    Json more = Json::object();  // further columns of the record; row_key must know them
    int64_t prompt_tokens = 0, new_tokens = 0;
  };
  void answer(int64_t row, const Question& question, Reply reply);
  void refuse(int64_t row, const Origin& origin, const std::string& why);  // it cannot be asked
  void fail(int64_t row, const std::string& why);                          // it was asked and not answered

  int64_t total() const { return total_; }
  int64_t earlier() const { return earlier_; }
  int64_t done() const { return earlier_ + handled_; }
  void stopped() const;  // says how to go on
  // One of several processes has answered its rows. When all have, the first of them joins what they left into the
  // file, where nobody has begun yet, and says the figures of all.
  Figures hand_over();
  void join(const Figures& of_all, double seconds);
  // Closes the file, prints the figures; an error when rows failed.
  void finish(double seconds);

 private:
  void compare(const Question& question, const std::string& response);
  void judge();
  void report(double seconds);
  void take_earlier();
  bool own(int64_t row) const { return row % spec_.processes == spec_.process; }

  const Spec spec_;
  Questions questions_;
  RejectLog rejects_;
  ResultFile results_;
  std::vector<bool> finished_;  // by an earlier run
  int64_t total_ = 0, earlier_ = 0, handled_ = 0, answered_ = 0, failed_ = 0, prompt_tokens_ = 0, new_tokens_ = 0,
          equal_ = 0, labelled_ = 0;
  TextMetrics metrics_;
  std::vector<Judged> waiting_;  // for the judge
  double worth_ = 0;             // of `judged_` answers together
  int64_t judged_ = 0;
};

}  // namespace apus
