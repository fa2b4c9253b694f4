// Writes the logits of a model with a LoRA adapter on 32 fixed token ids, for docs/guide/check_peft.py.
#include <apus/base/error.h>
#include <apus/base/philox.h>
#include <apus/base/safetensors.h>
#include <apus/models/pretrained.h>
#include <apus/peft/adapter_file.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <iostream>

namespace {

at::Tensor sample_tokens(int64_t vocab_size) {
  const apus::PhiloxSequence random(/*seed=*/1, "adapter_logits");
  const at::Tensor tokens_T = at::empty({32}, at::kLong);
  for (int64_t t = 0; t < tokens_T.numel(); ++t)
    tokens_T.mutable_data_ptr<int64_t>()[t] =
        static_cast<int64_t>(random.below(static_cast<uint64_t>(t), static_cast<uint64_t>(vocab_size)));
  return tokens_T;
}

apus::TensorView view_of(const std::string& name, const at::Tensor& tensor) {
  return {.name = name,
          .dtype = tensor.scalar_type() == at::kLong ? apus::DType::kI64 : apus::DType::kF32,
          .shape = tensor.sizes().vec(),
          .data = {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()}};
}

void write_logits(const std::string& base, const std::string& adapter, const std::string& out) {
  apus::models::ModelRegistry registry;
  apus::models::register_builtin_models(registry);
  const auto loaded = apus::models::load_pretrained(base, registry, {.dtype = at::kFloat});
  apus::peft::load_adapter(adapter, *loaded.model, "default", {.use = apus::peft::AdapterUse::kFrozen});
  const at::NoGradGuard no_grad;
  const at::Tensor tokens_T = sample_tokens(loaded.model->vocab_size());
  apus::nn::PassContext context;
  context.rows = apus::nn::RowLayout::packed({tokens_T.numel()});
  const at::Tensor base_logits_TV = loaded.model->logits(tokens_T, context).contiguous();
  context.adapters = {"default"};
  const at::Tensor logits_TV = loaded.model->logits(tokens_T, context).contiguous();
  apus::write_safetensors(out, {view_of("input_ids", tokens_T), view_of("base_logits", base_logits_TV),
                                view_of("logits", logits_TV)});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: adapter_logits MODEL_FOLDER ADAPTER_FOLDER OUT.safetensors\n";
    return 2;
  }
  try {
    write_logits(argv[1], argv[2], argv[3]);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
