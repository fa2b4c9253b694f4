#include "apus/base/env.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include "apus/base/error.h"
#include "tests/unit/base/support/scratch_folder.h"

namespace apus {
namespace {

TEST(Env, TakesASnapshotOfTheProcess) {
  ::setenv("APUS_ENV_TEST", "a=b", 1);
  const Environment environment = Environment::from_process();
  ::unsetenv("APUS_ENV_TEST");
  EXPECT_EQ(environment.get("APUS_ENV_TEST"), "a=b");
  EXPECT_FALSE(Environment::from_process().has("APUS_ENV_TEST"));
}

TEST(Env, TellsUnsetFromEmpty) {
  const Environment environment({{"EMPTY", ""}, {"FULL", "x"}});
  EXPECT_TRUE(environment.has("EMPTY"));
  EXPECT_EQ(environment.get("EMPTY"), "");
  EXPECT_EQ(environment.get("UNSET"), std::nullopt);
  EXPECT_EQ(environment.get_or("UNSET", "fallback"), "fallback");
  EXPECT_EQ(environment.get_or("EMPTY", "fallback"), "");
}

TEST(Env, ReadsNumbersAndSwitches) {
  const Environment environment({{"RANK", "3"}, {"EMPTY", ""}, {"ON", "Yes"}});
  EXPECT_EQ(environment.get_int("RANK"), 3);
  EXPECT_EQ(environment.get_int("EMPTY"), std::nullopt);
  EXPECT_EQ(environment.get_int("UNSET"), std::nullopt);
  EXPECT_EQ(environment.get_bool("ON"), true);
  EXPECT_EQ(environment.get_bool("EMPTY"), std::nullopt);
}

TEST(Env, AWrongNumberNamesTheVariable) {
  const Environment environment({{"WORLD_SIZE", "four"}, {"SWITCH", "maybe"}});
  EXPECT_EQ(message_of<ConfigError>([&] { environment.get_int("WORLD_SIZE"); }),
            "environment variable WORLD_SIZE: expected an integer, got 'four'");
  EXPECT_EQ(message_of<ConfigError>([&] { environment.get_bool("SWITCH"); }),
            "environment variable SWITCH: expected true or false, got 'maybe'");
}

TEST(Env, CopiesAreIndependent) {
  Environment one(Environment::Map{{"A", "1"}});
  Environment two = one;
  two.set("A", "2");
  two.set("B", "3");
  one.unset("A");
  one.unset("NEVER_SET");
  EXPECT_FALSE(one.has("A"));
  EXPECT_EQ(two.get("A"), "2");
  EXPECT_EQ(two.variables().size(), 2u);
}

TEST(Env, TheCacheFolderIsTheFirstThatIsNamed) {
  Environment environment({{"APUS_CACHE_DIR", "own"}, {"XDG_CACHE_HOME", "/xdg"}, {"HOME", "/home/a"}});
  EXPECT_EQ(cache_directory(environment), "own");
  environment.set("APUS_CACHE_DIR", "");
  EXPECT_EQ(cache_directory(environment), "/xdg/apus");
  environment.set("XDG_CACHE_HOME", "relative");
  EXPECT_EQ(cache_directory(environment), "/home/a/.cache/apus");
  environment.unset("HOME");
  EXPECT_EQ(cache_directory(environment), std::nullopt);
}

}  // namespace
}  // namespace apus
