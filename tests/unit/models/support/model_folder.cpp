#include "tests/unit/models/support/model_folder.h"

#include <cstdlib>
#include <system_error>

#include "apus/models/init_random.h"

namespace apus::testing {

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "apus-models-XXXXXX").string();
  if (!mkdtemp(name.data())) throw std::system_error(errno, std::generic_category(), name);
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

RandomModel::RandomModel(const models::Qwen2Config& config, at::ScalarType dtype)
    : config_json(models::qwen2_config_json(config, dtype)),
      model(std::make_unique<models::Qwen2>(config, dtype)) {
  models::init_random(*model, {.seed = 11});
  parameters = model->named_parameters();
}

}  // namespace apus::testing
