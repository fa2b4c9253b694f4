// Every case of kind "models": logits, loss and all gradients against transformers, in both row layouts, and
// greedy continuations. Rotary rules that depend on a length take the batch's, as transformers does.
#include <ATen/ops/tensor.h>

#include <map>
#include <nlohmann/json.hpp>

#include "apus/base/json.h"
#include "apus/base/safetensors.h"
#include "apus/base/support_matrix.h"
#include "apus/models/decoder.h"
#include "apus/models/pretrained.h"
#include "tests/support/case_folder.h"
#include "tests/support/model_case.h"
#include "tests/support/tensor_checks.h"

namespace apus::models {
namespace {

using namespace apus::testing;
namespace fs = std::filesystem;

void check_logits(nn::CausalLm& model, const Golden& golden, const Rows& rows) {
  const at::NoGradGuard no_grad;
  nn::PassContext context;
  context.rows = rows.layout;
  at::Tensor found = model.logits(rows.tokens_T, context);
  if (rows.real_T.defined()) found = found.index_select(0, rows.real_T);
  const at::Tensor real = golden.mask_BS.flatten().nonzero().squeeze(1);
  const at::Tensor wanted = stored(golden.file, "logits").flatten(0, 1).index_select(0, real);
  expect_close(found, wanted, {.absolute = 2e-5, .relative = 1e-4}, "logits");
}

void check_loss_and_gradients(nn::CausalLm& model, const Golden& golden, const Rows& rows,
                              const fs::path& folder) {
  nn::make_trainable(model);
  const double count = stored(golden.file, "loss_count").item<double>();
  EXPECT_EQ(static_cast<double>(rows.targets_M.numel()), count);
  const at::Tensor loss = loss_sum(model, rows);
  const double wanted_loss = stored(golden.file, "loss_sum").item<double>();
  EXPECT_NEAR(loss.item<double>(), wanted_loss, 1e-5 * std::abs(wanted_loss));
  (loss / count).backward();
  const SafetensorsFile grads(folder / "grads.safetensors");
  const auto parameters = model.named_parameters();
  EXPECT_EQ(parameters.size(), grads.tensors().size());
  for (const auto& [name, tensor] : parameters) {
    const at::Tensor wanted = stored(grads, name);
    expect_close(tensor.grad(), wanted, {.absolute = 1e-4 * largest(wanted)}, name);
    tensor.mutable_grad().reset();
  }
}

/// Whether a greedy continuation is a function of its tokens alone: under a rule that depends on the length
/// it is not, once keys stay in a cache as they were turned for a shorter sequence.
bool generates_plainly(const PretrainedModel& loaded, int64_t length) {
  const auto* decoder = dynamic_cast<const Decoder*>(loaded.model.get());
  if (!decoder) return true;
  const DecoderConfig& config = decoder->config();
  const int64_t first = config.rope_scaling.type == ops::RopeType::kLongrope
                            ? config.rope_scaling.original_max_position_embeddings
                            : config.max_position_embeddings;
  return !ops::depends_on_length(config.rope_scaling) || length <= first;
}

/// The most likely token after each prefix of the golden continuation is the golden one.
void check_generations(const PretrainedModel& loaded, const fs::path& folder) {
  const nlohmann::json golden = load_json_file(folder / "golden.json");
  for (const nlohmann::json& generation : golden.value("generation", nlohmann::json::array())) {
    auto tokens = generation.at("prompt").get<std::vector<int64_t>>();
    const auto wanted = generation.at("new_tokens").get<std::vector<int64_t>>();
    const auto prompt = static_cast<int64_t>(tokens.size());
    tokens.insert(tokens.end(), wanted.begin(), wanted.end());
    const auto length = static_cast<int64_t>(tokens.size());
    if (!generates_plainly(loaded, length)) continue;
    const at::NoGradGuard no_grad;
    nn::PassContext context;
    context.rows = nn::RowLayout::packed({length});
    const at::Tensor logits = loaded.model->logits(at::tensor(tokens, at::kLong), context);
    const at::Tensor best = logits.argmax(-1).narrow(0, prompt - 1, length - prompt);
    expect_equal(best, at::tensor(wanted, at::kLong), "greedy tokens");
  }
}

TEST(ModelsParity, LogitsLossAndGradientsEqualTransformers) {
  ModelRegistry registry;
  register_builtin_models(registry);
  cases::NotRunCases not_run;
  int run = 0;
  for (const fs::path& folder : cases::find_cases("models", is_model_case)) {
    const std::string name = cases::case_name(folder);
    SCOPED_TRACE(name);
    const std::string model_type = load_json_file(folder / "config.json").at("model_type");
    const SupportEntry* entry = find_support("model_type", model_type);
    if (entry && entry->status == Support::kNotYet) {
      not_run.add(name, "model_type " + model_type);
      continue;
    }
    const PretrainedModel loaded = load_pretrained(folder, registry, {.rope_batch_length = true});
    const Golden golden(folder);
    for (const Rows& rows : {golden.padded(), golden.packed()}) {
      SCOPED_TRACE(rows.layout->is_packed() ? "packed" : "padded");
      check_logits(*loaded.model, golden, rows);
      check_loss_and_gradients(*loaded.model, golden, rows, folder);
    }
    check_generations(loaded, folder);
    ++run;
  }
  EXPECT_GT(run + not_run.count(), 0) << "no case of kind models below " << cases::cases_root();
  const int least = cases::cases_root() == cases::committed_cases_root() ? 6 : 0;
  EXPECT_GE(run, least);
}

}  // namespace
}  // namespace apus::models
