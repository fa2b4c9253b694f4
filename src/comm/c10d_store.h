#pragma once

#include <c10/util/intrusive_ptr.h>

#include <memory>

#include "apus/comm/store.h"

namespace c10d {
class Store;
}

namespace apus::comm {

/// A c10d store as ours.
std::shared_ptr<Store> from_c10d(c10::intrusive_ptr<c10d::Store> store);

/// Any of our stores as c10d's, for ProcessGroupGloo's rendezvous.
c10::intrusive_ptr<c10d::Store> to_c10d(std::shared_ptr<Store> store);

}  // namespace apus::comm
