#include "cli/env_variables.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "apus/base/error.h"

namespace apus::cli {
namespace {

VariableNote note(const std::string& name, bool with_nccl, Environment::Map more = {}) {
  more[name] = "1";
  for (const VariableNote& found : note_variables(Environment(std::move(more)), with_nccl)) {
    if (found.name == name) return found;
  }
  return {.name = "none", .value = "", .note = ""};
}

TEST(EnvVariables, WhatPeopleSetInVainIsSaid) {
  for (const char* name :
       {"NCCL_ASYNC_ERROR_HANDLING", "NCCL_SOCKET_TIMEOUT", "NCCL_TIMEOUT", "NCCL_BLOCKING_WAIT",
        "TORCH_NCCL_TRACE", "GLOO_DEVICE_TRANSPORT", "GLOO_SOMETHING", "TORCH_GLOO_LAZY_INIT"}) {
    for (const bool with_nccl : {false, true}) {
      EXPECT_EQ(note(name, with_nccl).name, name);
      EXPECT_FALSE(note(name, with_nccl).acts) << name;
      EXPECT_FALSE(note(name, with_nccl).note.empty()) << name;
    }
  }
  EXPECT_NE(note("NCCL_SOCKET_TIMEOUT", true).note.find("--ddp_timeout"), std::string::npos);
}

TEST(EnvVariables, NcclsOwnActWhereThereIsNccl) {
  for (const char* name : {"NCCL_DEBUG", "NCCL_P2P_DISABLE", "NCCL_SOCKET_IFNAME"}) {
    EXPECT_TRUE(note(name, true).acts) << name;
    EXPECT_FALSE(note(name, false).acts) << name;
  }
  EXPECT_TRUE(note("PYTORCH_CUDA_ALLOC_CONF", true).acts);
  EXPECT_FALSE(note("PYTORCH_CUDA_ALLOC_CONF", false).acts);
}

TEST(EnvVariables, LaunchersAndOurOwnAct) {
  for (const char* name :
       {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "GLOO_SOCKET_IFNAME",
        "OMP_NUM_THREADS", "NPROC_PER_NODE", "HF_HOME", "APUS_CACHE_DIR"}) {
    EXPECT_TRUE(note(name, false).acts) << name;
  }
}

TEST(EnvVariables, NprocPerNodeIsIgnoredBesideRank) {
  EXPECT_FALSE(note("NPROC_PER_NODE", false, {{"RANK", "0"}, {"WORLD_SIZE", "2"}}).acts);
  EXPECT_TRUE(note("NPROC_PER_NODE", false, {{"RANK", "0"}}).acts) << "a torso";
}

TEST(EnvVariables, WhatDoesNotConcernARunIsLeftOut) {
  EXPECT_TRUE(
      note_variables(Environment(Environment::Map{{"HOME", "/root"}, {"NO_COLOR", ""}}), true).empty());
}

}  // namespace
}  // namespace apus::cli
