// SPDX-License-Identifier: Apache-2.0
#include "run/reference_model.h"

#include <algorithm>

#include "base/log.h"
#include "base/progress.h"
#include "checkpoint/weights.h"
#include "tensor/dtype.h"
#include "text/tokenizer.h"

namespace apus {
namespace fs = std::filesystem;
namespace {

// Frozen: its weights stay in the mapped files where the device allows it, so they are shared with a policy that is not
// changed either.
void load_second(ReferenceModel& out, const TrainRun& o, const TunedModel& tuned, Mesh& mesh) {
  const fs::path dir = o.reference.ref_model.value_or(o.model.model);
  const Json config = read_model_config(dir);
  out.model = make_model(config);
  const int64_t tokens = Tokenizer::load(o.model.model)->vocab_size(), known = out.model->known_words();
  require(known >= tokens, Fault::Usage, "--ref_model ", dir.string(), " knows ", known,
          " tokens, and the tokenizer of ", o.model.model, " has ", tokens,
          ": the reference must read what the policy reads");
  place_on(*out.model, mesh, o.mesh);
  const TensorFolder source(dir);
  const auto quantised = quantised_weights(config, o.quantise, dir);
  load_weights(*out.model, source, {.dtype = tuned.dtype, .device = mesh.device(), .quantised = quantised.get()});
  if (!o.reference.ref_adapters.empty()) out.adapter = load_adapter(*out.model, o.reference.ref_adapters[0]);
  out.model->visit([](const std::string&, Param& p) { p.trainable = false; });
  out.sharded = shard_model(*out.model, mesh, o.mesh.sharding());
  log_info("compared with ", dir.string(), out.adapter ? " and the adapter " + o.reference.ref_adapters[0] : "");
}

void ask_all(ReferenceModel& out, SampleSource& rows, const char* title, Mesh& mesh) {
  Progress progress(title, rows.size());
  rows.start(0);
  for (auto samples = rows.next(); samples; samples = rows.next(), progress.advance()) {
    const Batch host = collate(*samples);
    if (out.record.knows(host)) continue;
    const Batch batch = host.to(mesh.device());
    out.record.add(batch, out.compare->logprobs(batch));
  }
  out.record.share(mesh.host(kDataAxes));
}

// What the reference is, by the files that it comes from: their names, sizes and times. Another dtype or kind of device
// gives other numbers.
std::string identity(const TrainRun& o, const TunedModel& tuned, Mesh& mesh) {
  std::string out = str("reference 1 ", c10::Device(mesh.device().type()).str(), " ", float_type_name(tuned.dtype));
  std::vector<fs::path> folders = {o.reference.ref_model.value_or(o.model.model)};
  for (const std::string& adapter : o.reference.ref_adapters) folders.push_back(adapter);
  for (const fs::path& folder : folders) {
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.path().extension() == ".safetensors" || entry.path().extension() == ".bin")
        files.push_back(str(" ", entry.path().filename().string(), " ", fs::file_size(entry.path()), " ",
                            fs::last_write_time(entry.path()).time_since_epoch().count()));
    std::sort(files.begin(), files.end());
    out += "\n" + fs::weakly_canonical(folder).string();
    for (const std::string& file : files) out += file;
  }
  return out;
}

}  // namespace

std::unique_ptr<ReferenceModel> load_reference(const TrainRun& o, const TunedModel& tuned, TrainData& data,
                                               Mesh& mesh) {
  auto out = std::make_unique<ReferenceModel>();
  if (!o.own.uses_reference()) return out;
  const bool own = !o.reference.ref_model && o.reference.ref_adapters.empty();
  if (own) out->compare = tuned.reference();
  if (!out->compare) {
    load_second(*out, o, tuned, mesh);
    out->compare = Reference::of(*out->model);
  }
  if (!o.reference.precompute_ref_log_probs) return out;
  const std::optional<fs::path> kept = o.reference.ref_log_probs_file;
  const std::string of = kept ? identity(o, tuned, mesh) : "";
  const bool found = kept && out->record.load(*kept, of);
  if (found) log_info("log-probabilities of the reference: ", out->record.size(), " sequences from ", kept->string());
  const int64_t before = out->record.size();
  ask_all(*out, *data.train, "Reference", mesh);
  if (data.eval) ask_all(*out, *data.eval, "Reference, validation", mesh);
  if (kept && mesh.rank(kDataAxes) == 0 && out->record.size() > before) out->record.save(*kept, of);
  out->compare = Reference::recorded(out->record);
  out->model.reset(), out->adapter.reset();
  log_info("log-probabilities of the reference: ", out->record.size(), " sequences");
  return out;
}

}  // namespace apus
