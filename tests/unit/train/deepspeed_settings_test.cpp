// Which of a flag and a key of --deepspeed counts, and what is an error.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/scratch_folder.h"
#include "tests/unit/train/support/strategy_case.h"

namespace apus::train {
namespace {

JobOptions resolved(
    const std::string& deepspeed, const std::function<void(JobOptions&)>& change = [](JobOptions&) {},
    int world = 4) {
  JobOptions options = job_of(deepspeed);
  change(options);
  return resolve_job(options, world);
}

constexpr const char* kAdam = R"({"optimizer": {"type": "AdamW", "params": {"lr": 2e-5, "betas": [0.8, 0.99],
    "eps": 1e-7, "weight_decay": 0.02}}, "gradient_clipping": 0.7})";

TEST(DeepspeedSettings, KeysCountWhereNoFlagIsGiven) {
  const JobOptions options = resolved(kAdam);
  EXPECT_EQ(options.learning_rate, 2e-5);
  EXPECT_EQ(options.adam_beta1, 0.8);
  EXPECT_EQ(options.adam_beta2, 0.99);
  EXPECT_EQ(options.adam_epsilon, 1e-7);
  EXPECT_EQ(options.weight_decay, 0.02);
  EXPECT_EQ(options.max_grad_norm, 0.7);
}

TEST(DeepspeedSettings, AFlagThatSaysOtherwiseIsAnErrorWithBothValues) {
  EXPECT_EQ(
      refusal_of(kAdam,
                 [](auto& o) {
                   o.given = {"learning_rate"};
                   o.learning_rate = 1e-4;
                 }),
      "--learning_rate 0.0001 and optimizer.params.lr 2e-05 of --deepspeed contradict each other: leave "
      "one of them out, or write \"auto\" there");
  EXPECT_NE(refusal_of(kAdam, [](auto& o) { o.max_grad_norm = 0.5; })
                .find("--max_grad_norm 0.5 and gradient_clipping 0.7 of --deepspeed"),
            std::string::npos);
  EXPECT_NE(refusal_of(kAdam,
                       [](auto& o) {
                         o.given = {"weight_decay"};  // at its default, but given
                       })
                .find("--weight_decay 0.1 and optimizer.params.weight_decay 0.02"),
            std::string::npos);
  EXPECT_EQ(refusal_of(kAdam,
                       [](auto& o) {
                         o.given = {"learning_rate"};
                         o.learning_rate = 2e-5;
                       }),
            "accepted");
}

TEST(DeepspeedSettings, AValueThatAFlagCouldNotHaveIsSaidOfItsKey) {
  EXPECT_EQ(refusal_of(R"({"gradient_clipping": -1})"),
            "--deepspeed: gradient_clipping must not be negative, got -1");
  EXPECT_NE(refusal_of(R"({"optimizer": {"type": "AdamW", "params": {"lr": -1}}})")
                .find("--deepspeed: optimizer.params.lr must"),
            std::string::npos);
  EXPECT_EQ(refusal_of(R"({"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 3}})"),
            "--deepspeed: zero_optimization.zero_hpz_partition_size 3 does not divide the 4 ranks evenly; "
            "take a divisor of 4");
}

TEST(DeepspeedSettings, AutoLeavesItToTheFlags) {
  const char* text = R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
      "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "bf16": {"enabled": "auto"},
      "fp16": {"enabled": "auto"}, "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto",
      "eps": "auto", "weight_decay": "auto"}}, "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto",
      "stage3_prefetch_bucket_size": "auto"}})";
  const JobOptions plain = resolved("zero2"), options = resolved(text);
  nlohmann::ordered_json a = to_json(plain), b = to_json(options);
  a.erase("deepspeed");
  b.erase("deepspeed");
  EXPECT_EQ(a, b);
  EXPECT_EQ(resolved(text, [](auto& o) { o.bf16 = true; }).torch_dtype, "bfloat16");
}

TEST(DeepspeedSettings, ResolvingTwiceChangesNothing) {
  for (const char* text : {kAdam, R"({"train_batch_size": 64})", R"({"bf16": {"enabled": true}})",
                           R"({"scheduler": {"type": "warmuplr", "params": {"warmup_num_steps": 7}}})",
                           R"({"activation_checkpointing": {"cpu_checkpointing": true}})"}) {
    const JobOptions once = resolved(text);
    EXPECT_EQ(to_json(resolve_job(once, 4)), to_json(once)) << text;
  }
}

TEST(DeepspeedSettings, AnyTwoBatchSizesGiveTheThird) {
  const auto sizes = [](
                         const char* text,
                         const std::function<void(JobOptions&)>& change = [](JobOptions&) {}) {
    const JobOptions options = resolved(text, change);
    return std::pair(options.per_device_train_batch_size, *options.gradient_accumulation_steps);
  };
  using Pair = std::pair<int64_t, int64_t>;
  EXPECT_EQ(sizes(R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2})"), Pair(2, 8));
  EXPECT_EQ(sizes(R"({"train_batch_size": 64, "gradient_accumulation_steps": 4})"), Pair(4, 4));
  EXPECT_EQ(sizes(R"({"gradient_accumulation_steps": 4, "train_micro_batch_size_per_gpu": 3})"), Pair(3, 4));
  EXPECT_EQ(sizes(R"({"train_batch_size": 64})"), Pair(1, 16));
  EXPECT_EQ(sizes(R"({"train_batch_size": 64})", [](auto& o) { o.per_device_train_batch_size = 2; }),
            Pair(2, 8));
  EXPECT_EQ(sizes(R"({"train_batch_size": 64})", [](auto& o) { o.gradient_accumulation_steps = 2; }),
            Pair(8, 2));
}

TEST(DeepspeedSettings, BatchSizesThatDisagreeShowTheArithmetic) {
  EXPECT_EQ(refusal_of(R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 2,
                           "gradient_accumulation_steps": 3})"),
            "--deepspeed: train_batch_size 32 is not train_micro_batch_size_per_gpu 2 x "
            "gradient_accumulation_steps 3 x 4 ranks = 24: change one of them, or write \"auto\"");
  EXPECT_EQ(refusal_of(R"({"train_batch_size": 10, "train_micro_batch_size_per_gpu": 3})"),
            "--deepspeed: train_batch_size 10 / (3 rows a micro-batch x 4 ranks = 12) is no whole number of "
            "gradient_accumulation_steps: change one of them, or write \"auto\"");
  EXPECT_NE(refusal_of(R"({"train_batch_size": 10, "gradient_accumulation_steps": 3})")
                .find("10 / (3 steps of accumulation x 4 ranks = 12) is no whole number of train_micro"),
            std::string::npos);
  EXPECT_NE(refusal_of(R"({"train_micro_batch_size_per_gpu": 2})",
                       [](auto& o) { o.given = {"per_device_train_batch_size"}; })
                .find("--per_device_train_batch_size 1 and train_micro_batch_size_per_gpu 2 of --deepspeed"),
            std::string::npos);
  EXPECT_NE(refusal_of(R"({"train_batch_size": 0})").find("train_batch_size is 0, expected 1 or more"),
            std::string::npos);
  EXPECT_NE(refusal_of(R"({"train_batch_size": 8})", [](auto& o) { o.per_device_train_batch_size = 0; })
                .find("--per_device_train_batch_size must lie between"),
            std::string::npos);
}

TEST(DeepspeedSettings, OneDtypeIsSaid) {
  EXPECT_EQ(resolved(R"({"bf16": {"enabled": true}})").torch_dtype, "bfloat16");
  EXPECT_EQ(resolved(R"({"bf16": {"enabled": false}})").torch_dtype, "float32");
  EXPECT_FALSE(resolved(R"({"fp16": {"enabled": false}})").torch_dtype);
  EXPECT_EQ(
      refusal_of(R"({"bf16": {"enabled": true}, "fp16": {"enabled": true}})"),
      "--deepspeed: fp16.enabled and bf16.enabled are both true: the model computes in one dtype; switch "
      "one off");
  EXPECT_NE(refusal_of(R"({"bf16": {"enabled": true}})", [](auto& o) { o.torch_dtype = "float32"; })
                .find("--torch_dtype float32 and bf16.enabled true of --deepspeed contradict"),
            std::string::npos);
  EXPECT_NE(refusal_of(R"({"bf16": {"enabled": false}})", [](auto& o) { o.bf16 = true; })
                .find("--bf16 true and bf16.enabled false of --deepspeed contradict"),
            std::string::npos);
  EXPECT_EQ(resolved(R"({"fp16": {"enabled": true}})", [](auto& o) { o.bf16 = false; }).torch_dtype,
            "float16");
  EXPECT_EQ(resolved(R"({"bf16": {"enabled": false}})", [](auto& o) { o.bf16 = false; }).torch_dtype,
            "float32");
  EXPECT_NE(refusal_of(R"({"fp16": {"enabled": false}})", [](auto& o) { o.fp16 = true; })
                .find("--fp16 true and fp16.enabled false of --deepspeed contradict"),
            std::string::npos);
}

TEST(DeepspeedSettings, TheFp16SectionReachesTheScaler) {
  JobOptions options = job_of(R"({"fp16": {"enabled": true, "loss_scale": 8, "initial_scale_power": 12,
      "loss_scale_window": 5, "hysteresis": 3, "min_loss_scale": 2, "consecutive_hysteresis": true}})");
  settle_strategy(options, 1);
  const Fp16Options fp16 = fp16_options(options);
  EXPECT_TRUE(fp16.enabled && fp16.consecutive_hysteresis);
  EXPECT_EQ(fp16.loss_scale, 8);
  EXPECT_EQ(fp16.initial_scale_power, 12);
  EXPECT_EQ(fp16.loss_scale_window, 5);
  EXPECT_EQ(fp16.hysteresis, 3);
  EXPECT_EQ(fp16.min_loss_scale, 2);
  EXPECT_FALSE(fp16_options(resolved("zero2", [](auto& o) { o.bf16 = true; })).enabled) << "pitfall 10";
}

TEST(DeepspeedSettings, SumsTakeTheDtypesOfTheirKeys) {
  const auto engine = [](const JobOptions& options) { return engine_options(options, {.world = 4}); };
  const JobOptions options =
      resolved(R"({"communication_data_type": "bf16", "data_types": {"grad_accum_dtype": "bf16"}})");
  EXPECT_EQ(engine(options).reduce_dtype, at::kBFloat16);
  EXPECT_EQ(engine(options).grad_accum_dtype, at::kBFloat16);
  EXPECT_NE(
      refusal_of(R"({"communication_data_type": "fp16"})").find("sums overflow in it; take bf16 or fp32"),
      std::string::npos);
  EXPECT_NE(refusal_of(R"({"communication_data_type": "bf16"})", [](auto& o) { o.given = {"reduce_dtype"}; })
                .find("--reduce_dtype float32 and communication_data_type bfloat16"),
            std::string::npos);
  const char* states = R"({"bf16": {"enabled": true, "bf16_master_weights_and_grads": true,
      "bf16_optimizer_states": true}, "data_types": {"grad_accum_dtype": "fp32"}})";
  EXPECT_EQ(engine(resolved(states)).optimizer_states, memory::OptimizerStates::kBf16);
  EXPECT_EQ(engine(resolved(states)).grad_accum_dtype, at::kFloat) << "said, so not the optimizer's own";
  EXPECT_NE(refusal_of(states, [](auto& o) { o.given = {"optim"}; })
                .find("--optim adamw and bf16.bf16_master_weights_and_grads true of --deepspeed contradict"),
            std::string::npos);
}

TEST(DeepspeedSettings, DecayInGradientsIsRefused) {
  const char* text =
      R"({"optimizer": {"type": "Adam", "params": {"adam_w_mode": false, "weight_decay": 0}}})";
  EXPECT_EQ(refusal_of(text), "accepted");
  EXPECT_NE(refusal_of(R"({"optimizer": {"type": "Adam", "params": {"adam_w_mode": false}}})")
                .find("adam_w_mode false adds weight_decay 0.1 to gradients"),
            std::string::npos);
  EXPECT_NE(refusal_of(R"({"optimizer": {"type": "Adam", "params": {"betas": [0.9]}}})")
                .find("optimizer.params.betas has 1 numbers, expected 2"),
            std::string::npos);
}

TEST(DeepspeedSettings, TheSchedulersSectionIsTheSchedule) {
  const JobOptions options = resolved(R"({"scheduler": {"type": "WarmupDecayLR", "params":
      {"warmup_max_lr": 3e-4, "warmup_num_steps": "auto", "total_num_steps": "auto"}}})");
  EXPECT_EQ(options.lr_scheduler_type, "WarmupDecayLR");
  EXPECT_EQ(options.learning_rate, 3e-4);
  const TrainerOptions trainer = trainer_options(options, {});
  EXPECT_EQ(trainer.lr_scheduler_type, "WarmupDecayLR");
  EXPECT_NE(trainer.lr_scheduler_kwargs.find("warmup_max_lr"), std::string::npos);
}

TEST(DeepspeedSettings, AScheduleIsSaidOnce) {
  const char* text = R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10}}})";
  EXPECT_EQ(
      refusal_of(text, [](auto& o) { o.given = {"lr_scheduler_type"}; }),
      "--lr_scheduler_type cosine and the scheduler section of --deepspeed (WarmupLR) exclude each other: "
      "leave one of them out");
  EXPECT_NE(refusal_of(text, [](auto& o) { o.lr_scheduler_kwargs = "{}"; }).find("--lr_scheduler_kwargs {}"),
            std::string::npos);
  EXPECT_NE(refusal_of(text, [](auto& o) { o.warmup_ratio = 0.1; })
                .find("--warmup_ratio 0.1 and scheduler.params.warmup_num_steps 10 of --deepspeed"),
            std::string::npos);
  EXPECT_NE(refusal_of(text, [](auto& o) { o.warmup_steps = 5; })
                .find("--warmup_steps 5 and scheduler.params.warmup_num_steps 10"),
            std::string::npos);
  EXPECT_NE(refusal_of(R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1e-3}}})",
                       [](auto& o) { o.learning_rate = 1e-4; })
                .find("--learning_rate 0.0001 and scheduler.params.warmup_max_lr 0.001"),
            std::string::npos);
}

TEST(DeepspeedSettings, ASchedulesOwnFaultsNameTheSection) {
  EXPECT_EQ(refusal_of(R"({"scheduler": {"type": "WarmupLR", "params": {"cos_min_ratio": 0.1}}})")
                .find("--deepspeed: scheduler.params: WarmupLR takes no 'cos_min_ratio'"),
            0u);
  EXPECT_EQ(refusal_of(R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_type": "cubic"}}})"),
            "--deepspeed: scheduler.params: warmup_type must be one of linear, log, got \"cubic\"");
}

TEST(DeepspeedSettings, APeakThatLeavesARateUnusedIsRefused) {
  const char* bare = R"({"scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 10}}})";
  EXPECT_EQ(resolved(bare).learning_rate, 0.001) << "DeepSpeed's own default";
  EXPECT_EQ(
      refusal_of(bare, [](auto& o) { o.learning_rate = 2e-5; }),
      "--learning_rate 2e-05 contradicts the scheduler section of --deepspeed: WarmupDecayLR without "
      "warmup_max_lr peaks at 0.001, as in DeepSpeed; write \"warmup_max_lr\": \"auto\", or the rate itself");
  EXPECT_NE(refusal_of(R"({"optimizer": {"type": "AdamW", "params": {"lr": 2e-5}},
                           "scheduler": {"type": "WarmupDecayLR", "params": {}}})")
                .find("optimizer.params.lr 2e-05 contradicts the scheduler section"),
            std::string::npos);
  EXPECT_NE(refusal_of(R"({"optimizer": {"type": "AdamW", "params": {"lr": 2e-5}},
                           "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 3e-5}}})")
                .find("optimizer.params.lr 2e-05 and scheduler.params.warmup_max_lr 3e-05 of --deepspeed "
                      "contradict each other: leave one of them out, or write \"auto\" there"),
            std::string::npos);
  const JobOptions automatic =
      resolved(R"({"scheduler": {"type": "WarmupDecayLR", "params": {"warmup_max_lr": "auto"}}})",
               [](auto& o) { o.learning_rate = 2e-5; });
  EXPECT_EQ(automatic.learning_rate, 2e-5);
  EXPECT_EQ(resolved(R"({"scheduler": {"type": "WarmupCosineLR", "params": {}}})",
                     [](auto& o) { o.learning_rate = 2e-5; })
                .learning_rate,
            2e-5);
}

TEST(DeepspeedSettings, LossScalesOutOfRangeNameTheFile) {
  ScratchFolder folder;
  const auto message = [&](const char* section) {
    const std::string file = folder.put("ds.json", section).string();
    const std::string text = refusal_of(file);
    return text.starts_with("--deepspeed " + file + ": ") ? text.substr(text.find("fp16.")) : text;
  };
  EXPECT_EQ(message(R"({"fp16": {"enabled": true, "initial_scale_power": 200}})"),
            "fp16.initial_scale_power must be 0 to 127, got 200");
  EXPECT_EQ(message(R"({"fp16": {"enabled": true, "loss_scale_window": 0}})"),
            "fp16.loss_scale_window must be at least 1, got 0");
  EXPECT_EQ(message(R"({"fp16": {"enabled": true, "initial_scale_power": -1}})"),
            "fp16.initial_scale_power is -1, expected 0 or more");
  EXPECT_EQ(message(R"({"fp16": {"enabled": true, "initial_scale_power": 4, "min_loss_scale": 32}})"),
            "fp16.min_loss_scale 32 is above the scale that a run starts with, 16 (2 to the "
            "initial_scale_power 4): lower one, or raise the other");
}

TEST(DeepspeedSettings, BucketsOutOfRangeNameTheFile) {
  ScratchFolder folder;
  const std::string file =
      folder.put("ds.json", R"({"zero_optimization": {"reduce_bucket_size": 0}})").string();
  EXPECT_EQ(refusal_of(file),
            "--deepspeed " + file + ": zero_optimization.reduce_bucket_size is 0, expected 1 or more");
}

}  // namespace
}  // namespace apus::train
