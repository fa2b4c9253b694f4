#include "cli/product_cache.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace apus::cli {
namespace {

TEST(ProductCache, IsBoundedUnlessTheUserHasChosen) {
  for (const char* variable : {"ONEDNN_PRIMITIVE_CACHE_CAPACITY", "DNNL_PRIMITIVE_CACHE_CAPACITY"})
    EXPECT_FALSE(bound_product_cache(Environment(Environment::Map{{variable, "7"}})));
  EXPECT_TRUE(bound_product_cache({}));
  const char* set = std::getenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY");
  ASSERT_NE(set, nullptr);
  EXPECT_EQ(std::string(set), "32");
  unsetenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY");
}

}  // namespace
}  // namespace apus::cli
