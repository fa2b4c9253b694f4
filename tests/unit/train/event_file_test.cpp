#include "apus/train/event_file.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "tests/support/scratch_folder.h"
#include "tests/unit/train/support/event_reader.h"

namespace apus::train {
namespace {

using Scalars = std::vector<std::pair<std::string, double>>;

constexpr std::chrono::seconds kNewYear2026{1767225600};

ManualClock clock_at_new_year() {
  return ManualClock(Clock::WallTime(kNewYear2026));
}

/// All events below RUN/runs, in the order in which TensorBoard reads them.
std::vector<ReadEvent> events_of(const std::filesystem::path& run) {
  std::set<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(run / "runs")) files.insert(entry.path());
  std::vector<ReadEvent> events;
  for (const auto& file : files)
    for (ReadEvent& event : read_events(read_file(file))) events.push_back(std::move(event));
  return events;
}

std::vector<int64_t> scalar_steps(const std::filesystem::path& run) {
  std::vector<int64_t> steps;
  for (const ReadEvent& event : events_of(run))
    if (!event.scalars.empty()) steps.push_back(event.step);
  return steps;
}

// The golden file was written by TensorBoard's own protobufs and record writer
// (docs/guide/check_tensorboard.py).
TEST(EventFile, WritesTheBytesThatTensorBoardWrites) {
  const ScratchFolder run;
  ManualClock clock = clock_at_new_year();
  EventFile file(run.path(), clock);
  clock.advance(std::chrono::seconds(1));
  file.add_scalars(1, {{"train/loss", 2.5},
                       {"train/learning_rate", 1e-4},
                       {"train/grad_norm", std::numeric_limits<double>::quiet_NaN()}});
  clock.advance(std::chrono::seconds(299));
  file.add_scalars(300, {{"eval/loss", -0.125}});
  clock.advance(std::chrono::seconds(4'999'999'700));
  file.add_scalars(5'000'000'000, {{"train/loss", 1e-9}});
  EXPECT_EQ(read_file(file.path()), read_file(APUS_SOURCE_DIR "/tests/data/events/golden.tfevents"));
}

TEST(EventFile, LiesUnderRunsWithATimeAndAProcess) {
  const ScratchFolder run;
  const ManualClock clock = clock_at_new_year();
  const EventFile file(run.path(), clock);
  EXPECT_EQ(file.path().parent_path(), run / "runs");
  EXPECT_TRUE(file.path().filename().string().starts_with("events.out.tfevents.1767225600."));
}

TEST(EventFile, IsOnDiskAfterEveryLine) {
  const ScratchFolder run;
  const ManualClock clock = clock_at_new_year();
  EventFile file(run.path(), clock);
  for (int64_t step = 1; step <= 3; ++step) {
    file.add_scalars(step, {{"train/loss", 1.0 / static_cast<double>(step)}});
    const auto events = read_events(read_file(file.path()));
    ASSERT_EQ(events.size(), static_cast<size_t>(step + 1));
    EXPECT_EQ(events.back().step, step);
    EXPECT_FLOAT_EQ(events.back().scalars.at("train/loss"), 1.0f / static_cast<float>(step));
  }
}

TEST(EventFile, WritesNothingForNoValues) {
  const ScratchFolder run;
  const ManualClock clock = clock_at_new_year();
  EventFile file(run.path(), clock);
  const std::string before = read_file(file.path());
  file.add_scalars(1, {});
  file.add_record({{"note", "no step"}});
  EXPECT_EQ(read_file(file.path()), before);
}

TEST(EventFile, ShowsNoStepTwiceAfterAResume) {
  const ScratchFolder run;
  const ManualClock clock = clock_at_new_year();
  {
    EventFile first(run.path(), clock);
    for (int64_t step = 1; step <= 7; ++step) first.add_scalars(step, {{"train/loss", 1.0}});
  }
  {
    EventFile second(run.path(), clock, {.resume_step = 4});
    second.add_scalars(5, {{"train/loss", 2.0}});
    second.add_scalars(6, {{"train/loss", 2.0}});
  }
  EventFile third(run.path(), clock, {.resume_step = 5});
  third.add_scalars(6, {{"train/loss", 3.0}});
  EXPECT_EQ(scalar_steps(run.path()), (std::vector<int64_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_FLOAT_EQ(events_of(run.path()).back().scalars.at("train/loss"), 3.0f);
}

// Readers that hold an earlier file open, as a running TensorBoard does, go by the mark.
TEST(EventFile, MarksWhereAResumedRunBegins) {
  const ScratchFolder run;
  const ManualClock clock = clock_at_new_year();
  const EventFile file(run.path(), clock, {.resume_step = 40});
  const auto events = read_events(read_file(file.path()));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_TRUE(events[1].is_restart);
  EXPECT_EQ(events[1].step, 41);
}

TEST(EventFile, ANewRunForgetsWhatLayThere) {
  const ScratchFolder run;
  const ManualClock clock = clock_at_new_year();
  EventFile(run.path(), clock).add_scalars(1, {{"train/loss", 1.0}});
  const EventFile file(run.path(), clock);
  EXPECT_EQ(scalar_steps(run.path()), std::vector<int64_t>{});
}

TEST(EventFile, CutsATornRecordOfAKilledRun) {
  const ScratchFolder run;
  const ManualClock clock = clock_at_new_year();
  std::filesystem::path torn;
  {
    EventFile first(run.path(), clock);
    first.add_scalars(1, {{"train/loss", 1.0}});
    first.add_scalars(2, {{"train/loss", 1.0}});
    torn = first.path();
  }
  std::filesystem::resize_file(torn, std::filesystem::file_size(torn) - 3);
  EventFile second(run.path(), clock, {.resume_step = 2});
  second.add_scalars(3, {{"train/loss", 1.0}});
  EXPECT_EQ(scalar_steps(run.path()), (std::vector<int64_t>{1, 3}));
}

TEST(EventFile, NamesAFolderThatCannotBeWritten) {
  const ScratchFolder run;
  run.put("runs", "a file is in the way");
  const ManualClock clock = clock_at_new_year();
  EXPECT_THROW(EventFile(run.path(), clock), FileError);
}

TEST(EventScalars, NamesTagsAsTransformersDoes) {
  const nlohmann::ordered_json record = {{"loss", 0.5},          {"rewards/margins", 1.5},
                                         {"elapsed_time", "3s"}, {"grad_norm", nullptr},
                                         {"memory(GiB)", 2},     {"global_step/max_steps", "12/300"}};
  const EventScalars scalars = event_scalars(record);
  EXPECT_EQ(scalars.step, 12);
  EXPECT_EQ(scalars.values,
            (Scalars{{"train/loss", 0.5}, {"train/rewards/margins", 1.5}, {"train/memory(GiB)", 2.0}}));
}

// The training line of the same step has the epoch already.
TEST(EventScalars, PutsEvaluationsUnderEval) {
  const EventScalars scalars = event_scalars(
      {{"eval_loss", 0.25}, {"eval_rewards/chosen", 1.0}, {"epoch", 0.5}, {"global_step/max_steps", "3/3"}});
  EXPECT_EQ(scalars.step, 3);
  EXPECT_EQ(scalars.values, (Scalars{{"eval/loss", 0.25}, {"eval/rewards/chosen", 1.0}}));
}

TEST(EventScalars, RefusesAStepThatIsNone) {
  EXPECT_THROW(event_scalars({{"loss", 1.0}, {"global_step/max_steps", "x/3"}}), DataError);
  EXPECT_THROW(event_scalars({{"loss", 1.0}, {"global_step/max_steps", "3"}}), DataError);
}

}  // namespace
}  // namespace apus::train
