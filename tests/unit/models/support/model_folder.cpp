#include "tests/unit/models/support/model_folder.h"

#include "apus/models/init_random.h"

namespace apus::testing {

RandomModel::RandomModel(const models::Qwen2Config& config, at::ScalarType dtype)
    : config_json(models::qwen2_config_json(config, dtype)),
      model(std::make_unique<models::Qwen2>(config, dtype)) {
  models::init_random(*model, {.seed = 11});
  parameters = model->named_parameters();
}

}  // namespace apus::testing
