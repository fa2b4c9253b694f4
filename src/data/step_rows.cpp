#include "data/step_rows.h"

#include <numeric>
#include <span>

#include "apus/data/dataset.h"

namespace apus::data {
namespace {

/// Workers stand at the border of two epochs, or of two steps.
constexpr size_t kRemembered = 2;

/// The value of `key`, made where it is missing; only the newest few stay.
template <typename Key, typename Value, typename Make>
std::shared_ptr<const Value> remembered(std::map<Key, std::shared_ptr<const Value>>& values, const Key& key,
                                        const Make& make) {
  auto& value = values[key];
  if (!value) value = std::make_shared<const Value>(make());
  auto result = value;
  if (values.size() > kRemembered) values.erase(values.begin());
  return result;
}

std::vector<int64_t> counting(int64_t first, int64_t count) {
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

}  // namespace

StepRows::StepRows(std::shared_ptr<const Dataset> dataset, Sampler sampler, StepPlan plan,
                   std::optional<CostModel> balance, DealGoal goal)
    : dataset_(std::move(dataset)),
      sampler_(std::move(sampler)),
      plan_(std::move(plan)),
      balance_(balance),
      goal_(goal) {}

StepRows::Epoch StepRows::make_epoch(int64_t number) const {
  Epoch epoch{.order = sampler_.order(number), .first_places = {0}};
  for (int64_t step = 0; step < plan_.steps_per_epoch(); ++step) {
    const OrderRange range = plan_.step_range(step);
    int64_t rows = epoch.first_places.back();
    for (int64_t i = 0; i < range.count; ++i)
      rows += dataset_->rows_in(epoch.order[static_cast<size_t>(range.first + i)]);
    epoch.first_places.push_back(rows);
  }
  return epoch;
}

std::shared_ptr<const StepRows::Epoch> StepRows::epoch(int64_t number) {
  const std::lock_guard lock(mutex_);
  return remembered(epochs_, number, [&] { return make_epoch(number); });
}

StepRows::Chunks StepRows::deal(StepPlace at, const Epoch& epoch) const {
  const OrderRange range = plan_.step_range(at.step);
  std::vector<double> costs;
  for (int64_t i = 0; i < range.count; ++i)
    costs.push_back(row_cost(*dataset_, epoch.order[static_cast<size_t>(range.first + i)], *balance_));
  return balance_step(
      costs,
      {.micro_batch_rows = plan_.options().micro_batch_rows, .world = plan_.options().world, .goal = goal_});
}

std::shared_ptr<const StepRows::Chunks> StepRows::chunks(StepPlace at, const Epoch& epoch) {
  const std::lock_guard lock(mutex_);
  return remembered(dealt_, at, [&] { return deal(at, epoch); });
}

int64_t StepRows::rows(StepPlace at) {
  const auto places = epoch(at.epoch);
  const auto step = static_cast<size_t>(at.step);
  return places->first_places.at(step + 1) - places->first_places.at(step);
}

MicroBatchRows StepRows::micro_batch(StepPlace at, int64_t micro_batch, int64_t rank) {
  const auto in_epoch = epoch(at.epoch);
  const OrderRange step = plan_.step_range(at.step);
  const OrderRange own = plan_.micro_batch_range(at.step, micro_batch, rank);
  const std::vector<int64_t> indexes =
      balance_ ? (*chunks(at, *in_epoch))[static_cast<size_t>(micro_batch * plan_.options().world + rank)]
               : counting(own.first - step.first, own.count);
  MicroBatchRows result;
  int64_t place = in_epoch->first_places[static_cast<size_t>(at.step)];
  int64_t index = 0;
  for (const int64_t wanted : indexes) {  // ascending
    const auto ordinal = [&](int64_t i) { return in_epoch->order[static_cast<size_t>(step.first + i)]; };
    for (; index < wanted; ++index) place += dataset_->rows_in(ordinal(index));
    result.ordinals.push_back(ordinal(wanted));
    const std::vector<int64_t> places = counting(place, dataset_->rows_in(ordinal(wanted)));
    result.places.insert(result.places.end(), places.begin(), places.end());
  }
  return result;
}

}  // namespace apus::data
