#pragma once

#include <string>

#include "apus/data/data_task.h"
#include "apus/train/job_options.h"

namespace apus::cli {

/// What the columns of a job's --dataset say, renamed as --columns says.
/// Throws:      ConfigError if there is no --dataset; else as data::find_data_task().
data::DataTask data_task_of(const train::JobOptions& job);

/// As a job's task: "dpo", "sft" (rows of tokens too) or "pt".
std::string job_task_of(data::DataTask task);

/// Both.
std::string task_of_data(const train::JobOptions& job);

}  // namespace apus::cli
