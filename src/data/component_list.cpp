#include "data/component_list.h"

#include "apus/base/error.h"

namespace apus::data {
namespace {

void flatten(const JsonView& view, const std::string& list_key, std::vector<JsonView>& out) {
  if (view.require<std::string>("type") != "Sequence") {
    out.push_back(view);
    return;
  }
  const auto list = view.value().find(list_key);
  if (list == view.value().end() || !list->is_array())
    throw DataError(view.source(), 0, view.path_of(list_key) + " is no array");
  for (size_t i = 0; i < list->size(); ++i)
    flatten(JsonView((*list)[i], view.source(), view.path_of(list_key) + "[" + std::to_string(i) + "]"),
            list_key, out);
}

}  // namespace

std::vector<JsonView> component_list(const TokenizerJson& file, const std::string& name,
                                     const std::string& list_key) {
  std::vector<JsonView> out;
  if (const auto view = JsonView(file.document, file.source).find_object(name)) flatten(*view, list_key, out);
  return out;
}

void refuse_component(const JsonView& view, std::string_view type, std::string_view known) {
  throw NotSupported(view.source() + ": " + view.path_of("type") + " '" + std::string(type) +
                     "' is not supported; supported are " + std::string(known));
}

}  // namespace apus::data
