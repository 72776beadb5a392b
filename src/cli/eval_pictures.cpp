// SPDX-License-Identifier: Apache-2.0
// The pictures of `apus eval`'s questions.
#include <filesystem>

#include "base/base64.h"
#include "base/error.h"
#include "base/files.h"
#include "cli/eval.h"
#include "data/rows/media_refs.h"
#include "media/image.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

constexpr std::string_view kData = "data:";

std::string ending_of(const std::string& bytes) {
  const std::string type = image_type(bytes);
  return type.empty() ? ".img" : "." + type.substr(type.find('/') + 1);
}

}  // namespace

void EvalOptions::check_pictures() const {
  const Json none = Json::object(), &all = eval_dataset_args.is_object() ? eval_dataset_args : none;
  for (const std::string& text : eval_dataset) {
    const std::string name = named_rows(text).first;
    const Benchmark& benchmark = benchmark_named(name);
    if (!benchmark.pictures) continue;
    require(eval_method == "generate" && !plain(), Fault::Usage, "--eval_dataset ", name,
            " shows pictures: the model writes its answer (--eval_method generate, --eval_prompts chat)");
    require(all.value(name, none).value("few_shot_num", 0) == 0, Fault::Usage, "--eval_dataset_args: ", name,
            " is asked without examples before its pictures: leave few_shot_num away");
    require(!benchmark.boxes || infer.base_url.empty(), Fault::Usage, "--eval_dataset ", name,
            " needs the model itself: what a server's boxes are counted in is not known");
  }
}

void EvalOptions::keep_pictures(Question& question, const Origin& origin) const {
  for (size_t i = 0; i < question.item.images.size(); ++i) {
    Json& image = question.item.images[i];
    const std::string entry = media_entry(image, origin, "images");
    if (entry.starts_with("http://") || entry.starts_with("https://")) continue;
    if (!entry.starts_with(kData)) {
      const fs::path beside = fs::path(*origin.file).parent_path() / entry;  // an absolute path stays one
      require(fs::exists(beside) || fs::exists(entry), Fault::Data, origin.text(), ": there is no picture ", entry,
              ", neither here nor beside ", *origin.file);
      image = fs::absolute(fs::exists(beside) ? beside : fs::path(entry)).string();
      continue;
    }
    if (infer.common.dry_run) continue;
    const std::string bytes = from_base64(std::string_view(entry).substr(entry.find(',') + 1));
    const fs::path kept = fs::path(folder) / "pictures" / str(questions.size(), "_", i + 1, ending_of(bytes));
    fs::create_directories(kept.parent_path());
    write_file_atomic(kept, bytes);
    image = fs::absolute(kept).string();
  }
  // What judges looks at words alone: pictures would fill the memory.
  for (const char* name : {"images", "decoded_image", "image"}) question.row.erase(name);
  for (int64_t i = 1; question.row.contains(str("image_", i)); ++i) question.row.erase(str("image_", i));
}

}  // namespace apus
