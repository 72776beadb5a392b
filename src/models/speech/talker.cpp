// SPDX-License-Identifier: Apache-2.0
#include "models/speech/talker.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

namespace apus {

Talker::Talker(const SpeechSpec& spec) : spec_(spec), first_(spec.talker), parts_(spec.parts) {
  if (spec.codes > 1) rest_.emplace(spec.finisher);
}

at::Tensor Talker::projected(const at::Tensor& row_TD, const std::string& name) const {
  const at::Tensor between = parts_.linear(name + ".linear_fc1")(row_TD, Step());
  return parts_.linear(name + ".linear_fc2")(activated(spec_.talker.act, between), Step());
}

at::Tensor Talker::code_row(int64_t i, const at::Tensor& id_T) const {
  if (spec_.reads_chat) return ops::embedding(id_T, parts_.table("talker.model.embed_tokens").weight());
  if (i == 0) return first_.embed(Inputs(id_T), Step());
  const Table& table = parts_.table(str("talker.code_predictor.model.codec_embedding.", i - 1));
  return ops::embedding(id_T, table.weight());
}

at::Tensor Talker::rest_logits(int64_t i, const at::Tensor& hidden_TD) const {
  return parts_.linear(str("talker.code_predictor.lm_head.", i - 1)).wide(hidden_TD, Step());
}

at::Tensor Talker::for_first(const at::Tensor& row_TD) const {
  return spec_.reads_chat ? parts_.linear("talker.thinker_to_talker_proj")(row_TD, Step()) : row_TD;
}

at::Tensor Talker::for_rest(const at::Tensor& row_TD) const {
  if (spec_.talker.shape.hidden == spec_.finisher.shape.hidden) return row_TD;
  return parts_.linear("talker.code_predictor.small_to_mtp_projection")(row_TD, Step());
}

namespace {
// The tokens of turns in which the user speaks, in their order.
std::vector<int64_t> users_tokens(const SpeechSpec& spec, const Spoken& what) {
  std::vector<int64_t> which;
  int64_t turn = 0;
  for (int64_t i = 0; i < what.prompt; ++i) {
    if (what.tokens[static_cast<size_t>(i)] == spec.turn) turn = i;
    if (turn + 1 < what.prompt && what.tokens[static_cast<size_t>(turn + 1)] == spec.user) which.push_back(i);
  }
  return which;
}

// Where the last turn begins, which the answer goes on with.
int64_t answering_turn(const SpeechSpec& spec, const Spoken& what) {
  for (int64_t i = what.prompt - 2; i >= 0; --i)
    if (what.tokens[static_cast<size_t>(i)] == spec.turn && what.tokens[static_cast<size_t>(i + 1)] == spec.assistant)
      return i;
  fail(Fault::Data,
       "nothing can be spoken: the chat's last turn does not begin as the voice was taught to expect it "
       "(<|im_start|>assistant); is the template the model's own?");
}
}  // namespace

// Every token of the prompt, the voice, and the answer's first token; codes that say nothing stand under the last two.
TalkerPrompt Talker::whole_chat(const Spoken& what, const at::Tensor& mark_3D) const {
  TalkerPrompt out;
  for (int64_t i = 0; i < what.prompt; ++i) out.from.push_back(i);
  const int64_t answered = std::ssize(what.tokens) - what.prompt;
  if (answered == 0) return out;
  at::Tensor known = what.row_TD;
  if (!what.is_medium.empty()) {
    const std::vector<int64_t> medium(what.is_medium.begin(), what.is_medium.end());
    const at::Tensor is_medium = at::tensor(medium, at::kLong).to(known.device()).to(at::kBool).unsqueeze(1);
    known = known.masked_fill(is_medium, 0);
  }
  known = known + what.hidden_TD;
  const at::Tensor codes = code_row(0, at::tensor({spec_.code.none, spec_.code.begin}, at::kLong).to(known.device()));
  const at::Tensor voice = mark_3D.narrow(0, 0, 1), first = known.narrow(0, what.prompt, 1);
  out.row_TD = at::cat({known.narrow(0, 0, what.prompt), at::cat({voice, first}, 0) + codes}, 0);
  out.later_TD = at::cat({known.narrow(0, what.prompt + 1, answered - 1), mark_3D.narrow(0, 1, 1)}, 0);
  out.none_D = mark_3D.narrow(0, 2, 1);
  return out;
}

TalkerPrompt Talker::prompt(const Spoken& what, const at::Tensor& mark_3D, int64_t voice) const {
  if (spec_.reads_chat) return whole_chat(what, mark_3D);
  TalkerPrompt out;
  out.from = users_tokens(spec_, what);
  const auto total = std::ssize(what.tokens);
  const int64_t turn = answering_turn(spec_, what), text = turn + 3;  // the turn's mark, who speaks, a line's end
  if (text >= total) return out;
  const at::Tensor& rows = what.row_TD;
  const at::Tensor marks = projected(mark_3D, "talker.text_projection");
  const at::Tensor begin = marks.narrow(0, 0, 1), end = marks.narrow(0, 1, 1), none = marks.narrow(0, 2, 1);

  std::vector<at::Tensor> parts;
  if (!out.from.empty()) {
    const at::Tensor which = at::tensor(out.from, at::kLong).to(rows.device());
    at::Tensor read = projected(at::index_select(rows, 0, which), "talker.text_projection");
    if (what.seen_TD.defined()) {
      std::vector<int64_t> medium;
      for (const int64_t i : out.from) medium.push_back(what.is_medium[static_cast<size_t>(i)]);
      const at::Tensor is_medium = at::tensor(medium, at::kLong).to(rows.device()).to(at::kBool).unsqueeze(1);
      const at::Tensor seen = projected(at::index_select(what.seen_TD, 0, which), "talker.hidden_projection");
      read = at::where(is_medium, seen, read);
    }
    parts.push_back(read);
  }
  const at::Tensor answer = projected(rows.narrow(0, turn, total - turn), "talker.text_projection");
  const auto& code = spec_.code;
  const at::Tensor codes = code_row(
      0, at::tensor({code.no_thought, code.thought_begin, code.thought_end, voice, code.none, code.begin}, at::kLong)
             .to(rows.device()));
  // Text above codes: while the codes say how it will be spoken, the text is none.
  parts.push_back(answer.narrow(0, 0, 3));
  parts.push_back(at::cat({none.expand({4, none.size(1)}), begin, answer.narrow(0, 3, 1)}, 0) + codes);
  out.row_TD = at::cat(parts, 0);
  out.later_TD = at::cat({answer.narrow(0, 4, answer.size(0) - 4), end}, 0), out.none_D = none;
  return out;
}

// Of whole frames: the sum of their codes' rows.
at::Tensor Talker::frame_rows(const at::Tensor& code_FG) const {
  at::Tensor sum = code_row(0, code_FG.select(1, 0));
  for (int64_t i = 1; i < spec_.codes; ++i) sum = sum + code_row(i, code_FG.select(1, i));
  return sum;
}

// All of the text stands before the first frame, above codes that say nothing. In a learnt voice it stands above its
// frames, behind the text that they say, and what is longer goes on above the frames to come.
TalkerPrompt Talker::prompt(const LoneText& what) const {
  const Table& table = parts_.table("talker.model.text_embedding");
  const at::Device device = table.weight().device();
  const auto words = [&](const std::vector<int64_t>& ids) {
    return projected(ops::embedding(at::tensor(ids, at::kLong).to(device), table.weight()), "talker.text_projection");
  };
  const auto codes = [&](const std::vector<int64_t>& ids) {
    return code_row(0, at::tensor(ids, at::kLong).to(device));
  };
  require(what.text.size() > 8, Fault::Data, "there is nothing to speak");
  const auto& code = spec_.code;
  std::vector<int64_t> how = {code.no_thought, code.thought_begin, code.thought_end};
  if (what.language >= 0) how = {code.thought, code.thought_begin, what.language, code.thought_end};
  if (what.voice >= 0) how.push_back(what.voice);
  at::Tensor under = codes(how);
  if (what.like) under = at::cat({under, what.like->row_1D.to(under.options())}, 0);
  under = at::cat({under, codes({code.none})}, 0);
  const std::vector<int64_t> turn(what.text.begin(), what.text.begin() + 3);
  std::vector<int64_t> above(static_cast<size_t>(under.size(0) - 1), spec_.text.none),
      text(what.text.begin() + 3, what.text.end() - 5);
  above.push_back(spec_.text.begin), text.push_back(spec_.text.end);
  TalkerPrompt out;
  out.none_D = words({spec_.text.none}), out.later_TD = out.none_D.narrow(0, 0, 0);
  std::vector<at::Tensor> parts;
  if (!what.instructions.empty()) parts.push_back(words(what.instructions));
  parts.insert(parts.end(), {words(turn), words(above) + under});
  if (what.like) {
    text.insert(text.begin(), what.like->text.begin(), what.like->text.end());
    at::Tensor frames = codes({code.begin});
    if (what.like->code_FG.defined()) frames = at::cat({frames, frame_rows(what.like->code_FG.to(device))}, 0);
    at::Tensor said = words(text);
    const int64_t more = said.size(0) - frames.size(0);
    if (more > 0) out.later_TD = said.narrow(0, frames.size(0), more), said = said.narrow(0, 0, frames.size(0));
    if (more < 0) said = at::cat({said, out.none_D.expand({-more, -1})}, 0);
    parts.push_back(said + frames);
  } else {
    parts.insert(parts.end(), {words(text) + codes({code.none}), out.none_D + codes({code.begin})});
  }
  out.row_TD = at::cat(parts, 0);
  return out;
}

}  // namespace apus
