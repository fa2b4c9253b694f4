#include "cli/loaded_libraries.h"

#include <gtest/gtest.h>
#include <torch/headeronly/version.h>

namespace apus::cli {
namespace {

LoadedLibrary cudnn(const std::string& loaded) {
  return {.name = "cuDNN", .built = "9.19.0", .loaded = loaded, .path = "/opt/old/libcudnn.so.9"};
}

TEST(LoadedLibraries, TheOneThatServesIsOfThisMajorVersionAndNotOlder) {
  for (const char* version : {"9.19.0", "9.19.1", "9.20.0", "", "unknown"})
    EXPECT_EQ(library_fault({cudnn(version)}), "") << version;
  for (const char* version : {"9.18.5", "9.1.0", "8.9.7", "10.0.0"})
    EXPECT_NE(library_fault({cudnn(version)}), "") << version;
}

TEST(LoadedLibraries, AFaultNamesVersionsFileAndRemedy) {
  const std::string fault =
      library_fault({{.name = "libtorch", .built = "2.11.0", .loaded = "2.11.0"}, cudnn("9.1.0")});
  EXPECT_EQ(
      fault.find("cuDNN 9.1.0 is loaded from /opt/old/libcudnn.so.9, but this apus was built with 9.19.0"),
      0u)
      << fault;
  EXPECT_NE(fault.find("LD_LIBRARY_PATH"), fault.npos) << fault;
}

TEST(LoadedLibraries, LibtorchSaysItsVersionAndPlace) {
  const std::vector<LoadedLibrary> libraries = loaded_libraries();
  ASSERT_FALSE(libraries.empty());
  EXPECT_EQ(libraries[0].name, "libtorch");
  EXPECT_EQ(libraries[0].loaded, TORCH_VERSION);
  EXPECT_NE(libraries[0].path.find("libtorch_cpu.so"), std::string::npos) << libraries[0].path;
  EXPECT_EQ(library_fault(libraries), "");
  EXPECT_EQ(libraries.size(), cuda::is_built() ? 4u : 1u);
}

TEST(LoadedLibraries, DriversServeEveryRuntimeOfTheirMajorVersion) {
  EXPECT_EQ(requirement_of_runtime(13020).cuda_version, 13000);
  EXPECT_EQ(requirement_of_runtime(13020).driver_release, "580");
  EXPECT_EQ(requirement_of_runtime(12060).cuda_version, 12000);
  EXPECT_EQ(requirement_of_runtime(12060).driver_release, "525");
  EXPECT_EQ(requirement_of_runtime(0).cuda_version, 13000) << "what the pinned wheel needs";
}

TEST(LoadedLibraries, AFunctionThatNobodyHasHasNoFile) {
  EXPECT_EQ(file_of_symbol("apus_has_no_such_function"), "");
}

}  // namespace
}  // namespace apus::cli
