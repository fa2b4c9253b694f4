#include "comm/nccl_group.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "apus/base/error.h"
#include "comm/gloo_host.h"
#include "comm/local_collectives.h"
#include "comm/nccl_connect.h"
#include "comm/nccl_watch.h"
#include "comm/nccl_work.h"

namespace apus::comm {
namespace {

using std::chrono::milliseconds;

/// More are never on their way: the host then waits for the oldest. A step has a few for each layer.
constexpr size_t kMaxFlights = 1024;
constexpr milliseconds kCauseWait{1000};

/// What the NCCL groups of one rank share.
struct NcclJob {
  std::shared_ptr<const NcclBackend> backend;
  std::shared_ptr<AbortDomain> domain;
  std::shared_ptr<EventPool> events;
  NcclOptions options;
  std::unique_ptr<NcclWatch> watch;
};

/// The element type of a reduction. Communicator has refused all others.
NcclType reduced_type(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return NcclType::kFloat;
    case at::kBFloat16:
      return NcclType::kBFloat16;
    case at::kHalf:
      return NcclType::kHalf;
    case at::kDouble:
      return NcclType::kDouble;
    case at::kLong:
      return NcclType::kInt64;
    case at::kByte:
      return NcclType::kUint8;
    default:
      APUS_ASSERT(false, "NCCL is not to reduce ", at::toString(tensor.scalar_type()));
  }
}

/// One transfer between two ranks.
struct Transfer {
  P2pKind kind;
  char* data;
  size_t bytes;
  int peer;
};

/// The transfers in one NCCL group, so that no order of peers can deadlock. The group ends in any case.
NcclResult in_one_group(const NcclApi& nccl, const std::vector<Transfer>& transfers, NcclComm comm,
                        DeviceStream stream) {
  NcclResult first = nccl.group_start();
  if (first != NcclResult::kSuccess) return first;
  for (const Transfer& transfer : transfers) {
    if (first != NcclResult::kSuccess) break;
    first = transfer.kind == P2pKind::kSend
                ? nccl.send(transfer.data, transfer.bytes, NcclType::kUint8, transfer.peer, comm, stream)
                : nccl.recv(transfer.data, transfer.bytes, NcclType::kUint8, transfer.peer, comm, stream);
  }
  const NcclResult end = nccl.group_end();
  return first == NcclResult::kSuccess ? end : first;
}

char* bytes_of(const at::Tensor& tensor) {
  return static_cast<char*>(tensor.mutable_data_ptr());
}

class NcclGroup final : public Communicator {
 public:
  NcclGroup(std::shared_ptr<NcclJob> job, std::shared_ptr<Communicator> host, void* stream, void* adopted)
      : job_(std::move(job)), host_(std::move(host)), gloo_(dynamic_cast<GlooHost&>(*host_)) {
    const GroupState& host_state = *gloo_.state();
    const int64_t generation =
        job_->domain->store()->add(detail::concat(host_state.key(), "/nccl/made/", host_state.rank()), 1);
    state_ = std::make_shared<GroupState>(host_state.name(),
                                          detail::concat(host_state.key(), "/nccl/", generation),
                                          host_state.rank(), host_state.members());
    job_->domain->add_group(state_);
    if (size() == 1 && job_->options.group_of_one == GroupOfOne::kCopies) return;
    try {
      open(static_cast<DeviceStream>(stream), static_cast<NcclComm>(adopted));
    } catch (...) {
      shut_down();
      throw;
    }
  }

  ~NcclGroup() override { shut_down(); }

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  const std::string& name() const override { return host_->name(); }
  std::shared_ptr<Store> store() const override { return host_->store(); }
  milliseconds timeout() const override { return host_->timeout(); }
  void abort(const std::string& reason) noexcept override {
    job_->domain->abort(reason);
    job_->watch->wake();
  }
  void check_running() override {
    if (job_->domain->poll()) job_->domain->raise(*state_, {});
  }
  void set_note(const std::string& note) override { job_->domain->set_note(note); }

 protected:
  std::shared_ptr<Work> do_all_reduce(const OpInfo& info, const at::Tensor& tensor,
                                      const ReduceOptions& options) override {
    start(info);
    if (on_host(tensor)) return host_->all_reduce(tensor, options);
    if (alone() || tensor.numel() == 0) return local([&] { scale_in_place(tensor, options.scale); });
    return run(info, {tensor}, {.tensor = tensor, .factor = options.scale}, [&](NcclComm comm) {
      return nccl().all_reduce(tensor.const_data_ptr(), tensor.mutable_data_ptr(), count(tensor),
                               reduced_type(tensor), options.op, comm, stream_);
    });
  }

  std::shared_ptr<Work> do_all_gather(const OpInfo& info, const at::Tensor& out,
                                      const at::Tensor& in) override {
    start(info);
    if (on_host(out)) return host_->all_gather(out, in);
    if (alone() || out.numel() == 0) return local([&] { copy_flat(out, in); });
    return run(info, {out, in}, {}, [&](NcclComm comm) {
      return nccl().all_gather(in.const_data_ptr(), out.mutable_data_ptr(), in.nbytes(), NcclType::kUint8,
                               comm, stream_);
    });
  }

  std::shared_ptr<Work> do_reduce_scatter(const OpInfo& info, const at::Tensor& out, const at::Tensor& in,
                                          const ReduceOptions& options) override {
    start(info);
    if (on_host(in)) return host_->reduce_scatter(out, in, options);
    if (alone() || in.numel() == 0) {
      return local([&] {
        copy_flat(out, in);
        scale_in_place(out, options.scale);
      });
    }
    return run(info, {out, in}, {.tensor = out, .factor = options.scale}, [&](NcclComm comm) {
      return nccl().reduce_scatter(in.const_data_ptr(), out.mutable_data_ptr(), count(out), reduced_type(in),
                                   options.op, comm, stream_);
    });
  }

  std::shared_ptr<Work> do_broadcast(const OpInfo& info, const at::Tensor& tensor, int root) override {
    start(info);
    if (on_host(tensor)) return host_->broadcast(tensor, root);
    if (alone() || tensor.numel() == 0) return finished_work();
    return run(info, {tensor}, {}, [&](NcclComm comm) {
      return nccl().broadcast(tensor.const_data_ptr(), tensor.mutable_data_ptr(), tensor.nbytes(),
                              NcclType::kUint8, root, comm, stream_);
    });
  }

  std::shared_ptr<Work> do_all_to_all_v(const OpInfo& info, const at::Tensor& out, const at::Tensor& in,
                                        const std::vector<int64_t>& out_splits,
                                        const std::vector<int64_t>& in_splits) override {
    start(info);
    if (on_host(out)) {
      return info.kind == OpKind::kAllToAll ? host_->all_to_all(out, in)
                                            : host_->all_to_all_v(out, in, out_splits, in_splits);
    }
    if (alone()) return local([&] { copy_flat(out, in); });
    const std::vector<Transfer> transfers = exchange(out, in, out_splits, in_splits);
    if (transfers.empty()) return finished_work();
    return run(info, {out, in}, {},
               [&](NcclComm comm) { return in_one_group(nccl(), transfers, comm, stream_); });
  }

  std::shared_ptr<Work> do_send_recv(const OpInfo& info, const std::vector<P2pOp>& ops) override {
    start(info);
    std::vector<P2pOp> ordered = ops;
    std::ranges::stable_sort(ordered, {}, &P2pOp::tag);
    std::vector<Transfer> transfers;
    std::vector<at::Tensor> tensors;
    for (const P2pOp& op : ordered) {
      APUS_CHECK(on_host(op.tensor) == on_host(ops.front().tensor), ShapeError, "send_recv of ", name(),
                 ": some tensors are on the device and some on the CPU; make a call for each");
      if (on_host(op.tensor) || op.tensor.numel() == 0) continue;
      tensors.push_back(op.tensor);
      transfers.push_back({op.kind, bytes_of(op.tensor), op.tensor.nbytes(), op.peer});
    }
    if (!ops.empty() && on_host(ops.front().tensor)) return host_->send_recv(ops);
    if (transfers.empty()) return finished_work();
    return run(info, std::move(tensors), {},
               [&](NcclComm comm) { return in_one_group(nccl(), transfers, comm, stream_); });
  }

  std::shared_ptr<Work> do_barrier(const OpInfo& info) override {
    start(info);
    if (alone()) return finished_work();
    return run(
        info, {one_}, {}, [&](NcclComm comm) { return exchange_one(comm); }, NcclWaits::kHost);
  }

  std::unique_ptr<Communicator> do_subgroup(int64_t index, const std::vector<int>& ranks,
                                            const std::string& name) override {
    if (job_->domain->ended()) job_->domain->raise(*state_, {});
    // Below the key of this NCCL group, so that groups made from the host itself do not meet these.
    const std::string key = state_->key().substr(gloo_.state()->key().size() + 1) +
                            detail::concat("/", index, ".", ranks.front());
    return std::make_unique<NcclGroup>(job_, gloo_.make_group(key, ranks, name), nullptr, nullptr);
  }

 private:
  /// What is multiplied, on the communicator's stream, once the operation has ended there.
  struct Scaled {
    at::Tensor tensor = {};
    double factor = 1.0;
  };

  const NcclApi& nccl() const { return job_->backend->nccl; }
  const DeviceApi& device() const { return job_->backend->device; }
  bool alone() const { return watched_ == nullptr; }
  static size_t count(const at::Tensor& tensor) { return static_cast<size_t>(tensor.numel()); }

  /// Whether a tensor goes through the host's group.
  bool on_host(const at::Tensor& tensor) const {
    if (tensor.device().type() != device().type) return true;
    APUS_CHECK(!tensor.device().has_index() || tensor.device().index() == job_->options.device ||
                   tensor.device().is_cpu(),
               ShapeError, "group ", name(), " works on device ", job_->options.device,
               ", and a tensor is on ", tensor.device().str());
    return false;
  }

  template <typename Function>
  static std::shared_ptr<Work> local(Function&& function) {
    function();
    return finished_work();
  }

  void open(DeviceStream stream, NcclComm adopted) {
    watched_ = std::make_shared<NcclWatched>();
    watched_->group = state_;
    watched_->link = std::make_shared<NcclLink>(job_->backend);
    watched_->flights = std::make_shared<NcclFlights>();
    watched_->timeout = timeout();
    const DeviceScope scope(device(), job_->options.device);
    owns_stream_ = stream == nullptr;
    stream_ = owns_stream_ ? device().create_stream() : stream;
    begin_ = job_->events->take();
    one_ = at::zeros({1}, at::TensorOptions().device(at::Device(
                              device().type, device().type == at::kCPU ? -1 : job_->options.device)));
    job_->watch->add(watched_);
    if (adopted != nullptr) return adopt_link(*watched_->link, *job_->backend, *state_, adopted);
    connect_link(*watched_->link, *job_->backend, *job_->domain, *state_, timeout());
    run(
        {}, {one_}, {}, [&](NcclComm comm) { return exchange_one(comm); }, NcclWaits::kHost)
        ->wait();
  }

  NcclResult exchange_one(NcclComm comm) {
    return nccl().all_reduce(one_.const_data_ptr(), one_.mutable_data_ptr(), 1, NcclType::kFloat,
                             ReduceOp::kSum, comm, stream_);
  }

  /// Before every operation: has the job ended? And it notes how far this rank is. The watch looks at the
  /// store.
  void start(const OpInfo& info) {
    if (job_->domain->ended()) job_->domain->raise(*state_, info);
    state_->started(info);
    if (alone()) return;
    watched_->flights->forget_landed(device(), *watched_->link);
    while (watched_->flights->size() >= kMaxFlights) {
      if (job_->domain->ended()) job_->domain->raise(*state_, info);
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      watched_->flights->forget_landed(device(), *watched_->link);
    }
  }

  /// Every operation on the device: behind the current stream's work, on the own stream, its end recorded.
  /// The flight is known before NCCL is, so that no way out lets its tensors go too early.
  std::shared_ptr<Work> run(const OpInfo& info, std::vector<at::Tensor> tensors, const Scaled& scaled,
                            const std::function<NcclResult(NcclComm)>& launch,
                            NcclWaits waits = NcclWaits::kStream) {
    const DeviceScope scope(device(), job_->options.device);
    const DeviceStream current = device().current_stream();
    device().record_event(begin_, current);
    device().stream_wait_event(stream_, begin_);
    auto flight = std::make_shared<NcclFlight>(info, job_->events, current, std::move(tensors));
    watched_->flights->add(flight);
    settle(info, watched_->link->call(launch));
    if (scaled.factor != 1.0) device().scale(scaled.tensor, scaled.factor, stream_);
    device().record_event(flight->end(), stream_);
    flight->launched();
    return std::make_shared<NcclWork>(NcclWork::Context{.domain = job_->domain,
                                                        .group = state_,
                                                        .link = watched_->link,
                                                        .backend = job_->backend,
                                                        .device = job_->options.device},
                                      std::move(flight), waits);
  }

  /// Waits until NCCL has put the operation on the stream; the watch minds the deadline. A thread of NCCL's
  /// does that in tens of microseconds, so a nap, which the kernel makes one of 70, comes only after those.
  void settle(const OpInfo& info, NcclResult answer) {
    constexpr std::chrono::microseconds kNoNap{300}, kNap{20};
    const auto start = std::chrono::steady_clock::now();
    while (answer == NcclResult::kInProgress) {
      if (job_->domain->ended()) job_->domain->raise(*state_, info);
      if (std::chrono::steady_clock::now() - start < kNoNap) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(kNap);
      }
      answer = watched_->link->state();
    }
    if (answer == NcclResult::kSuccess) return;
    if (!job_->domain->poll_for(kCauseWait)) {
      const std::string text =
          detail::concat("rank ", rank(), " of group ", name(), " (", size(), " ranks), ", info.text(),
                         ": NCCL failed: ", watched_->link->error_text(answer));
      job_->domain->abort(text);
      job_->domain->logger()->error(text);
    }
    job_->watch->wake();
    job_->domain->raise(*state_, info);
  }

  std::vector<Transfer> exchange(const at::Tensor& out, const at::Tensor& in,
                                 const std::vector<int64_t>& out_splits,
                                 const std::vector<int64_t>& in_splits) const {
    size_t row_bytes = in.element_size();
    for (int64_t dim = 1; dim < in.dim(); ++dim) row_bytes *= static_cast<size_t>(in.size(dim));
    std::vector<Transfer> transfers;
    char* to = bytes_of(out);
    char* from = bytes_of(in);
    for (int peer = 0; peer < size(); ++peer) {
      const size_t sent = static_cast<size_t>(in_splits[peer]) * row_bytes;
      const size_t received = static_cast<size_t>(out_splits[peer]) * row_bytes;
      if (sent > 0) transfers.push_back({P2pKind::kSend, from, sent, peer});
      if (received > 0) transfers.push_back({P2pKind::kRecv, to, received, peer});
      from += sent;
      to += received;
    }
    return transfers;
  }

  /// Waits until what was issued has been seen to land. Whether it has.
  bool drain(milliseconds patience) {
    const auto end = std::chrono::steady_clock::now() + patience;
    for (;;) {
      watched_->flights->forget_landed(device(), *watched_->link);
      if (watched_->flights->size() == 0) return true;
      if (job_->domain->ended() || std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  /// Ends the NCCL communicator, in good order or by an abort, within a bounded time. What may still run
  /// keeps its tensors, stream and events.
  void shut_down() noexcept {
    if (watched_ == nullptr) return;
    try {
      const DeviceScope scope(device(), job_->options.device);
      const milliseconds patience = job_->options.shutdown_timeout;
      const auto ended = [this] { return job_->domain->ended(); };
      if (!ended() && drain(patience) && watched_->link->close(patience, ended)) {
        job_->watch->remove(watched_);
        job_->events->give_back(begin_);
        if (owns_stream_) device().destroy_stream(stream_);
      } else {
        shut_down_by_abort(patience);
      }
    } catch (const std::exception& error) {
      job_->domain->logger()->warning(
          detail::concat("group ", name(), " was not closed in good order: ", error.what()));
    }
    watched_.reset();
  }

  void shut_down_by_abort(milliseconds patience) {
    if (job_->domain->ended()) {
      job_->watch->wake();
    } else {
      job_->domain->logger()->warning(
          detail::concat("group ", name(), ": NCCL did not finish in ", patience.count() / 1000.0,
                         " s; its communicator is aborted (did all ranks end the group?)"));
      job_->watch->abort_alone(watched_);
    }
    if (job_->watch->wait_gone(*watched_->link, patience)) job_->watch->remove(watched_);
  }

  std::shared_ptr<NcclJob> job_;
  std::shared_ptr<Communicator> host_;
  GlooHost& gloo_;
  std::shared_ptr<GroupState> state_;
  std::shared_ptr<NcclWatched> watched_;  // null in a group that copies
  DeviceStream stream_ = nullptr;
  bool owns_stream_ = false;
  DeviceEvent begin_ = nullptr;
  at::Tensor one_;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_group(std::shared_ptr<Communicator> host, const NcclOptions& options,
                                              std::shared_ptr<const NcclBackend> backend) {
  auto* gloo = dynamic_cast<GlooHost*>(host.get());
  APUS_CHECK(gloo != nullptr, ConfigError,
             "an NCCL communicator stands on a group from GlooCommunicator::create; decorate the result, not "
             "the group under it");
  APUS_CHECK(options.watch_every.count() > 0 && options.shutdown_timeout.count() >= 0, ConfigError,
             "watch_every is ", options.watch_every.count(), " ms and shutdown_timeout ",
             options.shutdown_timeout.count(), " ms; expected more than 0 and at least 0");
  auto events = std::make_shared<EventPool>(backend);
  const NcclWatchOptions watch{.device = options.device,
                               .every = std::max(options.watch_every, milliseconds(host->size())),
                               .patience = options.shutdown_timeout};
  auto job = std::make_shared<NcclJob>();
  job->backend = backend;
  job->domain = gloo->domain();
  job->events = events;
  job->options = options;
  job->watch = std::make_unique<NcclWatch>(gloo->domain(), backend, events, watch);
  void* const stream = std::exchange(job->options.stream, nullptr);
  void* const communicator = std::exchange(job->options.communicator, nullptr);
  return std::make_unique<NcclGroup>(std::move(job), std::move(host), stream, communicator);
}

}  // namespace apus::comm
