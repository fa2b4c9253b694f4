#include "comm/nccl_connect.h"

#include <algorithm>
#include <optional>

#include "apus/base/error.h"
#include "comm/backoff.h"

namespace apus::comm {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kNow{0};
constexpr milliseconds kCauseWait{1000};  // a peer's reason may come behind NCCL's error

/// Ends the job, unless a peer says why within `patience`, and throws.
[[noreturn]] void give_up(AbortDomain& domain, const GroupState& group, milliseconds patience,
                          const std::string& what) {
  if (!domain.poll_for(patience)) {
    const std::string text =
        detail::concat("group ", group.name(), " of ", group.size(),
                       " ranks could not be connected by NCCL: rank ", group.rank(), " ", what);
    domain.abort(text);
    domain.logger()->error(text);
  }
  domain.raise(group, {});
}

NcclUniqueId share_id(const NcclBackend& backend, AbortDomain& domain, const GroupState& group,
                      milliseconds timeout) {
  const std::string key = group.key() + "/id";
  NcclUniqueId id;
  if (group.rank() == 0) {
    const NcclResult made = backend.nccl.get_unique_id(id);
    if (made != NcclResult::kSuccess)
      give_up(domain, group, kNow, "has no unique id: " + backend.nccl.error_text(nullptr, made));
    domain.store()->set(key, std::string(id.bytes.begin(), id.bytes.end()));
    return id;
  }
  const Backoff backoff(timeout);
  std::optional<std::string> value;
  while (!(value = domain.store()->try_get(key))) {
    if (domain.poll()) domain.raise(group, {});
    if (!backoff.pause())
      give_up(domain, group, kNow,
              detail::concat("waited ", timeout.count() / 1000.0, " s for the unique id of rank 0"));
  }
  APUS_CHECK(value->size() == id.bytes.size(), CommError, "the unique id of group ", group.name(), " has ",
             value->size(), " bytes, expected ", id.bytes.size(), ": do all ranks run the same apus?");
  std::ranges::copy(*value, id.bytes.begin());
  return id;
}

}  // namespace

void connect_link(NcclLink& link, const NcclBackend& backend, AbortDomain& domain, const GroupState& group,
                  milliseconds timeout) {
  const NcclUniqueId id = share_id(backend, domain, group, timeout);
  NcclResult now = link.connect(group.size(), id, group.rank());
  const Backoff backoff(timeout);
  while (now == NcclResult::kInProgress) {
    if (domain.poll()) domain.raise(group, {});
    if (!backoff.pause())
      give_up(domain, group, kNow,
              detail::concat("waited ", timeout.count() / 1000.0,
                             " s in ncclCommInitRankConfig; a peer or the network is too slow (see "
                             "--ddp_timeout; NCCL_DEBUG=INFO tells more)"));
    now = link.state();
  }
  if (domain.ended()) domain.raise(group, {});
  if (now != NcclResult::kSuccess)
    give_up(domain, group, kCauseWait, "failed in ncclCommInitRankConfig: " + link.error_text(now));
}

void adopt_link(NcclLink& link, const NcclBackend& backend, const GroupState& group, NcclComm comm) {
  int size = 0, rank = 0;
  const NcclResult known = backend.nccl.shape(comm, size, rank);
  APUS_CHECK(known == NcclResult::kSuccess, ConfigError, "the NCCL communicator given for group ",
             group.name(), " is not usable: ", backend.nccl.error_text(comm, known));
  APUS_CHECK(size == group.size() && rank == group.rank(), ConfigError,
             "the NCCL communicator given for group ", group.name(), " is rank ", rank, " of ", size,
             ", and this is rank ", group.rank(), " of ", group.size(),
             "; give one of the same ranks in the same order");
  link.adopt(comm);
}

}  // namespace apus::comm
