// SPDX-License-Identifier: Apache-2.0
// A row of a dataset as a question: the messages up to the answer, the answer it brings as a label, and the record that
// the result will be written as.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/read/reader.h"
#include "data/rows/normalize.h"
#include "data/rows/row.h"

namespace apus {

struct Question {
  Origin origin;
  Json row;                          // canonical, messages without the answer
  std::optional<std::string> label;  // the answer the row brought

  // {"response", "labels", "logprobs", messages with the answer, the row's other columns}; an answer that is no text
  // stands there as it is, and as its JSON among the messages. `more`: further columns.
  Json record(const Json& response, Json logprobs, const Json& more = Json::object()) const;
  std::string key() const;  // row_key() of any of its records
};

// Rows that have messages in roles a template knows are taken as they are, unless columns are to be renamed or names
// put in; others are made canonical. RowError.
// whole: the model says something of the conversation instead of going on with it, so an answer in it is not taken out;
// what should be said is the column `label`.
Question make_question(const Row& row, const NormalizeOptions& options = {}, bool whole = false);

// One dataset of questions; the file "-" is standard input, JSON lines.
struct QuestionSet {
  std::vector<std::string> files;
  // Only so many rows; where there are fewer, they are taken again from the first on.
  std::optional<int64_t> count;
  NormalizeOptions normalize;
  std::string encoding;  // of text files; empty: UTF-8
  bool whole = false;    // see make_question
};

// Rows of several datasets one after the other. A bad row is a RowError; the next call gives the row after it.
class Questions {
 public:
  Questions(std::vector<QuestionSet> sets, std::optional<int64_t> limit);
  ~Questions();
  Questions(const Questions&) = delete;
  Questions& operator=(const Questions&) = delete;

  std::optional<Question> next();
  // The number of the row that next() gave last or failed at; bad rows count too.
  int64_t index() const { return index_; }
  void rewind();    // from the first row on
  int64_t count();  // all rows, by reading them; then from the first row on

 private:
  bool read(Row& row);
  bool open_next();  // the next file, or the next set's
  std::vector<QuestionSet> sets_;
  int64_t limit_, index_ = -1;
  size_t set_ = 0, opened_ = 0;  // the set that is read, and how many of its files were opened
  int64_t of_set_ = 0;           // rows that were read of it
  std::unique_ptr<RowReader> reader_;
  std::string spooled_;  // standard input, kept in a file so that it can be read again
};

}  // namespace apus
