#include "cli/error_text.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <new>

#include "apus/base/error.h"

namespace apus::cli {
namespace {

TEST(ErrorText, ErrorsOfApusSpeakForThemselves) {
  EXPECT_EQ(error_text(ConfigError("--seed is given twice")), "--seed is given twice");
}

TEST(ErrorText, MemoryOfTheCppLibrary) {
  const std::string text = error_text(std::bad_alloc());
  EXPECT_EQ(text.find("out of memory: lower --per_device_train_batch_size or --max_length"), 0u) << text;
  EXPECT_NE(text.find("--gradient_checkpointing true"), text.npos);
}

TEST(ErrorText, MemoryOfLibtorchSaysHowMuchWasWanted) {
  try {
    at::empty({int64_t{1} << 58}, at::kByte);  // more than any machine has
    FAIL() << "that much memory";
  } catch (const std::exception& error) {
    const std::string text = error_text(error);
    EXPECT_EQ(text.find("out of memory (288230376151711744 bytes wanted): lower --per_device"), 0u) << text;
    EXPECT_EQ(text.find("Exception raised"), text.npos) << text;
  }
}

TEST(ErrorText, MemoryOfAGpu) {
  const std::string text = error_text(std::runtime_error(
      "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 39 GiB"));
  EXPECT_EQ(text.find("out of memory (20.00 GiB wanted): lower --per_device"), 0u) << text;
}

TEST(ErrorText, DevicesThatDoNotMatch) {
  const std::string text = error_text(std::runtime_error(
      "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!\n"
      "Exception raised from compute_types at TensorIterator.cpp:485"));
  EXPECT_EQ(text.find("device mismatch: Expected all tensors"), 0u) << text;
  EXPECT_NE(text.find("--device_map"), text.npos) << text;
  EXPECT_EQ(text.find("TensorIterator"), text.npos) << text;
}

TEST(ErrorText, OtherErrorsLoseTheTraceAlone) {
  EXPECT_EQ(error_text(std::runtime_error("x is wrong\nException raised from f at a.cpp:1\nframe #0")),
            "x is wrong");
  EXPECT_EQ(error_text(std::runtime_error("plain")), "plain");
}

}  // namespace
}  // namespace apus::cli
