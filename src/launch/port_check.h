#pragma once

#include <string>

namespace apus::launch {

/// Why nobody could listen on a TCP port of this machine now; empty if one could. The port is bound for a
/// moment and never listened on: a rank of another machine that is looking for its server already must not
/// find this one.
std::string port_obstacle(int port);

}  // namespace apus::launch
