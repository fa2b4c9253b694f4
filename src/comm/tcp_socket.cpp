#include "comm/tcp_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "apus/base/error.h"
#include "comm/backoff.h"

namespace apus::comm {
namespace {

/// A socket of the family, bound to every address and listening; -1 with errno set otherwise.
int listen_on(int family, int port) {
  const int descriptor = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return -1;
  const int on = 1;
  const int off = 0;
  setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_storage address{};
  socklen_t length = sizeof(sockaddr_in);
  if (family == AF_INET6) {
    setsockopt(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&address);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(static_cast<uint16_t>(port));
    length = sizeof(sockaddr_in6);
  } else {
    auto* v4 = reinterpret_cast<sockaddr_in*>(&address);
    v4->sin_family = AF_INET;
    v4->sin_port = htons(static_cast<uint16_t>(port));
  }
  if (bind(descriptor, reinterpret_cast<sockaddr*>(&address), length) == 0 && listen(descriptor, 2048) == 0) {
    return descriptor;
  }
  const int reason = errno;
  close(descriptor);
  errno = reason;
  return -1;
}

int bound_port(int descriptor) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

/// Tries one address for at most two seconds; an empty string if it accepts.
std::string try_address(const addrinfo& address) {
  const int descriptor = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor < 0) return std::strerror(errno);
  int reason = 0;
  if (connect(descriptor, address.ai_addr, address.ai_addrlen) != 0) {
    reason = errno;
    pollfd wanted{.fd = descriptor, .events = POLLOUT, .revents = 0};
    if (reason == EINPROGRESS && poll(&wanted, 1, 2000) == 1) {
      socklen_t length = sizeof reason;
      getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &reason, &length);
    }
  }
  close(descriptor);
  return reason == 0 ? "" : std::strerror(reason == EINPROGRESS ? ETIMEDOUT : reason);
}

/// Tries every address of the host once; an empty string if one accepts.
std::string try_host(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (code != 0) return gai_strerror(code);
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  std::string reason = "no address";
  for (const addrinfo* one = found; one != nullptr && !reason.empty(); one = one->ai_next) {
    reason = try_address(*one);
  }
  return reason;
}

}  // namespace

ListeningSocket::ListeningSocket(int port) {
  descriptor_ = listen_on(AF_INET6, port);
  if (descriptor_ < 0 && errno != EADDRINUSE) descriptor_ = listen_on(AF_INET, port);
  APUS_CHECK(
      descriptor_ >= 0 || errno != EADDRINUSE, ConfigError, "port ", port,
      " is in use on this machine, perhaps by another job: choose another with --master_port, or let it be "
      "chosen (0)");
  APUS_CHECK(descriptor_ >= 0, ConfigError, "port ", port, " cannot be served: ", std::strerror(errno),
             "; choose another with --master_port");
  port_ = bound_port(descriptor_);
}

ListeningSocket::~ListeningSocket() {
  if (descriptor_ >= 0) close(descriptor_);
}

int ListeningSocket::release() {
  return std::exchange(descriptor_, -1);
}

void wait_for_listener(const std::string& host, int port, std::chrono::milliseconds timeout) {
  const Backoff backoff(timeout);
  for (;;) {
    const std::string reason = try_host(host, port);
    if (reason.empty()) return;
    if (backoff.pause()) continue;
    throw CommError(
        {.group = "store", .operation = "connect"},
        detail::concat("nobody serves ", host, ":", port, " after ", timeout.count(), " ms (", reason,
                       "): is rank 0 running, and do MASTER_ADDR and MASTER_PORT name it?"));
  }
}

}  // namespace apus::comm
