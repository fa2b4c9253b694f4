#include "apus/comm/gloo_communicator.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

#include "apus/base/error.h"
#include "apus/base/log.h"
#include "comm/abort_domain.h"
#include "comm/backoff.h"
#include "comm/c10d_store.h"
#include "comm/gloo_device.h"
#include "comm/gloo_host.h"
#include "comm/gloo_work.h"
#include "comm/local_collectives.h"
#include "comm/report_text.h"
#include "comm/sigpipe_shield.h"

namespace apus::comm {
namespace {

using std::chrono::milliseconds;
using GroupPointer = c10::intrusive_ptr<c10d::ProcessGroupGloo>;
using WorkPointer = GlooFlight::WorkPointer;

/// What the groups of one job share.
struct GlooJob {
  std::shared_ptr<AbortDomain> domain;
  std::shared_ptr<GlooDeviceImpl> device;
  milliseconds timeout;
};

c10d::ReduceOp to_c10d(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return c10d::ReduceOp::SUM;
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
    case ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
  }
  APUS_ASSERT(false, "unknown ReduceOp ", static_cast<int>(op));
}

/// Starts a c10d operation under a lock of the process: its flight recorder, one object for all groups, keeps
/// a map of groups that every start reads and the first start of each group writes, without a lock of its
/// own. Ranks that are threads corrupted it. Starting only queues the operation; running it holds no lock.
template <typename Function>
auto start_alone(Function&& function) {
  static std::mutex recorder;
  const std::lock_guard lock(recorder);
  return function();
}

/// Waits until every member has come to this stage of making the group; names those who have not.
void wait_for_members(AbortDomain& domain, const GroupState& group, milliseconds timeout, const char* stage) {
  const std::string prefix = group.key() + stage;
  const OpInfo info{
      .kind = OpKind::kBarrier, .sequence = 0, .dtype = "", .shape = {}, .payload_bytes = 0, .detail = ""};
  if (domain.poll()) domain.raise(group, info);  // before peers take this rank for one that connects
  Store& store = *domain.store();
  store.set(prefix + std::to_string(group.rank()), "1");
  std::vector<std::string> keys;
  for (int r = 0; r < group.size(); ++r) keys.push_back(prefix + std::to_string(r));
  const Backoff backoff(timeout);
  while (!store.check(keys)) {
    if (domain.poll()) domain.raise(group, info);
    if (backoff.pause()) continue;
    domain.abort(detail::concat("group ", group.name(), " of ", group.size(),
                                " ranks could not be formed: after ", timeout.count() / 1000.0, " s rank ",
                                missing_ranks(store, keys, group.members()), " had not appeared"));
    domain.raise(group, info);
  }
}

GroupPointer connect(const GlooJob& job, const GroupState& group) {
  wait_for_members(*job.domain, group, job.timeout, "/ready/");
  auto options = c10d::ProcessGroupGloo::Options::create();
  options->devices = {job.device->device()};
  options->threads = 1;
  // Our own deadline comes first: this only bounds how long an abandoned operation lives.
  options->timeout = 2 * job.timeout + milliseconds(5000);
  GroupPointer connected;
  try {
    auto store = to_c10d(make_prefix_store(group.key() + "/gloo", job.domain->store()));
    store->setTimeout(job.timeout);
    const SigpipeShield shield;  // inherited by the group's threads
    connected = c10::make_intrusive<c10d::ProcessGroupGloo>(store, group.rank(), group.size(), options);
  } catch (const std::exception& error) {
    // A peer that gave up while connecting says why in the store.
    if (!job.domain->poll_for(milliseconds(1000))) {
      job.domain->abort(
          detail::concat("group ", group.name(), " could not be connected: ", first_line(error)));
    }
    job.domain->raise(group, {});
  }
  // A rank that is done with the group early would close the connection that a peer is still making.
  wait_for_members(*job.domain, group, job.timeout, "/connected/");
  return connected;
}

class GlooGroup final : public Communicator, public GlooHost {
 public:
  GlooGroup(GlooJob job, std::shared_ptr<GroupState> state)
      : job_(std::move(job)),
        state_(std::move(state)),
        store_(make_prefix_store(state_->key() + "/status", job_.domain->store())) {
    if (state_->size() > 1) group_ = connect(job_, *state_);
    job_.domain->add_group(state_);
  }

  ~GlooGroup() override {
    forget_landed();
    if (!flights_.empty()) {
      job_.device->adopt(std::make_shared<GroupPointer>(std::move(group_)), std::move(flights_));
    }
  }

  int rank() const override { return state_->rank(); }
  int size() const override { return state_->size(); }
  const std::string& name() const override { return state_->name(); }
  std::shared_ptr<Store> store() const override { return store_; }
  milliseconds timeout() const override { return job_.timeout; }
  void abort(const std::string& reason) noexcept override { job_.domain->abort(reason); }
  void check_running() override {
    if (job_.domain->poll()) job_.domain->raise(*state_, {});
  }
  void set_note(const std::string& note) override { job_.domain->set_note(note); }

  const std::shared_ptr<AbortDomain>& domain() const override { return job_.domain; }
  const std::shared_ptr<GroupState>& state() const override { return state_; }
  std::unique_ptr<Communicator> make_group(const std::string& key, const std::vector<int>& ranks,
                                           const std::string& name) override {
    std::vector<int> members;
    for (int r : ranks) members.push_back(state_->members()[r]);
    const auto place = static_cast<int>(std::ranges::find(ranks, rank()) - ranks.begin());
    return std::make_unique<GlooGroup>(
        job_, std::make_shared<GroupState>(name, state_->key() + "/" + key, place, std::move(members)));
  }

 protected:
  std::shared_ptr<Work> do_all_reduce(const OpInfo& info, const at::Tensor& tensor,
                                      const ReduceOptions& options) override {
    start(info);
    if (group_ == nullptr || tensor.numel() == 0)
      return local([&] { scale_in_place(tensor, options.scale); });
    const bool narrow = tensor.scalar_type() == at::kBFloat16 || tensor.scalar_type() == at::kHalf;
    const at::Tensor sum = narrow ? tensor.to(at::kFloat) : tensor;
    std::vector<at::Tensor> tensors{sum};
    c10d::AllreduceOptions c10d;
    c10d.reduceOp = to_c10d(options.op);
    return fly(info, start_alone([&] { return group_->allreduce(tensors, c10d); }), {sum, tensor},
               [sum, tensor, scale = options.scale] {
                 scale_in_place(sum, scale);
                 copy_flat(tensor, sum);
               });
  }

  std::shared_ptr<Work> do_all_gather(const OpInfo& info, const at::Tensor& out,
                                      const at::Tensor& in) override {
    start(info);
    const at::Tensor own = flat_part(out, rank(), size());
    if (group_ == nullptr || out.numel() == 0) return local([&] { copy_flat(own, in); });
    at::Tensor to = byte_view(out);
    at::Tensor from = byte_view(own.const_data_ptr() == in.const_data_ptr() ? in.clone() : in);
    return fly(info, start_alone([&] { return group_->_allgather_base(to, from); }), {to, from}, nullptr);
  }

  std::shared_ptr<Work> do_reduce_scatter(const OpInfo& info, const at::Tensor& out, const at::Tensor& in,
                                          const ReduceOptions& options) override {
    start(info);
    if (group_ == nullptr || in.numel() == 0) {
      return local([&] {
        copy_flat(out, in);
        scale_in_place(out, options.scale);
      });
    }
    const at::Tensor parts = at::empty({size(), out.numel()}, in.options());
    at::Tensor to = byte_view(parts);
    at::Tensor from = byte_view(in);
    std::vector<int64_t> equal;
    return fly(info, start_alone([&] { return group_->alltoall_base(to, from, equal, equal); }),
               {to, from, out}, [out, parts, options] { reduce_rows(out, parts, options); });
  }

  std::shared_ptr<Work> do_broadcast(const OpInfo& info, const at::Tensor& tensor, int root) override {
    start(info);
    if (group_ == nullptr || tensor.numel() == 0) return finished_work();
    std::vector<at::Tensor> tensors{byte_view(tensor)};
    c10d::BroadcastOptions c10d;
    c10d.rootRank = root;
    return fly(info, start_alone([&] { return group_->broadcast(tensors, c10d); }), tensors, nullptr);
  }

  std::shared_ptr<Work> do_all_to_all_v(const OpInfo& info, const at::Tensor& out, const at::Tensor& in,
                                        const std::vector<int64_t>& out_splits,
                                        const std::vector<int64_t>& in_splits) override {
    start(info);
    if (group_ == nullptr) return local([&] { copy_flat(out, in); });
    const auto in_bytes = [&in](std::vector<int64_t> splits) {
      int64_t row_bytes = in.element_size();
      for (int64_t dim = 1; dim < in.dim(); ++dim) row_bytes *= in.size(dim);
      for (int64_t& split : splits) split *= row_bytes;
      return splits;
    };
    at::Tensor to = byte_view(out);
    at::Tensor from = byte_view(in);
    std::vector<int64_t> to_bytes = in_bytes(out_splits);
    std::vector<int64_t> from_bytes = in_bytes(in_splits);
    return fly(info, start_alone([&] { return group_->alltoall_base(to, from, to_bytes, from_bytes); }),
               {to, from}, nullptr);
  }

  std::shared_ptr<Work> do_send_recv(const OpInfo& info, const std::vector<P2pOp>& ops) override {
    start(info);
    std::vector<WorkPointer> works;
    std::vector<at::Tensor> tensors;
    for (const P2pOp& op : ops) {
      if (op.tensor.numel() == 0) continue;
      std::vector<at::Tensor> one{byte_view(op.tensor)};
      works.push_back(start_alone([&] {
        return op.kind == P2pKind::kSend ? group_->send(one, op.peer, op.tag)
                                         : group_->recv(one, op.peer, op.tag);
      }));
      tensors.push_back(one.front());
    }
    if (works.empty()) return finished_work();
    auto flight = std::make_shared<GlooFlight>(std::move(works), std::move(tensors));
    flight->wait_in_background();
    return track(info, std::move(flight), nullptr);
  }

  std::shared_ptr<Work> do_barrier(const OpInfo& info) override {
    start(info);
    if (group_ == nullptr) return finished_work();
    return fly(info, start_alone([&] { return group_->barrier(); }), {}, nullptr);
  }

  std::unique_ptr<Communicator> do_subgroup(int64_t index, const std::vector<int>& ranks,
                                            const std::string& name) override {
    return make_group(detail::concat(index, ".", ranks.front()), ranks, name);
  }

 private:
  /// Before every operation: has the job ended? And it notes how far this rank is.
  void start(const OpInfo& info) {
    if (job_.domain->poll()) job_.domain->raise(*state_, info);
    state_->started(info);
    forget_landed();
  }

  void forget_landed() {
    std::erase_if(flights_, [](const std::shared_ptr<GlooFlight>& flight) { return flight->landed(); });
  }

  template <typename Function>
  static std::shared_ptr<Work> local(Function&& function) {
    function();
    return finished_work();
  }

  std::shared_ptr<Work> fly(const OpInfo& info, WorkPointer work, std::vector<at::Tensor> tensors,
                            std::function<void()> finish) {
    return track(info, std::make_shared<GlooFlight>(std::vector{std::move(work)}, std::move(tensors)),
                 std::move(finish));
  }

  std::shared_ptr<Work> track(const OpInfo& info, std::shared_ptr<GlooFlight> flight,
                              std::function<void()> finish) {
    flights_.push_back(flight);
    return std::make_shared<GlooWork>(GlooWork::Context{job_.domain, state_, job_.timeout}, info,
                                      std::move(flight), std::move(finish));
  }

  GlooJob job_;
  std::shared_ptr<GroupState> state_;
  std::shared_ptr<Store> store_;
  GroupPointer group_;
  std::vector<std::shared_ptr<GlooFlight>> flights_;
};

}  // namespace

std::unique_ptr<Communicator> GlooCommunicator::create(std::shared_ptr<Store> store,
                                                       const GlooOptions& options) {
  APUS_CHECK(options.size > 0 && options.rank >= 0 && options.rank < options.size, ConfigError, "rank ",
             options.rank, " of ", options.size, " ranks makes no sense");
  APUS_CHECK(store != nullptr || options.size == 1, ConfigError, "group ", options.name, " of ", options.size,
             " ranks needs a store to meet in");
  if (store == nullptr) store = make_hash_store();
  std::shared_ptr<GlooDevice> device = options.device;
  if (device == nullptr && options.size > 1) device = GlooDevice::create();
  // All ranks make groups of one name equally often: the count tells them apart.
  const std::string base = "comm/" + options.name;
  const int64_t generation = store->add(detail::concat(base, "/made/", options.rank), 1);
  auto own = make_prefix_store(detail::concat(base, "/", generation), std::move(store));
  std::vector<int> members(options.size);
  std::iota(members.begin(), members.end(), 0);
  GlooJob job{.domain = std::make_shared<AbortDomain>(std::move(own), options.rank, options.logger),
              .device = std::dynamic_pointer_cast<GlooDeviceImpl>(device),
              .timeout = options.timeout};
  APUS_CHECK(job.device != nullptr || options.size == 1, ConfigError,
             "a GlooDevice must come from GlooDevice::create");
  return std::make_unique<GlooGroup>(
      std::move(job), std::make_shared<GroupState>(options.name, "group", options.rank, std::move(members)));
}

}  // namespace apus::comm
