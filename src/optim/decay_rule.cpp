#include "apus/optim/decay_rule.h"

namespace apus::optim {

bool takes_weight_decay(std::string_view name, int64_t dims) {
  const std::string_view last = name.substr(name.rfind('.') + 1);  // npos + 1 = 0: the whole name
  return dims >= 2 && last != "bias";
}

}  // namespace apus::optim
