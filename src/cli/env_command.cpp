#include "cli/env_command.h"

#include "apus/cli/flag_values.h"
#include "cli/env_text.h"
#include "cli/output.h"
#include "cli/terminal.h"

namespace apus::cli {

FlagTable env_flags() {
  return FlagTable({});
}

int run_env(const Call& call) {
  parse_flags(call.flags(), env_flags());
  write_output(harmless(env_text(read_env_facts(call.environment))));
  return 0;
}

}  // namespace apus::cli
