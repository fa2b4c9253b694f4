#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apus/base/error.h"
#include "apus/comm/communicator.h"

/// What apus_bench_comm does in one case: the operation, its contents, and the formulas of its bandwidth.
namespace apus::bench {

/// The operations, in the order in which they are measured.
inline constexpr std::array<std::string_view, 6> kCommOps = {"all_reduce", "all_gather", "reduce_scatter",
                                                             "broadcast",  "all_to_all", "send_recv"};

/// "1M" = 2^20 bytes; K, M and G, or none.
/// Throws:  ConfigError for anything else, and for sizes below 1.
inline int64_t parse_bytes(const std::string& text) {
  constexpr std::string_view kUnits = "KMG";
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const size_t unit = digits < text.size() ? kUnits.find(text[digits]) : 0;
  const bool known = digits == text.size() || (digits + 1 == text.size() && unit != std::string_view::npos);
  APUS_CHECK(digits > 0 && digits < 16 && known, ConfigError, "'", text,
             "' is no size; expected a number of bytes, or one with K, M or G behind it");
  const int64_t number = std::stoll(text.substr(0, digits));
  APUS_CHECK(number > 0, ConfigError, "'", text, "': expected at least one byte");
  return digits == text.size() ? number : number << (10 * (static_cast<int64_t>(unit) + 1));
}

/// What nccl-tests multiplies the algorithm bandwidth with, so that the product is what a link carries
/// whatever the number of ranks: each byte of a ring's all_reduce passes a link 2 (n - 1) / n times, of the
/// others' n parts n - 1 travel; a broadcast and a transfer move all of it.
inline double bus_factor(std::string_view op, int ranks) {
  const double n = ranks;
  if (op == "all_reduce") return 2.0 * (n - 1.0) / n;
  if (op == "all_gather" || op == "reduce_scatter" || op == "all_to_all") return (n - 1.0) / n;
  return 1.0;
}

/// Elements of a case of so many bytes: a multiple of 16 for each rank, at least that.
inline int64_t case_elements(int64_t bytes, int64_t element_bytes, int ranks) {
  const int64_t unit = int64_t{16} * ranks;
  return std::max(unit, bytes / element_bytes / unit * unit);
}

/// Elements [begin, begin + count) of what a rank holds: whole numbers from 0 to 30, so that eight ranks' sum
/// is exact in bf16. No two ranks, and no two parts of one, hold the same.
inline at::Tensor pattern(int rank, int64_t begin, int64_t count, at::TensorOptions options) {
  const at::Tensor index = at::arange(begin, begin + count, options.dtype(at::kLong));
  at::Tensor mixed = index * 7;
  mixed += index.floor_divide(1009);
  mixed += 5 * int64_t{rank};
  return mixed.remainder_(31).to(options.dtype());
}

/// One operation over buffers of one size, whose contents are known before and after.
class CommCase {
 public:
  /// bytes: of the buffer that nccl-tests counts, the whole one: all_gather's output, the others' input.
  CommCase(std::string op, int64_t bytes, at::TensorOptions options, comm::Communicator& group)
      : op_(std::move(op)), group_(group), options_(options) {
    const bool known = std::find(kCommOps.begin(), kCommOps.end(), op_) != kCommOps.end();
    APUS_CHECK(known, ConfigError, "'", op_, "' is no operation of this benchmark");
    APUS_CHECK(op_ != "send_recv" || ranks() > 1, ConfigError, "send_recv needs a second rank");
    count_ = case_elements(bytes, static_cast<int64_t>(options.dtype().itemsize()), ranks());
    const bool gathers = op_ == "all_gather", scatters = op_ == "reduce_scatter";
    in_ = at::empty({gathers ? part() : count_}, options);
    if (!is_in_place()) out_ = at::empty({scatters ? part() : count_}, options);
  }

  int64_t bytes() const { return count_ * static_cast<int64_t>(options_.dtype().itemsize()); }

  /// Contents as before the operation; what it is to write holds what no rank sends.
  void refresh() {
    in_.copy_(pattern(group_.rank(), 0, in_.numel(), options_));
    if (out_.defined()) out_.fill_(-1);
  }

  void run() {
    const int n = ranks(), next = (group_.rank() + 1) % n, before = (group_.rank() + n - 1) % n;
    using enum comm::P2pKind;
    std::shared_ptr<comm::Work> work;
    if (op_ == "all_reduce") {
      work = group_.all_reduce(in_);
    } else if (op_ == "all_gather") {
      work = group_.all_gather(out_, in_);
    } else if (op_ == "reduce_scatter") {
      work = group_.reduce_scatter(out_, in_);
    } else if (op_ == "broadcast") {
      work = group_.broadcast(in_, n - 1);
    } else if (op_ == "all_to_all") {
      work = group_.all_to_all(out_, in_);
    } else {
      work = group_.send_recv({{kSend, next, in_}, {kRecv, before, out_}});
    }
    work->wait();
  }

  /// Whether one run() behind refresh() wrote every element that it should have, on this rank.
  bool is_right() const { return (out_.defined() ? out_ : in_).equal(expected()); }

 private:
  int ranks() const { return group_.size(); }
  int64_t part() const { return count_ / ranks(); }
  bool is_in_place() const { return op_ == "all_reduce" || op_ == "broadcast"; }

  at::Tensor sum_of(int64_t begin, int64_t count) const {
    at::Tensor sum = pattern(0, begin, count, options_);
    for (int rank = 1; rank < ranks(); ++rank) sum += pattern(rank, begin, count, options_);
    return sum;
  }

  at::Tensor expected() const {
    const int rank = group_.rank(), n = ranks();
    if (op_ == "all_reduce") return sum_of(0, count_);
    if (op_ == "reduce_scatter") return sum_of(rank * part(), part());
    if (op_ == "broadcast") return pattern(n - 1, 0, count_, options_);
    if (op_ == "send_recv") return pattern((rank + n - 1) % n, 0, count_, options_);
    std::vector<at::Tensor> parts;
    const int64_t begin = op_ == "all_to_all" ? rank * part() : 0;
    for (int from = 0; from < n; ++from) parts.push_back(pattern(from, begin, part(), options_));
    return at::cat(parts);
  }

  std::string op_;
  comm::Communicator& group_;
  at::TensorOptions options_;
  int64_t count_ = 0;
  at::Tensor in_, out_;
};

}  // namespace apus::bench
