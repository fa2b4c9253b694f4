#include "parallel/plan_hash.h"

#include <ATen/ops/full.h>

#include <string>
#include <string_view>

#include "apus/base/error.h"

namespace apus::parallel {
namespace {

/// FNV-1a over whatever is added.
class Digest {
 public:
  void add(uint64_t value) {
    for (int byte = 0; byte < 8; ++byte) step(static_cast<unsigned char>(value >> (8 * byte)));
  }
  void add(std::string_view text) {
    add(text.size());
    for (const char letter : text) step(static_cast<unsigned char>(letter));
  }
  uint64_t value() const { return state_; }

 private:
  void step(unsigned char byte) { state_ = (state_ ^ byte) * 0x100000001b3ULL; }
  uint64_t state_ = 0xcbf29ce484222325ULL;
};

void add_unit(Digest& digest, const ModelUnit& unit) {
  digest.add(unit.name);
  for (const nn::NamedParameter& parameter : unit.parameters) {
    digest.add(parameter.name);
    digest.add(static_cast<uint64_t>(parameter.tensor.scalar_type()));
    digest.add(parameter.tensor.requires_grad() ? 1 : 0);
    for (const int64_t size : parameter.tensor.sizes()) digest.add(static_cast<uint64_t>(size));
  }
}

uint64_t number(const std::optional<at::ScalarType>& dtype) {
  return dtype ? static_cast<uint64_t>(*dtype) + 1 : 0;
}

}  // namespace

uint64_t plan_hash(const ModelUnits& model, const ShardedModelOptions& options) {
  Digest digest;
  const ShardPolicy& policy = options.policy;
  const auto& reshard = policy.reshard_after_forward;
  for (const ModelUnit& unit : model.units) add_unit(digest, unit);
  const memory::StateResidency& lies = policy.residency;
  for (const memory::Residency residency : {lies.optimizer, lies.gradients, lies.parameters}) {
    digest.add(static_cast<uint64_t>(residency));
  }
  for (const bool flag : {policy.param_shard, policy.grad_shard, policy.opt_shard, options.overlap_comm,
                          options.deterministic, policy.reduce == ReduceCadence::kStep}) {
    digest.add(flag ? 1 : 0);
  }
  const int kept = std::holds_alternative<bool>(reshard) ? -static_cast<int>(std::get<bool>(reshard))
                                                         : std::get<int>(reshard);
  digest.add(static_cast<uint64_t>(static_cast<int64_t>(kept)));
  digest.add(static_cast<uint64_t>(policy.replicate));
  digest.add(static_cast<uint64_t>(options.bucket_elements));
  digest.add(number(options.compute_dtype));
  digest.add(number(options.frozen_dtype));
  digest.add(static_cast<uint64_t>(options.reduce_dtype));
  digest.add(static_cast<uint64_t>(options.grad_accum_dtype));
  digest.add(static_cast<uint64_t>(options.optimizer_states));
  digest.add(options.rounding_seed);
  digest.add(static_cast<uint64_t>(options.frozen));
  digest.add(static_cast<uint64_t>(options.trainable));
  digest.add(static_cast<uint64_t>(options.initial_values));
  return digest.value();
}

void agree_on_plan(comm::Communicator& dp, uint64_t hash) {
  const at::Tensor own = at::full({1}, static_cast<int64_t>(hash), at::kLong);
  const at::Tensor all = at::full({dp.size()}, static_cast<int64_t>(hash), at::kLong);
  dp.all_gather(all, own)->wait();
  const int64_t* hashes = all.const_data_ptr<int64_t>();
  std::string different;
  for (int rank = 1; rank < dp.size(); ++rank) {
    if (hashes[rank] != hashes[0]) different += detail::concat(different.empty() ? "" : ", ", rank);
  }
  APUS_CHECK(different.empty(), ConfigError, "the ranks do not plan the same collectives: rank ", different,
             " has other parameters (names, shapes, dtypes, requires_grad) or other engine options than rank "
             "0; start "
             "all ranks with the same model and flags");
}

}  // namespace apus::parallel
