#include "apus/comm/communicator.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "apus/base/error.h"

namespace apus::comm {
namespace {

std::string where(const Communicator& group, OpKind kind) {
  return detail::concat(op_name(kind), " of ", group.name(), ": ");
}

std::string shape_text(const at::Tensor& tensor) {
  return detail::concat(at::toString(tensor.scalar_type()), tensor.sizes());
}

void check_plain(const std::string& at, const char* what, const at::Tensor& tensor) {
  APUS_CHECK(tensor.defined(), ShapeError, at, what, " is undefined");
  APUS_CHECK(tensor.layout() == at::kStrided, ShapeError, at, what, " is not a dense tensor");
  APUS_CHECK(tensor.is_contiguous(), ShapeError, at, what, " ", shape_text(tensor), " with strides ",
             tensor.strides(),
             " is not contiguous; pass a contiguous tensor (the result would be lost in a copy)");
}

void check_pair(const std::string& at, const at::Tensor& out, const at::Tensor& in) {
  check_plain(at, "out", out);
  check_plain(at, "in", in);
  APUS_CHECK(out.scalar_type() == in.scalar_type(), ShapeError, at, "out is ",
             at::toString(out.scalar_type()), ", in is ", at::toString(in.scalar_type()),
             "; they must be of one dtype");
  APUS_CHECK(out.device() == in.device(), ShapeError, at, "out is on ", out.device(), ", in on ",
             in.device());
}

void check_reduce(const std::string& at, const at::Tensor& tensor, const ReduceOptions& options) {
  const at::ScalarType dtype = tensor.scalar_type();
  const bool integral = dtype == at::kLong || dtype == at::kByte;
  const bool floating =
      dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf || dtype == at::kDouble;
  APUS_CHECK(integral || floating, ShapeError, at, "cannot reduce ", at::toString(dtype),
             "; expected float, bfloat16, half, double, int64 or uint8");
  APUS_CHECK(floating || options.scale == 1.0, ShapeError, at, "scale ", options.scale, " on ",
             at::toString(dtype), ": only floating dtypes can be scaled");
}

void check_rank(const std::string& at, const Communicator& group, const char* what, int rank) {
  APUS_CHECK(rank >= 0 && rank < group.size(), ShapeError, at, what, " ", rank, " is not a rank of ",
             group.name(), " (0 to ", group.size() - 1, ")");
}

/// Bytes [begin, end) of a contiguous tensor.
std::pair<const char*, const char*> bytes_of(const at::Tensor& tensor) {
  const char* begin = static_cast<const char*>(tensor.const_data_ptr());
  return {begin, begin + tensor.nbytes()};
}

void check_apart(const std::string& at, const at::Tensor& out, const at::Tensor& in) {
  const auto [out_begin, out_end] = bytes_of(out);
  const auto [in_begin, in_end] = bytes_of(in);
  APUS_CHECK(out.numel() == 0 || in.numel() == 0 || out_end <= in_begin || in_end <= out_begin, ShapeError,
             at, "out and in overlap");
}

void check_splits(const std::string& at, const char* what, const at::Tensor& tensor,
                  const std::vector<int64_t>& splits, int size) {
  APUS_CHECK(static_cast<int>(splits.size()) == size, ShapeError, at, what, " has ", splits.size(),
             " splits for ", size, " ranks");
  APUS_CHECK(std::ranges::all_of(splits, [](int64_t rows) { return rows >= 0; }), ShapeError, at, what,
             " has a negative split");
  const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  const int64_t sum = std::accumulate(splits.begin(), splits.end(), int64_t{0});
  APUS_CHECK(sum == rows, ShapeError, at, "the splits of ", what, " sum to ", sum, ", but dim 0 of ",
             shape_text(tensor), " has ", rows, " rows");
}

std::string reduce_text(const ReduceOptions& options) {
  constexpr const char* kNames[] = {"sum", "max", "min"};
  return kNames[static_cast<int>(options.op)];
}

}  // namespace

Communicator::Communicator() = default;
Communicator::~Communicator() = default;

OpInfo Communicator::next(OpKind kind, const at::Tensor& tensor, std::string detail) {
  OpInfo info{
      .kind = kind, .sequence = ++sequence_, .dtype = "", .shape = {}, .payload_bytes = 0, .detail = ""};
  if (tensor.defined()) {
    info.dtype = at::toString(tensor.scalar_type());
    info.shape = tensor.sizes().vec();
    info.payload_bytes = static_cast<int64_t>(tensor.nbytes());
  }
  info.detail = std::move(detail);
  return info;
}

std::shared_ptr<Work> Communicator::all_reduce(const at::Tensor& tensor, ReduceOptions options) {
  const std::string at = where(*this, OpKind::kAllReduce);
  check_plain(at, "tensor", tensor);
  check_reduce(at, tensor, options);
  return do_all_reduce(next(OpKind::kAllReduce, tensor, reduce_text(options)), tensor, options);
}

std::shared_ptr<Work> Communicator::all_gather(const at::Tensor& out, const at::Tensor& in) {
  const std::string at = where(*this, OpKind::kAllGather);
  check_pair(at, out, in);
  APUS_CHECK(out.numel() == size() * in.numel(), ShapeError, at, "out has ", out.numel(),
             " elements, expected ", size(), " ranks x ", in.numel(), " = ", size() * in.numel());
  const char* own = static_cast<const char*>(out.const_data_ptr()) + rank() * in.nbytes();
  if (in.const_data_ptr() != own) check_apart(at, out, in);
  return do_all_gather(next(OpKind::kAllGather, out), out, in);
}

std::shared_ptr<Work> Communicator::reduce_scatter(const at::Tensor& out, const at::Tensor& in,
                                                   ReduceOptions options) {
  const std::string at = where(*this, OpKind::kReduceScatter);
  check_pair(at, out, in);
  check_reduce(at, in, options);
  APUS_CHECK(in.numel() == size() * out.numel(), ShapeError, at, "in has ", in.numel(),
             " elements, expected ", size(), " ranks x ", out.numel(), " = ", size() * out.numel());
  const char* own = static_cast<const char*>(in.const_data_ptr()) + rank() * out.nbytes();
  if (out.const_data_ptr() != own) check_apart(at, out, in);
  return do_reduce_scatter(next(OpKind::kReduceScatter, in, reduce_text(options)), out, in, options);
}

std::shared_ptr<Work> Communicator::broadcast(const at::Tensor& tensor, int root) {
  const std::string at = where(*this, OpKind::kBroadcast);
  check_plain(at, "tensor", tensor);
  check_rank(at, *this, "root", root);
  return do_broadcast(next(OpKind::kBroadcast, tensor, detail::concat("root ", root)), tensor, root);
}

std::shared_ptr<Work> Communicator::all_to_all(const at::Tensor& out, const at::Tensor& in) {
  const std::string at = where(*this, OpKind::kAllToAll);
  check_pair(at, out, in);
  check_apart(at, out, in);
  APUS_CHECK(in.numel() == out.numel() && in.numel() % size() == 0, ShapeError, at, "out has ", out.numel(),
             " and in ", in.numel(), " elements; expected the same number, a multiple of ", size(), " ranks");
  const std::vector<int64_t> splits(size(), in.numel() / size());
  return do_all_to_all_v(next(OpKind::kAllToAll, in), out.view({-1}), in.view({-1}), splits, splits);
}

std::shared_ptr<Work> Communicator::all_to_all_v(const at::Tensor& out, const at::Tensor& in,
                                                 std::vector<int64_t> out_splits,
                                                 std::vector<int64_t> in_splits) {
  const std::string at = where(*this, OpKind::kAllToAllV);
  check_pair(at, out, in);
  check_apart(at, out, in);
  check_splits(at, "out", out, out_splits, size());
  check_splits(at, "in", in, in_splits, size());
  APUS_CHECK(out.dim() == in.dim() && (in.dim() < 2 || out.sizes().slice(1) == in.sizes().slice(1)),
             ShapeError, at, "out ", shape_text(out), " and in ", shape_text(in), " differ behind dim 0");
  APUS_CHECK(out_splits[rank()] == in_splits[rank()], ShapeError, at, "this rank sends itself ",
             in_splits[rank()], " rows but expects ", out_splits[rank()]);
  return do_all_to_all_v(next(OpKind::kAllToAllV, in), out, in, out_splits, in_splits);
}

std::shared_ptr<Work> Communicator::send_recv(std::vector<P2pOp> ops) {
  const std::string at = where(*this, OpKind::kSendRecv);
  constexpr int kMaxTag = 1023;
  int64_t sent_bytes = 0;
  for (const P2pOp& op : ops) {
    check_plain(at, op.kind == P2pKind::kSend ? "sent tensor" : "received tensor", op.tensor);
    check_rank(at, *this, "peer", op.peer);
    APUS_CHECK(op.peer != rank(), ShapeError, at, "peer ", op.peer, " is this rank itself");
    APUS_CHECK(op.tag >= 0 && op.tag <= kMaxTag, ShapeError, at, "tag ", op.tag, " is outside 0 to ",
               kMaxTag);
    if (op.kind == P2pKind::kSend) sent_bytes += static_cast<int64_t>(op.tensor.nbytes());
  }
  OpInfo info = next(OpKind::kSendRecv, ops.empty() ? at::Tensor() : ops.front().tensor,
                     detail::concat(ops.size(), " transfers"));
  info.payload_bytes = sent_bytes;
  return do_send_recv(info, ops);
}

std::shared_ptr<Work> Communicator::start_barrier() {
  return do_barrier(next(OpKind::kBarrier, at::Tensor()));
}

void Communicator::barrier() {
  start_barrier()->wait();
}

std::unique_ptr<Communicator> Communicator::split(int64_t color, int64_t key, const std::string& name) {
  APUS_CHECK(size() == 1 || store() != nullptr, NotSupported, "group ", name, " of ", this->name(),
             ": fake peers have no colors to split by; use subgroup() with the list of ranks");
  const at::Tensor mine = at::empty({2}, at::kLong);
  const at::Tensor all = at::empty({size(), 2}, at::kLong);
  mine.mutable_data_ptr<int64_t>()[0] = color;
  mine.mutable_data_ptr<int64_t>()[1] = key;
  all_gather(all, mine)->wait();
  const int64_t* pairs = all.const_data_ptr<int64_t>();
  std::vector<int> members;
  for (int r = 0; r < size(); ++r) {
    if (color >= 0 && pairs[2 * r] == color) members.push_back(r);
  }
  std::ranges::stable_sort(members, {}, [&](int r) { return pairs[2 * r + 1]; });
  return subgroup(members, name);
}

std::unique_ptr<Communicator> Communicator::subgroup(const std::vector<int>& ranks, const std::string& name) {
  const int64_t index = ++subgroups_;
  if (ranks.empty()) return nullptr;
  const std::string at = detail::concat("group ", name, " of ", this->name(), ": ");
  for (int r : ranks) check_rank(at, *this, "member", r);
  std::vector<int> sorted = ranks;
  std::ranges::sort(sorted);
  APUS_CHECK(std::ranges::adjacent_find(sorted) == sorted.end(), ShapeError, at, "a rank is named twice");
  APUS_CHECK(std::ranges::binary_search(sorted, rank()), ShapeError, at, "this rank, ", rank(),
             ", is not among the members; pass an empty list");
  return do_subgroup(index, ranks, name);
}

}  // namespace apus::comm
