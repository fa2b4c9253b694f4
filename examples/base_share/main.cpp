// Prints how often a model by itself prefers the chosen answer: the share of preference pairs with
// logps/chosen > logps/rejected. What DPO starts from.
//
//   base_share MODEL_FOLDER PREFERENCES.jsonl
#include <apus/base/clock.h>
#include <apus/base/log.h>
#include <apus/data/batch.h>
#include <apus/data/collator.h>
#include <apus/data/prepare.h>
#include <apus/data/tokenizer_config.h>
#include <apus/models/pretrained.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/log_softmax.h>

#include <array>
#include <iostream>

namespace {

/// Log-probabilities of a batch's sequences under the model alone; nothing is trained, so no engine is
/// needed.
at::Tensor sequence_log_probs(apus::nn::CausalLm& model, const apus::data::Batch& batch) {
  const at::Tensor logits_TV = model.logits(batch.tokens_T, {.rows = batch.layout});
  const at::Tensor log_probs_MV =
      at::log_softmax(logits_TV.index_select(0, batch.target_rows_M).to(at::kFloat), -1);
  const at::Tensor log_probs_M = log_probs_MV.gather(1, batch.targets_M.unsqueeze(1)).squeeze(1);
  return log_probs_M.new_zeros({batch.layout->batch()}).index_add(0, batch.target_sequences_M, log_probs_M);
}

void print_share(const std::string& folder, const std::string& file) {
  apus::models::ModelRegistry registry;
  apus::models::register_builtin_models(registry);
  const auto loaded = apus::models::load_pretrained(folder, registry, {.dtype = at::kFloat});
  const auto tokenizer = apus::data::load_tokenizer_folder(folder);
  apus::SystemClock clock;
  const auto logger = apus::make_console_logger();
  const auto pairs =
      apus::data::prepare_dpo(tokenizer, {.read = {.files = {file}}, .encode = {.clock = &clock}}, *logger);

  const at::NoGradGuard no_grad;
  int64_t preferred = 0;
  for (int64_t row = 0; row < pairs->size(); ++row) {
    const std::array<int64_t, 1> ordinals{row};
    const auto batch = pairs->collate(ordinals, {.layout = apus::data::BatchLayout::kPacked});
    const at::Tensor log_probs = sequence_log_probs(*loaded.model, batch);
    preferred += log_probs[0].item<float>() > log_probs[1].item<float>() ? 1 : 0;
  }
  std::cout << "logps/chosen > logps/rejected under the base alone: " << preferred << " of " << pairs->size()
            << " pairs, share " << static_cast<double>(preferred) / static_cast<double>(pairs->size())
            << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: base_share MODEL_FOLDER PREFERENCES.jsonl\n";
    return 2;
  }
  try {
    print_share(argv[1], argv[2]);
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
