#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apus/comm/communicator.h"

namespace apus::testing {

/// What a LateCommunicator puts off until Work::wait().
enum class Late {
  kStart,   ///< the whole operation: inputs are read there, as from a queue that has not got to it
  kResult,  ///< the outputs: they read as NaN until then
};

/// Passes operations on as late as the contract of Work allows, so that a caller who reuses a buffer or reads
/// a result too early computes something else, every time. All ranks must be late in the same way, and wait
/// for everything in one order.
class LateCommunicator final : public comm::Communicator {
 public:
  LateCommunicator(std::shared_ptr<comm::Communicator> inner, Late late)
      : inner_(std::move(inner)), late_(late) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::string& name() const override { return inner_->name(); }
  std::shared_ptr<comm::Store> store() const override { return inner_->store(); }
  std::chrono::milliseconds timeout() const override { return inner_->timeout(); }
  void abort(const std::string& reason) noexcept override { inner_->abort(reason); }
  void check_running() override { inner_->check_running(); }
  void set_note(const std::string& note) override { inner_->set_note(note); }

 protected:
  using Operation = std::function<std::shared_ptr<comm::Work>(const at::Tensor& out)>;

  /// Runs its operation, or copies its result, when it is waited for.
  class LateWork final : public comm::Work {
   public:
    explicit LateWork(std::function<void()> finish) : finish_(std::move(finish)) {}
    void wait() override {
      if (auto finish = std::exchange(finish_, nullptr)) finish();
    }
    bool is_completed() override { return finish_ == nullptr; }

   private:
    std::function<void()> finish_;
  };

  /// NaN in the bytes of `out` that do not belong to `in` too.
  static void poison(const at::Tensor& out, const at::Tensor& in) {
    constexpr unsigned char kNan = 0xff;
    auto* bytes = static_cast<unsigned char*>(out.mutable_data_ptr());
    const auto* own = static_cast<const unsigned char*>(in.const_data_ptr());
    for (auto* byte = bytes; byte < bytes + out.nbytes(); ++byte) {
      if (byte < own || byte >= own + in.nbytes()) *byte = kNan;
    }
  }

  std::shared_ptr<comm::Work> put_off(const at::Tensor& out, const at::Tensor& in, Operation run) {
    if (late_ == Late::kStart) {
      return std::make_shared<LateWork>([out, in, run = std::move(run)] { run(out)->wait(); });
    }
    const at::Tensor result = out.clone();
    run(result)->wait();
    poison(out, in);
    return std::make_shared<LateWork>([out, result] {
      const at::NoGradGuard no_grad;
      std::memcpy(out.mutable_data_ptr(), result.const_data_ptr(), out.nbytes());
    });
  }

  std::shared_ptr<comm::Work> do_all_reduce(const comm::OpInfo&, const at::Tensor& tensor,
                                            const comm::ReduceOptions& options) override {
    return put_off(tensor, tensor,
                   [this, options](const at::Tensor& out) { return inner_->all_reduce(out, options); });
  }
  std::shared_ptr<comm::Work> do_all_gather(const comm::OpInfo&, const at::Tensor& out,
                                            const at::Tensor& in) override {
    return put_off(out, in, [this, in](const at::Tensor& to) { return inner_->all_gather(to, in); });
  }
  std::shared_ptr<comm::Work> do_reduce_scatter(const comm::OpInfo&, const at::Tensor& out,
                                                const at::Tensor& in,
                                                const comm::ReduceOptions& options) override {
    return put_off(out, in, [this, in, options](const at::Tensor& to) {
      return inner_->reduce_scatter(to, in, options);
    });
  }
  std::shared_ptr<comm::Work> do_broadcast(const comm::OpInfo&, const at::Tensor& tensor, int root) override {
    return put_off(tensor, tensor,
                   [this, root](const at::Tensor& out) { return inner_->broadcast(out, root); });
  }
  std::shared_ptr<comm::Work> do_all_to_all_v(const comm::OpInfo& info, const at::Tensor& out,
                                              const at::Tensor& in, const std::vector<int64_t>& out_splits,
                                              const std::vector<int64_t>& in_splits) override {
    return put_off(out, in, [=, this, kind = info.kind](const at::Tensor& to) {
      return kind == comm::OpKind::kAllToAll ? inner_->all_to_all(to, in)
                                             : inner_->all_to_all_v(to, in, out_splits, in_splits);
    });
  }
  std::shared_ptr<comm::Work> do_send_recv(const comm::OpInfo&,
                                           const std::vector<comm::P2pOp>& ops) override {
    return inner_->send_recv(ops);
  }
  std::shared_ptr<comm::Work> do_barrier(const comm::OpInfo&) override { return inner_->start_barrier(); }
  std::unique_ptr<comm::Communicator> do_subgroup(int64_t, const std::vector<int>& ranks,
                                                  const std::string& name) override {
    std::shared_ptr<comm::Communicator> group = inner_->subgroup(ranks, name);
    return std::make_unique<LateCommunicator>(std::move(group), late_);
  }

 private:
  std::shared_ptr<comm::Communicator> inner_;
  Late late_;
};

}  // namespace apus::testing
