// The reference cases of kinds models, lora and dpo on a GPU: in fp32 against the stored figures of
// transformers, PEFT and TRL, in bf16 against what the same model in bf16 on the CPU misses them by.
#include <ATen/Context.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <c10/cuda/CUDAFunctions.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "apus/base/safetensors.h"
#include "apus/models/pretrained.h"
#include "apus/models/tensor_dtype.h"
#include "apus/ops/token_log_probs.h"
#include "apus/peft/adapter_file.h"
#include "tests/support/dpo_case.h"
#include "tests/support/tensor_checks.h"

namespace apus::testing {
namespace {

constexpr const char* kAdapter = "default";
const at::Device kGpu(at::kCUDA, 0);

at::Tensor stored(const SafetensorsFile& file, const std::string& name) {
  const TensorView& view = file.at(name);
  void* data = const_cast<std::byte*>(view.data.data());
  return at::from_blob(data, view.shape, models::scalar_type(view.dtype)).clone();
}

/// A stored batch in the packed layout: its rows without padding, and those that predict a label.
struct Golden {
  explicit Golden(const fs::path& folder) : file(folder / "golden.safetensors") {
    const at::Tensor tokens_BS = stored(file, "input_ids"), labels_BS = stored(file, "labels");
    const at::Tensor mask_BS = stored(file, "attention_mask").to(at::kLong);
    const at::Tensor counts_B = mask_BS.sum(1);
    std::vector<int64_t> lengths;
    for (int64_t b = 0; b < counts_B.size(0); ++b) lengths.push_back(counts_B[b].item<int64_t>());
    layout = nn::RowLayout::packed(lengths);
    real = mask_BS.flatten().nonzero().squeeze(1);
    tokens_T = tokens_BS.flatten().index_select(0, real);
    const at::Tensor none = at::empty({labels_BS.size(0), 1}, at::kLong).fill_(-100);
    const at::Tensor next = at::cat({labels_BS.narrow(1, 1, labels_BS.size(1) - 1), none}, 1).flatten();
    const at::Tensor own = next.index_select(0, real);
    target_rows_M = (own != -100).nonzero().squeeze(1);
    targets_M = own.index_select(0, target_rows_M);
  }

  at::Tensor logits() const { return stored(file, "logits").flatten(0, 1).index_select(0, real); }

  SafetensorsFile file;
  at::Tensor tokens_T, real, target_rows_M, targets_M;
  std::shared_ptr<const nn::RowLayout> layout;
};

/// Frozen parameters as a job places them, trainable ones by themselves.
void place(nn::CausalLm& model, at::Device device, at::ScalarType dtype) {
  if (device.is_cuda()) model.place({.device = device, .frozen_dtype = dtype});
  for (const nn::NamedParameter& parameter : model.named_parameters()) {
    at::Tensor leaf = parameter.tensor;
    if (leaf.device() == device && leaf.scalar_type() == dtype) continue;
    leaf.set_data(leaf.detach().to(device, dtype));
  }
}

/// What a model makes of a golden batch: fp32 on the CPU.
struct Outcome {
  at::Tensor logits;
  double loss_sum = 0.0;
  std::map<std::string, at::Tensor> grads;
};

Outcome outcome_of(nn::CausalLm& model, const Golden& golden, const std::vector<std::string>& adapters,
                   at::Device device) {
  const auto to = [device](const at::Tensor& x) { return x.to(device); };
  nn::PassContext context{.rows = golden.layout, .adapters = adapters};
  Outcome outcome;
  {
    const at::NoGradGuard no_grad;
    outcome.logits = model.logits(to(golden.tokens_T), context).to(at::kFloat).cpu();
  }
  model.prepare(context);
  at::Tensor hidden = model.embed(to(golden.tokens_T), context);
  for (nn::Block* block : model.blocks()) hidden = block->forward(hidden, context);
  const at::Tensor selected = model.final_norm(hidden.index_select(0, to(golden.target_rows_M)), context);
  const at::Tensor loss =
      -ops::token_log_probs(selected, model.head_weight(context), to(golden.targets_M), {.chunk_tokens = 8})
           .sum();
  outcome.loss_sum = loss.item<double>();
  (loss / static_cast<double>(golden.targets_M.numel())).backward();
  for (const auto& [name, tensor] : model.named_parameters())
    if (tensor.grad().defined()) outcome.grads[name] = tensor.grad().to(at::kFloat).cpu();
  return outcome;
}

/// Gradients by the names that a case stores them under.
using KeyOf = std::function<std::string(const std::string&)>;

void expect_golden(const Outcome& found, const Golden& golden, const fs::path& folder, const KeyOf& key_of) {
  expect_close(found.logits, golden.logits(), {.absolute = 1e-4, .relative = 5e-4}, "logits");
  const SafetensorsFile grads(folder / "grads.safetensors");
  EXPECT_EQ(found.grads.size(), grads.tensors().size());
  for (const auto& [name, grad] : found.grads) {
    const at::Tensor wanted = stored(grads, key_of(name));
    expect_close(grad, wanted, {.absolute = 5e-4 * largest(wanted)}, name);
  }
}

/// Squared errors of all gradients over the squares of those wanted.
double gradient_error(const Outcome& found, const fs::path& folder, const KeyOf& key_of) {
  const SafetensorsFile grads(folder / "grads.safetensors");
  double errors = 0.0, squares = 0.0;
  for (const auto& [name, grad] : found.grads) {
    const at::Tensor wanted = stored(grads, key_of(name)).to(at::kDouble);
    errors += (grad.to(at::kDouble) - wanted).square().sum().item<double>();
    squares += wanted.square().sum().item<double>();
  }
  return std::sqrt(errors / squares);
}

/// The GPU in bf16 may miss the stored figures by half more than the CPU in bf16 does.
void expect_no_worse(const Outcome& gpu, const Outcome& cpu, const Golden& golden, const fs::path& folder,
                     const KeyOf& key_of) {
  EXPECT_EQ(gpu.grads.size(), cpu.grads.size());
  const double logits = rms_difference(cpu.logits, golden.logits());
  EXPECT_LE(rms_difference(gpu.logits, golden.logits()), 1.5 * logits + 1e-4);
  EXPECT_LE(gradient_error(gpu, folder, key_of), 1.5 * gradient_error(cpu, folder, key_of) + 1e-3);
}

class CasesOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!at::hasCUDA() || c10::cuda::device_count() == 0) GTEST_SKIP() << "no GPU";
    models::register_builtin_models(registry_);
  }

  /// A model of a case's base on a device, all of it trained, or an adapter on it.
  Outcome run(const fs::path& base, const std::optional<fs::path>& adapter, const Golden& golden,
              at::Device device, at::ScalarType dtype) const {
    const models::PretrainedModel loaded =
        models::load_pretrained(base, registry_, {.rope_batch_length = true});
    if (adapter) peft::load_adapter(*adapter, *loaded.model, kAdapter);
    if (!adapter) nn::make_trainable(*loaded.model);
    place(*loaded.model, device, dtype);
    return outcome_of(*loaded.model, golden,
                      adapter ? std::vector<std::string>{kAdapter} : std::vector<std::string>(), device);
  }

  void check(const fs::path& folder, const fs::path& base, const std::optional<fs::path>& adapter) const {
    SCOPED_TRACE(cases::case_name(folder));
    const Golden golden(folder);
    const KeyOf key_of = [&](const std::string& name) {
      return adapter ? peft::adapter_key(name, kAdapter) : name;
    };
    expect_golden(run(base, adapter, golden, kGpu, at::kFloat), golden, folder, key_of);
    expect_no_worse(run(base, adapter, golden, kGpu, at::kBFloat16),
                    run(base, adapter, golden, at::kCPU, at::kBFloat16), golden, folder, key_of);
  }

  models::ModelRegistry registry_;
};

TEST_F(CasesOnGpu, ModelsEqualTransformers) {
  int count = 0;
  for (const fs::path& folder : cases::find_cases("models", [](const fs::path& found) {
         return fs::exists(found / "config.json") && fs::exists(found / "grads.safetensors");
       })) {
    if (!registry_.has(load_json_file(folder / "config.json").at("model_type"))) continue;
    check(folder, folder, std::nullopt);
    ++count;
  }
  EXPECT_GT(count, 0);
}

/// The sub-folder that holds a case's adapter.
std::optional<fs::path> adapter_of(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_directory() && fs::exists(entry.path() / "adapter_config.json")) return entry.path();
  return std::nullopt;
}

TEST_F(CasesOnGpu, AdaptersEqualPeft) {
  int count = 0;
  for (const fs::path& folder : cases::find_cases("lora", [](const fs::path& found) {
         return fs::exists(found / "grads.safetensors") && adapter_of(found).has_value();
       })) {
    const nlohmann::json config = load_json_file(*adapter_of(folder) / "adapter_config.json");
    const std::string name = config.value("base_model_name_or_path", "base");
    const auto own = cases::find_for_case(folder, fs::path(name) / "config.json");
    const fs::path base = (own ? *own : cases::require_for_case(folder, "base/config.json")).parent_path();
    try {
      check(folder, base, adapter_of(folder));
    } catch (const NotSupported&) {
      continue;  // the CPU's parity test names it
    }
    ++count;
  }
  EXPECT_GT(count, 0);
}

/// The losses of a case's job on the GPU.
std::vector<double> losses_on_gpu(const DpoCase& item, const std::string& dtype) {
  const ScratchFolder scratch;
  auto options = case_options(item, make_model_folder(item.folder, scratch / "model"), scratch / "out");
  options.torch_dtype = dtype;
  const auto summary = run_job(1, options, std::make_shared<NullLogger>(), 0);
  std::vector<double> losses;
  for (const auto& record : training_records(summary.run_dir)) losses.push_back(record.at("loss"));
  return losses;
}

/// Every loss within `step` of the reference, relative to it or to 0.1, and their mean within `mean`.
void expect_losses(const std::vector<double>& found, const nlohmann::json& wanted, double step, double mean) {
  ASSERT_EQ(found.size(), wanted.size());
  double sum = 0.0, wanted_sum = 0.0;
  for (size_t i = 0; i < found.size(); ++i) {
    const double loss = wanted[i].at("loss");
    EXPECT_NEAR(found[i], loss, step * std::max(std::abs(loss), 0.1)) << "step " << i + 1;
    sum += found[i];
    wanted_sum += loss;
  }
  const auto steps = static_cast<double>(found.size());
  EXPECT_NEAR(sum / steps, wanted_sum / steps, mean * std::max(std::abs(wanted_sum / steps), 0.1));
}

TEST_F(CasesOnGpu, PreferencesTrainAsWithTrl) {
  int count = 0;
  for (const fs::path& folder : cases::find_cases(
           "dpo", [](const fs::path& found) { return fs::exists(found / "trajectory.json"); })) {
    const DpoCase item(folder);
    if (item.has_moving_reference()) continue;
    SCOPED_TRACE(cases::case_name(folder));
    const nlohmann::json& steps = item.trajectory.at("steps");
    expect_losses(losses_on_gpu(item, "float32"), steps, 5e-4, 2e-4);
    expect_losses(losses_on_gpu(item, "bfloat16"), steps, 2e-2, 5e-3);
    ++count;
  }
  EXPECT_GT(count, 0);
}

}  // namespace
}  // namespace apus::testing
