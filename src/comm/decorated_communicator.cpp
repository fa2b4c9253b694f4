#include <utility>

#include "apus/base/error.h"
#include "apus/comm/decorators.h"

namespace apus::comm {

DecoratedCommunicator::DecoratedCommunicator(std::shared_ptr<Communicator> inner) : inner_(std::move(inner)) {
  APUS_CHECK(inner_ != nullptr, ConfigError, "a decorator needs a communicator under it");
}

std::shared_ptr<Work> DecoratedCommunicator::do_all_reduce(const OpInfo& info, const at::Tensor& tensor,
                                                           const ReduceOptions& options) {
  return intercept(info, [&] { return inner_->all_reduce(tensor, options); });
}

std::shared_ptr<Work> DecoratedCommunicator::do_all_gather(const OpInfo& info, const at::Tensor& out,
                                                           const at::Tensor& in) {
  return intercept(info, [&] { return inner_->all_gather(out, in); });
}

std::shared_ptr<Work> DecoratedCommunicator::do_reduce_scatter(const OpInfo& info, const at::Tensor& out,
                                                               const at::Tensor& in,
                                                               const ReduceOptions& options) {
  return intercept(info, [&] { return inner_->reduce_scatter(out, in, options); });
}

std::shared_ptr<Work> DecoratedCommunicator::do_broadcast(const OpInfo& info, const at::Tensor& tensor,
                                                          int root) {
  return intercept(info, [&] { return inner_->broadcast(tensor, root); });
}

std::shared_ptr<Work> DecoratedCommunicator::do_all_to_all_v(const OpInfo& info, const at::Tensor& out,
                                                             const at::Tensor& in,
                                                             const std::vector<int64_t>& out_splits,
                                                             const std::vector<int64_t>& in_splits) {
  return intercept(info, [&] {
    return info.kind == OpKind::kAllToAll ? inner_->all_to_all(out, in)
                                          : inner_->all_to_all_v(out, in, out_splits, in_splits);
  });
}

std::shared_ptr<Work> DecoratedCommunicator::do_send_recv(const OpInfo& info, const std::vector<P2pOp>& ops) {
  return intercept(info, [&] { return inner_->send_recv(ops); });
}

std::shared_ptr<Work> DecoratedCommunicator::do_barrier(const OpInfo& info) {
  return intercept(info, [&] { return inner_->start_barrier(); });
}

std::unique_ptr<Communicator> DecoratedCommunicator::do_subgroup(int64_t index, const std::vector<int>& ranks,
                                                                 const std::string& name) {
  // Its count of calls is part of the groups' keys; where this rank was in no group, it was not called.
  for (; inner_subgroups_ < index - 1; ++inner_subgroups_) inner_->subgroup({}, name);
  ++inner_subgroups_;
  return decorate(inner_->subgroup(ranks, name));
}

}  // namespace apus::comm
