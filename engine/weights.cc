#include "engine/weights.h"

#include <algorithm>
#include <mutex>
#include <span>
#include <utility>

namespace pagekv::inline v0::engine {
namespace {

constexpr std::int64_t kPackRows = 64;  // widened at once by one worker

}  // namespace

WeightLoader::WeightLoader(const TensorLookup& lookup, const LoadOptions& options,
                           std::int64_t total)
    : lookup_(lookup),
      options_(options),
      executor_(options.executor ? options.executor : make_serial_executor()),
      total_(total) {}

void WeightLoader::advance(std::int64_t weights) {
  done_ += weights;
  if (options_.progress) options_.progress(done_, total_);
}

Result<TensorView> WeightLoader::find(std::string_view name, std::int64_t columns,
                                      std::int64_t rows) {
  Result<TensorView> tensor = lookup_(name);
  if (!tensor) return tensor;
  if (tensor->columns() != columns || tensor->rows() != rows) {
    return fail(ErrorCode::corrupt_file,
                "tensor {s} has {0} rows of {1}; the model needs {2} of {3}",
                {tensor->rows(), tensor->columns(), rows, columns}, std::string(name));
  }
  return tensor;
}

Result<std::vector<float>> WeightLoader::vector(std::string_view name, std::int64_t size) {
  const Result<TensorView> tensor = find(name, size, 1);
  if (!tensor) return tl::unexpected<Error>(tensor.error());
  std::vector<float> values(static_cast<std::size_t>(size));
  if (Status status = widen(*tensor, 0, 1, values); !status) {
    return tl::unexpected<Error>(status.error());
  }
  advance(size);
  return values;
}

Status WeightLoader::pack(const TensorView& tensor, std::int64_t first_row, PackedMatrix& matrix) {
  const std::int64_t columns = tensor.columns();
  const std::int64_t items = (tensor.rows() + kPackRows - 1) / kPackRows;
  // Made here, so that no worker allocates.
  std::vector<std::vector<float>> scratch(
      static_cast<std::size_t>(executor_->threads()),
      std::vector<float>(static_cast<std::size_t>(kPackRows * columns)));
  std::mutex mutex;
  Status first_failure;
  executor_->parallel_for(items, [&](int worker, std::int64_t item) {
    const std::int64_t row = item * kPackRows;
    const std::int64_t rows = std::min(kPackRows, tensor.rows() - row);
    const std::span<float> values(scratch[static_cast<std::size_t>(worker)].data(),
                                  static_cast<std::size_t>(rows * columns));
    const Status status = widen(tensor, row, rows, values);
    if (!status) {
      const std::lock_guard lock(mutex);
      if (first_failure) first_failure = status;
      return;
    }
    matrix.pack_rows(first_row + row, rows, values.data());
  });
  return first_failure;
}

Result<PackedMatrix> WeightLoader::matrix(const std::vector<Part>& parts, std::int64_t columns) {
  std::vector<TensorView> tensors;
  std::int64_t rows = 0;
  bool any_f32 = false;
  for (const Part& part : parts) {
    Result<TensorView> tensor = find(part.name, columns, part.rows);
    if (!tensor) return tl::unexpected<Error>(tensor.error());
    rows += part.rows;
    any_f32 |= tensor->type == TensorType::f32;
    tensors.push_back(std::move(*tensor));
  }
  const DType dtype = options_.weights.value_or(any_f32 ? DType::f32 : DType::bf16);
  Result<PackedMatrix> matrix = PackedMatrix::make(rows, columns, dtype);
  if (!matrix) return matrix;
  std::int64_t first_row = 0;
  for (const TensorView& tensor : tensors) {
    if (Status status = pack(tensor, first_row, *matrix); !status) {
      return tl::unexpected<Error>(status.error());
    }
    first_row += tensor.rows();
    advance(tensor.rows() * columns);
  }
  return matrix;
}

}  // namespace pagekv::inline v0::engine
