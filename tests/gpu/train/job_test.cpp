// Whole jobs on a GPU: the losses of the CPU, the same bits after a resume, a merged model.
#include "apus/train/job.h"

#include <ATen/Context.h>
#include <c10/cuda/CUDAFunctions.h>
#include <gtest/gtest.h>

#include <cmath>

#include "apus/base/error.h"
#include "apus/memory/device_memory.h"
#include "apus/models/init_random.h"
#include "apus/models/pretrained.h"
#include "tests/support/job_case.h"

namespace apus::testing {
namespace {

constexpr int kGpu = 0;

/// Sizes that the fused kernels take; the committed base has heads of ten.
constexpr const char* kFusedConfig = R"({"model_type": "qwen2", "hidden_size": 128, "intermediate_size": 256,
  "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 512,
  "max_position_embeddings": 256, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
  "tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32"})";

class JobOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!at::hasCUDA() || c10::cuda::device_count() == 0) GTEST_SKIP() << "no GPU";
    make_fused_model();
  }

  static train::JobSummary on_gpu(const train::JobOptions& options,
                                  const std::shared_ptr<Logger>& logger = std::make_shared<NullLogger>()) {
    return run_job(1, options, logger, kGpu);
  }

  train::JobOptions fused(const JobKind& kind, const std::string& output,
                          const std::string& dtype = "float32") const {
    train::JobOptions options = bench_.options(kind, output);
    options.model = bench_.path("fused").string();
    options.torch_dtype = dtype;
    if (kind.train_type == "lora") options.lora_rank = 8;
    return options;
  }

  JobBench bench_;

 private:
  void make_fused_model() {
    models::ModelRegistry registry;
    models::register_builtin_models(registry);
    const auto model =
        registry.find("qwen2").build(parse_json(kFusedConfig, "config"), {.dtype = at::kFloat});
    models::init_random(*model, {.seed = 7, .standard_deviation = 0.05});
    fs::create_directories(bench_.path("fused"));
    copy_files(bench_.model(), bench_.path("fused"));
    models::save_pretrained(bench_.path("fused"), kFusedConfig, model->named_parameters());
  }
};

void expect_near(const std::vector<double>& found, const std::vector<double>& wanted, double tolerance) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], wanted[i], tolerance * std::max(std::abs(wanted[i]), 0.1)) << "step " << i + 1;
}

TEST_F(JobOnGpu, TrainsWhatTheCpuTrainsInFp32) {
  for (const JobKind& kind : all_job_kinds()) {
    SCOPED_TRACE(name_of(kind));
    const auto cpu = run_job(1, fused(kind, "cpu_" + name_of(kind)));
    const auto gpu = on_gpu(fused(kind, "gpu_" + name_of(kind)));
    EXPECT_TRUE(gpu.finished);
    expect_near(losses_of(gpu.run_dir), losses_of(cpu.run_dir), 2e-3);
  }
}

TEST_F(JobOnGpu, TakesSizesThatNoKernelTakes) {
  const JobKind kind{"dpo", "lora"};
  const auto cpu = run_job(1, bench_.options(kind, "cpu"));
  const auto gpu = on_gpu(bench_.options(kind, "gpu"));
  expect_near(losses_of(gpu.run_dir), losses_of(cpu.run_dir), 2e-3);
}

TEST_F(JobOnGpu, TrainsInBf16NearFp32) {
  for (const char* task : {"sft", "dpo"}) {
    SCOPED_TRACE(task);
    // A rate at which roundings stay what they are: the bench's own lets them grow from step to step.
    const auto run = [&](const std::string& output, const std::string& dtype) {
      auto options = fused({task, "lora"}, output + task, dtype);
      options.learning_rate = 2e-3;
      return on_gpu(options);
    };
    const auto wide = run("wide_", "float32"), narrow = run("narrow_", "bfloat16");
    expect_near(losses_of(narrow.run_dir), losses_of(wide.run_dir), 5e-2);
  }
}

TEST_F(JobOnGpu, ResumesToTheSameBitsUnderFullDeterminism) {
  const std::vector<std::pair<JobKind, std::string>> cases = {
      {{"sft", "lora"}, "bfloat16"}, {{"dpo", "lora"}, "bfloat16"}, {{"sft", "full"}, "float32"}};
  for (const auto& [kind, dtype] : cases) {
    SCOPED_TRACE(name_of(kind) + " " + dtype);
    const auto options = [&](const char* output) {
      auto job = fused(kind, name_of(kind) + output, dtype);
      job.full_determinism = true;
      return job;
    };
    const auto whole = on_gpu(options("whole"));
    const auto first = on_gpu(options("cut"));
    EXPECT_FALSE(at::globalContext().deterministicAlgorithms()) << "the mode ends with the job";
    kill_after(first.run_dir, 3);
    const auto second = on_gpu(options("cut"));
    EXPECT_EQ(second.run_dir, first.run_dir);
    EXPECT_EQ(losses_of(second.run_dir), losses_of(whole.run_dir));
    EXPECT_EQ(sha256_file(weights_of(second.last_checkpoint)),
              sha256_file(weights_of(whole.last_checkpoint)));
  }
}

TEST_F(JobOnGpu, EveryKindOfAdapterTrainsAsOnTheCpu) {
  const auto change = [](train::JobOptions options, int variant) {
    if (variant == 0) options.target_modules = {"q_proj", "down_proj"};
    if (variant == 1) options.modules_to_save = {"lm_head"};
    if (variant == 2) options.lora_bias = "all";
    if (variant == 3) options.lora_rank = 5;  // no multiple of what a home has room for
    if (variant == 4) options.deepspeed = "zero3";
    return options;
  };
  for (int variant = 0; variant < 5; ++variant) {
    SCOPED_TRACE(variant);
    const std::string name = std::to_string(variant);
    const auto cpu = run_job(1, change(fused({"sft", "lora"}, "cpu" + name), variant));
    const auto gpu = on_gpu(change(fused({"sft", "lora"}, "gpu" + name), variant));
    expect_near(losses_of(gpu.run_dir), losses_of(cpu.run_dir), 2e-3);
  }
}

TEST_F(JobOnGpu, EvaluatesAndKeepsTheBest) {
  const auto evaluated = [this](const std::string& output) {
    auto options = fused({"dpo", "lora"}, output);
    options.split_dataset_ratio = 0.25;
    options.eval_steps = 3;
    options.load_best_model_at_end = true;
    return options;
  };
  const auto losses = [](const fs::path& run_dir) {
    std::vector<double> values;
    std::istringstream lines(read_file(run_dir / "logging.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const nlohmann::json record = nlohmann::json::parse(line);
      if (record.contains("eval_loss")) values.push_back(record.at("eval_loss"));
    }
    return values;
  };
  const auto cpu = run_job(1, evaluated("cpu")), gpu = on_gpu(evaluated("gpu"));
  EXPECT_EQ(losses(gpu.run_dir).size(), 2u);
  expect_near(losses(gpu.run_dir), losses(cpu.run_dir), 5e-3);
  EXPECT_TRUE(fs::exists(gpu.run_dir / "best"));
}

TEST_F(JobOnGpu, ACheckpointOfTheGpuGoesOnOnTheCpu) {
  auto options = fused({"sft", "lora"}, "moved");
  options.padding_free = true;
  const auto gpu = on_gpu(options);
  const std::vector<double> losses = losses_of(gpu.run_dir);
  kill_after(gpu.run_dir, 3);
  const auto cpu = run_job(1, options);
  EXPECT_EQ(cpu.run_dir, gpu.run_dir);
  expect_near(losses_of(cpu.run_dir), losses, 2e-3);
}

TEST_F(JobOnGpu, MergesAtItsEnd) {
  auto options = fused({"dpo", "lora"}, "merged", "bfloat16");
  options.merge_lora = true;
  const auto summary = on_gpu(options);
  ASSERT_TRUE(summary.report);
  models::ModelRegistry registry;
  models::register_builtin_models(registry);
  fs::path merged;
  for (const auto& entry : fs::recursive_directory_iterator(summary.run_dir))
    if (entry.path().filename() == "model.safetensors") merged = entry.path().parent_path();
  ASSERT_FALSE(merged.empty());
  EXPECT_EQ(models::load_pretrained(merged, registry).model->vocab_size(), 512);
}

TEST_F(JobOnGpu, LaysRowsEndToEndUnlessToldNotTo) {
  const auto packed = on_gpu(fused({"sft", "lora"}, "packed"));
  EXPECT_EQ(load_json_file(packed.run_dir / "args.json").at("padding_free"), true);
  auto options = fused({"sft", "lora"}, "padded");
  options.padding_free = false;
  options.per_device_train_batch_size = 2;
  options.gradient_accumulation_steps = 2;
  const auto padded = on_gpu(options);
  expect_near(losses_of(padded.run_dir), losses_of(packed.run_dir), 2e-3);
}

TEST_F(JobOnGpu, ComputesTheReferenceAhead) {
  const auto beside = on_gpu(fused({"dpo", "full"}, "beside"));
  auto options = fused({"dpo", "full"}, "ahead");
  options.precompute_ref_log_probs = true;
  const auto ahead = on_gpu(options);
  expect_near(losses_of(ahead.run_dir), losses_of(beside.run_dir), 2e-3);
}

TEST_F(JobOnGpu, KeepsStatesInBf16) {
  auto options = fused({"sft", "full"}, "narrow_states", "bfloat16");
  options.optim = "adamw_bf16";
  options.gradient_checkpointing = true;
  const std::vector<double> losses = losses_of(on_gpu(options).run_dir);
  EXPECT_LT(losses.back(), losses.front());
  options.torch_dtype = "float32";
  options.output_dir += "_wide";
  EXPECT_THROW(on_gpu(options), ConfigError);
}

TEST_F(JobOnGpu, SaysItsPlanAndItsMemory) {
  const auto logger = std::make_shared<CaptureLogger>();
  const auto summary = on_gpu(fused({"sft", "lora"}, "said", "bfloat16"), logger);
  EXPECT_TRUE(logger->contains("Memory plan: "));
  EXPECT_TRUE(logger->contains(": fits"));
  const nlohmann::json record = training_records(summary.run_dir).back();
  EXPECT_GT(record.at("memory(GiB)").get<double>(), 0.0) << record;
}

TEST_F(JobOnGpu, MemoryThatRanOutNamesFlags) {
  const at::Device device(at::kCUDA, kGpu);
  memory::release_cached_memory(device);
  const int64_t held = memory::device_memory(device).reserved_bytes;
  memory::limit_device_memory(device, held + (int64_t{6} << 20));
  std::string message;
  try {
    on_gpu(fused({"sft", "full"}, "small"));
  } catch (const OutOfMemory& error) {
    message = error.what();
  } catch (const std::exception& error) {
    message = std::string("another type: ") + error.what();
  }
  memory::limit_device_memory(device, 0);
  EXPECT_EQ(message.find("out of memory on GPU 0: "), 0u) << message;
  for (const char* part :
       {" wanted", " are free", "--per_device_train_batch_size", "apus plan", "optimizer states"})
    EXPECT_NE(message.find(part), message.npos) << part << " in: " << message;
}

TEST_F(JobOnGpu, AGpuThatIsNotThereIsRefused) {
  EXPECT_THROW(run_job(1, fused({"sft", "lora"}, "none"), std::make_shared<NullLogger>(), 999), ConfigError);
}

}  // namespace
}  // namespace apus::testing
