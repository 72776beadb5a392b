// SPDX-License-Identifier: Apache-2.0
// The logits of all positions of a row of tokens, as llama.cpp computes them from a GGUF file:
//   llama_logits MODEL.gguf OUT.f32 ID ID ...
#include <llama.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  std::vector<llama_token> ids;
  for (int i = 3; i < argc; ++i) ids.push_back(std::atoi(argv[i]));
  // Where its builds keep their code for kinds of processors apart.
  if (const char* folder = std::getenv("GGML_BACKENDS"))
    ggml_backend_load_all_from_path(folder);
  else
    ggml_backend_load_all();
  llama_backend_init();
  llama_model_params model_params = llama_model_default_params();
  model_params.n_gpu_layers = 0;
  llama_model* model = llama_model_load_from_file(argv[1], model_params);
  if (!model) return 3;
  llama_context_params params = llama_context_default_params();
  params.n_ctx = 256, params.n_batch = 256, params.n_ubatch = 256, params.n_threads = 1, params.n_threads_batch = 1;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.type_k = GGML_TYPE_F32, params.type_v = GGML_TYPE_F32;
  llama_context* context = llama_init_from_model(model, params);
  if (!context) return 4;
  llama_batch batch = llama_batch_init(static_cast<int32_t>(ids.size()), 0, 1);
  for (size_t i = 0; i < ids.size(); ++i) {
    batch.token[i] = ids[i], batch.pos[i] = static_cast<llama_pos>(i);
    batch.n_seq_id[i] = 1, batch.seq_id[i][0] = 0, batch.logits[i] = 1;
  }
  batch.n_tokens = static_cast<int32_t>(ids.size());
  if (llama_decode(context, batch) != 0) return 5;
  const auto words = static_cast<size_t>(llama_vocab_n_tokens(llama_model_get_vocab(model)));
  FILE* out = std::fopen(argv[2], "wb");
  if (!out) return 6;
  for (size_t i = 0; i < ids.size(); ++i)
    std::fwrite(llama_get_logits_ith(context, static_cast<int32_t>(i)), sizeof(float), words, out);
  return std::fclose(out);
}
