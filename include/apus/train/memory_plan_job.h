#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apus/base/api.h"
#include "apus/models/model_spec.h"
#include "apus/train/cards.h"
#include "apus/train/job.h"
#include "apus/train/memory_plan.h"
#include "apus/train/memory_plan_rank.h"
#include "apus/train/step_time.h"

namespace apus::nn {
class CausalLm;
}
namespace apus::data {
struct RowLengths;
}

namespace apus::train {

/// What a job's options do not say.
struct APUS_API PlanContext {
  /// Knows the model's kind.
  const models::ModelRegistry* registry = nullptr;
  int world = 1;
  /// Ranks of a host; absent = as many as `cluster` has cards on one.
  std::optional<int> local_world = {};
  PlanDevice device = PlanDevice::kCard;
  /// Absent = rows of max_length, all supervised.
  std::optional<RowProfile> rows = {};
  /// The card that seconds are estimated for, and that must hold the plan.
  std::optional<Card> card = {};
  /// Bytes that a rank may use where no card is named: see host_share_bytes. Absent = unknown.
  std::optional<int64_t> device_bytes = {};
  /// Host memory of a machine with cards that is free for what its ranks offload. Absent = unknown.
  std::optional<int64_t> host_bytes = {};
  Cluster cluster = {};
};

/// A job's plan.
struct APUS_API JobPlan {
  PlanInput input;
  models::TokenFlops flops;
  MemoryPlan memory;
  /// Where a card is named.
  std::optional<Card> card;
  Cluster cluster;
  /// What a rank may use: the card's memory, or PlanContext::device_bytes.
  std::optional<int64_t> device_bytes;
  /// Ranks of a machine, and what is free of its host memory: PlanContext::host_bytes.
  int local_world = 1;
  std::optional<int64_t> host_bytes;
  std::optional<StepTime> time;

  /// What all ranks of a machine pin.
  int64_t machine_host_bytes() const { return memory.host_bytes() * local_world; }
};

/// The plan of a job, from its options and the model's config.json alone: neither weights nor data are read.
/// gradient_checkpointing left out means: the cheapest recompute that fits what a rank may use, or block
/// where that is unknown; true and false force block and none. The input's engine options have what was
/// chosen. Throws:  as resolve_job; ConfigError if the folder has no config.json; NotSupported for an unknown
/// model.
APUS_API JobPlan plan_job(const JobOptions& options, const PlanContext& context);

/// The same for a model that exists already, its adapter on, or made trainable; `config_json` is that of its
/// folder. Options are resolved ones.
APUS_API JobPlan plan_job(const JobOptions& options, const PlanContext& context, nn::CausalLm& model,
                          const std::string& config_json);

/// Refuses a job whose ranks offload more than their machine has free: the system would end it in the middle
/// of loading, without a word. Unknown memory, and ranks that run on the host (whose plan counts it anyway)
/// pass. Throws:  ConfigError with both figures and what to change.
APUS_API void require_host_memory(const JobPlan& plan);

/// A host rank's share of the memory that is free now, within the control group's limit; mapped weights,
/// which all ranks of the host share, count once. Throws: FileError if /proc/meminfo cannot be read.
APUS_API int64_t host_share_bytes(int local_ranks, int64_t mapped_bytes);
/// The same from the texts of /proc/meminfo, memory.max and memory.current (empty: there is no limit).
APUS_API int64_t parse_host_share(const std::string& meminfo, const std::string& limit,
                                  const std::string& used, int local_ranks, int64_t mapped_bytes);

/// Lengths of a dataset's rows, as data::measure_rows gives them, for PlanContext::rows.
/// Throws:  ConfigError without rows.
APUS_API RowProfile profile_rows(std::span<const data::RowLengths> rows);

/// The plan as a table: a line a term, the peak of each phase, whether it fits.
APUS_API std::string to_text(const JobPlan& plan);
/// The plan in one line, for the start of a run.
APUS_API std::string summary_line(const JobPlan& plan);
/// The plan for programs.
APUS_API nlohmann::ordered_json to_json(const JobPlan& plan);

/// Other ways to run the job on the plan's card: see rank_plans. Throws: ConfigError without a card.
APUS_API std::vector<RankedPlan> rank_plans(const JobPlan& plan);
/// The first `rows` of them as a table, with the assumptions of the estimates below it.
APUS_API std::string to_text(const std::vector<RankedPlan>& plans, const JobPlan& plan, int64_t rows = 12);
/// All of them for programs.
APUS_API nlohmann::ordered_json to_json(const std::vector<RankedPlan>& plans);

}  // namespace apus::train
