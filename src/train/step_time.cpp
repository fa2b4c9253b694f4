#include "apus/train/step_time.h"

#include <algorithm>
#include <string>

#include "apus/base/error.h"
#include "train/memory_plan_groups.h"
#include "train/step_time_offload.h"

namespace apus::train {
namespace {

using parallel::Recompute;

constexpr double kMemoryShare = 0.8;     // of the sheet's bandwidth
constexpr double kAttentionShare = 0.5;  // of what products keep up
constexpr double kLinkShare = 0.75;      // of a link, as a ring's payload
constexpr double kHidden = 0.7;          // of backward, that collectives can hide behind

// What the host takes for a tape node each way and for a kernel, measured (docs/design/memory_plan.md).
constexpr double kNodeForward = 2.2e-6;
constexpr double kNodeBackward = 5.7e-6;
constexpr double kLaunch = 1.5e-6;

double size_of(at::ScalarType dtype) {
  return static_cast<double>(c10::elementSize(dtype));
}

/// Products with the trainable weights of a step's tokens, per token: what LoRA adds, or what freezing saves.
struct WeightShares {
  double adapter_flops = 0.0;  // a forward pass of all adapters, per token
  double trained = 1.0;        // share of the base's matrices whose weight gradient is computed
};

WeightShares weight_shares(const ModelShape& model) {
  WeightShares shares;
  double all = 0.0, trained = 0.0;
  for (size_t unit = 1; unit < model.units.size(); ++unit) {
    for (const ParameterShape& parameter : model.units[unit].parameters) {
      if (parameter.sizes.size() != 2) continue;
      const auto elements = static_cast<double>(parameter.numel());
      if (parameter.name.find(".lora_") != std::string::npos) {
        shares.adapter_flops += 2 * elements;
        continue;
      }
      all += elements;
      if (parameter.trainable) trained += elements;
    }
  }
  shares.trained = all > 0 ? trained / all : 1.0;
  return shares;
}

/// Bytes that elementwise work moves for one token and pass, in units of the hidden and the wide rows.
double elementwise_bytes(const ModelShape& model, at::ScalarType dtype) {
  double wide = 0.0;
  for (const ParameterShape& parameter : model.units[1].parameters) {
    if (parameter.name.find(".gate_proj.weight") != std::string::npos)
      wide = static_cast<double>(parameter.sizes[0]);
  }
  const auto hidden = static_cast<double>(model.hidden_size);
  return static_cast<double>(model.blocks()) * size_of(dtype) * (12 * hidden + 4 * wide);
}

/// Seconds of collectives, and how much of it runs where computation can hide it.
struct Traffic {
  double hidden = 0.0;
  double bare = 0.0;
};

/// A ring: each byte crosses the slowest link (n - 1) / n times; an all_reduce twice.
class Ring {
 public:
  Ring(const Card& card, const Cluster& cluster, int world) {
    bandwidth_ = card.link_bandwidth;
    if (world > cluster.cards_per_host) bandwidth_ = std::min(bandwidth_, cluster.network_bandwidth);
    bandwidth_ *= kLinkShare;
  }
  double gather(double bytes, int ranks) const {
    return ranks > 1 ? bytes * (ranks - 1) / ranks / bandwidth_ : 0.0;
  }
  double all_reduce(double bytes, int ranks) const { return 2 * gather(bytes, ranks); }

 private:
  double bandwidth_ = 1.0;
};

Traffic traffic_of(const PlanInput& input, const Card& card, const Cluster& cluster) {
  const parallel::ShardPolicy& policy = input.engine.policy;
  const int ranks = input.world / policy.replicate;
  const PlacedModel placed = place_model(input, ranks);
  const Ring inside(card, cluster, ranks), across(card, cluster, input.world);
  const auto micro_batches = static_cast<double>(input.accumulation);
  const double sent = size_of(input.engine.reduce_dtype);
  Traffic traffic;
  double gathered = 0.0;
  for (const int64_t bytes : placed.unit_bytes) gathered += static_cast<double>(bytes);
  const double backward = policy.backward_ranks(ranks) == 1 ? 0.0 : 1.0;
  const double passes = 1 + backward + (input.reference == PlanReference::kSameModel ? 1 : 0) +
                        (input.reference == PlanReference::kSecondModel ? 1 : 0);
  traffic.hidden += micro_batches * passes * inside.gather(gathered, ranks);
  for (const GroupSize& group : placed.groups) {
    const auto elements = static_cast<double>(group.elements);
    if (policy.grad_shard) {
      traffic.hidden += micro_batches * inside.gather(elements * sent, ranks);
    } else if (policy.opt_shard) {
      traffic.hidden += inside.gather(elements * sent, ranks);
    } else {
      traffic.hidden += inside.all_reduce(elements * sent, ranks);
    }
    traffic.bare += across.all_reduce(4 * elements / ranks, policy.replicate);
    if (policy.opt_shard && !group.sharded) {
      traffic.bare += inside.gather(static_cast<double>(group.bytes()), ranks);
    }
  }
  return traffic;
}

/// Forwards that a micro-batch's tokens go through: with what recompute and a reference add.
struct Passes {
  double again = 0.0;  // of the blocks
  double reference = 0.0;
};

Passes passes_of(const PlanInput& input) {
  Passes passes;
  if (input.engine.recompute == Recompute::kBlock) {
    const auto blocks = static_cast<double>(input.model.blocks());
    const auto& chosen = input.engine.recompute_blocks;
    passes.again = chosen ? static_cast<double>(chosen->size()) / blocks : 1.0;
  }
  const bool runs =
      input.reference == PlanReference::kSameModel || input.reference == PlanReference::kSecondModel;
  passes.reference = runs ? 1.0 : 0.0;
  return passes;
}

/// What a pass through the model asks of the host, at the least: residual sums, biases and rotary embeddings
/// are taken to be fused into their neighbours.
struct HostWork {
  double nodes = 0.0;
  double forward = 0.0;   // kernels
  double backward = 0.0;  // kernels
};

HostWork host_work(const ModelShape& model) {
  const auto blocks = static_cast<double>(model.blocks());
  HostWork work{.nodes = 2 * blocks, .forward = 2 * blocks, .backward = 2 * blocks};  // attention, activation
  for (size_t unit = 1; unit < model.units.size(); ++unit) {
    for (const ParameterShape& parameter : model.units[unit].parameters) {
      const bool is_matrix = parameter.sizes.size() == 2;
      const bool is_adapter = parameter.name.find(".lora_") != std::string::npos;
      if (!is_matrix && parameter.name.find("norm.") == std::string::npos) continue;
      work.nodes += is_adapter ? 0 : 1;
      work.forward += 1;
      work.backward += is_matrix && parameter.trainable ? 2 : 1;  // of the weight, too
    }
  }
  return work;
}

/// Seconds of the host for the micro-batches of a step.
double host_seconds(const PlanInput& input, const Passes& passes) {
  const HostWork work = host_work(input.model);
  const double micro_batch = work.nodes * (kNodeForward + kNodeBackward) +
                             kLaunch * (work.forward * (1 + passes.again + passes.reference) + work.backward);
  return micro_batch * static_cast<double>(input.accumulation);
}

double optimizer_bytes(const PlanInput& input) {
  const int ranks = input.world / input.engine.policy.replicate;
  double bytes = 0.0;
  if (input.engine.policy.residency.optimizer == memory::Residency::kHost) return bytes;
  for (const GroupSize& group : place_model(input, ranks).groups) {
    const auto updated =
        static_cast<double>(input.engine.policy.opt_shard ? group.elements / ranks : group.elements);
    bytes += updated *
             (28 + (group.size < 4 ? 2 : 0) + 4);  // gradient, states both ways, copy; the norm reads once
  }
  return bytes;
}

}  // namespace

StepTime estimate_step(const PlanInput& input, const models::TokenFlops& flops, const Card& card,
                       const Cluster& cluster) {
  const bool narrow = input.dtype != at::kFloat;
  const double rate = (narrow ? card.bf16_flops : card.fp32_flops) * card.sustained;
  const double bandwidth = card.memory_bandwidth * kMemoryShare;
  const auto rows = static_cast<double>(input.micro_batch_rows * input.accumulation);
  const double computed = rows * input.rows.mean_row;  // of each rank
  const WeightShares shares = weight_shares(input.model);
  const Passes passes = passes_of(input);

  StepTime time;
  time.tokens = computed * input.world;
  const double forwards = 2 + passes.again + passes.reference;  // forward, and the inputs' gradients
  time.matmul = computed *
                (flops.matmul * (forwards + shares.trained) + shares.adapter_flops * (3 + passes.again)) /
                rate;
  time.attention =
      computed * flops.attention * (3.5 + passes.again + passes.reference) / (rate * kAttentionShare);
  const double partial = input.engine.recompute == Recompute::kPartial ? 0.5 : 0.0;
  time.elementwise = computed * elementwise_bytes(input.model, input.dtype) *
                     (3 + passes.again + passes.reference + partial) / bandwidth;
  time.optimizer = optimizer_bytes(input) / bandwidth;
  time.host = host_seconds(input, passes);
  const Traffic traffic = traffic_of(input, card, cluster);
  time.communication = traffic.hidden + traffic.bare;
  const double cover = input.engine.overlap_comm ? kHidden * time.compute() : 0.0;
  time.offload = offload_time(input, card, cluster, time.compute());
  time.exposed = traffic.bare + std::max(0.0, traffic.hidden - cover);
  return time;
}

double flops_per_token(const PlanInput& input, const models::TokenFlops& flops) {
  const RowProfile& rows = input.rows;
  const double supervised =
      rows.mean_trained > 0 && rows.mean_row > 0 ? rows.mean_trained / rows.mean_row : 1.0;
  const double head = 2.0 * static_cast<double>(input.model.vocab_size * input.model.hidden_size);
  const double matmul = flops.matmul - (1 - supervised) * head;
  const double reference = passes_of(input).reference;
  return matmul * (2 + weight_shares(input.model).trained + reference) + flops.attention * (3 + reference);
}

std::vector<std::string> step_time_assumptions(const Card& card, const Cluster& cluster) {
  const auto percent = [](double share) { return static_cast<int64_t>(100 * share + 0.5); };
  return {
      detail::concat("estimates from data sheets, not measurements: products at ", percent(card.sustained),
                     " % of ", card.name, "'s peak of ", card.bf16_flops / 1e12, " TF/s in bf16 (",
                     card.fp32_flops / 1e12, " in fp32), attention at half of that"),
      detail::concat("elementwise work and AdamW at ", percent(kMemoryShare), " % of ",
                     card.memory_bandwidth / 1e9, " GB/s"),
      detail::concat("collectives as rings at ", percent(kLinkShare), " % of ", card.link, " (",
                     card.link_bandwidth / 1e9, " GB/s a direction) within ", cluster.cards_per_host,
                     " cards, of ", cluster.network_bandwidth / 1e9,
                     " GB/s between hosts; they hide behind up to ", percent(kHidden), " % of computation"),
      detail::concat("no step is shorter than what the host takes to start its kernels: ", kNodeForward * 1e6,
                     " us a tape node forward, ", kNodeBackward * 1e6, " us backward, ", kLaunch * 1e6,
                     " us a launch"),
      detail::concat("what lies on the host: AdamW at 70 % of ", cluster.host_memory_bandwidth / 1e9,
                     " GB/s that a machine's ranks share, copies at ", card.host_bandwidth / 1e9,
                     " GB/s a direction"),
      "padding, waiting for data, logging, evaluation and saving are not counted"};
}

}  // namespace apus::train
