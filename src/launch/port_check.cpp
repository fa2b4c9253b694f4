#include "launch/port_check.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace apus::launch {

std::string port_obstacle(int port) {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return ::strerror(errno);
  // As servers do: connections of a job that has ended just now are no obstacle.
  const int on = 1;
  ::setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<uint16_t>(port));
  const int bound = ::bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const std::string reason = bound == 0 ? "" : ::strerror(errno);
  ::close(descriptor);
  return reason;
}

}  // namespace apus::launch
