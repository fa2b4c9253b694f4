#include "cli/env_text.h"

#include <gtest/gtest.h>

#include "tests/unit/cli/support/program_call.h"

namespace apus::cli {
namespace {

/// A machine on which nothing stands in the way.
EnvFacts good() {
  EnvFacts facts;
  facts.versions = {.libtorch = "2.11.0"};
  facts.survey = {.state = GpuState::kNone, .reason = "this machine has no NVIDIA GPU"};
  facts.usable_cpus = 8;
  facts.online_cpus = 16;
  facts.memory_bytes = int64_t{64} << 30;
  facts.available_memory_bytes = int64_t{50} << 30;
  facts.shared_memory = SpaceFacts{.total_bytes = int64_t{32} << 30, .free_bytes = int64_t{31} << 30};
  return facts;
}

EnvFacts with_gpus(int count) {
  EnvFacts facts = good();
  facts.versions.cudnn = "9.10.2";
  facts.versions.nccl = "2.28.9";
  facts.survey = {
      .state = GpuState::kUsable, .count = count, .driver_release = "580.65.06", .cuda_version = 13000};
  for (int i = 0; i < count; ++i)
    facts.gpus.gpus.push_back({.name = "NVIDIA A100-SXM4-40GB", .memory_bytes = int64_t{40} << 30});
  facts.gpus.peer_access.assign(static_cast<size_t>(count) * static_cast<size_t>(count), true);
  return facts;
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

TEST(EnvText, AMachineWithoutGpus) {
  EXPECT_EQ(env_text(good()),
            "apus           0.1.0\n"
            "built with     libtorch 2.11.0, no cuDNN, no NCCL\n"
            "               trains on the CPU; ranks talk through Gloo\n"
            "GPUs           none usable\n"
            "               this machine has no NVIDIA GPU\n"
            "CPU cores      8 usable of 16\n"
            "memory         64.0 GiB, 50.0 GiB available\n"
            "/dev/shm       32.0 GiB, 31.0 GiB free\n"
            "memlock        unlimited\n"
            "variables      none that concerns a run is set");
}

TEST(EnvText, LibrariesThatAreLoadedAreNamedAndJudged) {
  EnvFacts facts = with_gpus(1);
  facts.libraries = {
      {.name = "libtorch", .built = "2.11.0", .loaded = "2.11.0"},
      {.name = "cuDNN", .built = "9.10.2", .loaded = "9.12.0", .path = "/opt/cudnn/libcudnn.so.9"}};
  EXPECT_TRUE(says(env_text(facts), "               cuDNN 9.12.0 from /opt/cudnn/libcudnn.so.9\n"));
  EXPECT_FALSE(says(env_text(facts), "warning: "));
  facts.libraries[1].loaded = "9.1.0";
  EXPECT_TRUE(says(env_text(facts), "warning: cuDNN 9.1.0 is loaded from /opt/cudnn/libcudnn.so.9"))
      << env_text(facts);
}

TEST(EnvText, ACardThatIsTooOldIsMarked) {
  EnvFacts facts = with_gpus(2);
  facts.gpus.gpus[0].capability = 80;
  facts.gpus.gpus[1].capability = 75;
  const std::string text = env_text(facts);
  EXPECT_TRUE(says(text, "0: NVIDIA A100-SXM4-40GB, 40.0 GiB\n")) << text;
  EXPECT_TRUE(
      says(text, "1: NVIDIA A100-SXM4-40GB, 40.0 GiB, compute capability 7.5: training needs 8.0 or later\n"))
      << text;
}

TEST(EnvText, SeveralGpusNameTheVariableThatUsesThem) {
  const std::string text = env_text(with_gpus(4));
  EXPECT_TRUE(says(text, "built with     libtorch 2.11.0, cuDNN 9.10.2, NCCL 2.28.9\n")) << text;
  EXPECT_TRUE(says(text, "GPUs           4\n               0: NVIDIA A100-SXM4-40GB, 40.0 GiB\n")) << text;
  EXPECT_TRUE(says(text, "NPROC_PER_NODE=4 apus dpo ...")) << text;
  EXPECT_TRUE(says(text, "driver         580.65.06 (CUDA 13.0); needed: 580 or newer (CUDA 13.0)\n")) << text;
  EXPECT_TRUE(says(text, "peer access    all GPUs reach each other's memory\n")) << text;
  EXPECT_FALSE(says(text, "warning: ")) << text;
  EXPECT_FALSE(says(env_text(with_gpus(1)), "peer access")) << "one GPU has no peers";
}

TEST(EnvText, GpusWithoutPeerAccessAreNamed) {
  EnvFacts facts = with_gpus(3);
  facts.gpus.peer_access[0 * 3 + 2] = false;
  const std::string text = env_text(facts);
  EXPECT_TRUE(says(text, "peer access    not between GPUs 0-2\nwarning: GPUs without peer access")) << text;
  facts.gpus.peer_access.clear();
  EXPECT_TRUE(says(env_text(facts), "peer access    the driver does not say\n"));
}

TEST(EnvText, ADriverThatIsTooOldIsAWarningWithTheRemedy) {
  EnvFacts facts = good();
  facts.survey = {.state = GpuState::kUnusable,
                  .reason = "driver 525.60 offers CUDA 12.0, this build needs CUDA 13.0",
                  .driver_release = "525.60",
                  .cuda_version = 12000};
  const std::string text = env_text(facts);
  EXPECT_TRUE(says(
      text, "driver         525.60 (CUDA 12.0); needed: 580 or newer (CUDA 13.0)\nwarning: driver 525.60"))
      << text;
}

TEST(EnvText, SmallSharedMemoryIsAWarning) {
  EnvFacts facts = good();
  facts.shared_memory = SpaceFacts{.total_bytes = int64_t{64} << 20, .free_bytes = int64_t{64} << 20};
  const std::string text = env_text(facts);
  EXPECT_TRUE(
      says(text, "/dev/shm       64.0 MiB, 64.0 MiB free\nwarning: /dev/shm has 64.0 MiB, less than 1 GiB"))
      << text;
  EXPECT_TRUE(says(text, "--shm-size=8g")) << text;
  EXPECT_EQ(shared_memory_warning(SpaceFacts{.total_bytes = int64_t{1} << 30}), "");
  EXPECT_NE(shared_memory_warning(SpaceFacts{.total_bytes = (int64_t{1} << 30) - 1}), "");
  EXPECT_EQ(shared_memory_warning(std::nullopt), "");
}

TEST(EnvText, ALowMemlockLimitMattersWithGpus) {
  EnvFacts facts = with_gpus(1);
  facts.memlock_bytes = int64_t{8} << 20;
  EXPECT_TRUE(says(env_text(facts), "memlock        8.0 MiB\nwarning: pinned buffers")) << env_text(facts);
  EnvFacts on_cpu = good();
  on_cpu.memlock_bytes = int64_t{8} << 20;
  EXPECT_FALSE(says(env_text(on_cpu), "warning: ")) << env_text(on_cpu);
}

TEST(EnvText, AContainersLimitAndWhatIsUnknownAreSaid) {
  EnvFacts facts = good();
  facts.memory_limit_bytes = int64_t{16} << 30;
  EXPECT_TRUE(says(env_text(facts), "               this container may use 16.0 GiB\n"));
  facts.memory_bytes.reset();
  facts.shared_memory.reset();
  EXPECT_TRUE(says(env_text(facts), "memory         unknown, 50.0 GiB available\n"));
  EXPECT_FALSE(says(env_text(facts), "/dev/shm"));
}

TEST(EnvText, VariablesWithoutEffectAreSaid) {
  EnvFacts facts = good();
  facts.environment.set("NCCL_SOCKET_TIMEOUT", "5");
  facts.environment.set("OMP_NUM_THREADS", "2");
  const std::string text = env_text(facts);
  EXPECT_TRUE(says(text, "variables\n  NCCL_SOCKET_TIMEOUT=5: without effect: NCCL has no such variable"))
      << text;
  EXPECT_TRUE(says(text, "\n  OMP_NUM_THREADS=2: threads of each rank")) << text;
}

TEST(EnvCommand, ReportsOnThisMachineAndTakesNoFlags) {
  const Outcome outcome = call({"env"}, Environment(Environment::Map{{"NCCL_DEBUG", "INFO\x1b[31m"}}));
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  EXPECT_EQ(outcome.out.find("apus           0.1.0\nbuilt with     libtorch 2.11"), 0u) << outcome.out;
  EXPECT_TRUE(says(outcome.out, "NCCL_DEBUG=INFO\\x1b[31m: ")) << outcome.out;
  EXPECT_NE(call({"env", "--seed", "1"}).error.find("--seed belongs to the training commands"),
            std::string::npos);
  EXPECT_EQ(call({"env", "--sead", "1"}).error, "error: unknown flag --sead\n");
}

}  // namespace
}  // namespace apus::cli
