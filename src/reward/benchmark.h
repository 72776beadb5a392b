// SPDX-License-Identifier: Apache-2.0
// Known sets of questions with known answers: how a row of one, as its authors publish it, becomes a question, and
// whether an answer is right. No tensor library.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace apus {

// A question as plain text that a model goes on with (reward/plain_tasks.h).
struct PlainQuestion {
  std::string about = {};                 // stands before all examples
  std::vector<std::string> prompts = {};  // one, or one for each choice
  std::vector<std::string> choices = {};  // what may follow, behind a space; none: the model writes
  std::string answer = {};                // what follows in an example
};

struct BenchmarkItem {
  std::string question;              // what the user says
  std::vector<std::string> choices;  // texts to choose from, where there are some
  size_t right = 0;                  // of the choices
  std::string solution;              // what an answer without choices is compared with
  std::string group;                 // its subject or level; empty: none
  PlainQuestion plain = {};          // where it is put so
  // Pictures, as the row has them, in the order of the <image> tags in the question and the choices.
  std::vector<Json> images = {};
};

struct Benchmark {
  const char* name;
  const char* modelscope;  // where its rows are
  const char* huggingface;
  const char* subset;      // of the hub's rows; empty: all
  const char* split;       // the part that is asked: files whose path names it
  const char* metric;      // what the score is called
  bool continues = false;  // choices go on with the question's own text
  // Fault::Data for a row of another shape.
  BenchmarkItem (*read)(const Json& row) = nullptr;
  double (*judge)(const BenchmarkItem& item, const Json& row, const std::string& answer) = nullptr;
  bool runs_code = false;  // to judge an answer it is run as a program (reward/run_code.h)
  bool pictures = false;   // questions about pictures
  bool boxes = false;      // an answer's boxes are judged, in pixels of the picture
  std::vector<BenchmarkItem> (*read_several)(const Json& row) = nullptr;  // instead of `read`
};

const std::vector<Benchmark>& benchmarks();
std::vector<Benchmark> picture_benchmarks();                // of those
const Benchmark& benchmark_named(const std::string& name);  // Fault::Usage with the known ones

char choice_letter(size_t choice);  // A, B, ...
// The question as it is put to a model that answers with a letter or, without choices, with words.
std::string asked_text(const BenchmarkItem& item);
// The choice that an answer names: "B", "(B)", "the answer is B", "\boxed{B}", or the choice's own words.
std::optional<size_t> chosen(const std::string& answer, const std::vector<std::string>& choices);

}  // namespace apus
