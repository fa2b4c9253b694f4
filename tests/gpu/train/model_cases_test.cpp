// The cases of kinds "models" and "lora" on a GPU: logits, loss and gradients of one pass. In fp32 within the
// tolerances that the cases state for any order of sums; in bf16 as near as the CPU in bf16.

#include <memory>
#include <string>
#include <vector>

#include "apus/base/error.h"
#include "apus/base/json.h"
#include "apus/models/decoder.h"
#include "apus/models/pretrained.h"
#include "apus/peft/adapter_file.h"
#include "apus/peft/lora.h"
#include "models/decoder_block.h"
#include "tests/support/case_folder.h"
#include "tests/support/case_run.h"
#include "tests/support/model_case.h"

namespace apus::testing {
namespace {

namespace fs = std::filesystem;

constexpr const char* kName = "default";
class CasesOnGpu : public CaseTest {};

/// A stored batch with the model that it is for.
struct Case {
  fs::path folder;
  fs::path base;
  fs::path adapter = {};  ///< empty: all weights train

  std::vector<std::string> adapters() const {
    return adapter.empty() ? std::vector<std::string>() : std::vector<std::string>{kName};
  }
  /// A trainable parameter's name in grads.safetensors.
  std::string key(const std::string& name) const {
    return adapter.empty() ? name : peft::adapter_key(name, kName);
  }
};

Rows moved(Rows rows, at::Device device) {
  for (at::Tensor* tensor : {&rows.tokens_T, &rows.real_T, &rows.target_rows_M, &rows.targets_M})
    if (tensor->defined()) *tensor = tensor->to(device);
  return rows;
}

/// The model in the run's dtype, its trainable part marked, on the run's device.
std::unique_ptr<nn::CausalLm> model_of(const Case& the, const CaseRun& run, bool trains) {
  models::ModelRegistry registry;
  models::register_builtin_models(registry);
  models::PretrainedModel loaded =
      models::load_pretrained(the.base, registry, {.dtype = run.dtype, .rope_batch_length = true});
  if (!the.adapter.empty())
    peft::load_adapter(the.adapter, *loaded.model, kName, {.dtype = run.dtype});
  else if (trains)
    nn::make_trainable(*loaded.model);
  if (run.device.is_cuda()) loaded.model->place({.device = run.device});
  for (const nn::NamedParameter& parameter : loaded.model->named_parameters())
    if (parameter.tensor.device() != run.device)
      parameter.tensor.set_data(parameter.tensor.detach().to(run.device));
  return std::move(loaded.model);
}

/// Which ways this model takes through the operations.
std::string ways_of(nn::CausalLm& model, const CaseRun& run) {
  auto* decoder = dynamic_cast<models::Decoder*>(&model);
  if (!decoder) return "another model";
  const int64_t head = decoder->config().head_dim;
  bool home = false;
  for (nn::Block* block : model.blocks())
    for (nn::JointLinear* joint : dynamic_cast<models::DecoderBlock&>(*block).joint_projections())
      home = home || joint->home() != nullptr;
  const bool kernel = run.device.is_cuda() && run.is_narrow() && head % 8 == 0 && head <= 256;
  const std::string attention = !kernel ? "ATen" : head == 64 || head == 128 ? "cuDNN" : "FlashAttention-2";
  return "heads of " + std::to_string(head) + ", attention by " + attention + ", projections " +
         (home ? "in homes" : "apart");
}

at::Tensor real_logits(nn::CausalLm& model, const Rows& rows, std::vector<std::string> adapters) {
  const at::NoGradGuard no_grad;
  nn::PassContext context;
  context.rows = rows.layout;
  context.adapters = std::move(adapters);
  const at::Tensor logits = model.logits(rows.tokens_T, context);
  return (rows.real_T.defined() ? logits.index_select(0, rows.real_T) : logits).cpu();
}

/// What a pass gives, on the CPU: logits by the frozen model, gradients by the one that trains.
struct Pass {
  NamedTensors logits = {}, grads = {};
  double loss = 0.0;
  std::string ways = {};
};

Pass pass_of(const Case& the, const Rows& on_cpu, const CaseRun& run) {
  const Rows rows = moved(on_cpu, run.device);
  const auto frozen = model_of(the, run, false);
  Pass pass{.logits = {{"logits", real_logits(*frozen, rows, the.adapters())}},
            .ways = ways_of(*frozen, run)};
  if (!the.adapter.empty()) pass.logits["base_logits"] = real_logits(*frozen, rows, {});
  const auto model = model_of(the, run, true);
  const at::Tensor loss = loss_sum(*model, rows, the.adapters());
  pass.loss = loss.item<double>();
  (loss / static_cast<double>(rows.targets_M.numel())).backward();
  for (const nn::NamedParameter& parameter : model->named_parameters())
    if (parameter.tensor.requires_grad())
      pass.grads[the.key(parameter.name)] =
          parameter.tensor.grad().defined() ? parameter.tensor.grad().cpu() : at::Tensor();
  return pass;
}

/// The reference's numbers.
Pass golden_pass(const Case& the, const Golden& golden) {
  Pass pass;
  const at::Tensor real = golden.mask_BS.flatten().nonzero().squeeze(1);
  for (const char* name : {"logits", "base_logits"})
    if (golden.file.find(name))
      pass.logits[name] = stored(golden.file, name).flatten(0, 1).index_select(0, real);
  const SafetensorsFile grads(the.folder / "grads.safetensors");
  for (const TensorView& view : grads.tensors()) pass.grads[view.name] = stored(grads, view.name);
  pass.loss = golden.file.find("loss_sum")
                  ? stored(golden.file, "loss_sum").item<double>()
                  : load_json_file(the.folder / "golden.json").at("loss_sum").get<double>();
  return pass;
}

void expect_fp32(const Pass& found, const Pass& wanted, WorstError& worst, const std::string& what) {
  for (const auto& [name, logits] : wanted.logits)
    expect_close(found.logits.at(name), logits, {.absolute = 2e-5, .relative = 1e-4}, what + ", " + name);
  EXPECT_NEAR(found.loss, wanted.loss, 1e-5 * std::abs(wanted.loss)) << what;
  worst.take(std::abs(found.loss - wanted.loss), 1e-5 * std::abs(wanted.loss), "loss");
  ASSERT_EQ(found.grads.size(), wanted.grads.size()) << what;
  for (const auto& [name, grad] : wanted.grads) {
    ASSERT_TRUE(found.grads.contains(name) && found.grads.at(name).defined()) << what << ", " << name;
    const double allowed = 1e-4 * largest(grad);
    expect_close(found.grads.at(name), grad, {.absolute = allowed}, what + ", " + name);
    worst.take(largest(found.grads.at(name) - grad), allowed, name);
  }
}

void expect_bf16(const Pass& found, const Pass& twin, const Pass& wanted, WorstError& worst,
                 const std::string& what) {
  NamedTensors logits = found.logits, twin_logits = twin.logits;
  for (auto* each : {&logits, &twin_logits})
    if (!wanted.logits.contains("base_logits")) each->erase("base_logits");
  expect_as_near(logits, twin_logits, wanted.logits, worst, what);
  expect_as_near(found.grads, twin.grads, wanted.grads, worst, what);
  expect_bf16_losses({found.loss}, {wanted.loss}, worst, what);
}

void expect_case(const Case& the) {
  const Golden golden(the.folder);
  const Pass wanted = golden_pass(the, golden);
  for (const Rows& rows : {golden.padded(), golden.packed()}) {
    const std::string layout = rows.layout->is_packed() ? "packed" : "padded";
    const CaseRun fp32{.device = *case_device()}, bf16{.device = *case_device(), .dtype = at::kBFloat16};
    const std::string name = cases::case_name(the.folder) + " " + layout + " on ";
    WorstError wide, narrow;
    const Pass in_fp32 = pass_of(the, rows, fp32);
    expect_fp32(in_fp32, wanted, wide, name + fp32.name());
    tell(name + fp32.name() + " (" + in_fp32.ways + ")", wide);
    const Pass in_bf16 = pass_of(the, rows, bf16);
    expect_bf16(in_bf16, pass_of(the, rows, {.dtype = at::kBFloat16}), wanted, narrow, name + bf16.name());
    tell(name + bf16.name() + " (" + in_bf16.ways + ")", narrow);
  }
}

TEST_F(CasesOnGpu, ModelsEqualTransformers) {
  models::ModelRegistry registry;
  models::register_builtin_models(registry);
  cases::NotRunCases not_run;
  int run = 0;
  for (const fs::path& folder : cases::find_cases("models", is_model_case)) {
    const std::string type = load_json_file(folder / "config.json").at("model_type");
    if (!registry.has(type)) {
      not_run.add(cases::case_name(folder), "model_type " + type);
      continue;
    }
    expect_case({.folder = folder, .base = folder});
    ++run;
  }
  EXPECT_GT(run, 0);
}

TEST_F(CasesOnGpu, AdaptersEqualPeft) {
  cases::NotRunCases not_run;
  int run = 0;
  const auto is_case = [](const fs::path& folder) {
    return fs::exists(folder / "golden.safetensors") &&
           fs::exists(folder / "adapter" / "adapter_config.json");
  };
  for (const fs::path& folder : cases::find_cases("lora", is_case)) {
    const nlohmann::json config = load_json_file(folder / "adapter" / "adapter_config.json");
    const auto named = cases::find_for_case(
        folder, fs::path(config.value("base_model_name_or_path", "base")) / "config.json");
    const fs::path base = named ? *named : cases::require_for_case(folder, "base/config.json");
    try {
      expect_case({.folder = folder, .base = base.parent_path(), .adapter = folder / "adapter"});
    } catch (const NotSupported& error) {
      not_run.add(cases::case_name(folder), error.what());
      continue;
    }
    ++run;
  }
  EXPECT_GT(run, 0);
}

}  // namespace
}  // namespace apus::testing
