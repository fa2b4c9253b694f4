// The one file that includes cuDNN's frontend, which takes a minute and 2 GB to compile.
#include "ops/cuda/attention_plan.h"

#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>

#include <cmath>
#include <unordered_map>

#include "apus/base/error.h"

namespace apus::ops::cuda {
namespace {

namespace fe = cudnn_frontend;
using TensorOptions = fe::graph::Tensor_attributes;
using Tensor = std::shared_ptr<TensorOptions>;

enum Uid : int64_t {
  kQ = 1,
  kK,
  kV,
  kOut,
  kStats,
  kDout,
  kDq,
  kDk,
  kDv,
  kQueryLengths,
  kKeyLengths,
  kQOffsets,
  kKvOffsets,
  kOutOffsets,
  kStatsOffsets,
};

/// The tensors of a plan: [B, heads, S, H] whose rows are row_stride apart and whose sequences start where
/// the offsets say.
class PlanGraph {
 public:
  explicit PlanGraph(const PlanShape& shape) : shape_(shape) {
    graph_.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    if (!shape.even) {
      q_offsets_ = this->offsets(kQOffsets);
      kv_offsets_ = this->offsets(kKvOffsets);
      out_offsets_ = this->offsets(kOutOffsets);
      stats_offsets_ = this->offsets(kStatsOffsets);
      query_lengths_ = this->lengths(kQueryLengths);
      key_lengths_ = this->lengths(kKeyLengths);
    }
    q_ = graph_.tensor(this->query_rows(kQ));
    k_ = graph_.tensor(this->key_rows(kK));
    v_ = graph_.tensor(this->key_rows(kV));
  }

  void add_forward() {
    auto options = fe::graph::SDPA_attributes()
                       .set_name("attention")
                       .set_generate_stats(true)
                       .set_causal_mask(true)
                       .set_attn_scale(this->scale());
    if (!shape_.even) {
      options.set_padding_mask(true).set_seq_len_q(query_lengths_).set_seq_len_kv(key_lengths_);
    }
    auto [out, stats] = graph_.sdpa(q_, k_, v_, options);
    set_output(out, this->out_rows());
    set_output(stats, this->stats_rows());
  }

  void add_backward() {
    const Tensor out = graph_.tensor(this->out_rows()), stats = graph_.tensor(this->stats_rows());
    const Tensor dout = graph_.tensor(this->query_rows(kDout));
    auto options = fe::graph::SDPA_backward_attributes()
                       .set_name("attention_backward")
                       .set_causal_mask(true)
                       .set_attn_scale(this->scale())
                       .set_deterministic_algorithm(shape_.deterministic);
    if (!shape_.even) {
      options.set_padding_mask(true)
          .set_seq_len_q(query_lengths_)
          .set_seq_len_kv(key_lengths_)
          .set_max_total_seq_len_q(shape_.max_rows)
          .set_max_total_seq_len_kv(shape_.max_rows);
    }
    auto [dq, dk, dv] = graph_.sdpa_backward(q_, k_, v_, out, dout, stats, options);
    // dq must lie exactly as q does, or it is silently wrong.
    set_output(dq, this->query_rows(kDq));
    set_output(dk, this->key_rows(kDk));
    set_output(dv, this->key_rows(kDv));
  }

  fe::error_t build(cudnnHandle_t handle) {
    return graph_.build(handle, {fe::HeurMode_t::A}, fe::BuildPlanPolicy_t::HEURISTICS_CHOICE);
  }

  const fe::graph::Graph& graph() const { return graph_; }

 private:
  float scale() const { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape_.head_dim))); }

  Tensor offsets(Uid uid) {
    return graph_.tensor(TensorOptions()
                             .set_uid(uid)
                             .set_dim({shape_.sequences + 1, 1, 1, 1})
                             .set_stride({1, 1, 1, 1})
                             .set_data_type(fe::DataType_t::INT32));
  }

  Tensor lengths(Uid uid) {
    return graph_.tensor(TensorOptions()
                             .set_uid(uid)
                             .set_dim({shape_.sequences, 1, 1, 1})
                             .set_stride({1, 1, 1, 1})
                             .set_data_type(fe::DataType_t::INT32));
  }

  TensorOptions rows(Uid uid, int64_t heads, int64_t row_stride, const Tensor& offsets) const {
    auto options = TensorOptions()
                       .set_uid(uid)
                       .set_dim({shape_.sequences, heads, shape_.max_length, shape_.head_dim})
                       .set_stride({shape_.max_length * row_stride, shape_.head_dim, row_stride, 1})
                       .set_data_type(fe::DataType_t::BFLOAT16);
    if (offsets) options.set_ragged_offset(offsets);
    return options;
  }

  TensorOptions query_rows(Uid uid) const {
    return this->rows(uid, shape_.heads, shape_.heads * shape_.head_dim, q_offsets_);
  }
  TensorOptions key_rows(Uid uid) const {
    return this->rows(uid, shape_.kv_heads, shape_.kv_heads * shape_.head_dim, kv_offsets_);
  }
  TensorOptions out_rows() const { return this->rows(kOut, shape_.heads, shape_.out_stride, out_offsets_); }
  TensorOptions stats_rows() const {
    const int64_t heads = shape_.heads, length = shape_.max_length;
    auto options = TensorOptions()
                       .set_uid(kStats)
                       .set_dim({shape_.sequences, heads, length, 1})
                       .set_data_type(fe::DataType_t::FLOAT);
    if (shape_.even) return options.set_stride({heads * length, length, 1, 1});
    return options.set_stride({length * heads, 1, heads, 1}).set_ragged_offset(stats_offsets_);
  }

  static void set_output(const Tensor& tensor, TensorOptions like) {
    tensor->set_output(true)
        .set_uid(like.get_uid())
        .set_dim(like.get_dim())
        .set_stride(like.get_stride())
        .set_data_type(like.get_data_type());
    if (like.get_ragged_offset()) tensor->set_ragged_offset(like.get_ragged_offset());
  }

  PlanShape shape_;
  fe::graph::Graph graph_;
  Tensor q_offsets_, kv_offsets_, out_offsets_, stats_offsets_, query_lengths_, key_lengths_, q_, k_, v_;
};

class FrontendPlan final : public AttentionPlan {
 public:
  FrontendPlan(std::unique_ptr<PlanGraph> graph, const PlanShape& shape, int64_t workspace_bytes)
      : graph_(std::move(graph)), shape_(shape), workspace_bytes_(workspace_bytes) {}

  int64_t workspace_bytes() const override { return workspace_bytes_; }

  void execute(cudnnHandle_t handle, const PlanBuffers& b, void* workspace) const override {
    const auto plain = [](const void* pointer) { return const_cast<void*>(pointer); };
    std::unordered_map<int64_t, void*> pack = {
        {kQ, plain(b.q)}, {kK, plain(b.k)}, {kV, plain(b.v)}, {kOut, b.out}, {kStats, b.stats},
    };
    if (!shape_.even) {
      pack[kQueryLengths] = pack[kKeyLengths] = plain(b.lengths);
      pack[kQOffsets] = plain(b.q_offsets);
      pack[kKvOffsets] = plain(b.kv_offsets);
      pack[kOutOffsets] = plain(b.out_offsets);
      pack[kStatsOffsets] = plain(b.stats_offsets);
    }
    if (shape_.is_backward()) {
      pack[kDout] = plain(b.dout);
      pack[kDq] = b.dq;
      pack[kDk] = b.dk;
      pack[kDv] = b.dv;
    }
    fe::error_t status = graph_->graph().execute(handle, pack, workspace);
    APUS_CHECK(status.is_good(), CudaError, "cuDNN attention", shape_.is_backward() ? " backward" : "",
               " failed: ", status.get_message());
  }

 private:
  std::unique_ptr<PlanGraph> graph_;
  PlanShape shape_;
  int64_t workspace_bytes_;
};

}  // namespace

std::unique_ptr<AttentionPlan> AttentionPlan::build(cudnnHandle_t handle, const PlanShape& shape,
                                                    std::string& why_not) {
  auto graph = std::make_unique<PlanGraph>(shape);
  if (shape.is_backward())
    graph->add_backward();
  else
    graph->add_forward();
  int64_t workspace_bytes = 0;
  fe::error_t status = graph->build(handle);
  if (status.is_good()) status = graph->graph().get_workspace_size(workspace_bytes);
  if (status.is_bad()) {
    why_not = status.get_message();
    return nullptr;
  }
  return std::make_unique<FrontendPlan>(std::move(graph), shape, workspace_bytes);
}

}  // namespace apus::ops::cuda
