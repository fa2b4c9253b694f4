#include "launch/port_check.h"

#include <gtest/gtest.h>

#include "apus/comm/store.h"

namespace apus::launch {
namespace {

TEST(PortCheck, SeesWhetherSomebodyListens) {
  auto store = comm::make_tcp_store({.port = 0, .is_server = true});
  const int port = store->port();
  EXPECT_EQ(port_obstacle(port), "Address already in use");
  store.reset();
  EXPECT_EQ(port_obstacle(port), "");
}

}  // namespace
}  // namespace apus::launch
