#include "comm/tcp_socket.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "apus/base/error.h"

namespace apus::comm {
namespace {

using std::chrono::milliseconds;

TEST(ListeningSocket, TakesAFreePortAndAcceptsConnections) {
  const ListeningSocket socket(0);
  EXPECT_GT(socket.port(), 0);
  EXPECT_NO_THROW(wait_for_listener("127.0.0.1", socket.port(), milliseconds(1000)));
}

TEST(ListeningSocket, ASecondOneOnThePortIsRefused) {
  const ListeningSocket socket(0);
  EXPECT_THROW(ListeningSocket(socket.port()), ConfigError);
}

TEST(ListeningSocket, ClosesUnlessReleased) {
  int port = 0;
  { port = ListeningSocket(0).port(); }
  ListeningSocket again(port);
  EXPECT_EQ(again.port(), port);
  const int descriptor = again.release();
  EXPECT_GE(descriptor, 0);
  EXPECT_EQ(close(descriptor), 0);
}

TEST(WaitForListener, NamesAddressAndReasonAfterTheTimeout) {
  int port = 0;
  { port = ListeningSocket(0).port(); }
  const auto start = std::chrono::steady_clock::now();
  try {
    wait_for_listener("127.0.0.1", port, milliseconds(50));
    FAIL() << "expected CommError";
  } catch (const CommError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("nobody serves 127.0.0.1:" + std::to_string(port)), std::string::npos) << text;
    EXPECT_NE(text.find("Connection refused"), std::string::npos) << text;
  }
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(50));
}

}  // namespace
}  // namespace apus::comm
