#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apus/comm/communicator.h"
#include "comm/abort_domain.h"

namespace apus::comm {

/// What a communicator for another kind of device needs of the Gloo group that it stands on: the two share
/// their fate, and the groups that are made from one are made from the other.
class GlooHost {
 public:
  virtual ~GlooHost() = default;
  virtual const std::shared_ptr<AbortDomain>& domain() const = 0;
  virtual const std::shared_ptr<GroupState>& state() const = 0;
  /// The group of these ranks, with `key` under this group's own key in the store. The members give the same
  /// key, which no other group has.
  virtual std::unique_ptr<Communicator> make_group(const std::string& key, const std::vector<int>& ranks,
                                                   const std::string& name) = 0;
};

}  // namespace apus::comm
