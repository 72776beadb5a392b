// SPDX-License-Identifier: Apache-2.0
#include "algos/gkd.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/topk.h>
#include <c10/core/GradMode.h>

#include "algos/pairs.h"
#include "tests/algos/learning.h"
#include "tests/algos/preference_steps.h"
#include "tests/json_server.h"
#include "tests/refusal.h"

namespace apus {
namespace {

using learning::Student;
using learning::Tasks;

struct Distilled {
  golden::Case c{"rl_qwen2"};
  std::unique_ptr<Model> policy = golden::owned_model(c.dir / "checkpoint"),
                         teacher = golden::owned_model(c.dir / "checkpoint_ref");
  Actors actors() { return {.policy = *policy, .others = {{"teacher", {teacher.get()}}}}; }
  Samples rows() {
    Samples out;
    for (const Sample& sample : test::golden_pairs(c)) out.push_back(sample), out.back().grouped = false;
    return out;
  }
  test::Step1 step(GkdOptions o, const std::vector<Samples>& micro_batches) {
    Gkd gkd(o);
    LoopOptions loop;
    Sampling sampling;
    sampling.temperature = 0.9;
    gkd.begin({.loop = loop, .sampling = sampling, .device = golden::device()});
    return test::step_of(gkd, actors(), micro_batches);
  }
};

GkdOptions off_policy(double beta) {
  GkdOptions o;
  o.teacher_model = "teacher", o.lmbda = 0, o.beta = beta;
  return o;
}

TEST(Gkd, DividingTheRowsChangesNothing) {
  Distilled d;
  for (const double beta : {0.0, 0.5, 1.0}) {
    GkdOptions o = off_policy(beta);
    o.sft_alpha = 0.5;
    if (beta == 0.5) o.gkd_logits_topk = 7;
    const test::Step1 whole = d.step(o, {d.rows()});
    EXPECT_LT(test::distance(whole, d.step(o, test::one_by_one(d.rows()))), 1e-4) << beta;
    EXPECT_NEAR(whole.loss, whole.metrics.at("divergence") + 0.5 * whole.metrics.at("sft_loss"), 1e-5);
    EXPECT_EQ(whole.metrics.at("on_policy"), 0);
    EXPECT_GT(whole.metrics.at("divergence"), 0);
  }
}

// KL(teacher | model) by the log-probs of all words at one place.
TEST(Gkd, IsTheDivergenceOfTheModels) {
  Distilled d;
  const test::Step1 got = d.step(off_policy(0), {d.rows()});
  double sum = 0, count = 0;
  for (const Sample& sample : d.rows()) {
    const Batch batch = collate({sample}).to(golden::device());
    const auto log_probs = [&](const Model& model) {
      Step step = batch.step;
      const at::NoGradGuard no_grad;
      return at::log_softmax(model.head(model.forward(batch.id_T, step), step).to(at::kFloat) / 0.9, -1).to(at::kCPU);
    };
    const at::Tensor mine = log_probs(*d.policy), theirs = log_probs(*d.teacher);
    const at::Tensor kl_T = (theirs.exp() * (theirs - mine)).sum(-1);
    const at::Tensor label_T = batch.label_T.to(at::kCPU);
    for (int64_t t = 0; t < label_T.numel(); ++t)
      if (label_T[t].item<int64_t>() >= 0) sum += kl_T[t].item<double>(), ++count;
  }
  EXPECT_NEAR(got.loss, sum / count, 2e-5);
}

TEST(Gkd, NothingIsLearntFromOneself) {
  Distilled d;
  d.teacher = golden::owned_model(d.c.dir / "checkpoint");
  for (const double beta : {0.0, 0.5, 1.0}) {
    const test::Step1 step = d.step(off_policy(beta), {d.rows()});
    EXPECT_NEAR(step.loss, 0, 1e-6);
    EXPECT_LT(step.norm, 1e-3);
  }
}

// What a server says of a prompt: the `more` likeliest tokens of each place besides those that were asked for.
Json prompt_logprobs(const Model& model, const std::vector<int64_t>& ids, int64_t k) {
  const at::NoGradGuard no_grad;
  Batch batch = collate({{.ids = {ids.begin(), ids.end()}, .trained = std::vector<uint8_t>(ids.size(), 1)}});
  batch = batch.to(golden::device());
  const at::Tensor all =
      at::log_softmax(model.head(model.forward(batch.id_T, batch.step), batch.step).to(at::kFloat), -1).to(at::kCPU);
  const auto [value_Tk, id_Tk] = at::topk(all, k, -1);
  Json list = Json::array({nullptr});
  for (int64_t t = 0; t + 1 < std::ssize(ids); ++t) {
    Json place = Json::object();
    for (int64_t i = 0; i < k; ++i)
      place[std::to_string(id_Tk[t][i].item<int64_t>())] = {{"logprob", value_Tk[t][i].item<float>()}, {"rank", i + 1}};
    const int64_t own = ids[static_cast<size_t>(t) + 1];
    place[std::to_string(own)] = {{"logprob", all[t][own].item<float>()}, {"rank", nullptr}};
    list.push_back(std::move(place));
  }
  return list;
}

TEST(Gkd, ATeacherBehindAServerTeachesTheSame) {
  Distilled d;
  std::mutex mutex;
  int asked = 0;
  const test::JsonServer server([&](const Json& body) -> std::pair<int, std::string> {
    if (body.is_null()) return {200, R"({"data": [{"id": "wise"}]})"};
    const std::lock_guard lock(mutex);
    ++asked;
    if (body.at("prompt_logprobs") == 9) return {400, R"({"error": "at most 8"})"};
    const Json list = prompt_logprobs(*d.teacher, body.at("prompt").get<std::vector<int64_t>>(), 7);
    return {200, Json{{"choices", {{{"prompt_logprobs", list}}}}}.dump()};
  });
  for (const double beta : {0.0, 0.5, 1.0}) {
    GkdOptions here = off_policy(beta), there = here;
    here.gkd_logits_topk = there.gkd_logits_topk = 7;
    there.teacher_model.reset(), there.teacher_model_server = server.url();
    const test::Step1 wanted = d.step(here, {d.rows()}), got = d.step(there, test::one_by_one(d.rows()));
    EXPECT_NEAR(got.loss, wanted.loss, 1e-5) << beta;
    EXPECT_LT(test::distance(wanted, got), 1e-4) << beta;
  }
  EXPECT_EQ(asked, 3 * std::ssize(d.rows()));

  GkdOptions more = off_policy(0);
  more.teacher_model.reset(), more.teacher_model_server = server.url(), more.gkd_logits_topk = 9;
  test::expect_says(test::refusal(Fault::Io, [&] { d.step(more, {d.rows()}); }), "at most 8");
  more.gkd_logits_topk = 10;
  test::expect_says(test::refusal(Fault::Io, [&] { d.step(more, {{d.rows()[0]}}); }), "10 were asked for");
}

TEST(Gkd, EachRowAsksItsOwnTeacher) {
  Distilled d;
  std::mutex mutex;
  std::set<std::vector<int64_t>> asked[2];
  const auto answers = [&](size_t server) {
    return [&, server](const Json& body) -> std::pair<int, std::string> {
      if (body.is_null()) return {200, R"({"data": [{"id": "wise"}]})"};
      const std::lock_guard lock(mutex);
      const auto ids = body.at("prompt").get<std::vector<int64_t>>();
      asked[server].insert(ids);
      return {200, Json{{"choices", {{{"prompt_logprobs", prompt_logprobs(*d.teacher, ids, 7)}}}}}.dump()};
    };
  };
  const test::JsonServer first(answers(0)), second(answers(1));
  GkdOptions here = off_policy(0.5), there = here;
  here.gkd_logits_topk = there.gkd_logits_topk = 7;
  there.teacher_model.reset();
  there.teacher_model_server =
      str(R"([{"url": ")", first.url(), R"(", "tags": ["a"]}, {"url": ")", second.url(), R"(", "tags": ["b", "c"]}])");
  there.check();
  Samples rows = d.rows();
  ASSERT_GT(rows.size(), 2u);
  std::set<std::vector<int64_t>> wanted[2];
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].columns["server"] = i % 2 ? 1 : 0;
    wanted[i % 2].insert({rows[i].ids.begin(), rows[i].ids.end()});
  }
  const test::Step1 same = d.step(here, {d.rows()}), got = d.step(there, {rows});
  EXPECT_NEAR(got.loss, same.loss, 1e-5);
  EXPECT_LT(test::distance(same, got), 1e-4);
  EXPECT_EQ(asked[0], wanted[0]);
  EXPECT_EQ(asked[1], wanted[1]);
}

TEST(GkdOptions, TellWhatSeveralTeachersNeed) {
  const auto refused = [](const char* servers) {
    GkdOptions o;
    o.gkd_logits_topk = 5, o.teacher_model_server = servers;
    return test::refusal(Fault::Usage, [&] { o.check(); });
  };
  test::expect_says(refused("[]"), "names no server");
  test::expect_says(refused(R"([{"tags": ["a"]}])"), "has no url");
  test::expect_says(refused(R"([{"url": "http://a", "tags": ["a"]}, {"url": "http://b"}])"), "http://b has none");
  test::expect_says(refused(R"([{"url": "http://a", "tags": ["a"]}, {"url": "http://b", "tags": ["a"]}])"),
                    "'a' is there twice");
  test::expect_says(refused(R"([{"url": "b:1", "tags": ["a"]}])"), "no address of a server");
  GkdOptions o;
  o.teacher_model_server = R"([{"url": "http://a", "tags": ["x", "y"]}, {"url": "http://b", "tags": ["z"]}])";
  EXPECT_EQ(o.teacher_places().at(0).tags, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(o.teacher_places().at(1).url, "http://b");
}

TEST(GkdOptions, TellWhatATeacherBehindAServerNeeds) {
  GkdOptions o;
  o.teacher_model_server = "http://127.0.0.1:1/v1";
  test::expect_says(test::refusal(Fault::Usage, [&] { o.check(); }), "--gkd_logits_topk");
  o.gkd_logits_topk = 5;
  EXPECT_NO_THROW(o.check());
  o.teacher_model = "dir";
  test::expect_says(test::refusal(Fault::Usage, [&] { o.check(); }), "give one of them");
}

TEST(GkdLearning, StudentComesNearItsTeacher) {
  Student teacher, student;
  teacher.pretrain(0.6);
  const double known = teacher.exact();
  ASSERT_GT(known, 0.5);
  student.others["teacher"] = {teacher.model.get()};
  GkdOptions o;
  o.teacher_model = "teacher", o.lmbda = 0.5, o.beta = 0.5, o.max_completion_length = learning::kDigits + 2;
  Tasks tasks(31, 32, true);
  Rollout rollout(*student.model, student.options(), {.max_sequences = 256, .max_model_len = 64});
  const LoopOptions loop{.max_steps = 250, .gradient_accumulation_steps = 1};
  Gkd gkd(o);
  gkd.begin(student.setting(loop));
  student.train(gkd, tasks, &rollout, loop, 3e-3);
  EXPECT_GT(student.exact(), known - 0.15);
  double rolled = 0;
  for (const Json& line : student.history) rolled += line.at("on_policy").get<double>();
  EXPECT_NEAR(rolled / 250, 0.5, 0.12);
  EXPECT_LT(student.history.at(249).at("divergence").get<double>(),
            0.1 * student.history.at(0).at("divergence").get<double>());
}

}  // namespace
}  // namespace apus
