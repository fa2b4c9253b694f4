#pragma once

#include <string>
#include <string_view>

namespace apus::comm {

/// Entry `node` of Slurm's compact list of tasks: "4(x2),1" is 4, 4, 1. The last entry stands for nodes
/// beyond it. Throws ConfigError, naming `variable`, if it is not such a list.
int slurm_tasks_on_node(std::string_view variable, const std::string& list, int node);

}  // namespace apus::comm
