#pragma once

#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "comm/nccl_api.h"

namespace apus::testing {

/// A device's streams and events as queues that move on whenever somebody looks. Each thread has a current
/// device, each device a compute stream, which is current unless a thread says otherwise.
class FakeStreams {
 public:
  /// Something on a stream; called again and again once it is at the front, until it says that it has ended.
  using Item = std::function<bool()>;

  /// Held by whoever reads or changes anything below. FakeNccl shares it.
  std::recursive_mutex& mutex() const { return mutex_; }

  comm::DeviceStream compute(int device) {
    const std::lock_guard lock(mutex_);
    if (!compute_.contains(device)) compute_[device] = make_stream();
    return compute_[device];
  }
  /// The current stream of this thread from now on.
  void set_current(comm::DeviceStream stream) {
    const std::lock_guard lock(mutex_);
    current_[std::this_thread::get_id()] = stream;
  }
  comm::DeviceStream make_stream() {
    const std::lock_guard lock(mutex_);
    streams_[++made_] = {};
    return reinterpret_cast<comm::DeviceStream>(static_cast<intptr_t>(made_));
  }
  void push(comm::DeviceStream stream, Item item) {
    const std::lock_guard lock(mutex_);
    const auto found = streams_.find(key(stream));
    if (found == streams_.end()) return violation("work on a stream that is gone");
    found->second.push_back(std::move(item));
    advance();
  }
  /// Lets every stream run as far as it can.
  void advance() {
    const std::lock_guard lock(mutex_);
    for (bool moved = true; moved;) {
      moved = false;
      for (auto& [id, items] : streams_) {
        while (!items.empty() && items.front()()) {
          items.pop_front();
          moved = true;
        }
      }
    }
  }
  void violation(const std::string& text) { violations_ += text + "\n"; }
  const std::string& violations() const { return violations_; }
  /// Events and communicators' streams that were made and not destroyed.
  int live_events() const {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(events_.size());
  }
  int live_streams() const {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(streams_.size() - compute_.size());
  }

  void fill(comm::DeviceApi& api, std::function<bool()> lost) {
    api.exchange_device = [this](int index) {
      const std::lock_guard lock(mutex_);
      return std::exchange(device_[std::this_thread::get_id()], index);
    };
    api.current_stream = [this] {
      const std::lock_guard lock(mutex_);
      const auto found = current_.find(std::this_thread::get_id());
      return found != current_.end() ? found->second : compute(device_[std::this_thread::get_id()]);
    };
    api.create_stream = [this] { return make_stream(); };
    api.destroy_stream = [this](comm::DeviceStream stream) {
      const std::lock_guard lock(mutex_);
      const auto found = streams_.find(key(stream));
      if (found == streams_.end()) return violation("a stream is destroyed twice");
      if (!found->second.empty()) violation("a stream is destroyed while work is on it");
      streams_.erase(found);
    };
    api.create_event = [this] {
      const std::lock_guard lock(mutex_);
      events_[++made_] = {};
      return reinterpret_cast<comm::DeviceEvent>(static_cast<intptr_t>(made_));
    };
    api.destroy_event = [this](comm::DeviceEvent event) {
      const std::lock_guard lock(mutex_);
      if (events_.erase(key(event)) == 0) violation("an event is destroyed twice");
    };
    api.record_event = [this](comm::DeviceEvent event, comm::DeviceStream stream) { record(event, stream); };
    api.stream_wait_event = [this](comm::DeviceStream stream, comm::DeviceEvent event) {
      wait(stream, event);
    };
    api.query_event = [this, lost](comm::DeviceEvent event) {
      const std::lock_guard lock(mutex_);
      advance();
      if (lost()) return comm::EventState::kFailed;
      const auto found = events_.find(key(event));
      if (found == events_.end() || found->second.recorded == 0) {
        violation("an event is queried that was not recorded");
        return comm::EventState::kFailed;
      }
      return found->second.completed == found->second.recorded ? comm::EventState::kCompleted
                                                               : comm::EventState::kPending;
    };
    api.last_error = [] { return std::string("fake device error"); };
    api.scale = [this](const at::Tensor& tensor, double factor, comm::DeviceStream stream) {
      push(stream, [tensor, factor] {
        tensor.mul_(factor);
        return true;
      });
    };
  }

 private:
  struct Event {
    int64_t recorded = 0;
    int64_t completed = 0;
  };

  template <typename Handle>
  static int64_t key(Handle handle) {
    return static_cast<int64_t>(reinterpret_cast<intptr_t>(handle));
  }

  void record(comm::DeviceEvent event, comm::DeviceStream stream) {
    const std::lock_guard lock(mutex_);
    if (!events_.contains(key(event))) return violation("an event is recorded that is gone");
    const int64_t version = ++events_[key(event)].recorded;
    push(stream, [this, id = key(event), version] {
      const auto found = events_.find(id);
      if (found != events_.end()) found->second.completed = std::max(found->second.completed, version);
      return true;
    });
  }

  void wait(comm::DeviceStream stream, comm::DeviceEvent event) {
    const std::lock_guard lock(mutex_);
    const auto found = events_.find(key(event));
    if (found == events_.end() || found->second.recorded == 0)
      return violation("a stream waits for an event that was not recorded");
    push(stream, [this, id = key(event), version = found->second.recorded] {
      const auto known = events_.find(id);
      return known == events_.end() || known->second.completed >= version;
    });
  }

  mutable std::recursive_mutex mutex_;
  std::map<int64_t, std::deque<Item>> streams_;
  std::map<int64_t, Event> events_;
  std::map<int, comm::DeviceStream> compute_;
  std::map<std::thread::id, comm::DeviceStream> current_;
  std::map<std::thread::id, int> device_;
  int64_t made_ = 0;
  std::string violations_;
};

}  // namespace apus::testing
