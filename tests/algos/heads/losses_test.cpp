// SPDX-License-Identifier: Apache-2.0
// Losses of classifiers, vectors and rankings as pure functions: values worked out in plain arithmetic, gradients
// against central differences in double.
#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>

#include "algos/label_losses.h"
#include "algos/rank_losses.h"
#include "algos/vector_losses.h"
#include "algos/vector_metrics.h"
#include "models/pooling.h"
#include "tensor/noise.h"

namespace apus {
namespace {

at::Tensor in_double(const std::vector<double>& values, std::vector<int64_t> shape) {
  return at::tensor(values, at::kDouble).view(shape);
}

void expect_numbers(const at::Tensor& got, const std::vector<double>& wanted) {
  ASSERT_EQ(got.numel(), std::ssize(wanted));
  const at::Tensor flat = got.reshape({-1});
  for (int64_t i = 0; i < got.numel(); ++i)
    EXPECT_NEAR(flat[i].item<double>(), wanted[static_cast<size_t>(i)], 1e-6) << i;
}

// The gradient of the sum against differences of it.
void expect_gradient(const at::Tensor& at, const std::function<at::Tensor(const at::Tensor&)>& loss) {
  const at::Tensor x = at.clone().set_requires_grad(true);
  loss(x).sum().backward();
  const at::Tensor gradient = x.grad().reshape({-1});
  for (int64_t i = 0; i < at.numel(); ++i) {
    const auto moved = [&](double by) {
      const at::Tensor other = at.clone();
      other.reshape({-1})[i] += by;
      return loss(other).sum().item<double>();
    };
    EXPECT_NEAR(gradient[i].item<double>(), (moved(1e-6) - moved(-1e-6)) / 2e-6, 1e-6) << i;
  }
}

at::Tensor noise(std::vector<int64_t> shape, uint64_t seed) { return normal_noise(shape, 0, 1, seed).to(at::kDouble); }

TEST(LabelLosses, AreWhatTheFormulasGive) {
  const at::Tensor logit_SN = in_double({1, 2, 3, 0, 0, -1}, {2, 3});
  const at::Tensor label_S = at::tensor(std::vector<int64_t>{2, 0}, at::kLong);
  const double sum = std::exp(1) + std::exp(2) + std::exp(3);
  expect_numbers(label_losses(logit_SN, label_S, Problem::Single), {std::log(sum) - 3, std::log(2 + std::exp(-1))});
  expect_numbers(labelled_right(logit_SN, label_S, Problem::Single), {1, 1});
  const at::Tensor holds_SN = in_double({0, 0, 1, 1, 1, 0}, {2, 3});
  const auto plus = [](double x) { return std::log1p(std::exp(x)); };
  expect_numbers(label_losses(logit_SN, holds_SN, Problem::Multi),
                 {(plus(1) + plus(2) + plus(-3)) / 3, (2 * plus(0) + plus(-1)) / 3});
  expect_numbers(labelled_right(logit_SN, holds_SN, Problem::Multi), {0, 1});
  expect_numbers(label_losses(logit_SN, holds_SN, Problem::Regression), {(1 + 4 + 4) / 3.0, (1 + 1 + 1) / 3.0});
  EXPECT_THROW(problem_named("ranking"), Error);
}

TEST(LabelLosses, HaveTheGradientOfTheirDifferences) {
  const at::Tensor logit_SN = noise({3, 4}, 1);
  const at::Tensor label_S = at::tensor(std::vector<int64_t>{3, 0, 1}, at::kLong);
  expect_gradient(logit_SN, [&](const at::Tensor& x) { return label_losses(x, label_S, Problem::Single); });
  const at::Tensor holds_SN = noise({3, 4}, 2).gt(0).to(at::kDouble);
  expect_gradient(logit_SN, [&](const at::Tensor& x) { return label_losses(x, holds_SN, Problem::Multi); });
  expect_gradient(logit_SN, [&](const at::Tensor& x) { return label_losses(x, holds_SN, Problem::Regression); });
}

TEST(RankLosses, FindTheFirstOfEachList) {
  const at::Tensor score_N = in_double({1, 2, 0, 5, 3, 1}, {6});
  const std::vector<int64_t> begins = list_begins({1, 0, 0, 1, 1, 0});
  EXPECT_EQ(begins, (std::vector<int64_t>{0, 3, 4}));
  const double first = std::log(std::exp(1) + std::exp(2) + 1) - 1, last = std::log(std::exp(3) + std::exp(1)) - 3;
  expect_numbers(listwise_losses(score_N, begins, 1, 2), {first, last});  // a list of one is left out
  expect_numbers(listwise_losses(score_N, begins, 1, 3), {first});
  expect_numbers(listwise_losses(score_N, begins, 2, 3), {std::log(std::exp(0.5) + std::exp(1) + 1) - 0.5});
  EXPECT_EQ(listwise_losses(score_N, begins, 1, 9).numel(), 0);
  expect_gradient(score_N, [&](const at::Tensor& x) { return listwise_losses(x, begins, 0.7, 2); });
  const RankQuality second = rank_quality({1, 2, 0}), best = rank_quality({3, 2}), tie = rank_quality({1, 1});
  EXPECT_DOUBLE_EQ(second.reciprocal_rank, 0.5);
  EXPECT_DOUBLE_EQ(second.ndcg, 1 / std::log2(3));
  EXPECT_DOUBLE_EQ(best.reciprocal_rank, 1);
  EXPECT_DOUBLE_EQ(tie.reciprocal_rank, 0.5);
}

TEST(VectorLosses, OfPairsAreWhatTheFormulasGive) {
  const at::Tensor cosine_P = in_double({0.9, 0.2, 0.8, -0.1}, {4}), label_P = in_double({1, 1, 0, 0}, {4});
  expect_numbers(cosine_losses(cosine_P, label_P), {0.01, 0.64, 0.64, 0.01});
  expect_numbers(contrastive_losses(cosine_P, label_P), {0.005, 0.32, 0.045, 0});
  // Like pairs farther apart than 0.2, unlike ones nearer than 0.8.
  expect_numbers(online_contrastive_losses(cosine_P, label_P), {0, 0.64, 0.09, 0});
  // One of a kind: the mean of the own kind bounds the other, so nothing of it is chosen.
  expect_numbers(online_contrastive_losses(cosine_P.narrow(0, 1, 2), label_P.narrow(0, 1, 2)), {0, 0});
  expect_numbers(online_contrastive_losses(cosine_P.narrow(0, 0, 2), label_P.narrow(0, 0, 2)), {0, 0.64});
  for (auto* const loss : {cosine_losses, contrastive_losses, online_contrastive_losses})
    expect_gradient(cosine_P, [&](const at::Tensor& x) { return loss(x, label_P); });
}

// Two queries, the first with two documents and the second with three; unit vectors by their angle.
struct Infonce {
  std::vector<double> query = {0.1, 2.0}, document = {0.3, 1.0, 2.2, 0.2, 3.0};
  std::vector<int64_t> first = {0, 2};
  static at::Tensor unit(const std::vector<double>& angles) {
    std::vector<double> xy;
    for (const double a : angles) xy.push_back(std::cos(a)), xy.push_back(std::sin(a));
    return in_double(xy, {std::ssize(angles), 2});
  }
  // -log of the first's share, by hand.
  static double nll(double right, std::vector<double> all, double temperature) {
    double sum = 0;
    for (const double x : all) sum += std::exp(x / temperature);
    return std::log(sum) - right / temperature;
  }
  std::vector<double> likeness(double angle, size_t from, size_t to) const {
    std::vector<double> out;
    for (size_t i = from; i < to; ++i) out.push_back(std::cos(angle - document[i]));
    return out;
  }
  at::Tensor losses(const InfonceSettings& s) const {
    return infonce_losses({unit(query), unit(document), first}, s).loss_Q;
  }
};

TEST(VectorLosses, InfonceComparesWithAllOrWithTheOwn) {
  const Infonce i;
  const double right0 = std::cos(0.2), right1 = std::cos(0.2);
  expect_numbers(i.losses({}),
                 {Infonce::nll(right0, i.likeness(0.1, 0, 5), 0.1), Infonce::nll(right1, i.likeness(2.0, 0, 5), 0.1)});
  expect_numbers(i.losses({.temperature = 0.5, .use_batch = false}),
                 {Infonce::nll(right0, i.likeness(0.1, 0, 2), 0.5), Infonce::nll(right1, i.likeness(2.0, 2, 5), 0.5)});
}

TEST(VectorLosses, InfonceLeavesOutFakesAndTakesInOthers) {
  Infonce i;
  i.document[3] = 0.1;  // of the second query, and the very text of the first
  // For the first query only what is at most 0.005 liker than its document stays.
  expect_numbers(i.losses({.mask_fake_negative = true, .fake_neg_margin = 0.005}),
                 {Infonce::nll(std::cos(0.2), {std::cos(0.2), std::cos(0.9), std::cos(2.1), std::cos(2.9)}, 0.1),
                  Infonce::nll(std::cos(0.2), i.likeness(2.0, 0, 5), 0.1)});
  std::vector<double> with_queries = i.likeness(0.1, 0, 5), with_documents = with_queries;
  with_queries.push_back(std::cos(1.9));
  for (const size_t d : {1, 2, 3, 4}) with_documents.push_back(std::cos(i.document[0] - i.document[d]));
  EXPECT_NEAR(i.losses({.include_qq = true})[0].item<double>(), Infonce::nll(std::cos(0.2), with_queries, 0.1), 1e-9);
  EXPECT_NEAR(i.losses({.include_dd = true})[0].item<double>(), Infonce::nll(std::cos(0.2), with_documents, 0.1), 1e-9);
}

TEST(VectorLosses, InfonceHasTheGradientOfItsDifferences) {
  const at::Tensor all_SD = noise({7, 3}, 5);
  for (const InfonceSettings& s :
       {InfonceSettings{.temperature = 0.5}, InfonceSettings{.temperature = 0.5, .use_batch = false},
        InfonceSettings{.temperature = 0.5, .mask_fake_negative = true, .include_qq = true, .include_dd = true}})
    expect_gradient(all_SD, [&](const at::Tensor& x) {
      const at::Tensor unit = x / x.norm(2, -1, true);
      return infonce_losses({unit.narrow(0, 0, 2), unit.narrow(0, 2, 5), {0, 2}}, s).loss_Q;
    });
}

TEST(VectorMetrics, CountWhatIsFoundFirst) {
  const Infonce i;
  const VectorSet set{Infonce::unit(i.query).to(at::kFloat), Infonce::unit(i.document).to(at::kFloat), i.first};
  const Json all = retrieval_metrics(set, false), own = retrieval_metrics(set, true);
  // The first query finds the fourth document before its own.
  EXPECT_DOUBLE_EQ(all["recall@1"].get<double>(), 0.5);
  EXPECT_DOUBLE_EQ(all["mrr"].get<double>(), 0.75);
  EXPECT_DOUBLE_EQ(own["recall@1"].get<double>(), 1);
  EXPECT_NEAR(own["mean_pos"].get<double>(), std::cos(0.2), 1e-6);
  EXPECT_NEAR(own["margin"].get<double>(), (std::cos(0.2) - std::cos(0.9) + std::cos(0.2) - std::cos(1.0)) / 2, 1e-6);
  EXPECT_NEAR(own["mean_neg"].get<double>(), (std::cos(0.9) + std::cos(1.8) + std::cos(1.0)) / 3, 1e-6);
}

TEST(VectorMetrics, CorrelateWithLabels) {
  EXPECT_NEAR(pearson({1, 2, 3, 4}, {2, 4, 6, 8}), 1, 1e-12);
  EXPECT_NEAR(pearson({1, 2, 3}, {1, 0, 2}), 0.5, 1e-12);
  EXPECT_NEAR(spearman({1, 2, 3, 4}, {1, 8, 27, 1000}), 1, 1e-12);
  EXPECT_NEAR(spearman({1, 2, 2, 3}, {1, 2, 3, 4}), 0.9486832980505138, 1e-12);  // scipy.stats.spearmanr
  EXPECT_EQ(pearson({1, 1}, {1, 2}), 0);
  const at::Tensor first = Infonce::unit({0, 0, 0}).to(at::kFloat),
                   second = Infonce::unit({0.1, 1.0, 2.0}).to(at::kFloat);
  const Json metrics = pair_metrics(first, second, {1, 0.5, 0});
  EXPECT_EQ(metrics.size(), 8u);
  for (const char* name : {"spearman_cosine", "spearman_euclidean", "spearman_manhattan", "spearman_dot_product"})
    EXPECT_NEAR(metrics[name].get<double>(), 1, 1e-12) << name;
}

TEST(Pooling, EndsBeforePadsThatAreTokensToo) {
  const at::Tensor id_T = at::tensor(std::vector<int64_t>{5, 6, 0, 0, 0, 7, 0, 8}, at::kLong);
  const Step step = packed_step({3, 2, 3}, at::kCPU);
  EXPECT_EQ(text_ends(id_T, step), (std::vector<int64_t>{2, 4, 7}));
  EXPECT_EQ(text_ends(id_T, step, 0), (std::vector<int64_t>{1, 4, 7}));  // nothing but pads: the last
}

}  // namespace
}  // namespace apus
