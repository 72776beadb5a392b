// SPDX-License-Identifier: Apache-2.0
// Models with a head other than the vocabulary against the originals: logits, losses, gradients; packed as one by one,
// two ranks as one.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <numeric>

#include "algos/embedding.h"
#include "algos/reranker.h"
#include "algos/seq_cls.h"
#include "algos/token_cls.h"
#include "base/assets.h"
#include "models/pooling.h"
#include "tests/algos/preference_steps.h"
#include "tests/fake_mesh.h"
#include "text/word_places.h"

namespace apus {
namespace {

using golden::Case;
using test::Step1;
using test::step_of;

std::unique_ptr<Model> open_golden(const std::filesystem::path& dir, Head head) {
  auto model = make_model(read_model_config(dir), head);
  load_weights(*model, TensorFolder(dir),
               {.dtype = at::kFloat, .device = golden::device(), .own = [](const std::string&) { return true; }});
  return model;
}

// The rows of a padded batch as samples of which nothing is learnt.
Samples texts_of(const Case& c, const std::string& which) {
  const at::Tensor ids = c.tensor(which + "/input_ids").contiguous(),
                   mask = c.tensor(which + "/attention_mask").contiguous();
  Samples out;
  for (int64_t r = 0; r < ids.size(0); ++r) {
    Sample& sample = out.emplace_back();
    for (int64_t i = 0; i < ids.size(1); ++i)
      if (mask[r][i].item<int64_t>()) sample.ids.push_back(ids[r][i].item<int32_t>());
    sample.trained.assign(sample.ids.size(), 0);
  }
  return out;
}

void expect_norms(const Step1& step, const Json& norms, int64_t pad, const std::string& prefix = "") {
  for (const auto& [name, shared] : step.gradients) {
    at::Tensor gradient = shared.clone();
    // The original gives no gradient to the row of the padding's token, which may be a real token here.
    if (pad >= 0 && name.ends_with("embed_tokens.weight")) gradient[pad].zero_();
    const std::string theirs = name.starts_with(prefix) ? name.substr(prefix.size()) : name;
    ASSERT_TRUE(norms.contains(theirs)) << name;
    const double norm = norms[theirs];
    EXPECT_NEAR(gradient.norm().item<double>(), norm, 1e-3 * norm + 1e-5) << name;
  }
}

TEST(Classifier, IsTheOriginalsLogitsLossAndGradient) {
  const Case c("heads_qwen3");
  for (const std::string head : {"single_label", "multi_label", "regression", "regression2"}) {
    const auto dir = c.dir / ("checkpoint_" + head);
    const Json config = read_model_config(dir);
    const auto model = open_golden(dir, Head::Scalar);
    SeqClsOptions options;
    options.take_from(config, "");
    for (const std::string side : {"left", "right"}) {
      const std::string which = head + "/" + side;
      Samples rows = texts_of(c, which);
      const at::Tensor labels = c.tensor(which + "/labels").to(at::kFloat);
      const at::Tensor wide = head == "regression" ? labels.unsqueeze(1) : labels;
      for (size_t r = 0; r < rows.size(); ++r) {
        const auto row = static_cast<int64_t>(r);
        if (head == "single_label") rows[r].columns["label"] = labels[row].item<float>();
        for (int64_t i = 0; head != "single_label" && i < wide.size(1); ++i)
          rows[r].columns[str("label_", i)] = wide[row][i].item<float>();
      }
      SeqCls algorithm(options);
      const at::Tensor logits = Scorer(*model).scores(collate(rows).to(golden::device())).to(at::kCPU);
      EXPECT_LT((logits - c.tensor(which + "/logits")).abs().max().item<double>(), 3e-4) << which;
      const Step1 step = step_of(algorithm, {.policy = *model}, {rows});
      EXPECT_NEAR(step.loss, c.json.at("heads").at(head).at(side).at("loss").get<double>(), 5e-5) << which;
      EXPECT_LT(test::distance(step, step_of(algorithm, {.policy = *model}, test::one_by_one(rows))), 2e-5) << which;
      if (c.json.at("grad").contains(which))
        expect_norms(step, c.json["grad"][which]["norms"], config["pad_token_id"].get<int64_t>());
    }
  }
}

TEST(Classifier, NamesWhatIsWrongWithALabel) {
  const auto head = [](int64_t labels, const char* problem) {
    SeqClsOptions o;
    o.num_labels = labels, o.problem_type = problem;
    return SeqCls(o);
  };
  const auto tokenizer = Tokenizer::from_json(asset("tokenizer/tokenizer.json"));
  const Encoder encoder(tokenizer, std::nullopt, {.use_chat_template = false});
  const auto refused = [&](const SeqCls& algorithm, const char* label) {
    const Row row{Json::parse(str(R"({"messages": [{"role": "user", "content": "a"}], "label": )", label, "}")), {}};
    try {
      algorithm.encode(row, encoder);
    } catch (const RowError& e) {
      return e.key + ": " + e.reason;
    }
    return std::string("nothing");
  };
  EXPECT_NE(refused(head(3, "single_label_classification"), "3").find("from 0 to 2"), std::string::npos);
  EXPECT_NE(refused(head(3, "single_label_classification"), "\"good\"").find("is no label"), std::string::npos);
  EXPECT_NE(refused(head(3, "single_label_classification"), "null").find("has no label"), std::string::npos);
  EXPECT_NE(refused(head(3, "multi_label_classification"), "1").find("a list of labels"), std::string::npos);
  EXPECT_NE(refused(head(2, "regression"), "1.5").find("2 numbers are wanted"), std::string::npos);
  EXPECT_EQ(refused(head(3, "single_label_classification"), "2"), "nothing");
  EXPECT_EQ(refused(head(3, "multi_label_classification"), "[]"), "nothing");
  EXPECT_EQ(refused(head(2, "regression"), "[1, -2.5]"), "nothing");
}

// Queries, documents and one wrong document each, of golden/embed_qwen3.
struct Vectors {
  const Case c{"embed_qwen3"};
  std::unique_ptr<Model> model = open_golden(c.dir / "checkpoint", Head::None);
  Samples rows(const std::string& side, bool hard) const {
    const Samples q = texts_of(c, side + "/q"), p = texts_of(c, side + "/p"), n = texts_of(c, side + "/n");
    Samples out;
    for (size_t i = 0; i < q.size(); ++i) {
      out.push_back(q[i]), out.push_back(p[i]);
      if (hard) out.push_back(n[i]);
    }
    for (size_t i = 0; i < out.size(); ++i) {
      out[i].grouped = i % (hard ? 3 : 2) != 0;
      if (!out[i].grouped) out[i].columns["label"] = 1;
    }
    return out;
  }
  static EmbeddingOptions options(const std::string& pooling, bool use_batch) {
    EmbeddingOptions o;
    o.pooling = pooling, o.infonce.temperature = 0.05, o.infonce.use_batch = use_batch;
    return o;
  }
};

TEST(Embedding, IsTheOriginalsVectorsLossAndGradient) {
  Vectors v;
  for (const std::string side : {"left", "right"})
    for (const std::string pooling : {"last", "mean"}) {
      const Json& theirs = v.c.json.at("infonce").at(side + "/" + pooling);
      for (const char* part : {"q", "p", "n"}) {
        at::NoGradGuard no_grad;
        Batch batch = collate(texts_of(v.c, side + "/" + part)).to(golden::device());
        const at::Tensor vectors = text_vectors(v.model->forward(batch.id_T, batch.step), batch.step,
                                                pooling == "mean" ? Pooling::Mean : Pooling::Last);
        EXPECT_LT(golden::max_abs(vectors, v.c.tensor(side + "/" + part + "/embedding_" + pooling)), 1e-4);
      }
      const auto loss = [&](bool hard, bool use_batch) {
        EmbeddingTraining algorithm(Vectors::options(pooling, use_batch));
        return step_of(algorithm, {.policy = *v.model}, {v.rows(side, hard)});
      };
      EXPECT_NEAR(loss(false, true).loss, theirs["in_batch"].get<double>(), 1e-4) << side << pooling;
      EXPECT_NEAR(loss(true, false).loss, theirs["hard_only"].get<double>(), 1e-4) << side << pooling;
      const Step1 all = loss(true, true);
      EXPECT_NEAR(all.loss, theirs["in_batch_and_hard"].get<double>(), 1e-4) << side << pooling;
      if (side == "left")
        expect_norms(all, v.c.json["grad"][str("left/", pooling, "/in_batch_and_hard")]["norms"], -1, "model.");
    }
}

// Each rank with half of the rows, its candidates those of both: loss and gradient are those of one rank with all.
TEST(Embedding, TwoRanksAreOne) {
  Vectors v;
  const Samples rows = v.rows("left", true);
  EmbeddingOptions options = Vectors::options("last", true);
  options.infonce.include_qq = options.infonce.include_dd = true;
  EmbeddingTraining alone(options);
  alone.begin({.loop = LoopOptions(), .device = golden::device()});
  const Step1 one = step_of(alone, {.policy = *v.model}, {rows});
  std::vector<Step1> parts(2);
  test::on_fake_ranks({}, 2, [&](MeshView& mesh) {
    const auto rank = static_cast<size_t>(mesh.rank(kDataAxes));
    const auto half = rows.begin() + static_cast<long>(rank * rows.size() / 2);
    const auto model = open_golden(v.c.dir / "checkpoint", Head::None);
    EmbeddingTraining algorithm(options);
    algorithm.begin({.loop = LoopOptions(), .ranks = 2, .device = golden::device()});
    parts[rank] = step_of(algorithm, {.policy = *model, .data_ranks = &mesh.host(kDataAxes)},
                          {{half, half + static_cast<long>(rows.size() / 2)}});
  });
  // Each rank divided by its own rows, half of all.
  EXPECT_NEAR((parts[0].loss + parts[1].loss) / 2, one.loss, 1e-5);
  for (const auto& [name, gradient] : one.gradients) {
    const at::Tensor sum = (parts[0].gradients.at(name) + parts[1].gradients.at(name)) / 2;
    EXPECT_LT((sum - gradient).norm().item<double>(), 1e-5 * std::max(1.0, gradient.norm().item<double>())) << name;
  }
}

TEST(Embedding, AnEvaluationSaysWhatIsFound) {
  Vectors v;
  EmbeddingTraining algorithm(Vectors::options("last", true));
  Actors actors{.policy = *v.model};
  const auto alone = lone_comm();
  at::NoGradGuard no_grad;
  for (const Samples& rows : groups_of(v.rows("left", true)))  // one row a batch: all the same, all are candidates
  {
    Batch batch = algorithm.collect(actors, {rows})[0][0].to(golden::device());
    algorithm.loss(actors, batch, Forward{});
  }
  const Json said = algorithm.evaluated(*alone);
  const at::Tensor scores = v.c.tensor("left/scores_last");  // [queries, documents and wrong ones] / temperature or not
  const double scale = scores.abs().max().item<double>() > 1.01 ? 0.05 : 1;
  double right = 0;
  for (int64_t q = 0; q < 4; ++q) right += scores[q][q].item<double>() * scale / 4;
  EXPECT_NEAR(said["mean_pos"].get<double>(), right, 1e-4);
  EXPECT_TRUE(said.contains("recall@1") && said.contains("mean_neg") && said.contains("margin"));
  EXPECT_EQ(algorithm.evaluated(*alone), Json::object());  // told once
}

struct Ranked {
  const Case c{"rerank_qwen3"};
  std::unique_ptr<Model> model = open_golden(c.dir / "checkpoint", Head::Vocab);
  Samples rows(const std::string& side) const {
    Samples out = texts_of(c, side);
    const at::Tensor labels = c.tensor(side + "/labels").to(at::kFloat);
    for (size_t i = 0; i < out.size(); ++i) out[i].columns["label"] = labels[static_cast<int64_t>(i)].item<float>();
    return out;
  }
  GenerativeReranker algorithm(const std::string& loss_type) const {
    GenerativeRerankerOptions o;
    o.loss_type = loss_type;
    GenerativeReranker out(o);
    out.compare(c.json["token_true_id"].get<int64_t>(), c.json["token_false_id"].get<int64_t>());
    return out;
  }
};

TEST(GenerativeReranker, IsTheOriginalsScoresLossAndGradient) {
  Ranked r;
  for (const std::string side : {"left", "right"}) {
    const Samples rows = r.rows(side);
    Batch batch = collate(rows).to(golden::device());
    const at::Tensor hidden = r.model->forward(batch.id_T, batch.step);
    const at::Tensor lead =
        token_lead(*r.model, last_states(hidden, batch.step), batch.step, r.c.json["token_true_id"].get<int64_t>(),
                   r.c.json["token_false_id"].get<int64_t>());
    const at::Tensor no_yes = r.c.tensor(side + "/logits_no_yes");
    EXPECT_LT(golden::max_abs(lead, no_yes.select(1, 1) - no_yes.select(1, 0)), 3e-4);
    EXPECT_LT(golden::max_abs(lead.sigmoid(), r.c.tensor(side + "/scores")), 1e-4);
    GenerativeReranker pointwise = r.algorithm("pointwise_reranker");
    const Step1 step = step_of(pointwise, {.policy = *r.model}, {rows});
    EXPECT_NEAR(step.loss, r.c.json["cases"][side]["loss_pointwise"].get<double>(), 5e-5) << side;
    if (side == "left") expect_norms(step, r.c.json["grad"]["left"]["norms"], -1);
    // Lists begin with what answers; the second one of the file ends with it.
    const Samples lists = {rows[0], rows[1], rows[3], rows[2]};
    GenerativeReranker listwise = r.algorithm("listwise_reranker");
    EXPECT_NEAR(step_of(listwise, {.policy = *r.model}, {lists}).loss,
                r.c.json["cases"][side]["loss_listwise_groups_of_2"].get<double>(), 5e-5)
        << side;
  }
}

TEST(WordLabels, StandAtFirstTokens) {
  TokenClsOptions o;
  o.num_labels = 3;
  TokenCls algorithm(o);
  const std::shared_ptr<const Tokenizer> tokenizer = Tokenizer::from_json(asset("tokenizer/tokenizer.json"));
  const Encoder encoder(tokenizer, std::nullopt, {.use_chat_template = false});
  const auto of = [&](const char* label, const char* text = "Anna sees  Berlin") {
    return algorithm.encode(
        {Json{{"messages", {{{"role", "user"}, {"content", text}}}}, {"label", Json::parse(label)}}, {}}, encoder)[0];
  };
  const Sample sample = of("[1, 0, -100]");
  const std::vector<WordPlace> words = word_places(*tokenizer, "Anna sees  Berlin", sample.ids);
  ASSERT_EQ(words.size(), 3u);
  EXPECT_EQ(words[2].word, "Berlin");
  const std::vector<float>& column = sample.token_columns.at("label");
  ASSERT_EQ(column.size(), sample.ids.size());
  EXPECT_EQ(std::count_if(column.begin(), column.end(), [](float label) { return label >= 0; }), 2);
  EXPECT_EQ(column[words[0].token], 1);
  EXPECT_EQ(column[words[1].token], 0);
  for (const char* wrong : {"[1, 0]", "[1, 0, 3]", "[1, 0, \"LOC\"]", "1"}) EXPECT_THROW(of(wrong), RowError) << wrong;
}

// Only labelled tokens count, however texts are divided.
TEST(WordLabels, LossIsTheMeanOverLabelledTokens) {
  const auto dir = test::source_dir() / "tests/data/words/bert";
  const auto file = SafetensorsFile::open(dir / "golden.safetensors");
  const at::Tensor ids = file->tensor("input_ids"), lengths = file->tensor("lengths");
  const auto model = open_golden(dir / "checkpoint", Head::Scalar);
  Samples rows;
  std::vector<double> losses;
  int64_t begin = 0;
  for (int64_t r = 0; r < lengths.numel(); ++r) {
    const int64_t length = lengths[r].item<int64_t>();
    Sample& row = rows.emplace_back();
    for (int64_t i = 0; i < length; ++i) {
      row.ids.push_back(ids[begin + i].item<int32_t>());
      const int64_t label = i % 3 == 1 ? (i + r) % 3 : -1;
      row.token_columns["label"].push_back(static_cast<float>(label));
      if (label >= 0)
        losses.push_back(-file->tensor("logits")[begin + i].log_softmax(0, at::kDouble)[label].item<double>());
    }
    row.trained.assign(row.ids.size(), 0);
    begin += length;
  }
  TokenClsOptions o;
  o.num_labels = 3;
  TokenCls algorithm(o);
  const Step1 step = step_of(algorithm, {.policy = *model}, {rows});
  EXPECT_NEAR(step.loss, std::accumulate(losses.begin(), losses.end(), 0.0) / std::size(losses), 2e-5);
  EXPECT_LT(test::distance(step, step_of(algorithm, {.policy = *model}, test::one_by_one(rows))), 2e-5);
}

}  // namespace
}  // namespace apus
