#pragma once

#include <chrono>
#include <string>

namespace apus::comm {

/// A listening socket that c10d's store takes over. Closes itself unless released.
class ListeningSocket {
 public:
  /// Binds all addresses of this machine; port 0 takes a free one. Throws ConfigError if the port is in use.
  explicit ListeningSocket(int port);
  ~ListeningSocket();
  ListeningSocket(const ListeningSocket&) = delete;
  ListeningSocket& operator=(const ListeningSocket&) = delete;

  int port() const { return port_; }
  /// Hands the descriptor to the caller.
  int release();

 private:
  int descriptor_ = -1;
  int port_ = 0;
};

/// Waits until something accepts connections at host:port. Throws CommError naming the last reason if nothing
/// does in time. (c10d's own retry is once a second and writes a warning for each try.)
void wait_for_listener(const std::string& host, int port, std::chrono::milliseconds timeout);

}  // namespace apus::comm
