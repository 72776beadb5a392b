// SPDX-License-Identifier: Apache-2.0
// The rules of what goes together, by the way in which a run is shared out.
#include "abilities/combination.h"
#include "base/error.h"
#include "base/nearest.h"
#include "checkpoint/adapter_kinds.h"
#include "models/spec/cutting.h"

namespace apus {

namespace {

constexpr const char* kTensor = "--tensor_model_parallel_size";
constexpr const char* kExperts = "--expert_model_parallel_size";
constexpr const char* kStages = "--pipeline_model_parallel_size";
constexpr const char* kTokens = "--sequence_parallel_size";
constexpr const char* kGivenMore =
    ": their layers are given more than the hidden state of the layer before; --deepspeed zero3 makes room in another "
    "way";

class Rules {
 public:
  explicit Rules(const Combination& wanted) : c_(wanted) {}

  std::vector<std::string> all() {
    trains() ? training() : answering();
    if (c_.shares_parts()) parts();
    if (c_.tensor > 1) matrices();
    if (c_.experts > 1) experts();
    if (c_.stages > 1) stages();
    if (c_.tokens > 1) tokens();
    refuse(c_.residual && c_.tensor == 1,
           "--sequence_parallel true is of processes that share out matrices, and says that they share out the tokens "
           "between these as well: give ",
           kTensor, " with it; ", kTokens, " shares out the tokens of rows without it");
    if (c_.zero == 3) slices();
    if (c_.zero > 0) updates_of_rows();
    return std::move(found_);
  }

 private:
  template <class... Parts>
  void refuse(bool wrong, const Parts&... text) {
    if (wrong) found_.push_back(str(text...));
  }
  bool trains() const { return c_.algorithm != nullptr; }
  bool draws() const { return trains() && c_.algorithm->rolls_out(); }
  bool words() const { return trains() ? c_.algorithm->head == Head::Vocab : c_.gives_words; }
  std::string flag() const { return c_.tensor > 1 ? kTensor : c_.experts > 1 ? kExperts : kStages; }
  std::string type() const { return c_.model ? c_.model->type : ""; }

  // Processes that share out the heads of attention.
  int64_t head_sharers() const { return c_.tensor * token_sharers(c_.model->sharing, c_.tokens, c_.tensor).heads; }

  // Each process holds some of the matrices, experts or layers.
  void parts() {
    refuse(draws() && c_.stages > 1, kStages, " is not available for ", c_.asked,
           ", which draws answers: each token of them needs all layers. Use ", kTensor, ", or --deepspeed zero3");
    refuse(!trains() && !words(), flag(), " is not available for ", c_.asked,
           ", whose model gives no words: ask it with one process");
    refuse(trains() && !words() && c_.stages > 1, kStages, " is not available for ", c_.asked,
           ", whose loss needs more than the last stage knows: use --deepspeed zero3");
    refuse(c_.zero == 3 && c_.two_trained, flag(), " with weights shared out by rows as well is not available for ",
           c_.asked, ", which trains a second model: use --deepspeed zero1 or zero2 with it");
    refuse(c_.model && c_.model->encoder, flag(), " is not available for ", type(),
           " models, encoders which are small: use --deepspeed zero3");
    refuse(c_.needs.steady_rows, "--deterministic_rollout is not available with ", flag(),
           ", whose processes add up what each has multiplied in another order where they answer: leave it out");
    refuse(c_.broadcasts, "--broadcast_weights sends whole weights: leave it out with ", flag());
    refuse(!kind_.cut, "--tuner_type ", c_.tuner, " is held whole by each process: leave out ", flag(),
           ", or use --tuner_type lora");
    refuse(kind_.whole_rows, "--tuner_type ", c_.tuner,
           " halves the heads of the whole model over whole rows: leave out ", flag());
    refuse(c_.some_layers, "--lisa_activated_layers draws from the layers of a whole model: leave it out with ",
           flag());
    refuse(c_.zero == 3 && c_.groups, "--shard_group_size and hybrid_shard are not available with ", flag(),
           ", whose processes make groups already: leave it out");
    const bool moments = c_.tensor * c_.experts > 1 && !c_.whole_matrices.empty();
    refuse(moments, c_.whole_matrices, " looks at whole matrices: use adamw_torch, adamw_8bit or sgd with ", flag());
  }

  void matrices() {
    refuse(trains() && c_.algorithm->reads_head, kTensor, " is not available for ", c_.asked,
           ", which reads two words' rows of the head: use --deepspeed zero3");
    refuse(!c_.needs.whole_logits.empty(), c_.needs.whole_logits, " looks at all words at once: leave it out with ",
           kTensor);
    refuse(!c_.needs.rows_apart.empty(), c_.needs.rows_apart, " is not available with ", kTensor,
           ": leave one of them out");
    if (!c_.model) return;
    refuse(!c_.model->uncut.empty(), kTensor, " is not available for ", type(), " models (", c_.model->uncut,
           "): --deepspeed zero3 makes room in another way");
    refuse(head_sharers() > c_.model->heads, kTensor, " ", c_.tensor,
           ": these processes share out the heads of attention, and ", c_.model_name, " has ", c_.model->heads,
           ": give that many at most");
  }

  void experts() {
    refuse(c_.asks_reference,
           "--precompute_ref_log_probs lets each process ask for itself, and experts on several answer together: leave "
           "it out with ",
           kExperts);
    refuse(c_.zero == 3, kExperts,
           " with weights shared out by rows as well is not available: use --deepspeed zero1 or zero2 with it, or "
           "zero3 without it");
    if (!c_.model) return;
    refuse(c_.model->experts == 0, kExperts, " ", c_.experts, ": ", c_.model_name,
           " has no experts: leave it out; --deepspeed zero3 shares out all weights");
    refuse(c_.model->experts > 0 && c_.experts > c_.model->experts, kExperts, " ", c_.experts, ": the layers of ",
           c_.model_name, " have ", c_.model->experts, " experts: give that many at most");
  }

  // A stage knows its own layers alone: what looks at more than the loss of one pass is not for it.
  void stages() {
    refuse(trains() && words() && !draws() && (!c_.algorithm->one_pass || c_.algorithm->reads_head), kStages,
           " is not available for ", c_.asked,
           ", whose loss needs more than the last stage knows: use --deepspeed zero3");
    refuse(c_.zero >= 2, kStages,
           " keeps the gradients of an update until its last micro-batch, and each process has the weights of its own "
           "layers alone: use --deepspeed zero1 with it, or zero2 and zero3 without it");
    refuse(c_.asks_reference, "--precompute_ref_log_probs asks a whole reference beforehand: leave it out with ",
           kStages);
    refuse(c_.generates, "--predict_with_generate needs all layers for each token: leave it out with ", kStages,
           ", and evaluate by loss");
    refuse(!c_.needs.whole_logits.empty(), c_.needs.whole_logits, " is not available with ", kStages, ": leave it out");
    refuse(!c_.needs.ahead.empty(), c_.needs.ahead, " is not available with ", kStages,
           ": the head needs the embedding, which the first stage has: use --deepspeed zero3");
    refuse(!c_.needs.one_process.empty(), c_.needs.one_process,
           " keeps a mean that the last process alone would know: take another one with ", kStages);
    if (!c_.model) return;
    refuse(c_.model->experts > 0 && c_.dora, "--use_dora on mixtures of experts is not available with ", kStages,
           ": leave it out");
    refuse(c_.model->hands_on_more, kStages, " is not available for ", type(), " models", kGivenMore);
  }

  // What looks at more than one batch at a time, or draws answers, would count the rows of processes that share them
  // as many times as there are processes.
  void tokens() {
    refuse(draws() && !c_.algorithm->shares_answers, kTokens, " is not available for ", c_.asked,
           ", which draws answers: use --deepspeed zero3");
    refuse(!c_.needs.rows_apart.empty(), c_.needs.rows_apart, " is not available with ", kTokens,
           ": leave one of them out");
    refuse(!c_.needs.ahead.empty(), c_.needs.ahead, " is not available with ", kTokens,
           ": the token behind the last one of a part is another process' first: use --deepspeed zero3");
    refuse(c_.noise, "--neftune_noise_alpha draws its noise for whole rows: leave it out with ", kTokens);
    refuse(kind_.whole_rows, "--tuner_type ", c_.tuner,
           " halves the heads of the whole model over whole rows: leave out ", kTokens);
    if (!c_.model) return;
    refuse(c_.model->encoder, kTokens, " is not available for ", type(),
           " models, encoders whose texts are short: use --deepspeed zero3");
    refuse(!c_.model->sharing.no_way.empty(), kTokens, " is not available for ", type(), " models (",
           c_.model->sharing.no_way, "): --deepspeed zero3 makes room in another way");
    refuse(c_.model->hands_on_more, kTokens, " is not available for ", type(), " models", kGivenMore);
    refuse(c_.tensor == 1 && !c_.model->sharing.stay.empty() && head_sharers() > c_.model->heads, kTokens, " ",
           c_.tokens, ": these processes share out the heads of attention (", c_.model->sharing.stay, "), and ",
           c_.model_name, " has ", c_.model->heads, ": give that many at most");
  }

  // Each process holds rows of every weight.
  void slices() {
    refuse(c_.model && c_.model->by_distance, "--deepspeed zero3 is not available for ", type(),
           " models, all of whose layers read one table of distances: use --deepspeed zero2");
    refuse(c_.asks_reference,
           "--precompute_ref_log_probs asks a whole reference beforehand: leave it out with --deepspeed zero3, where "
           "the reference is shared out as well");
    refuse(c_.broadcasts,
           "--broadcast_weights sends whole weights, and each rank would hold a slice of them: copy the files instead");
    refuse(!kind_.cut && kind_.slices && !c_.shares_parts(), "--tuner_type ", c_.tuner,
           " is held whole by each process: use --deepspeed zero2 with it, or --tuner_type lora");
  }

  // Each process updates rows of every weight.
  void updates_of_rows() {
    const bool rows = c_.zero == 3 || c_.shares_parts() || c_.groups;
    refuse(
        rows && !c_.whole_matrices.empty(), c_.whole_matrices,
        " looks at whole matrices, of which each rank would hold some rows: use --deepspeed zero1 or zero2 alone, with "
        "which each matrix is one rank's, or adamw_torch, adamw_8bit or sgd");
    refuse(
        !c_.averaging.empty(), c_.averaging,
        " evaluates and saves an average of whole weights, of which each rank would hold some rows: use adamw_torch, "
        "adamw_8bit or sgd with --deepspeed and --fsdp");
    refuse(c_.some_layers,
           "--lisa_activated_layers gives some layers no state at all, and ranks would share out that of all: leave "
           "out --deepspeed and --fsdp, or train all layers");
    refuse(!kind_.slices && !c_.shares_parts(), "--tuner_type ", c_.tuner,
           " looks at all ranks of all layers after an update: leave out --deepspeed and --fsdp, or use --tuner_type "
           "lora");
  }

  // What is shared out of a step, its gradients and its rows, is not there.
  void answering() {
    const std::string flag = c_.zero > 0 ? "--deepspeed" : c_.stages > 1 ? kStages : c_.tokens > 1 ? kTokens : "";
    refuse(!flag.empty(), flag, " is of training: answers take ", kTensor, " and ", kExperts);
  }

  // In one process, too.
  void training() {
    refuse(c_.model && c_.model->encoder && (words() || c_.algorithm->command != "sft"), c_.asked,
           " is not available for ", type(),
           " models, encoders which give no words: train them by apus sft --task_type embedding, reranker, seq_cls or "
           "token_cls");
    refuse(c_.model && c_.model->encoder && kind_.whole_rows, "--tuner_type ", c_.tuner,
           " is of attention that looks back only, and ", type(), " models are encoders: use --tuner_type lora");
    refuse(c_.model && c_.model->pooled && kind_.whole_rows, "--tuner_type ", c_.tuner,
           " is of attention to tokens alone, and ", type(),
           " models look at keys that several tokens share: use --tuner_type lora");
    refuse(!kind_.answers && draws(), "--tuner_type ", c_.tuner, " is not available for ", c_.asked,
           ", which draws answers with the adapter: use --tuner_type lora");
    refuse(kind_.own_words && !draws() && c_.algorithm->cached_rows != "texts", "--tuner_type ", c_.tuner,
           " is not available for ", c_.asked, ", only for apus sft and pt: use --tuner_type lora");
    const std::string no_prompt = c_.model ? c_.model->takes_no_prompt : "";
    refuse(kind_.own_words && !no_prompt.empty(), "--tuner_type ", c_.tuner, " is not available for ", type(),
           " models: ", no_prompt, ". Use --tuner_type lora");
    refuse(kind_.own_words && (c_.generates || c_.benchmarks), "--tuner_type ", c_.tuner, " goes without ",
           c_.generates ? "--predict_with_generate" : "--eval_dataset",
           ": ask the checkpoints with apus infer or apus eval");
    refuse(!c_.watches_logits.empty() && (c_.stages > 1 || c_.updates_early), c_.watches_logits,
           " needs to know of all layers' attention before the update: leave out ",
           c_.stages > 1 ? kStages : "--update_in_backward true", ", or use --optimizer muon");
    refuse(!kind_.slices && c_.updates_early, "--update_in_backward true keeps no gradients, by which --tuner_type ",
           c_.tuner, " judges ranks: leave it out");
    refuse(!kind_.slices && c_.two_trained, "--tuner_type ", c_.tuner, " is not available for ", c_.asked,
           ", which trains a second model: use --tuner_type lora");
    refuse(!c_.needs.ahead.empty() && c_.model && c_.model->guess_like < 0, c_.needs.ahead, ": ", c_.model_name, " (",
           type(), ") has no head that guesses tokens ahead: leave it out");
    refuse(!c_.needs.met_experts.empty() && c_.model && c_.model->experts == 0, c_.needs.met_experts, ": ",
           c_.model_name, " (", type(),
           ") has no mixtures of experts, and no routers whose choice could be taken over: ", "leave it out");
    refuse(c_.fp8 && draws(), "--fp8_format is not available for ", c_.asked,
           ", whose answers are drawn by products of the weights' own type: leave it out");
    refuse(c_.fp8 && c_.quantised && c_.tuner != "full",
           "--fp8_format rounds what is multiplied by plain weights, and those of ", c_.model_name,
           " are quantised: leave one of them out");
    refuse(c_.quantised && c_.tuner == "full",
           "quantised weights cannot be trained: use --tuner_type lora, or leave out --quant_method");
    refuse(c_.asks_reference && !c_.algorithm->compares_rows,
           "--precompute_ref_log_probs asks the reference of every row beforehand, and ", c_.asked,
           " asks it for other things: leave it out");
    refuse(c_.benchmarks && (draws() || !words()), "--eval_dataset is not available for ", c_.asked,
           draws() ? ", which draws answers to learn from" : ", which gives no words",
           ": ask the checkpoints with apus eval");
    refuse(c_.benchmarks && (c_.shares_parts() || c_.tokens > 1 || c_.zero == 3),
           "--eval_dataset answers with the whole model on each process: leave it out with processes that share out "
           "the model or the tokens of a row (zero3 and its kin, --sequence_parallel_size, --*_model_parallel_size), "
           "and ask the checkpoints with apus eval");
  }

  const Combination& c_;
  const AdapterAbilities kind_ = adapter_abilities(c_.tuner);
  std::vector<std::string> found_;
};

}  // namespace

std::vector<std::string> refusals(const Combination& wanted) { return Rules(wanted).all(); }

void require_possible(const Combination& wanted) {
  const std::vector<std::string> wrong = refusals(wanted);
  require(wrong.empty(), Fault::Usage, join(wrong, "\n"));
}

}  // namespace apus
