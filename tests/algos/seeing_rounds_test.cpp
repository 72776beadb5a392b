// SPDX-License-Identifier: Apache-2.0
// SeenQuestions with images through whole rounds: of grpo, and of distillation; and who cannot be asked them.
#include "algos/gkd.h"
#include "data/encode/row_media.h"
#include "media/processor.h"
#include "tests/algos/learning.h"
#include "tests/algos/preference_steps.h"
#include "tests/models/seeing_batch.h"
#include "tests/paths.h"
#include "tests/refusal.h"

namespace apus {
namespace {

class EvenTokens final : public SingleReward {
 public:
  explicit EvenTokens(const RewardOptions&) {}
  double one(const RewardInput& answer) const override {
    return static_cast<double>(
        std::count_if(answer.tokens.begin(), answer.tokens.end(), [](int id) { return id % 2; }));
  }
};
const RegisterReward<EvenTokens> even_tokens("test odd tokens");

// The golden batch of a model that sees, as questions. `answered`: its last tokens are answers.
struct Seen {
  explicit Seen(const char* name = "qwen3_vl") : c(name), model(golden::owned_model(c.dir / "checkpoint")) {
    const golden::Packed p = golden::unpad(c, "left");
    const auto media = golden::media_of(c, p, "left", dynamic_cast<SeeingDecoder&>(*model).seeing());
    for (size_t i = 0; i < p.ids.size(); ++i) {
      Sample& sample = questions.emplace_back();
      sample.ids.assign(p.ids[i].begin(), p.ids[i].end()), sample.trained.assign(p.ids[i].size(), 0);
      sample.media = media[i], sample.row = "{}";
    }
  }
  Samples answered(size_t tokens) const {
    Samples out = questions;
    for (Sample& sample : out)
      for (size_t i = 0; i < tokens; ++i)
        sample.ids.push_back(static_cast<int32_t>(5 + i)), sample.trained.push_back(1);
    return out;
  }
  at::TensorOptions options() const { return at::TensorOptions().dtype(at::kFloat).device(golden::device()); }
  golden::Case c;
  std::unique_ptr<Model> model;
  Samples questions;
};

// The same samples, of other images.
Samples of_other_images(Samples samples) {
  for (Sample& sample : samples)
    for (MediaItem& item : sample.media) {
      auto other = std::make_shared<MediaContent>(*item.content);
      for (float& value : other->values) value = 1 - value;
      other->digest += " inverted";
      item.content = other, item.digest = other->digest;
    }
  return samples;
}

class SeenQuestions final : public SampleSource {
 public:
  explicit SeenQuestions(Samples samples) : samples_(std::move(samples)) {}
  void start(int64_t) override { at_ = 0; }
  std::optional<Samples> next() override {
    return at_ < samples_.size() ? std::optional(Samples{samples_[at_++]}) : std::nullopt;
  }
  int64_t size() const override { return std::ssize(samples_); }
  Json position() const override { return at_; }
  void restore(const Json& position) override { at_ = position.get<size_t>(); }

 private:
  const Samples samples_;
  size_t at_ = 0;
};

// Asked, answered by the engine, rewarded, learnt from, twice; the tower learns too.
TEST(SeeingRounds, OfGrpo) {
  Seen seen;
  learning::Student student;
  student.model = std::move(seen.model);
  const auto before = golden::weights(*student.model);
  GrpoOptions o;
  o.reward_funcs = {"test odd tokens"}, o.num_generations = 4, o.max_completion_length = 6, o.beta = 0;
  const int64_t questions = std::ssize(seen.questions);
  const LoopOptions loop{
      .max_steps = 2, .per_device_train_batch_size = 4 * questions, .gradient_accumulation_steps = 1};
  Grpo grpo(o);
  grpo.begin(student.setting(loop));
  SeenQuestions source(seen.questions);
  Rollout rollout(*student.model, seen.options(), {.max_sequences = 8});
  student.train(grpo, source, &rollout, loop, 1e-3);
  ASSERT_EQ(student.history.size(), 2u);
  for (const Json& line : student.history) {
    EXPECT_LT(line.at("rollout_mismatch/max").get<double>(), 1e-3);
    EXPECT_GT(line.at("grad_norm").get<double>(), 0);
    EXPECT_GT(line.at("reward").get<double>(), 0);
  }
  int64_t learnt = 0, of_tower = 0;
  for (const auto& [name, value] : golden::weights(*student.model)) {
    if (at::equal(value, before.at(name))) continue;
    ++learnt, of_tower += name.starts_with("model.visual.");
  }
  EXPECT_GT(of_tower, 10);
  EXPECT_GT(learnt, of_tower + 10);
}

TEST(SeeingRounds, OfDistillation) {
  Seen seen;
  const auto teacher = golden::owned_model(seen.c.dir / "checkpoint");
  const auto step = [&](double on_policy, const Samples& samples) {
    GkdOptions o;
    o.teacher_model = "teacher", o.lmbda = on_policy, o.beta = 0, o.max_completion_length = 5;
    const LoopOptions loop;
    Sampling sampling;
    sampling.temperature = 0.9, sampling.ignore_eos = true;
    Gkd gkd(o);
    gkd.begin({.loop = loop,
               .tokenizer = Tokenizer::load(test::source_dir() / "tests/data/text/tokenizers/tiny-qwen3"),
               .sampling = sampling,
               .device = golden::device()});
    Rollout rollout(*seen.model, seen.options(), {.max_sequences = 8});
    return test::step_of(gkd, {.policy = *seen.model, .rollout = &rollout, .others = {{"teacher", {teacher.get()}}}},
                         {samples});
  };
  const Samples rows = seen.answered(6);
  // From oneself nothing is learnt, be the answers the rows' or the engine's.
  for (const double on_policy : {0.0, 1.0}) {
    const test::Step1 same = step(on_policy, rows);
    EXPECT_NEAR(same.loss, 0, 1e-5);
    EXPECT_EQ(same.metrics.at("on_policy"), on_policy);
  }
  teacher->visit([](const std::string& name, Param& p) {
    if (name.find("merger") != std::string::npos) p.data.mul_(1.5);
  });
  // A teacher that sees in another way teaches something, of other images something else.
  const double loss = step(0, rows).loss;
  EXPECT_GT(loss, 1e-6);
  EXPECT_GT(std::abs(step(0, of_other_images(rows)).loss - loss), 1e-2 * loss);
}

Encoder seeing_encoder() {
  const auto tokenizer = Tokenizer::load(test::source_dir() / "tests/data/text/tokenizers/tiny-qwen3");
  const Json preprocessor = {{"patch_size", 4}, {"merge_size", 2}, {"min_pixels", 64}, {"max_pixels", 6400}};
  const auto media = std::make_shared<MediaReader>(
      make_media_processor(
          {{{"model_type", "qwen2_vl"}, {"image_token_id", 2034}}, preprocessor, tokenizer.get(), {}, std::nullopt}),
      (test::source_dir() / "tests/data/media/pictures").string());
  const char* chat = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";
  return Encoder(tokenizer, ChatTemplate::from_text(chat, "test"), {}, media);
}

TEST(SeeingRounds, QuestionsOfSeveralTurnsMayHavePictures) {
  const Encoder encoder = seeing_encoder();
  GrpoOptions o;
  o.environment = "guess_number", o.num_generations = 2;
  const LoopOptions loop{.per_device_train_batch_size = 2, .gradient_accumulation_steps = 1};
  Grpo grpo(o);
  grpo.begin({.loop = loop, .tokenizer = Tokenizer::load(test::source_dir() / "assets/tokenizer")});
  const Json asked = Json::array({{{"role", "user"}, {"content", "<image>What?"}}});
  Row row{{{"messages", asked}, {"images", {"plain.jpg"}}},
          {std::make_shared<const std::string>("rows.jsonl"), 3, false}};
  const Samples seen = grpo.encode(row, encoder);
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].media.size(), 1u);
  row.value.erase("images"), row.value["messages"][0]["content"] = "What?";
  EXPECT_EQ(grpo.encode(row, encoder).size(), 1u);
}

// Nobody is asked: the refusal comes before any address is tried.
TEST(SeeingRounds, RolloutServersAnswerTextAlone) {
  const Seen seen;
  Rollout rollout(*seen.model, seen.options(), {}, [](const std::filesystem::path&) {});
  RolloutServerOptions servers;
  servers.vllm_mode = "server", servers.use_vllm = true, servers.vllm_server_base_url = {"http://127.0.0.1:9"};
  servers.vllm_server_timeout = 1;  // nobody is there
  rollout.ask_servers(servers, true);
  std::vector<std::vector<int32_t>> prompts;
  Inputs::Media media;
  for (const Sample& sample : seen.questions) prompts.push_back(sample.ids), media.push_back(sample.media);
  test::expect_says(test::refusal(Fault::Usage, [&] { rollout.answers(prompts, Sampling(), media); }),
                    "rollout servers answer questions of text alone");
}

}  // namespace
}  // namespace apus
