#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/layering/include_rules.h"

namespace apus::layering {
namespace {

std::string order(const std::string& path, const std::string& target) {
  return order_fault({.path = path, .line = 1, .target = target});
}

std::string dependency(const std::string& path, const std::string& target) {
  return dependency_fault({.path = path, .line = 1, .target = target});
}

// Every fault of the repository, one a line.
template <typename Rule>
std::string faults_of_repository(Rule rule) {
  std::string faults;
  for (const Include& include : collect_includes(APUS_SOURCE_DIR)) {
    const std::string fault = rule(include);
    if (fault.empty()) continue;
    faults +=
        include.path + ":" + std::to_string(include.line) + ": " + fault + " (" + include.target + ")\n";
  }
  return faults;
}

TEST(Layering, IncludesOfTheRepositoryGoDownTheLayers) {
  EXPECT_EQ(faults_of_repository(order_fault), "");
}

TEST(Layering, LibrariesAppearOnlyWhereTheyBelong) {
  EXPECT_EQ(faults_of_repository(dependency_fault), "");
}

TEST(Layering, BaseLaunchAndTheTextFilesOfDataReachNoTorchHeader) {
  EXPECT_EQ(torch_faults(collect_includes(APUS_SOURCE_DIR)), std::vector<std::string>{});
}

TEST(Layering, TheRepositoryIsReallyRead) {
  int base = 0;
  for (const Include& include : collect_includes(APUS_SOURCE_DIR)) base += layer_of(include.path) == "base";
  EXPECT_GT(base, 50);
}

TEST(IncludeRules, FindsIncludesAndSkipsComments) {
  const auto found =
      includes_of("src/base/a.cpp",
                  "#include <vector>\n// #include <a.h>\n/* #include <b.h>\n#include <c.h> */\n"
                  "const char* url = \"http://x\";\n  #  include \"apus/base/d.h\"  // why\n");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].target, "vector");
  EXPECT_EQ(found[1].target, "apus/base/d.h");
  EXPECT_EQ(found[1].line, 6);
}

TEST(IncludeRules, KnowsTheLayerOfAFileAndOfAnInclude) {
  EXPECT_EQ(layer_of("src/ops/kernels/norm.cu"), "ops");
  EXPECT_EQ(layer_of("include/apus/comm/store.h"), "comm");
  EXPECT_EQ(layer_of("include/apus/apus.h"), "");
  EXPECT_EQ(layer_of("tests/unit/base/a.cpp"), "");
  EXPECT_EQ(layer_of_target("apus/nn/linear.h"), "nn");
  EXPECT_EQ(layer_of_target("nn/linear_impl.h"), "nn");
  EXPECT_EQ(layer_of_target("vector"), "");
  EXPECT_EQ(layer_of_target("torch/nn.h"), "");
}

TEST(IncludeRules, OrderRefusesUpwardsSidewaysAndUnknown) {
  EXPECT_EQ(order("src/nn/a.cpp", "apus/base/error.h"), "");
  EXPECT_EQ(order("src/nn/a.cpp", "nn/private.h"), "");
  EXPECT_EQ(order("src/cli/a.cpp", "apus/train/trainer.h"), "");
  EXPECT_EQ(order("src/base/a.cpp", "apus/comm/store.h"), "base may not include comm");
  EXPECT_EQ(order("src/models/a.cpp", "apus/peft/lora.h"), "models may not include peft");
  EXPECT_EQ(order("src/train/a.cpp", "infer/generator.h"), "train may not include infer");
  EXPECT_NE(order("src/other/a.cpp", "vector"), "");
  EXPECT_NE(order("src/nn/a.cpp", "apus/other/a.h"), "");
  EXPECT_NE(order("src/nn/a.cpp", "apus/apus.h"), "");
  EXPECT_NE(order("src/nn/a.cpp", "../train/a.h"), "");
}

TEST(IncludeRules, KernelsAreFreeOfTorchAndNobodyTakesAllOfIt) {
  EXPECT_EQ(dependency("src/ops/norm.cpp", "ATen/ops/rsqrt.h"), "");
  EXPECT_NE(dependency("src/ops/kernels/norm.cu", "ATen/core/Tensor.h"), "");
  EXPECT_NE(dependency("src/train/a.cpp", "torch/torch.h"), "");
  EXPECT_NE(dependency("src/train/a.cpp", "ATen/ATen.h"), "");
}

TEST(IncludeRules, TorchStaysOutOfBaseLaunchAndText) {
  const std::string torch = "ATen/core/Tensor.h";
  for (const char* path : {"src/base/a.cpp", "include/apus/launch/a.h", "src/data/bpe_tokenizer.cpp",
                           "src/data/jinja_parser.cpp"}) {
    EXPECT_EQ(torch_faults({{path, 1, torch}}), std::vector<std::string>{std::string(path) + " -> " + torch});
  }
  for (const char* path : {"src/nn/linear.cpp", "src/data/batch.cpp", "src/data/loader_thread.cpp"}) {
    EXPECT_TRUE(torch_faults({{path, 1, torch}}).empty()) << path;
  }
}

TEST(IncludeRules, TorchIsFoundThroughOtherHeaders) {
  std::vector<Include> includes = {{"src/launch/agent.cpp", 1, "apus/comm/store.h"},
                                   {"include/apus/comm/store.h", 1, "apus/comm/ring.h"},
                                   {"include/apus/comm/ring.h", 1, "apus/comm/store.h"}};
  EXPECT_TRUE(torch_faults(includes).empty()) << "a circle must end";
  includes.push_back({"include/apus/comm/ring.h", 2, "c10/core/Stream.h"});
  EXPECT_EQ(torch_faults(includes),
            std::vector<std::string>{"src/launch/agent.cpp -> include/apus/comm/store.h -> "
                                     "include/apus/comm/ring.h -> c10/core/Stream.h"});
}

TEST(IncludeRules, OtherLibrariesHaveOnePlaceEach) {
  EXPECT_EQ(dependency("src/base/log.cpp", "spdlog/spdlog.h"), "");
  EXPECT_NE(dependency("src/comm/log.cpp", "spdlog/spdlog.h"), "");
  EXPECT_NE(dependency("src/comm/gloo.cpp", "gloo/context.h"), "");
  EXPECT_EQ(dependency("src/cli/options.cpp", "CLI/CLI.hpp"), "");
  EXPECT_NE(dependency("src/train/options.cpp", "CLI/CLI.hpp"), "");
}

}  // namespace
}  // namespace apus::layering
