// Loading tensors into packed matrices: checked by name and shape, widened, packed by all threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/matmul.h"
#include "engine/model.h"
#include "engine/tensor.h"

namespace pagekv::inline v0::engine {

// Counts the weights that were loaded, for the progress callback. Belongs to one thread.
class WeightLoader {
 public:
  WeightLoader(const TensorLookup& lookup, const LoadOptions& options, std::int64_t total);

  // A tensor's values as f32. Errors: those of the lookup, corrupt_file (wrong shape, named).
  Result<std::vector<float>> vector(std::string_view name, std::int64_t size);

  // Several tensors with equal columns as the rows of one matrix, one tensor below the other.
  struct Part {
    std::string name;
    std::int64_t rows;
  };
  Result<PackedMatrix> matrix(const std::vector<Part>& parts, std::int64_t columns);

 private:
  Result<TensorView> find(std::string_view name, std::int64_t columns, std::int64_t rows);
  Status pack(const TensorView& tensor, std::int64_t first_row, PackedMatrix& matrix);
  void advance(std::int64_t weights);

  const TensorLookup& lookup_;
  const LoadOptions& options_;
  std::shared_ptr<Executor> executor_;
  std::int64_t total_ = 0;
  std::int64_t done_ = 0;
};

}  // namespace pagekv::inline v0::engine
