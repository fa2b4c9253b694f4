#include "cli/thread_waiting.h"

#include <gtest/gtest.h>

namespace apus::cli {
namespace {

Environment one_variable(const char* name, const char* value) {
  return Environment(Environment::Map{{name, value}});
}

TEST(ThreadWaiting, ATrainingCommandStartsOverOnce) {
  const std::optional<Environment> patient = patient_environment({"sft"}, one_variable("HOME", "/h"), 2);
  ASSERT_TRUE(patient);
  EXPECT_TRUE(patient->get_int("GOMP_SPINCOUNT"));
  EXPECT_EQ(patient->get_or("HOME", ""), "/h");
  EXPECT_FALSE(patient_environment({"sft"}, *patient, 2)) << "or it would start over for ever";
}

TEST(ThreadWaiting, ACallersChoiceStands) {
  EXPECT_FALSE(patient_environment({"dpo"}, one_variable("OMP_WAIT_POLICY", "active"), 8));
  EXPECT_FALSE(patient_environment({"dpo"}, one_variable("GOMP_SPINCOUNT", "100000"), 8));
}

TEST(ThreadWaiting, OneThreadHasNobodyToWaitFor) {
  EXPECT_FALSE(patient_environment({"pt"}, one_variable("OMP_NUM_THREADS", "1"), 8));
  EXPECT_FALSE(patient_environment({"pt"}, {}, 1));
  EXPECT_TRUE(patient_environment({"pt"}, one_variable("OMP_NUM_THREADS", "2"), 8));
}

TEST(ThreadWaiting, CommandsThatComputeNothingStayAsTheyAre) {
  EXPECT_FALSE(patient_environment({"env"}, {}, 8));
  EXPECT_FALSE(patient_environment({"--version"}, {}, 8));
  EXPECT_FALSE(patient_environment({}, {}, 8));
}

}  // namespace
}  // namespace apus::cli
