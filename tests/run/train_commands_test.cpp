// SPDX-License-Identifier: Apache-2.0
// apus sft and export from options to files: evaluation by generation, cached datasets, models and rows by a hub's id.
#include "tests/run/train_commands.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/files.h"
#include "base/folder_lock.h"
#include "base/lines.h"
#include "checkpoint/adapter_config.h"
#include "cli/export.h"
#include "cli/infer.h"
#include "cli/init.h"
#include "cli/train.h"
#include "hub/repo.h"
#include "run/prediction.h"
#include "run/runner.h"
#include "tensor/safetensors.h"
#include "tests/hub/fake_hub.h"
#include "tests/paths.h"
#include "tests/refusal.h"
#include "text/tokenizer.h"

namespace apus {
namespace {
namespace fs = std::filesystem;

const std::string kCommit(40, 'c');

using test::TrainCommands;

TEST(LastAnswer, IsTheLastLearntStretch) {
  Sample sample{.ids = {10, 11, 12, 13, 14, 15, 16, 17}, .trained = {0, 0, 1, 0, 0, 1, 1, 0}};
  const auto [prompt, answer] = last_answer(sample);
  EXPECT_EQ(prompt, (std::vector<int32_t>{10, 11, 12, 13, 14}));
  EXPECT_EQ(answer, (std::vector<int32_t>{15, 16}));
  sample.trained.assign(8, 0);
  EXPECT_TRUE(last_answer(sample).first.empty());
}

TEST_F(TrainCommands, PredictionAnswersAsInferDoes) {
  const std::string rows = (island() / "heldout.jsonl").string();
  sft("predict",
      {"--dataset", rows, "--val_dataset", rows, "--predict_with_generate", "true", "--max_new_tokens", "8",
       "--learning_rate", "1e-2", "--save_steps", "2", "--lora_dropout", "0", "--per_device_eval_batch_size", "7"});
  const auto log = lines(dir() / "predict/logging.jsonl");
  const auto evaluation =
      std::find_if(log.begin(), log.end(), [](const Json& line) { return line.contains("eval_rouge-l"); });
  ASSERT_NE(evaluation, log.end());
  for (const char* name : {"eval_rouge-1", "eval_rouge-2", "eval_bleu-4", "eval_acc", "eval_loss"})
    EXPECT_TRUE(evaluation->contains(name)) << name;
  EXPECT_EQ(log.back()["metric_for_best_model"], "eval_rouge-l");

  const auto infer = parsed<InferOptions>({"--adapters", (dir() / "predict/checkpoint-2").string(), "--val_dataset",
                                           rows, "--result_path", (dir() / "answers.jsonl").string(), "--temperature",
                                           "0", "--max_new_tokens", "8", "--device", "cpu"});
  ASSERT_EQ(apus_run_command("infer", &infer), 0);
  const auto predicted = lines(dir() / "predict/predict.jsonl"), answered = lines(dir() / "answers.jsonl");
  ASSERT_EQ(predicted.size(), answered.size());
  for (size_t i = 0; i < answered.size(); ++i) {
    EXPECT_EQ(predicted[i]["response"], answered[i]["response"]) << i;
    EXPECT_EQ(predicted[i]["labels"], answered[i]["labels"]) << i;
  }
}

TEST_F(TrainCommands, KnownQuestionsAreAskedWithoutRowsForValidation) {
  const std::string rows = (dir() / "sums.jsonl").string(), asked = (dir() / "asked.jsonl").string();
  std::string talks, questions;
  for (const auto& [question, answer] : {std::pair{"1 + 1?", "2"}, {"2 + 2?", "4"}}) {
    talks += json_text({{"query", question}, {"response", answer}}) + "\n";
    questions += json_text({{"question", question}, {"answer", answer}}) + "\n";
  }
  questions += json_text({{"question", "2 + 3?"}, {"answer", "a word"}}) + "\n";
  write_file_atomic(rows, talks), write_file_atomic(asked, questions);
  sft("asked", {"--dataset", rows, "--tuner_type", "full", "--max_steps", "40", "--learning_rate", "3e-3",
                "--eval_steps", "40", "--save_steps", "40", "--eval_dataset", "gsm8k=" + asked,
                "--eval_generation_config", R"({"max_tokens": 4})", "--metric_for_best_model", "gsm8k"});
  const auto log = lines(dir() / "asked/logging.jsonl");
  const auto evaluation =
      std::find_if(log.begin(), log.end(), [](const Json& line) { return line.contains("eval_gsm8k"); });
  ASSERT_NE(evaluation, log.end());
  EXPECT_NEAR(evaluation->at("eval_gsm8k").get<double>(), 2.0 / 3, 1e-8);  // the log has eight digits
  EXPECT_FALSE(evaluation->contains("eval_loss"));
  EXPECT_EQ(log.back()["metric_for_best_model"], "eval_gsm8k");
  EXPECT_EQ(lines(dir() / "asked/eval/reviews.jsonl").size(), 3u);
}

TEST_F(TrainCommands, RowsOfTokensAreTrainedOnAfterAnInterruption) {
  const std::vector<std::string> more = {"--dataset",
                                         (island() / "heldout.jsonl").string(),
                                         "--new_special_tokens",
                                         "<a>",
                                         "<b>",
                                         "--trainable_token_indices",
                                         "<b>",
                                         "5",
                                         "--target_modules",
                                         "q_proj",
                                         "--learning_rate",
                                         "1e-2",
                                         "--save_steps",
                                         "1",
                                         "--lora_dropout",
                                         "0"};
  sft("rows", more);
  auto resumed = more;
  resumed.insert(resumed.end(), {"--resume_from_checkpoint", (dir() / "rows/checkpoint-1").string()});
  sft("rows_on", resumed);
  const auto file = [&](const char* run) { return read_file(dir() / run / "checkpoint-2/adapter_model.safetensors"); };
  EXPECT_EQ(file("rows"), file("rows_on"));
  EXPECT_NE(file("rows"), read_file(dir() / "rows/checkpoint-1/adapter_model.safetensors"));
  EXPECT_EQ(read_adapter_config(dir() / "rows/checkpoint-2").token_rows.at("").at(1), 5);
}

// Of all weights, in its own folder: what it came from is rotated away before it ends.
TEST_F(TrainCommands, GoesOnInItsFolderFromTheNewestCheckpoint) {
  const auto words = [](const std::string& steps, std::vector<std::string> more) {
    more.insert(more.end(), {"--dataset", (island() / "heldout.jsonl").string(), "--tuner_type", "full", "--max_steps",
                             steps, "--save_steps", "2", "--save_total_limit", "1", "--logging_steps", "1"});
    return sft_words("again", more);
  };
  const auto run = [&](const std::string& steps, const std::vector<std::string>& more) {
    const auto options = parsed<TrainRun>(words(steps, more));
    ASSERT_EQ(apus_run_command("train", &options), 0);
  };
  run("4", {"--resume_from_checkpoint", "auto"});  // there is none, and a new run begins
  test::expect_says(test::refusal(Fault::Usage, [&] { parsed<TrainRun>(words("6", {})); }),
                    "holds checkpoint-4 of an earlier run, and this one would begin at step 1 beside it");
  fs::create_directory(dir() / "again/checkpoint-5");  // not whole
  for (const char* word : {"true", "last"})
    EXPECT_EQ(parsed<TrainRun>(words("9", {"--resume_from_checkpoint", word})).folder.resume_from_checkpoint,
              (dir() / "again/checkpoint-4").string());
  fs::remove(dir() / "again/checkpoint-5");
  run("9", {"--resume_from_checkpoint", "auto"});
  EXPECT_FALSE(fs::exists(dir() / "again/checkpoint-4"));
  for (const char* file : {"config.json", "tokenizer.json", "optimizer.safetensors"})
    EXPECT_TRUE(fs::exists(dir() / "again/checkpoint-9" / file)) << file;
  EXPECT_EQ(lines(dir() / "again/logging.jsonl").size(), 9u + 2);  // each step once, and two summaries
}

TEST_F(TrainCommands, CachedLabelsTrainAsTheirRows) {
  LineWriter rows((dir() / "labelled.jsonl").string());
  for (int i = 0; i < 20; ++i)
    rows.write(json_text({{"messages", {{{"role", "user"}, {"content", str("number ", i)}}}}, {"label", i % 3}}));
  rows.close();
  const std::vector<std::string> kind = {"--task_type", "seq_cls", "--num_labels", "3"};
  const auto with = [&](std::vector<std::string> words) {
    words.insert(words.end(), kind.begin(), kind.end());
    return words;
  };
  const auto cache =
      parsed<ExportOptions>(with({"--to_cached_dataset", "true", "--model", (dir() / "model").string(), "--dataset",
                                  (dir() / "labelled.jsonl").string(), "--output_dir", (dir() / "labels").string()}));
  ASSERT_EQ(apus_run_command("export", &cache), 0);
  const auto first_loss = [&](const char* out, const char* flag, const fs::path& from) {
    const auto run = parsed(sft_words(out, with({flag, from.string()})), TrainRun("seq_cls"));
    EXPECT_EQ(apus_run_command("train", &run), 0);
    return lines(dir() / out / "logging.jsonl").front()["loss"];
  };
  EXPECT_EQ(first_loss("labels_cached", "--cached_dataset", dir() / "labels/train"),
            first_loss("labels_rows", "--dataset", dir() / "labelled.jsonl"));
  const std::vector<std::string> encode = {"--to_cached_dataset", "true", "--model", "x", "--dataset", "y"};
  auto both = encode, embedding = encode;
  both.insert(both.end(), {"--task_type", "seq_cls", "--template_mode", "rlhf"});
  embedding.insert(embedding.end(), {"--task_type", "embedding"});
  test::expect_says(test::refusal(Fault::Usage, [&] { parsed<ExportOptions>(both); }), "one of the two");
  test::expect_says(test::refusal(Fault::Usage, [&] { parsed<ExportOptions>(embedding); }),
                    "give the run the rows themselves");
}

TEST_F(TrainCommands, CachedDatasetTrainsAsItsRows) {
  const std::string rows = (island() / "heldout.jsonl").string();
  const auto words = std::vector<std::string>{"--to_cached_dataset",
                                              "true",
                                              "--model",
                                              (dir() / "model").string(),
                                              "--dataset",
                                              rows,
                                              "--dataset_shuffle",
                                              "false",
                                              "--split_dataset_ratio",
                                              "0.1",
                                              "--max_length",
                                              "64",
                                              "--output_dir",
                                              (dir() / "cache").string()};
  const auto cache = parsed<ExportOptions>(words);
  ASSERT_EQ(apus_run_command("export", &cache), 0);
  EXPECT_THROW(parsed<ExportOptions>(words), Error);  // the folder is there already
  sft("cached", {"--cached_dataset", (dir() / "cache/train").string(), "--cached_val_dataset",
                 (dir() / "cache/val").string(), "--max_length", "64"});
  sft("uncached",
      {"--dataset", rows, "--dataset_shuffle", "false", "--split_dataset_ratio", "0.1", "--max_length", "64"});
  const auto a = lines(dir() / "cached/logging.jsonl"), b = lines(dir() / "uncached/logging.jsonl");
  EXPECT_EQ(a.front()["loss"], b.front()["loss"]);
  EXPECT_EQ(a.back()["val_dataset"], b.back()["val_dataset"]);
  const auto other = parsed<TrainRun>(
      sft_words("refused", {"--cached_dataset", (dir() / "cache/train").string(), "--max_length", "32"}));
  try {
    apus_run_command("train", &other);
    FAIL() << "a cache that was encoded another way is used";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("max_length: "), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(" there, 32 here"), std::string::npos) << error.what();
  }
}

TEST_F(TrainCommands, AdaptersBringTheirTemplateAndThoseOfOtherProgramsTheirModel) {
  sft("chatml", {"--dataset", (island() / "heldout.jsonl").string(), "--template", "chatml"});
  const fs::path adapter = dir() / "chatml/checkpoint-2";
  const auto asked = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"--adapters", adapter.string()});
    return parsed<InferOptions>(more);
  };
  EXPECT_EQ(asked({}).prompt.builtin, "chatml");
  EXPECT_EQ(asked({"--chat_template", "{{ messages }}"}).prompt.chat_template, "{{ messages }}");
  // As another program of this dialect writes it: its own names for families and templates.
  write_file_atomic(adapter / "args.json", Json{{"model", (dir() / "model").string()},
                                                {"model_type", "qwen2_5"},
                                                {"template", "qwen2_5"},
                                                {"system", "Be brief."}}
                                               .dump());
  const InferOptions other = asked({});
  EXPECT_EQ(other.model.model, (dir() / "model").string());
  EXPECT_EQ(other.model.model_type, std::nullopt);
  EXPECT_EQ(other.prompt.builtin + other.prompt.chat_template, "");
  EXPECT_EQ(other.prompt.system, "Be brief.");
}

TEST_F(TrainCommands, RowsEndWhereTheModelDoes) {
  const std::string words(4000, 'x');
  write_file_atomic(dir() / "long.jsonl", "{\"text\":\"short\"}\n{\"text\":\"" + words + "\"}\n");
  sft("long", {"--dataset", (dir() / "long.jsonl").string(), "--max_steps", "1"});
  EXPECT_NE(read_file(dir() / "long/rejected.jsonl").find("larger than the max_length(512)"), std::string::npos);
  sft("packed", {"--dataset", (island() / "heldout.jsonl").string(), "--packing", "true", "--max_steps", "1"});
  const Json state = Json::parse(read_file(dir() / "packed/checkpoint-1/apus_state.json"));
  EXPECT_EQ(state["exact"]["packing_length"], 512);
}

TEST_F(TrainCommands, ARunFromAnAdapterIsResumedWithTheAdaptersShape) {
  const std::string rows = (island() / "heldout.jsonl").string();
  const auto at = [&](const char* run, const char* step) { return (dir() / run / step).string(); };
  sft("first", {"--dataset", rows, "--lora_rank", "4", "--use_rslora", "true"});
  const std::vector<std::string> on = {"--dataset",    rows, "--adapters", at("first", "checkpoint-2"),
                                       "--save_steps", "2"};
  const auto steps = [&](const char* count, std::vector<std::string> more) {
    std::vector<std::string> words = on;
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.end(), {"--max_steps", count, "--lr_scheduler_type", "constant"});
    return words;
  };
  sft("whole", steps("4", {}));
  sft("half", steps("2", {}));
  sft("other", steps("4", {"--resume_from_checkpoint", at("half", "checkpoint-2")}));
  const auto weights = [&](const char* run) {
    return read_file(fs::path(at(run, "checkpoint-4")) / "adapter_model.safetensors");
  };
  EXPECT_EQ(weights("whole"), weights("other"));
  EXPECT_EQ(Json::parse(read_file(fs::path(at("other", "checkpoint-4")) / "adapter_config.json"))["r"], 4);
}

TEST_F(TrainCommands, ACheckpointHoldsWhatOtherToolsLookFor) {
  sft("files", {"--dataset", (island() / "heldout.jsonl").string(), "--lora_rank", "4", "--lorap_lr_ratio", "16"});
  const fs::path dir = this->dir() / "files/checkpoint-2";
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(dir)) names.insert(entry.path().filename());
  EXPECT_EQ(names, (std::set<std::string>{"README.md", "adapter_config.json", "adapter_model.safetensors",
                                          "additional_config.json", "apus_state.json", "args.json",
                                          "optimizer.safetensors", "trainer_state.json"}));
  // transformers' TrainerState takes these keys and no others.
  std::set<std::string> keys;
  const Json state = Json::parse(read_file(dir / "trainer_state.json"));
  for (const auto& [key, value] : state.items()) keys.insert(key);
  EXPECT_EQ(keys, (std::set<std::string>{"best_global_step",
                                         "best_metric",
                                         "best_model_checkpoint",
                                         "epoch",
                                         "eval_steps",
                                         "global_step",
                                         "is_hyper_param_search",
                                         "is_local_process_zero",
                                         "is_world_process_zero",
                                         "log_history",
                                         "logging_steps",
                                         "max_steps",
                                         "num_input_tokens_seen",
                                         "num_train_epochs",
                                         "save_steps",
                                         "stateful_callbacks",
                                         "total_flos",
                                         "train_batch_size",
                                         "trial_name",
                                         "trial_params"}));
  const Json config = Json::parse(read_file(dir / "adapter_config.json"));
  for (const char* key : {"target_parameters", "ensure_weight_tying"}) EXPECT_TRUE(config.contains(key)) << key;
  EXPECT_EQ(Json::parse(read_file(dir / "additional_config.json")),
            (Json{{"lora_dtype", nullptr}, {"lorap_lr_ratio", 16.0}, {"lorap_emb_lr", 1e-6}}));
  const std::string card = read_file(dir / "README.md"), base = (this->dir() / "model").string();
  EXPECT_TRUE(card.starts_with("---\nbase_model: \"" + base + "\"\nlibrary_name: peft\n")) << card;
  EXPECT_NE(card.find("- \"base_model:adapter:" + base + "\"\n- lora\n"), std::string::npos) << card;
}

// With a learning rate of 0 no evaluation is better than the first.
TEST_F(TrainCommands, AResumedRunCountsItsEvaluationsOn) {
  const std::string rows = (island() / "heldout.jsonl").string();
  const auto stopped_at = [&](const std::string& out, std::vector<std::string> more) {
    more.insert(more.begin(), {"--dataset", rows, "--val_dataset", rows + "#4", "--learning_rate", "0", "--eval_steps",
                               "1", "--save_steps", "1", "--early_stop_interval", "2"});
    sft(out, more);
    return lines(dir() / out / "logging.jsonl").back()["global_step"].get<int64_t>();
  };
  EXPECT_EQ(stopped_at("early_whole", {"--max_steps", "6"}), 3);
  EXPECT_EQ(stopped_at("early_half", {"--max_steps", "2"}), 2);
  const std::string from = (dir() / "early_half/checkpoint-2").string();
  EXPECT_EQ(stopped_at("early_rest", {"--max_steps", "6", "--resume_from_checkpoint", from}), 3);
}

// A log line tells of the steps since the line before it, also where the run was interrupted between the two.
TEST_F(TrainCommands, TheFirstLineAfterAResumeTellsOfItsWholeWindow) {
  const auto line_of_step_4 = [&](const std::string& out, const std::vector<std::string>& more) {
    std::vector<std::string> words = {"--dataset",
                                      (island() / "heldout.jsonl").string(),
                                      "--max_steps",
                                      "4",
                                      "--save_steps",
                                      "3",
                                      "--logging_steps",
                                      "4",
                                      "--logging_first_step",
                                      "false",
                                      "--learning_rate",
                                      "1e-2"};
    words.insert(words.end(), more.begin(), more.end());
    sft(out, words);
    Json line = lines(dir() / out / "logging.jsonl").front();
    EXPECT_EQ(line["global_step/max_steps"], "4/4");
    for (const char* changing : {"elapsed_time", "remaining_time", "memory(GiB)", "train_speed(s/it)", "tokens/s"})
      line.erase(changing);
    return line;
  };
  const Json whole = line_of_step_4("window_whole", {});
  const std::string from = (dir() / "window_whole/checkpoint-3").string();
  const Json resumed = line_of_step_4("window_rest", {"--resume_from_checkpoint", from});
  EXPECT_EQ(whole, resumed) << whole << "\n" << resumed;
}

// Two runs in one folder would write over each other's checkpoints; the second is told whose folder it is.
TEST_F(TrainCommands, AFolderThatARunWritesInIsRefused) {
  fs::create_directories(dir() / "locked");
  const FolderLock held(dir() / "locked");
  const fs::path program = test::binary_dir() / "apus";
  std::string command = program.string() + " sft";
  for (const std::string& word : sft_words("locked", {"--dataset", (island() / "heldout.jsonl").string()}))
    command += " '" + word + "'";
  const fs::path said = dir() / "locked.txt";
  const int status = std::system((command + " >" + said.string() + " 2>&1").c_str());
  EXPECT_EQ(WEXITSTATUS(status), 2) << read_file(said);
  EXPECT_NE(read_file(said).find(std::to_string(::getpid())), std::string::npos) << read_file(said);
  EXPECT_FALSE(fs::exists(dir() / "locked/logging.jsonl"));
}

TEST_F(TrainCommands, AResumedRunSaysWhatWasChanged) {
  const std::string rows = (island() / "heldout.jsonl").string();
  sft("changed", {"--dataset", rows, "--save_steps", "1"});
  const auto options = parsed<TrainRun>(
      sft_words("changed_on", {"--dataset", rows, "--lora_alpha", "64", "--use_rslora", "true",
                               "--resume_from_checkpoint", (dir() / "changed/checkpoint-1").string()}));
  try {
    apus_run_command("train", &options);
    FAIL() << "the factors would count twice as much";
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("lora_alpha: 32.0 there, 64.0 here"), std::string::npos) << what;
    EXPECT_NE(what.find("use_rslora: false there, true here"), std::string::npos) << what;
  }
}

TEST_F(TrainCommands, InitKeepsTheConfigsNumberFormat) {
  Json config = Json::parse(read_file(island() / "config.json"));
  config.erase("torch_dtype");
  config["dtype"] = "float32";
  write_file_atomic(dir() / "f32.json", config.dump());
  InitOptions o;
  o.config = (dir() / "f32.json").string(), o.tokenizer = island().string(), o.output_dir = (dir() / "f32").string();
  ASSERT_EQ(apus_run_command("init", &o), 0);
  const Json made = Json::parse(read_file(dir() / "f32/config.json"));
  EXPECT_EQ(made["dtype"], "float32");
  EXPECT_FALSE(made.contains("torch_dtype"));
}

// What ends an answer is the tokenizer's; and every one of its tokens needs a row of the embedding.
TEST_F(TrainCommands, InitFitsTheConfigToItsTokenizer) {
  Json config = Json::parse(read_file(island() / "config.json"));
  const Json own = config["eos_token_id"];
  config["eos_token_id"] = nullptr, config.erase("pad_token_id");
  const auto init = [&](const char* name) {
    write_file_atomic(dir() / "ids.json", config.dump());
    InitOptions o;
    o.config = (dir() / "ids.json").string(), o.tokenizer = island().string(), o.output_dir = (dir() / name).string();
    return apus_run_command("init", &o);
  };
  ASSERT_EQ(init("ids"), 0);
  EXPECT_EQ(Json::parse(read_file(dir() / "ids/config.json"))["eos_token_id"], own);
  EXPECT_EQ(Json::parse(read_file(dir() / "ids/generation_config.json"))["eos_token_id"], own);
  config["vocab_size"] = 100;
  EXPECT_THROW(init("small"), Error);
  EXPECT_FALSE(fs::exists(dir() / "small")) << "nothing is begun";
}

TEST_F(TrainCommands, AStreamEndsAfterMaxEpochs) {
  const std::string rows = (island() / "heldout.jsonl").string() + "#8";
  const auto steps = [&](const std::string& out, const char* max_steps, const char* max_epochs) {
    sft(out, {"--dataset", rows, "--streaming", "true", "--per_device_train_batch_size", "8", "--max_steps", max_steps,
              "--max_epochs", max_epochs});
    return lines(dir() / out / "logging.jsonl").back()["global_step"].get<int64_t>();
  };
  EXPECT_EQ(steps("stream_counted", "-1", "2"), 2);
  EXPECT_EQ(steps("stream_limited", "100", "1"), 1);
}

TEST_F(TrainCommands, UpdatesInBackwardGiveTheSameCheckpoint) {
  const std::vector<std::string> words = {"--dataset",       (island() / "heldout.jsonl").string(),
                                          "--tuner_type",    "full",
                                          "--optim",         "adamw_8bit",
                                          "--torch_dtype",   "bfloat16",
                                          "--max_grad_norm", "0",
                                          "--save_steps",    "2"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), words.begin(), words.end());
    return more;
  };
  sft("ordinary", words);
  sft("in_backward", with({"--update_in_backward", "true"}));
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    EXPECT_EQ(read_file(dir() / "ordinary/checkpoint-2" / file, 1 << 30),
              read_file(dir() / "in_backward/checkpoint-2" / file, 1 << 30))
        << file;
  const auto refused = [&](std::vector<std::string> more, const char* why) {
    try {
      parsed<TrainRun>(sft_words("refused", with(std::move(more))));
      ADD_FAILURE() << "must be refused: " << why;
    } catch (const Error& e) {
      EXPECT_EQ(e.at.fault, Fault::Usage);
      EXPECT_NE(std::string(e.what()).find(why), std::string::npos) << e.what();
    }
  };
  refused({"--update_in_backward", "true", "--max_grad_norm", "1"}, "give --max_grad_norm 0");
  refused({"--clip_in_backward", "last_norm"}, "belongs to --update_in_backward");
  // A pass that measures the norm before makes clipping exact; the norm of the step before is another one.
  const auto clipped = [&](const std::string& out, std::vector<std::string> more) {
    more.insert(more.begin(), {"--max_grad_norm", "0.05", "--optim", "adamw_torch", "--torch_dtype", "float32"});
    sft(out, with(more));
    return read_file(dir() / out / "checkpoint-2/model.safetensors", 1 << 30);
  };
  const std::string exact = clipped("clipped", {});
  EXPECT_TRUE(exact == clipped("clipped_two", {"--update_in_backward", "true", "--clip_in_backward", "second_pass"}));
  EXPECT_FALSE(exact == clipped("clipped_last", {"--update_in_backward", "true", "--clip_in_backward", "last_norm"}));
  refused({"--update_in_backward", "true", "--gradient_accumulation_steps", "2"}, "--gradient_accumulation_steps 1");
  ::setenv("NPROC_PER_NODE", "2", 1);
  refused({"--update_in_backward", "true"}, "for one process, not for 2");
  ::unsetenv("NPROC_PER_NODE");
}

// Tokens that the checkpoint does not know, in an embedding that had no room for them: trained, saved, asked again.
TEST_F(TrainCommands, NewTokensGrowTheEmbeddingAndTheirCheckpointsWork) {
  ::setenv("XDG_CACHE_HOME", (dir() / "cache").c_str(), 1);
  const std::string rows = (island() / "heldout.jsonl").string();
  const auto vocabulary = [&](const fs::path& folder) {
    return Json::parse(read_file(folder / "config.json"))["vocab_size"].get<int64_t>();
  };
  std::vector<std::string> words = {"--dataset", rows, "--new_special_tokens", "<reach-a>", "<reach-b>"};
  for (int64_t i = 0; i < 200; ++i) words.push_back("<more-" + std::to_string(i) + ">");
  for (const char* word : {"--save_steps", "2", "--rope_scaling", "yarn", "--max_model_len", "4096"})
    words.push_back(word);
  const int64_t before = vocabulary(dir() / "model");
  auto full = words;
  full.insert(full.end(), {"--tuner_type", "full"});
  sft("new_tokens", full);
  const fs::path saved = dir() / "new_tokens/checkpoint-2";
  EXPECT_GT(vocabulary(saved), before);
  EXPECT_EQ(vocabulary(saved) % 128, 0);
  EXPECT_EQ(Tokenizer::load(saved)->encode("<reach-b>").size(), 1u);
  EXPECT_EQ(Json::parse(read_file(saved / "config.json"))["rope_scaling"]["rope_type"], "yarn");
  EXPECT_EQ(vocabulary(dir() / "model"), before) << "the model itself stays as it is";

  auto lora = words;
  lora.insert(lora.end(), {"--modules_to_save", "embed_tokens", "lm_head"});
  sft("new_tokens_lora", lora);
  const std::string adapter = (dir() / "new_tokens_lora/checkpoint-2").string();
  EXPECT_EQ(read_adapter_config(adapter).base_model, (dir() / "model").string());
  auto merge = parsed<ExportOptions>(
      {"--merge_lora", "true", "--adapters", adapter, "--output_dir", (dir() / "new_merged").string()});
  ASSERT_EQ(apus_run_command("export", &merge), 0);
  EXPECT_EQ(vocabulary(dir() / "new_merged"), vocabulary(saved));
  for (const std::vector<std::string>& which : {std::vector<std::string>{"--model", saved.string()},
                                                {"--adapters", adapter},
                                                {"--model", (dir() / "new_merged").string()}}) {
    std::vector<std::string> ask = which;
    const std::string result = (dir() / "new_answers.jsonl").string();
    ask.insert(ask.end(), {"--val_dataset", rows + "#1", "--result_path", result, "--resume", "false", "--device",
                           "cpu", "--max_new_tokens", "3", "--temperature", "0"});
    const auto options = parsed<InferOptions>(ask);
    ASSERT_EQ(apus_run_command("infer", &options), 0) << which[1];
    EXPECT_EQ(lines(result).size(), 1u);
  }
  ::unsetenv("XDG_CACHE_HOME");
}

TEST_F(TrainCommands, ModelAndRowsFromAHub) {
  FakeHub hub;
  const auto put = [&](const std::string& kind, const std::string& id, const std::vector<fs::path>& files) {
    Json siblings = Json::array();
    for (const fs::path& file : files) {
      const std::string name = file.filename().string();
      siblings.push_back({{"rfilename", name}});
      hub.put((kind == "datasets" ? "/datasets/" : "/") + id + "/resolve/" + kCommit + "/" + name,
              {200,
               read_file(file, 1 << 30),
               {{"ETag", "\"" + git_sha1_of_file(file) + "\""}, {"X-Repo-Commit", kCommit}}});
    }
    hub.put("/api/" + kind + "/" + id + "/revision/main",
            {200, Json{{"sha", kCommit}, {"siblings", siblings}}.dump(), {}});
  };
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(dir() / "model")) files.push_back(entry.path());
  put("models", "island/tiny", files);
  fs::create_directories(dir() / "rows/more");
  fs::copy_file(island() / "questions.jsonl", dir() / "rows/questions.jsonl");
  put("datasets", "island/questions", {dir() / "rows/questions.jsonl"});
  ::setenv("HF_ENDPOINT", hub.url().c_str(), 1), ::setenv("HF_HUB_CACHE", (dir() / "hub_cache").c_str(), 1);

  std::vector<std::string> words =
      sft_words("hub", {"--dataset", "island/questions#9", "--use_hf", "true", "--hub_token", "secret"});
  words[1] = "island/tiny";
  const auto options = parsed<TrainRun>(words);
  EXPECT_EQ(fs::path(options.model.model), dir() / "hub_cache/models--island--tiny/snapshots" / kCommit);
  ASSERT_EQ(apus_run_command("train", &options), 0);
  EXPECT_NE(lines(dir() / "hub/logging.jsonl").back()["train_dataset"].get<std::string>().find("size=9"),
            std::string::npos);
  const std::string args = read_file(dir() / "hub/args.json", 1 << 20);
  EXPECT_EQ(args.find("secret"), std::string::npos);
  EXPECT_EQ(Json::parse(args)["model"], "island/tiny");
  // By the id of args.json.
  EXPECT_EQ(parsed<InferOptions>({"--adapters", (dir() / "hub/checkpoint-2").string()}).model.model,
            options.model.model);
  bool with_token = false;
  for (const std::string& request : hub.requests())
    with_token = with_token || request.find("auth=Bearer secret") != std::string::npos;
  EXPECT_TRUE(with_token);

  words[1] = "island/none";
  EXPECT_THROW(parsed<TrainRun>(words), Error);
  ::unsetenv("HF_ENDPOINT"), ::unsetenv("HF_HUB_CACHE");
}

}  // namespace
}  // namespace apus
