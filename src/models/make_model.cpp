// SPDX-License-Identifier: Apache-2.0
#include "models/encoder_model.h"
#include "models/model.h"
#include "models/seeing_decoder.h"
#include "models/spec/family.h"

namespace apus {

std::unique_ptr<Model> make_model(const Json& config, Head head, bool guesses) {
  DecoderSpec spec = describe_model(config, head);
  require(!guesses || spec.guess, Fault::Model, "this model (", config.value("model_type", ""),
          ") has no head that guesses tokens ahead: guess from the text, by {\"method\": \"ngram\"}, or by a small "
          "model of the same tokenizer, {\"model\": DIR}");
  if (!guesses) spec.guess.reset();
  mention_own_code(Config(config));
  std::unique_ptr<Model> model;
  if (spec.encoder)
    model = std::make_unique<EncoderModel>(std::move(spec));
  else if (spec.seeing)
    model = std::make_unique<SeeingDecoder>(std::move(spec));
  else
    model = std::make_unique<Decoder>(std::move(spec));
  model->set_disk_form(model->disk_forms().front());
  return model;
}

}  // namespace apus
