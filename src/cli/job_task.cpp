#include "cli/job_task.h"

#include "apus/base/error.h"

namespace apus::cli {

data::DataTask data_task_of(const train::JobOptions& job) {
  APUS_CHECK(!job.dataset.empty(), ConfigError, "--dataset is missing: its columns say what is trained");
  const data::ColumnMap columns =
      job.columns.empty() ? data::ColumnMap() : data::ColumnMap::parse(job.columns);
  return data::find_data_task(job.dataset, columns);
}

std::string job_task_of(data::DataTask task) {
  switch (task) {
    case data::DataTask::kDpo:
      return "dpo";
    case data::DataTask::kPretrain:
      return "pt";
    case data::DataTask::kChat:
    case data::DataTask::kTokenRows:
      break;
  }
  return "sft";
}

std::string task_of_data(const train::JobOptions& job) {
  return job_task_of(data_task_of(job));
}

}  // namespace apus::cli
