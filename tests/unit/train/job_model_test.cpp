#include "train/job_model.h"

#include <gtest/gtest.h>

#include "apus/base/error.h"
#include "apus/base/log.h"
#include "apus/base/safetensors.h"
#include "apus/train/job_settings.h"
#include "tests/support/job_case.h"

namespace apus::testing {
namespace {

using train::JobModel;
using train::JobOptions;
using train::ReferenceKind;

class JobModelTest : public ::testing::Test {
 protected:
  JobModel load(const std::function<void(JobOptions&)>& change, const JobKind& kind = {"dpo", "lora"}) {
    JobOptions options = bench_.options(kind);
    change(options);
    options = train::resolve_job(options, 1);
    JobModel model = train::load_job_model(options, logger_);
    settled_ = options;
    return model;
  }

  /// A trained adapter of rank 4.
  std::string adapter() {
    JobOptions options = bench_.options({"dpo", "lora"}, "adapter");
    options.max_steps = 1;
    return run_job(1, options).last_checkpoint.string();
  }

  JobBench bench_;
  CaptureLogger logger_;
  JobOptions settled_;
};

TEST_F(JobModelTest, ReferencesFollowTheFlags) {
  const std::string trained = adapter();
  EXPECT_TRUE(load([](auto&) {}).reference.adapters.empty());
  const JobModel copy = load([&](auto& o) { o.adapters = trained; });
  EXPECT_EQ(copy.reference.adapters, std::vector<std::string>{train::kReferenceAdapter});
  EXPECT_EQ(copy.reference_adapter, trained);
  const JobModel off = load([&](auto& o) {
    o.adapters = trained;
    o.ref_adapters = "none";
  });
  EXPECT_TRUE(off.reference.adapters.empty());
  const JobModel other = load([&](auto& o) { o.ref_adapters = trained; });
  EXPECT_EQ(other.reference.adapters, std::vector<std::string>{train::kReferenceAdapter});
  EXPECT_EQ(load([](auto& o) { o.reference_free = true; }).reference.kind, ReferenceKind::kNone);
  EXPECT_FALSE(other.second.has_value());
  EXPECT_TRUE(load([&](auto& o) { o.ref_model = o.model; }).second.has_value());
  EXPECT_TRUE(load([](auto&) {}, {"dpo", "full"}).second.has_value()) << "a second load of --model";
  EXPECT_FALSE(load([](auto&) {}, {"sft", "full"}).second.has_value());
}

TEST_F(JobModelTest, AnAdapterIsNamedAsForAMerge) {
  const std::filesystem::path checkpoint = adapter();
  const std::filesystem::path run = checkpoint.parent_path();
  for (const auto& named : {run, run.parent_path()}) {
    load([&](auto& o) { o.adapters = named.string(); });
    EXPECT_EQ(settled_.adapters, std::filesystem::canonical(checkpoint).string());
  }
  load([&](auto& o) { o.adapters = (run / "last").string(); });
  EXPECT_EQ(settled_.adapters, (run / "last").string()) << "an adapter's folder stays as it was given";
  load([&](auto& o) { o.ref_adapters = run.string(); });
  EXPECT_EQ(settled_.ref_adapters, std::filesystem::canonical(checkpoint).string());
}

TEST_F(JobModelTest, WhatIsNoAdapterIsNamedByItsFlag) {
  const auto refusal = [&](const std::function<void(JobOptions&)>& change) {
    try {
      load(change);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refusal([](auto& o) { o.adapters = "nosuch"; }).find("--adapters nosuch does not exist"), 0u);
  EXPECT_EQ(refusal([](auto& o) { o.ref_adapters = "nosuch"; }).find("--ref_adapters nosuch does not"), 0u);
  EXPECT_EQ(refusal([](auto& o) { o.ref_model = "nosuch"; }).find("--ref_model nosuch: there is no such"),
            0u);
  const std::string output = std::filesystem::path(adapter()).parent_path().parent_path().string();
  const std::string own = refusal([&](auto& o) { o.adapters = o.output_dir = output; });
  EXPECT_NE(own.find("name the checkpoint-N"), std::string::npos) << own;
}

TEST_F(JobModelTest, ALoadedAdaptersSettingsStand) {
  const std::string trained = adapter();
  load([&](auto& o) {
    o.adapters = trained;
    o.lora_rank = 8;
  });
  EXPECT_EQ(settled_.lora_rank, 4) << "left at its default";
  EXPECT_THROW(load([&](auto& o) {
                 o.adapters = trained;
                 o.lora_rank = 8;
                 o.given = {"lora_rank"};
               }),
               ConfigError)
      << "the default, but written";
  EXPECT_NO_THROW(load([&](auto& o) {
    o.adapters = trained;
    o.lora_rank = 4;
    o.given = {"lora_rank"};
  }));
  EXPECT_THROW(load([&](auto& o) {
                 o.adapters = trained;
                 o.use_rslora = true;
               }),
               ConfigError);
}

TEST_F(JobModelTest, RotaryFlagsReachTheModel) {
  const auto longer = [](auto& o) {
    o.rope_scaling = "linear";
    o.max_model_len = 256;
  };
  EXPECT_EQ(load(longer).base.max_length, 256);
  EXPECT_NE(load(longer).base.config_json.find("linear"), std::string::npos);
  const auto dynamic = [](auto& o) { o.rope_scaling = R"({"rope_type": "dynamic", "factor": 2.0})"; };
  EXPECT_NO_THROW(load([&](auto& o) {
    dynamic(o);
    o.rope_batch_length = true;
  }));
}

TEST_F(JobModelTest, TheSeedDecidesTheAdaptersStart) {
  const auto start = [&](int64_t seed) {
    JobModel model = load([&](auto& o) { o.seed = seed; });
    return peft::adapter_parameters(*model.base.model, train::kPolicyAdapter)[0].tensor.clone();
  };
  EXPECT_TRUE(start(1).equal(start(1)));
  EXPECT_FALSE(start(1).equal(start(2)));
}

TEST_F(JobModelTest, AnAdapterIsSavedInTheDtypeThatWasAskedFor) {
  JobOptions options = bench_.options({"sft", "lora"}, "bf16");
  options.lora_dtype = "bfloat16";
  options.max_steps = 1;
  const SafetensorsFile file(weights_of(run_job(1, options).last_checkpoint));
  EXPECT_EQ(file.tensors()[0].dtype, DType::kBF16);
}

TEST_F(JobModelTest, FullTrainingFreezesWhatIsNamed) {
  JobModel model = load([](auto& o) { o.freeze_parameters = {"model.embed_tokens"}; }, {"sft", "full"});
  ASSERT_TRUE(model.freeze.has_value());
  EXPECT_FALSE(model.base.model->embed_parameters()[0].tensor.requires_grad());
  EXPECT_NE(train::trainable_text(model, 10).find(" tensors, the first "), std::string::npos);
}

TEST_F(JobModelTest, AnAdapterWhoseBaseIsElsewhereIsPutOnWithAWarning) {
  const ScratchFolder folder;
  folder.put("adapter_config.json", R"({"base_model_name_or_path": "/gone/other-model"})");
  train::check_adapter_base(folder.path().string(), bench_.model().string(), logger_);
  EXPECT_TRUE(logger_.contains("names the base /gone/other-model, which is not here"));
}

TEST_F(JobModelTest, StoredValuesThatAreRoundedAreSaid_Pitfall36) {
  const auto said = [&] {
    return logger_.contains("stored in float32 and rounded to bfloat16; --torch_dtype float32 keeps them");
  };
  load([](auto&) {});
  EXPECT_FALSE(said()) << "the model's own dtype";
  EXPECT_EQ(load([](auto& o) { o.torch_dtype = "bfloat16"; }).base.dtype, at::kBFloat16);
  EXPECT_TRUE(said());
}

}  // namespace
}  // namespace apus::testing
