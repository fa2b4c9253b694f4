#include "apus/data/rows.h"

#include <algorithm>
#include <utility>

#include "apus/base/error.h"

namespace apus::data {
namespace {

int64_t tokens_of(const DpoRow& row) {
  return row.chosen_length() + row.rejected_length();
}

int64_t tokens_of(const SftRow& row) {
  return row.length();
}

void check_row(const DpoRow& /*row*/, size_t /*index*/) {}

void check_row(const SftRow& row, size_t index) {
  APUS_CHECK(!row.input_ids.empty() && row.labels.size() == row.input_ids.size(), ShapeError, "row ", index,
             " has ", row.input_ids.size(), " ids and ", row.labels.size(),
             " labels, expected equally many and at least one");
  APUS_CHECK(row.weights.empty() || row.weights.size() == row.labels.size(), ShapeError, "row ", index, " has ",
             row.weights.size(), " weights for ", row.labels.size(), " labels");
}

template <typename Row>
class VectorTable final : public RowTable<Row> {
 public:
  explicit VectorTable(std::vector<Row> rows) : rows_(std::move(rows)) {
    for (size_t i = 0; i < rows_.size(); ++i) check_row(rows_[i], i);
  }
  int64_t size() const override { return static_cast<int64_t>(rows_.size()); }
  Row row(int64_t ordinal) const override { return at(ordinal); }
  int64_t tokens(int64_t ordinal) const override { return tokens_of(at(ordinal)); }
  RowPlace place(int64_t ordinal) const override { return at(ordinal).place; }

 private:
  const Row& at(int64_t ordinal) const {
    APUS_CHECK(ordinal >= 0 && ordinal < size(), ShapeError, "row ", ordinal, " is outside the dataset of ",
               size(), " rows");
    return rows_[static_cast<size_t>(ordinal)];
  }

  std::vector<Row> rows_;
};

}  // namespace

std::shared_ptr<const RowTable<DpoRow>> in_memory(std::vector<DpoRow> rows) {
  return std::make_shared<VectorTable<DpoRow>>(std::move(rows));
}

std::shared_ptr<const RowTable<SftRow>> in_memory(std::vector<SftRow> rows) {
  return std::make_shared<VectorTable<SftRow>>(std::move(rows));
}

int64_t DpoRow::chosen_length() const {
  return static_cast<int64_t>(prompt_ids.size() + chosen_ids.size()) - chosen_prompt_begin;
}

int64_t DpoRow::rejected_length() const {
  return static_cast<int64_t>(prompt_ids.size() + rejected_ids.size()) - rejected_prompt_begin;
}

int64_t SftRow::trained_tokens() const {
  if (labels.empty()) return 0;
  return std::count_if(labels.begin() + 1, labels.end(),
                       [](int32_t label) { return label != kIgnoredLabel; });
}

}  // namespace apus::data
