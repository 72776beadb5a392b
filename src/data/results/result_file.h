// SPDX-License-Identifier: Apache-2.0
// The answers to the rows of a dataset, one JSON object a line, in the rows' order although they are finished in any
// order. A run that ends early loses nothing: what is finished stands in the file, or, while an earlier row is
// unfinished, in a journal beside it (<path>.unfinished). The same run started again finds both and goes on. Of several
// processes that answer rows of one file each writes a journal of its own (<path>.unfinished-N); who opens the file
// behind them, with all rows, puts all together.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/lines.h"

namespace apus {

// What a record's row was before it was answered: the record without response, labels, logprobs and last message.
std::string row_key(const Json& record);

// Path "-": standard output, where nothing of an earlier run can be found.
class ResultFile {
 public:
  struct Spec {
    std::string path;
    bool resume = true;
    // How many finished rows may wait before they are written; below 1: all of them, until the end.
    int64_t write_every = 1000;
    double seconds = 2;  // how long they may wait
    // Of several processes this one: it writes its journal alone.
    std::optional<int> process = {};
    // What answers depend on besides their rows: model, template, sampling. It stands in <path>.made_by.json, and what
    // was made otherwise is not gone on with. Null: nobody asks.
    Json made_by = {};
  };
  explicit ResultFile(Spec spec);

  // To be called first for every row, in order, with the key that its record will have.
  // Gives the answer of an earlier run, if there is one.
  std::optional<std::string> finished_before(int64_t row, const std::string& key);
  bool anything_before() const { return before_ || !journaled_.empty(); }
  // To be called before the first new record. Fault::Usage when the file holds records of other rows.
  void begin();

  void add(int64_t row, const Json& record);
  void leave_out(int64_t row);  // there will be no record of it
  void close();                 // after the last row: everything is written, the journals go
  void forget();                // what an earlier run has left, its journals too

 private:
  void require_same_maker() const;
  std::string maker_path() const { return spec_.path + ".made_by.json"; }
  void take_over();
  void advance_before();
  void write_ready(bool all);
  void take_journal(const std::string& path);
  std::string journal_path() const;
  std::vector<std::string> all_journals() const;

  Spec spec_;
  std::unique_ptr<LineReader> before_;  // the earlier run's file, while rows are compared with it
  struct Record {
    std::string key, response, text;
  };
  static Record read_record(const Json& record);
  std::optional<Record> next_before_;    // its next record; nothing: no more
  std::map<int64_t, Record> journaled_;  // of the earlier run, by row
  std::unique_ptr<LineWriter> file_, journal_;
  std::map<int64_t, std::optional<std::string>> ready_;  // finished, not yet written; nothing: left out
  int64_t next_ = 0;                                     // rows before it are in the file, or come late
  double written_at_ = 0;
};

}  // namespace apus
