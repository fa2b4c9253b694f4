#pragma once

#include <ATen/ops/from_blob.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "comm/nccl_api.h"
#include "tests/support/fake_streams.h"

namespace apus::testing {

/// One call of NCCL as the fake saw it.
struct FakeCall {
  std::string name;
  int rank = -1;  ///< in its communicator, whose size is `size`
  int size = 0;
  const void* send = nullptr;
  const void* recv = nullptr;
  size_t count = 0;
  comm::NcclType type = comm::NcclType::kUint8;
  int peer = -1;  ///< or the root
  comm::ReduceOp op = comm::ReduceOp::kSum;
  comm::DeviceStream stream = nullptr;
  std::thread::id thread = std::this_thread::get_id();
};

/// NCCL for ranks that are threads of one process, over streams that are queues: it moves the data when all
/// ranks have come to an operation, answers kInProgress as often as told, fails as told, and notes every call
/// that breaks NCCL's or the device's rules.
class FakeNccl {
 public:
  using Result = comm::NcclResult;
  static constexpr int kForever = -1;

  /// How often the next calls are in progress before they succeed.
  std::atomic<int> init_polls{0}, call_polls{0}, finalize_polls{0};
  /// Collectives stay on their streams.
  std::atomic<bool> stalled{false};
  /// Event queries of the device fail.
  std::atomic<bool> device_lost{false};
  /// Result of the next send.
  std::atomic<Result> send_result{Result::kSuccess};
  /// Called in each abort, without a lock.
  std::function<void()> on_abort;

  explicit FakeNccl(at::DeviceType type = at::kCPU) : type_(type) {}

  FakeStreams& streams() { return streams_; }

  std::shared_ptr<const comm::NcclBackend> backend() {
    auto tables = std::make_shared<comm::NcclBackend>();
    fill_lifetime(tables->nccl);
    fill_transfers(tables->nccl);
    streams_.fill(tables->device, [this] { return device_lost.load(); });
    tables->device.type = type_;
    return tables;
  }

  /// From now on the communicators of this rank report it.
  void fail(int rank, Result result) {
    const std::lock_guard lock(streams_.mutex());
    for (auto& [id, comm] : comms_) {
      if (comm.rank == rank) comm.error = result;
    }
  }
  std::vector<FakeCall> calls(const std::string& name = "", int rank = -1) const {
    const std::lock_guard lock(streams_.mutex());
    std::vector<FakeCall> found;
    for (const FakeCall& call : calls_) {
      if ((name.empty() || call.name == name) && (rank < 0 || call.rank == rank)) found.push_back(call);
    }
    return found;
  }
  void forget_calls() {
    const std::lock_guard lock(streams_.mutex());
    calls_.clear();
  }
  /// What was called out of order, one line each.
  std::string violations() const {
    const std::lock_guard lock(streams_.mutex());
    std::string text = streams_.violations();
    for (const auto& [thread, group] : groups_) {
      if (group.depth != 0) text += "a group is still open\n";
    }
    return text;
  }
  /// Communicators that were neither destroyed nor aborted.
  int open_comms() const {
    const std::lock_guard lock(streams_.mutex());
    return static_cast<int>(
        std::ranges::count_if(comms_, [](const auto& entry) { return !entry.second.is_over(); }));
  }
  /// A communicator that exists already, as a caller's would.
  comm::NcclComm make_comm(int size, int rank) {
    comm::NcclComm made = nullptr;
    comm::NcclUniqueId id;
    id.bytes[0] = 'c';
    init(made, size, id, rank);
    forget_calls();
    return made;
  }

 private:
  enum class State { kOpen, kFinalizing, kFinalized, kDestroyed, kAborted };

  struct Comm {
    std::string clique;
    int size = 0;
    int rank = 0;
    State state = State::kOpen;
    int polls = 0;
    Result error = Result::kSuccess;
    int64_t sequence = 0;
    int queued = 0;                  // operations on streams
    std::function<void()> deferred;  // what NCCL's own thread does while a call is in progress
    std::shared_ptr<std::atomic<int>> inside = std::make_shared<std::atomic<int>>(0);
    bool is_over() const { return state == State::kDestroyed || state == State::kAborted; }
  };
  /// One collective of a clique: who has come, and with what.
  struct Meeting {
    std::map<int, FakeCall> arrived;
    bool done = false;
  };
  struct Clique {
    std::set<int> ranks;
    std::map<int64_t, Meeting> meetings;
    std::map<std::pair<int, int>, std::deque<std::string>> mail;  // (from, to)
  };
  struct Group {
    int depth = 0;
    std::vector<std::pair<int, FakeCall>> transfers;
  };

  static int id_of(comm::NcclComm comm) { return static_cast<int>(reinterpret_cast<intptr_t>(comm)); }

  /// Runs `body` on a communicator that may be used now; notes a violation if it may not, or if two threads
  /// use it at once.
  template <typename Body>
  Result use(comm::NcclComm handle, const char* name, bool busy_is_fine, Body&& body) {
    std::unique_lock lock(streams_.mutex());
    const auto found = comms_.find(id_of(handle));
    if (found == comms_.end() || found->second.is_over()) {
      streams_.violation(std::string(name) + " on a communicator that is gone");
      return Result::kInvalidArgument;
    }
    Comm& comm = found->second;
    const auto inside = comm.inside;
    if (inside->fetch_add(1) > 0) streams_.violation(std::string(name) + " while another thread calls");
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
    Result result;
    if (!busy_is_fine && is_busy(comm)) {
      streams_.violation(std::string(name) + " while a call is in progress");
      result = Result::kInvalidArgument;
    } else {
      result = body(comm);
    }
    inside->fetch_sub(1);
    streams_.advance();
    return result;
  }

  bool is_busy(const Comm& comm) const {
    if (comm.state == State::kFinalizing) return comm.polls != 0 || comm.queued > 0;
    return comm.polls != 0 || static_cast<int>(cliques_.at(comm.clique).ranks.size()) < comm.size;
  }

  Result init(comm::NcclComm& handle, int size, const comm::NcclUniqueId& id, int rank) {
    const std::lock_guard lock(streams_.mutex());
    const std::string clique(id.bytes.begin(), id.bytes.end());
    if (id.bytes[0] == '\0') streams_.violation("initialised without a unique id");
    if (!cliques_[clique].ranks.insert(rank).second) streams_.violation("a rank joined twice");
    Comm comm;
    comm.clique = clique;
    comm.size = size;
    comm.rank = rank;
    comm.polls = init_polls;
    const int key = ++made_;
    calls_.push_back({.name = "init", .rank = rank, .size = size});
    const bool busy = is_busy(comms_.emplace(key, std::move(comm)).first->second);
    handle = reinterpret_cast<comm::NcclComm>(static_cast<intptr_t>(key));
    return busy ? Result::kInProgress : Result::kSuccess;
  }

  void fill_lifetime(comm::NcclApi& api) {
    api.version = [] { return 22809; };
    api.get_unique_id = [this](comm::NcclUniqueId& id) {
      const std::string text = "id " + std::to_string(++ids_);
      std::ranges::copy(text, id.bytes.begin());
      return Result::kSuccess;
    };
    api.init_rank = [this](comm::NcclComm& handle, int size, const comm::NcclUniqueId& id, int rank) {
      return init(handle, size, id, rank);
    };
    api.shape = [this](comm::NcclComm handle, int& size, int& rank) {
      return use(handle, "shape", false, [&](Comm& comm) {
        size = comm.size;
        rank = comm.rank;
        return Result::kSuccess;
      });
    };
    api.get_async_error = [this](comm::NcclComm handle, Result& state) {
      return use(handle, "get_async_error", true, [&](Comm& comm) {
        if (comm.polls > 0 && --comm.polls == 0 && comm.deferred) std::exchange(comm.deferred, nullptr)();
        state = comm.error != Result::kSuccess ? comm.error
                : is_busy(comm)                ? Result::kInProgress
                                               : Result::kSuccess;
        if (state == Result::kSuccess && comm.state == State::kFinalizing) comm.state = State::kFinalized;
        return Result::kSuccess;
      });
    };
    api.finalize = [this](comm::NcclComm handle) {
      return use(handle, "finalize", false, [&](Comm& comm) {
        if (comm.state != State::kOpen) streams_.violation("finalized twice");
        note("finalize", comm);
        comm.state = State::kFinalizing;
        comm.polls = finalize_polls;
        if (is_busy(comm)) return Result::kInProgress;
        comm.state = State::kFinalized;
        return Result::kSuccess;
      });
    };
    api.destroy = [this](comm::NcclComm handle) {
      return use(handle, "destroy", false, [&](Comm& comm) {
        if (comm.state != State::kFinalized) streams_.violation("destroyed before it was finalized");
        note("destroy", comm);
        comm.state = State::kDestroyed;
        return Result::kSuccess;
      });
    };
    api.abort = [this](comm::NcclComm handle) {
      const Result result = use(handle, "abort", true, [&](Comm& comm) {
        note("abort", comm);
        comm.state = State::kAborted;
        return Result::kSuccess;
      });
      if (on_abort) on_abort();
      return result;
    };
    api.error_text = [](comm::NcclComm, Result result) {
      return "fake result " + std::to_string(static_cast<int>(result));
    };
  }

  void note(const char* name, const Comm& comm) {
    calls_.push_back({.name = name, .rank = comm.rank, .size = comm.size});
  }

  void fill_transfers(comm::NcclApi& api) {
    using comm::NcclType;
    using Handle = comm::NcclComm;
    using Stream = comm::DeviceStream;
    api.group_start = [this] {
      const std::lock_guard lock(streams_.mutex());
      ++groups_[std::this_thread::get_id()].depth;
      calls_.push_back({.name = "group_start"});
      return Result::kSuccess;
    };
    api.group_end = [this] { return end_group(); };
    api.all_reduce = [this](const void* send, void* recv, size_t count, NcclType type, comm::ReduceOp op,
                            Handle comm, Stream stream) {
      return meet(comm, {"all_reduce", 0, 0, send, recv, count, type, -1, op, stream});
    };
    api.reduce_scatter = [this](const void* send, void* recv, size_t count, NcclType type, comm::ReduceOp op,
                                Handle comm, Stream stream) {
      return meet(comm, {"reduce_scatter", 0, 0, send, recv, count, type, -1, op, stream});
    };
    api.all_gather = [this](const void* send, void* recv, size_t count, NcclType type, Handle comm,
                            Stream stream) {
      return meet(comm, {"all_gather", 0, 0, send, recv, count, type, -1, comm::ReduceOp::kSum, stream});
    };
    api.broadcast = [this](const void* send, void* recv, size_t count, NcclType type, int root, Handle comm,
                           Stream stream) {
      return meet(comm, {"broadcast", 0, 0, send, recv, count, type, root, comm::ReduceOp::kSum, stream});
    };
    api.send = [this](const void* data, size_t count, NcclType type, int peer, Handle comm, Stream stream) {
      const Result told = send_result.exchange(Result::kSuccess);
      if (told != Result::kSuccess) return told;
      return transfer(comm, {"send", 0, 0, data, nullptr, count, type, peer, comm::ReduceOp::kSum, stream});
    };
    api.recv = [this](void* data, size_t count, NcclType type, int peer, Handle comm, Stream stream) {
      return transfer(comm, {"recv", 0, 0, nullptr, data, count, type, peer, comm::ReduceOp::kSum, stream});
    };
  }

  /// Puts what a call does on its stream: now, or once the call is no longer in progress.
  Result launch(Comm& comm, std::function<void()> put) {
    comm.polls = call_polls;
    if (comm.polls == 0) {
      put();
      return Result::kSuccess;
    }
    comm.deferred = std::move(put);
    return Result::kInProgress;
  }

  Result meet(comm::NcclComm handle, FakeCall call) {
    return use(handle, call.name.c_str(), false, [&](Comm& comm) {
      call.rank = comm.rank;
      call.size = comm.size;
      calls_.push_back(call);
      const int64_t sequence = ++comm.sequence;
      const int id = id_of(handle);
      return launch(comm, [this, id, sequence, call] {
        ++comms_.at(id).queued;
        streams_.push(call.stream, [this, id, sequence, call] { return arrive(id, sequence, call); });
      });
    });
  }

  /// An operation at the front of its stream. Whether it has ended.
  bool arrive(int id, int64_t sequence, const FakeCall& call) {
    Comm& comm = comms_.at(id);
    Meeting& meeting = cliques_.at(comm.clique).meetings[sequence];
    if (comm.state != State::kAborted) {
      meeting.arrived.emplace(comm.rank, call);
      if (!meeting.done && (stalled || static_cast<int>(meeting.arrived.size()) < comm.size)) return false;
      if (!meeting.done) move(meeting.arrived);
      meeting.done = true;
    }
    --comm.queued;
    return true;
  }

  static at::Tensor wrap(const void* data, size_t count, comm::NcclType type) {
    const at::ScalarType dtype = type == comm::NcclType::kUint8    ? at::kByte
                                 : type == comm::NcclType::kInt64  ? at::kLong
                                 : type == comm::NcclType::kHalf   ? at::kHalf
                                 : type == comm::NcclType::kFloat  ? at::kFloat
                                 : type == comm::NcclType::kDouble ? at::kDouble
                                                                   : at::kBFloat16;
    return at::from_blob(const_cast<void*>(data), {static_cast<int64_t>(count)}, dtype);
  }

  void move(const std::map<int, FakeCall>& calls) {
    const FakeCall& first = calls.begin()->second;
    for (const auto& [rank, call] : calls) {
      if (call.name != first.name || call.count != first.count || call.type != first.type ||
          call.peer != first.peer)
        streams_.violation("ranks meet in " + first.name + " and " + call.name + " that do not agree");
    }
    if (type_ != at::kCPU) return;
    const size_t ranks = calls.size();
    if (first.name == "broadcast") {
      const at::Tensor from = wrap(calls.at(first.peer).send, first.count, first.type).clone();
      for (const auto& [rank, call] : calls) wrap(call.recv, call.count, call.type).copy_(from);
    } else if (first.name == "all_gather") {
      std::vector<at::Tensor> parts;
      for (const auto& [rank, call] : calls) parts.push_back(wrap(call.send, call.count, call.type).clone());
      for (const auto& [rank, call] : calls) {
        const at::Tensor out = wrap(call.recv, call.count * ranks, call.type);
        for (size_t r = 0; r < ranks; ++r)
          out.narrow(0, static_cast<int64_t>(r * call.count), static_cast<int64_t>(call.count))
              .copy_(parts[r]);
      }
    } else {
      const bool scatter = first.name == "reduce_scatter";
      at::Tensor sum;
      for (const auto& [rank, call] : calls) {
        const at::Tensor in = wrap(call.send, scatter ? call.count * ranks : call.count, call.type);
        sum = !sum.defined()                    ? in.clone()
              : call.op == comm::ReduceOp::kSum ? sum.add(in)
              : call.op == comm::ReduceOp::kMax ? at::maximum(sum, in)
                                                : at::minimum(sum, in);
      }
      for (const auto& [rank, call] : calls) {
        const auto count = static_cast<int64_t>(call.count);
        wrap(call.recv, call.count, call.type).copy_(scatter ? sum.narrow(0, rank * count, count) : sum);
      }
    }
  }

  Result transfer(comm::NcclComm handle, FakeCall call) {
    return use(handle, call.name.c_str(), false, [&](Comm& comm) {
      call.rank = comm.rank;
      call.size = comm.size;
      calls_.push_back(call);
      Group& group = groups_[std::this_thread::get_id()];
      if (group.depth == 0) streams_.violation(call.name + " outside a group");
      group.transfers.emplace_back(id_of(handle), call);
      return Result::kSuccess;
    });
  }

  Result end_group() {
    const std::lock_guard lock(streams_.mutex());
    calls_.push_back({.name = "group_end"});
    Group& group = groups_[std::this_thread::get_id()];
    if (group.depth == 0) {
      streams_.violation("a group ends that was not started");
      return Result::kInvalidUsage;
    }
    if (--group.depth > 0 || group.transfers.empty()) return Result::kSuccess;
    const auto transfers = std::exchange(group.transfers, {});
    const int id = transfers.front().first;
    const auto left = std::make_shared<std::vector<FakeCall>>();
    for (const auto& [of, call] : transfers) left->push_back(call);
    const Result result = launch(comms_.at(id), [this, id, left] {
      ++comms_.at(id).queued;
      streams_.push(left->front().stream, [this, id, left] { return deliver(id, *left); });
    });
    streams_.advance();
    return result;
  }

  /// Sends what is to be sent, receives what has come. Whether nothing is left.
  bool deliver(int id, std::vector<FakeCall>& left) {
    Comm& comm = comms_.at(id);
    Clique& clique = cliques_.at(comm.clique);
    if (comm.state == State::kAborted) left.clear();
    if (stalled && !left.empty()) return false;
    std::erase_if(left, [&](const FakeCall& call) {
      if (call.name == "send") {
        clique.mail[{comm.rank, call.peer}].emplace_back(static_cast<const char*>(call.send), call.count);
        return true;
      }
      std::deque<std::string>& mail = clique.mail[{call.peer, comm.rank}];
      if (mail.empty()) return false;
      if (mail.front().size() != call.count) streams_.violation("a send meets a recv of another size");
      std::memcpy(const_cast<void*>(call.recv), mail.front().data(),
                  std::min(mail.front().size(), call.count));
      mail.pop_front();
      return true;
    });
    if (left.empty()) --comm.queued;
    return left.empty();
  }

  at::DeviceType type_;
  FakeStreams streams_;
  std::map<int, Comm> comms_;
  std::map<std::string, Clique> cliques_;
  std::map<std::thread::id, Group> groups_;
  std::vector<FakeCall> calls_;
  std::atomic<int> ids_{0};
  int made_ = 0;
};

}  // namespace apus::testing
