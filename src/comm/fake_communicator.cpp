#include "apus/comm/fake_communicator.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "apus/base/error.h"
#include "comm/local_collectives.h"

namespace apus::comm {
namespace {

/// What a group shares with the groups made from it.
struct FakeJob {
  std::mutex mutex;
  std::string abort_reason;
  std::string note;
};

class FakeCommunicator final : public Communicator {
 public:
  FakeCommunicator(FakeOptions options, std::shared_ptr<FakeJob> job)
      : options_(std::move(options)), job_(std::move(job)) {}

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  const std::string& name() const override { return options_.name; }
  std::shared_ptr<Store> store() const override { return nullptr; }
  std::chrono::milliseconds timeout() const override { return std::chrono::minutes(30); }
  void abort(const std::string& reason) noexcept override {
    const std::lock_guard lock(job_->mutex);
    if (job_->abort_reason.empty()) job_->abort_reason = reason.empty() ? "no reason given" : reason;
  }
  void check_running() override { check_running(OpInfo{}); }
  void set_note(const std::string& note) override {
    const std::lock_guard lock(job_->mutex);
    job_->note = note;
  }

 protected:
  std::shared_ptr<Work> do_all_reduce(const OpInfo& info, const at::Tensor& tensor,
                                      const ReduceOptions& options) override {
    check_running(info);
    scale_in_place(tensor, options.scale);
    return finished_work();
  }
  std::shared_ptr<Work> do_all_gather(const OpInfo& info, const at::Tensor& out,
                                      const at::Tensor& in) override {
    check_running(info);
    copy_flat(flat_part(out, rank(), size()), in);
    return finished_work();
  }
  std::shared_ptr<Work> do_reduce_scatter(const OpInfo& info, const at::Tensor& out, const at::Tensor& in,
                                          const ReduceOptions& options) override {
    check_running(info);
    copy_flat(out, flat_part(in, rank(), size()));
    scale_in_place(out, options.scale);
    return finished_work();
  }
  std::shared_ptr<Work> do_broadcast(const OpInfo& info, const at::Tensor&, int) override {
    check_running(info);
    return finished_work();
  }
  std::shared_ptr<Work> do_all_to_all_v(const OpInfo& info, const at::Tensor& out, const at::Tensor& in,
                                        const std::vector<int64_t>& out_splits,
                                        const std::vector<int64_t>& in_splits) override {
    check_running(info);
    zero_flat(out);
    move_own_part(out, in, out_splits, in_splits, rank());
    return finished_work();
  }
  std::shared_ptr<Work> do_send_recv(const OpInfo& info, const std::vector<P2pOp>&) override {
    check_running(info);
    return finished_work();
  }
  std::shared_ptr<Work> do_barrier(const OpInfo& info) override {
    check_running(info);
    return finished_work();
  }
  std::unique_ptr<Communicator> do_subgroup(int64_t, const std::vector<int>& ranks,
                                            const std::string& name) override {
    const auto place = std::ranges::find(ranks, rank()) - ranks.begin();
    return std::make_unique<FakeCommunicator>(
        FakeOptions{.rank = static_cast<int>(place), .size = static_cast<int>(ranks.size()), .name = name},
        job_);
  }

 private:
  void check_running(const OpInfo& info) {
    const std::lock_guard lock(job_->mutex);
    if (job_->abort_reason.empty()) return;
    throw CommError(
        {.group = name(), .operation = std::string(op_name(info.kind)), .sequence = info.sequence},
        "aborted: " + job_->abort_reason + (job_->note.empty() ? "" : " (" + job_->note + ")"));
  }

  FakeOptions options_;
  std::shared_ptr<FakeJob> job_;
};

}  // namespace

std::unique_ptr<Communicator> make_fake_communicator(const FakeOptions& options) {
  APUS_CHECK(options.size > 0 && options.rank >= 0 && options.rank < options.size, ConfigError, "rank ",
             options.rank, " of ", options.size, " ranks makes no sense");
  return std::make_unique<FakeCommunicator>(options, std::make_shared<FakeJob>());
}

}  // namespace apus::comm
