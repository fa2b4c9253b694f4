#include "apus/comm/work.h"

#include "apus/base/error.h"

namespace apus::comm {

Work::~Work() = default;

std::string_view op_name(OpKind kind) {
  switch (kind) {
    case OpKind::kAllReduce:
      return "all_reduce";
    case OpKind::kAllGather:
      return "all_gather";
    case OpKind::kReduceScatter:
      return "reduce_scatter";
    case OpKind::kBroadcast:
      return "broadcast";
    case OpKind::kAllToAll:
      return "all_to_all";
    case OpKind::kAllToAllV:
      return "all_to_all_v";
    case OpKind::kSendRecv:
      return "send_recv";
    case OpKind::kBarrier:
      return "barrier";
  }
  APUS_ASSERT(false, "unknown OpKind ", static_cast<int>(kind));
}

std::string OpInfo::text() const {
  std::string result = detail::concat(op_name(kind), " #", sequence);
  if (dtype.empty()) return result;
  result += " " + dtype + "[";
  for (size_t i = 0; i < shape.size(); ++i) result += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  result += "]";
  return detail.empty() ? result : result + " (" + detail + ")";
}

}  // namespace apus::comm
